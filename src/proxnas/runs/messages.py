"""Several processes as one: how they find each other, and the messages that they send.

A job is started by torchrun; each of its processes works within `take_part`. All figures go through
`exchange`. A process that is alone sends nothing, and does without torch.distributed.
"""

from __future__ import annotations

import io
import re
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta

import torch
from torch import Tensor

from proxnas.common.errors import InputError
from proxnas.common.launch import PeerLost, ProcessPlace, here, taking
from proxnas.common.types import State

PATIENCE = timedelta(minutes=20)
"""So long a process waits for the others; one that dies is noticed at once, a machine that vanishes
only then."""
UNREAD = 64
"""Notes that are kept if nobody asks."""


@dataclass
class Traffic:
    """What this process has handed over for exchange."""

    messages: int = 0
    bytes: int = 0


@dataclass
class Team:
    """What a process keeps while it works with others."""

    traffic: Traffic = field(default_factory=Traffic)
    wish: tuple[int | None, bool] = (None, False)
    """The signal that asked this process to stop, and whether it is time for a checkpoint."""
    notes: deque[Tensor] = field(default_factory=lambda: deque(maxlen=UNREAD))
    """Of each exchange of weights: the wishes and bits of all, on the device."""


_team: Team | None = None


@contextmanager
def take_part(place: ProcessPlace) -> Iterator[None]:
    """Within, this process works with the others of its job; alone it is as without."""
    if place.alone:
        yield
        return
    global _team
    from torch import distributed
    from torch._C._distributed_c10d import PrefixStore
    from torch.distributed.rendezvous import rendezvous

    backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
    try:
        store, rank, size = next(rendezvous("env://", timeout=PATIENCE))
        # torchrun can keep a store over a restart, and in it the addresses of processes that died
        store = PrefixStore(f"proxnas/{place.restarts}", store)
        distributed.init_process_group(
            backend, store=store, rank=rank, world_size=size, timeout=PATIENCE
        )
    except (RuntimeError, ValueError) as error:
        raise InputError(
            f"the {place.size} processes did not find each other ({_first_line(error)}): start them"
            " by torchrun, and check its --nnodes and --rdzv-endpoint"
        ) from error
    _team = Team()
    try:
        with taking(place, store):
            yield
    finally:
        _team = None
        distributed.destroy_process_group()


def team() -> Team:
    """What is kept while others take part."""
    assert _team is not None, "only within `take_part`"
    return _team


def exchange(buffer: Tensor) -> Tensor:
    """The sum of all processes' buffers, in place: the one way by which figures go from process to
    process."""
    from torch import distributed

    team().traffic.messages += 1
    team().traffic.bytes += buffer.numel() * buffer.element_size()
    with _wait_for_others():
        distributed.all_reduce(buffer)
    return buffer


@contextmanager
def _wait_for_others() -> Iterator[None]:
    """The others take part in what is done within, else PeerLost."""
    try:
        yield
    except RuntimeError as error:
        raise PeerLost(
            f"another process of this job died or does not answer ({_first_line(error)}): the last"
            " checkpoint is kept; start the same command again with --resume"
        ) from error


def _first_line(error: Exception) -> str:
    """What went wrong, without the places in torch's own source."""
    line = (str(error).strip().splitlines() or [type(error).__name__])[0]
    return re.sub(r"\[[^\]]*\.(cc|cpp|h):\d+\]\s*", "", line)[:120]


def where(tensor: Tensor, device: torch.device | None = None) -> torch.device:
    """Where it is exchanged: on CUDA devices, which have a network of their own, else in the host's
    memory."""
    wanted = tensor.device if device is None else device
    return wanted if wanted.type == "cuda" else torch.device("cpu")


def total(x: Tensor) -> Tensor:
    """The sum over all processes."""
    # a copy: exchange adds up in place
    return x if here().alone else exchange(x.detach().clone().to(where(x))).to(x.device)


def gather(x: Tensor) -> Tensor:
    """Of all processes one below the other: (processes, *shape); alone x itself."""
    if here().alone:
        return x
    # each fills its own row of zeros: the sum of all has every row
    rows = x.new_zeros(here().size, *x.shape)
    rows[here().rank] = x.detach()
    return total(rows)


def of_all_columns(hidden: Sequence[Tensor]) -> list[Tensor]:
    """A recurrent state for the columns (rows of these tensors) of all processes, which have
    equally many."""
    return [h if here().alone else gather(h).flatten(0, 1) for h in hidden]


def meet() -> None:
    """Wait until all are here."""
    total(torch.zeros(1))


def share(content: bytes | None) -> bytes | None:
    """What process 0 has, for all."""
    if here().alone:
        return content
    from torch import distributed

    mine = content if here().leads else b""
    # the others have length 0, so the sum is that of process 0; -1: it has nothing
    length = int(total(torch.tensor([-1 if mine is None else len(mine)])))
    if length < 0:
        return None
    data = torch.frombuffer(bytearray(mine or bytes(length)), dtype=torch.uint8)
    with _wait_for_others():
        distributed.broadcast(data, 0)
    return data.numpy().tobytes()


def shared_state(state: State | None) -> State | None:
    """The state that process 0 has. As with a checkpoint, nothing of it is ever run."""
    if here().alone:
        return state
    file = io.BytesIO()
    if state is not None:
        torch.save(state, file)
    content = share(None if state is None else file.getvalue())
    found: State | None = (
        None if content is None else torch.load(io.BytesIO(content), "cpu", weights_only=True)
    )
    return found
