"""What several tests do with searches: steps, comparing states, and gradients by plain autograd."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from proxnas.common.clock import Clock
from proxnas.common.types import Batch, Matrices, State
from proxnas.core.choice import Choice
from proxnas.core.groups import Row
from proxnas.core.space import Space
from proxnas.core.supernet import Supernet
from proxnas.domains.images.networks.cnn import Size, channels_last
from proxnas.methods.base import Setup
from proxnas.methods.optimizers import WeightOptions
from proxnas.methods.options import MethodOptions
from proxnas.runs.metrics import Validation
from proxnas.searching.job import Search

SIZE = Size(cells=3, channels=2, image_channels=3, classes=3)


def steps(search: Search, number: int) -> list[float]:
    return [float(search.method.step().loss) for _ in range(number)]


def same(a: Any, b: Any) -> bool:
    """Bit for bit, through dicts and lists."""
    if isinstance(a, Tensor):
        return torch.equal(a, b)
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[key], b[key]) for key in a)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    return bool(a == b)


def stored(state: State) -> State:
    """The state as a checkpoint brings it back."""
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    loaded: State = torch.load(file, weights_only=True)
    return loaded


def spy_on_paths(net: Supernet) -> list[Matrices]:
    """Every architecture that the network is told to run from now on."""
    paths: list[Matrices] = []
    plain = net.use

    def spied(A_bar: Matrices, weighted: bool = False) -> None:
        paths.append({name: a.clone() for name, a in A_bar.items()})
        plain(A_bar, weighted)

    net.use = spied  # type: ignore[method-assign]
    return paths


def active_rows(A_bar: Matrices) -> dict[Row, tuple[int, ...]]:
    rows = (
        (Row(name, e), row)
        for name, matrix in A_bar.items()
        for e, row in enumerate(matrix.tolist())
    )
    return {row: tuple(k for k, a in enumerate(values) if a) for row, values in rows}


def supernet(space: Space) -> Supernet:
    size = Size(1, 2, 3, 3) if space.name in ("nasbench201", "mobile") else SIZE
    return Supernet(channels_last(space.search_network(size)), space.groups)


def mixture_gradient(
    net: Supernet, A_bar: Matrices, batch: Batch, forward: Callable[..., Tensor]
) -> Matrices:
    """dF/dA at A_bar by autograd through all candidates."""
    A = {name: a.clone().requires_grad_() for name, a in A_bar.items()}
    loss = net.criterion(forward(A, batch.x), batch.y)
    gradients = torch.autograd.grad(loss, list(A.values()), allow_unused=True)
    return {
        n: torch.zeros_like(a) if g is None else g
        for (n, a), g in zip(A.items(), gradients, strict=True)
    }


# ------------------------------------------------ the smallest search there is


class Repeat:
    """A stream of one batch."""

    def __init__(self, batch: Batch) -> None:
        self.batch = batch

    def next(self) -> Batch:
        return self.batch

    def __len__(self) -> int:
        return 10

    def state_dict(self) -> State:
        return {}

    def load_state_dict(self, state: State) -> None:
        pass


def linear(net: Supernet, train: Batch, valid: Batch, options: MethodOptions) -> Setup[Any]:
    """A search of one choice, each step of which sees the same batch."""
    weights = WeightOptions(learning_rate=0.3, momentum=0.9, weight_decay=0.05, epochs=10)
    clock = Clock(torch.device("cpu"))
    return Setup(
        net,
        Repeat(train),
        Repeat(valid),
        options,
        weights,
        clock,
        evaluate=lambda: Validation(0.0, 0.0),
        seed=1,
    )


def quadratic(options: MethodOptions) -> Setup[Any]:
    """Three linear candidates and a squared loss: quadratic in w, so that central differences are
    exact."""
    choice = Choice({name: nn.Linear(4, 2, bias=False) for name in "abc"}, share="c")
    train, valid = (Batch(torch.randn(6, 4), torch.randn(6, 2)) for _ in range(2))
    return linear(Supernet(choice, criterion=nn.functional.mse_loss), train, valid, options)


def classified(options: MethodOptions) -> Setup[Any]:
    """Three linear candidates that tell three classes apart."""
    choice = Choice({name: nn.Linear(4, 3, bias=False) for name in "abc"}, share="c")
    train, valid = (Batch(torch.randn(6, 4), torch.arange(6) % 3) for _ in range(2))
    return linear(Supernet(choice), train, valid, options)


def linear_outputs(setup: Setup, x: Tensor) -> list[Tensor]:
    """What the three candidates give."""
    return [x @ candidate.weight.T for candidate in setup.net.choices[""].candidates]


def as_double(batch: Batch) -> Batch:
    """The batch in float64."""
    assert isinstance(batch.x, Tensor)
    return batch._replace(x=batch.x.double())
