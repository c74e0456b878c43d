"""Variants of NASP that are rows of the quality study only: none of them found better cells, so
none became an option; and controls.

    python benchmarks/variants.py NAME search DATA ...

A proxnas command in which NASP is changed as NAME says, by replacing functions in its process.
With NAME `processor time` nothing is changed but the clock: minutes are those of the processor, so
that searches have equal time on a busy machine too, if they run in one thread.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from proxnas.cli import main as cli
from proxnas.common.types import Batch, Matrices
from proxnas.core import choice, scoring
from proxnas.core.size.complexity import parameters
from proxnas.core.supernet import Supernet
from proxnas.domains.images import operations as ops
from proxnas.methods import assembly, proximal
from proxnas.methods.base import Setup, random_cell
from proxnas.methods.optimizers import WeightOptimizer

Draw = Callable[[Supernet, int], Matrices]
"""Network, step -> a path."""


def without_none() -> None:
    """The space of the four other operations."""
    del ops.NASBENCH201["none"]


def annealed_pace() -> None:
    """Training promises less as the learning rate of the search falls, and next to nothing in the
    end."""
    WeightOptimizer.pace = lambda self, steps: (
        steps * self.learning_rate / (1 - self.options.momentum)
    )


def relative_scores() -> None:
    """Each row's scores less that of its selected entry, which is about 0 where all that follows
    normalises."""
    plain_run, plain = proximal.Proximal._run, proximal.Proximal._loss_gradient

    def run(self: proximal.Proximal, A_bar: Matrices) -> Matrices:
        self.running = plain_run(self, A_bar)
        return self.running

    def relative(self: proximal.Proximal, batch: Batch, weights: Sequence[Tensor]) -> Any:
        dA, dw = plain(self, batch, weights)
        path = self.running
        return {name: g - (g * path[name]).sum(1, keepdim=True) for name, g in dA.items()}, dw

    proximal.Proximal._run = run
    proximal.Proximal._loss_gradient = relative


def normalised_scores() -> None:
    """Scores of outputs that are brought to a mean square of 1, as a batch norm does with
    convolutions."""
    plain = scoring.inner

    def normalised(g: Tensor, output: Tensor) -> Tensor:
        return plain(g, output) / output.float().square().mean().sqrt().clamp(min=1e-6)

    choice._costly = lambda choices, sources, terms: None  # no score can be had by subtraction
    scoring.inner = normalised


def off_the_path(draw: Draw, share: Callable[[float], float]) -> None:
    """Some steps of w, a share that depends on the progress, go through another path than that of
    A."""
    plain = proximal.weight_step

    def step(
        net: Supernet, batch: Batch, optimizer: WeightOptimizer, *rest: Any
    ) -> tuple[Tensor, Tensor]:
        luck = torch.rand(1, generator=torch.Generator().manual_seed(optimizer.t)).item()
        if luck < share(optimizer.progress):
            net.use(draw(net, optimizer.t))
        return plain(net, batch, optimizer, *rest)

    proximal.weight_step = step


def uniform(net: Supernet, t: int) -> Matrices:
    """Every candidate with equal chance."""
    return random_cell(net, torch.Generator().manual_seed(t), None)


def in_turn(net: Supernet, t: int) -> Matrices:
    """On each edge another candidate, the next one in every step."""
    paths = {
        name: torch.zeros(group.shape, dtype=torch.float64) for name, group in net.groups.items()
    }
    for A_bar in paths.values():
        E, K = A_bar.shape
        A_bar[range(E), [(t + e) % K for e in range(E)]] = 1.0
    return paths


def from_the_largest() -> None:
    """No search: A is the size of each candidate, and stays so. With --refine a control of what the
    refinement makes of the largest cell."""
    plain = assembly.draw

    def draw(setup: Setup) -> assembly.Drawn:
        drawn = plain(setup)
        sizes = {name: torch.zeros_like(A) for name, A in drawn.A.items()}
        for place in setup.net.choices.values():
            counts = [float(parameters(candidate)) for candidate in place.candidates]
            sizes[place.row.group][place.row.edge] += torch.tensor(counts)
        most = max(float(size.max()) for size in sizes.values())
        # ties go by the seed
        A = {name: 0.9 * size / most + 0.01 * drawn.lots[name] for name, size in sizes.items()}
        return drawn._replace(A=A)

    assembly.draw = draw
    proximal.Proximal.descend = lambda self, dA: self.A


VARIANTS: dict[str, Callable[[], None]] = {
    "without none": without_none,
    "annealed pace": annealed_pace,
    "relative scores": relative_scores,
    "normalised scores": normalised_scores,
    "30% uniform": lambda: off_the_path(uniform, lambda progress: 0.3),
    "uniform falling from 50%": lambda: off_the_path(
        uniform, lambda progress: 0.5 * (1 - progress)
    ),
    "uniform warmup": lambda: off_the_path(uniform, lambda progress: float(progress < 0.25)),
    "30% in turn": lambda: off_the_path(in_turn, lambda progress: 0.3),
    "from the largest": from_the_largest,
}


PROCESSOR_TIME = "processor time"


def by_processor_time() -> None:
    """All clocks of the process tell the time that it has had."""
    time.monotonic = time.perf_counter = time.process_time


def main(names: str, command: list[str]) -> int:
    """A proxnas command under a variant, or several: NAME+NAME."""
    for name in names.split("+"):
        (VARIANTS | {PROCESSOR_TIME: by_processor_time})[name]()
    return cli.main(command)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
