"""What runs a module when it is timed: torch on the device of the search, or ONNX Runtime on the
host, by which networks are deployed. The one place that chooses between the two.

The graph that is timed comes from torch's older exporter, as model.onnx does: it takes a hundredth
of the time of the newer one, and ONNX Runtime fuses both to the same.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from proxnas.common.clock import Clock
from proxnas.common.errors import OptionError
from proxnas.common.onnx_runtime import onnx_available, onnx_session, traced_onnx
from proxnas.core.choice import Source
from proxnas.core.size.latency import warm_runs
from proxnas.core.size.materialised import alike, materialised

Run = Callable[[], object]
HOST = torch.device("cpu")
RUNS, LIMIT = 1000, 0.03
"""Runs of a measurement, and its seconds."""
ROUNDS = 5
"""Times that everything is measured, one after the other, so that what slows the machine for a
while does not rule all measurements of one operation."""
Time = Callable[[Run], Sequence[float]]
Shapes = tuple[torch.Size, ...]
Key = tuple[int, Shapes]


class Measured(NamedTuple):
    """A module, which is kept so that no other takes its place, and its best seconds so far."""

    module: nn.Module
    run: Run
    seconds: float


class Runtime(Protocol):
    """What runs a module."""

    @property
    def by(self) -> str:
        """torch or onnx."""

    @property
    def version(self) -> str:
        """Its name with its version: seconds of another say nothing."""

    @property
    def device(self) -> torch.device:
        """Where."""

    def prepare(self, module: nn.Module, source: Source) -> Run:
        """A run of it on an input of that shape."""


@dataclass(frozen=True)
class Torch:
    """Modules as torch runs them on a device."""

    device: torch.device
    by: str = "torch"

    @property
    def version(self) -> str:
        return f"torch {torch.__version__}"

    def prepare(self, module: nn.Module, source: Source) -> Run:
        real = materialised(module, self.device).eval()
        args, kwargs = _inputs(source, self.device)

        @torch.inference_mode()
        def run() -> object:
            return real(*args, **kwargs)

        return run


@dataclass(frozen=True)
class Onnx:
    """The same as ONNX Runtime runs them on the host."""

    by: str = "onnx"
    device: torch.device = HOST

    @property
    def version(self) -> str:
        return f"onnxruntime {version('onnxruntime')}"

    def prepare(self, module: nn.Module, source: Source) -> Run:
        real = materialised(module, HOST).eval()
        args, kwargs = _inputs(source, HOST)
        args = tuple(x.contiguous() if isinstance(x, Tensor) else x for x in args)
        # channels_last is torch's own matter: ONNX reads its inputs in the plain order
        names = [f"x{i}" for i in range(len(args))]
        session = onnx_session(traced_onnx(real, args, names, kwargs=kwargs))
        values = {name: x.numpy() for name, x in zip(names, args, strict=True)}
        return lambda: session.run(None, values)


class Stopwatch:
    """Seconds of modules by a runtime. What is asked for again is measured again, and the best of
    all measurements counts: whatever else the machine does makes some slower, and none quicker."""

    def __init__(self, runtime: Runtime, time: Time | None = None) -> None:
        """`time`: seconds of some runs; by the clock."""
        # exact: kernels of an accelerator run behind the host's back
        clock = Clock(runtime.device, exact=True)
        self.runtime = runtime
        self.time: Time = time or (lambda run: warm_runs(run, clock, RUNS, LIMIT))
        self.known: dict[Key, Measured] = {}
        self.nothing: dict[Shapes, nn.Module] = {}

    def seconds(self, module: nn.Module, source: Source) -> float:
        """Of a whole network for that input: the quartile of the quicker runs, at its best."""
        key = id(module), _shapes(source)
        if key not in self.known:
            prepared = self.runtime.prepare(module, source)
            self.known[key] = Measured(module, prepared, math.inf)
        found = self.known[key]
        runs = sorted(self.time(found.run))
        self.known[key] = found._replace(seconds=min(found.seconds, runs[len(runs) // 4]))
        return self.known[key].seconds

    def added(self, module: nn.Module, source: Source) -> float:
        """What an operation adds to a network: its seconds without those of a call, which a
        network makes once."""
        # kept, one a shape: `known` goes by the id of a module
        empty = self.nothing.setdefault(_shapes(source), nn.Identity())
        # an Identity takes one argument: with several there is nothing to compare with
        several = len(source.args) != 1 or source.kwargs
        call = 0.0 if several else self.seconds(empty, source)
        return max(0.0, self.seconds(module, source) - call)


def choose(by: str, device: torch.device) -> Runtime:
    """onnx or torch as asked; auto: what is deployed, ONNX Runtime, if it is installed and the
    search is on the host, where it runs."""
    if by == "auto":
        by = "onnx" if onnx_available() and device.type == "cpu" else "torch"
    if by == "torch":
        return Torch(device)
    if not onnx_available():
        advice = "needs more packages: pip install 'proxnas[onnx]', or give torch"
        raise OptionError("latency_by", by, advice)
    return Onnx()


def _inputs(source: Source, device: torch.device) -> tuple[tuple[Any, ...], dict[str, Any]]:
    found: tuple[tuple[Any, ...], dict[str, Any]] = tree_map(
        partial(alike, device=device), (source.args, dict(source.kwargs))
    )
    return found


def _shapes(source: Source) -> Shapes:
    given = (*source.args, *source.kwargs.values())
    return tuple(x.shape for x in given if isinstance(x, Tensor))
