"""Searching a module of the user's own, on data and by a loss of their own."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase
from torch.utils.flop_counter import FlopCounterMode

from proxnas.cells.genotype import Genotype
from proxnas.common.clock import Clock
from proxnas.common.errors import InputError
from proxnas.common.types import Batch, Inputs, Matrices
from proxnas.core.check import check_candidates, check_parameters
from proxnas.core.size import costs
from proxnas.core.size.latency import warm_runs
from proxnas.core.size.materialised import materialised
from proxnas.core.size.nesting import check_holders, own_parameters
from proxnas.core.size.stopwatch import Stopwatch, Torch
from proxnas.core.supernet import Supernet
from proxnas.domains.modules.batches import UserStream, fingerprint_of, passes, target_of
from proxnas.domains.modules.objective import (
    Criterion,
    CustomObjective,
    Metric,
    accuracy,
    classification,
    name_of,
)
from proxnas.domains.modules.space import CustomSpace, skeleton
from proxnas.runs.fingerprint import Fingerprint
from proxnas.runs.folder import Run
from proxnas.runs.job import PRECISIONS
from proxnas.runs.metrics import Validation

RECALIBRATION = 32
"""Training batches that the statistics of batch norm are measured on."""


@dataclass(frozen=True, eq=False)
class CustomData:
    """What `proxnas.search` is given."""

    train: Any
    valid: Any
    loss: Criterion | None = None
    metric: Metric | None = None
    name: str = "data"
    warnings: tuple[str, ...] = ()

    @cached_property
    def fingerprint(self) -> Fingerprint:
        """Of those parts that are tensors; what other data give is known to their owner alone."""
        given = {"train data": self.train, "valid data": self.valid}
        found = {name: fingerprint_of(data) for name, data in given.items()}
        return {name: digest for name, digest in found.items() if digest is not None}


class ModuleSearch(Protocol):
    """What a search in a module is told, as far as its data go."""

    batch_size: int
    precision: str
    seed: int


class CustomTask:
    """A module with Choices, judged by a loss on data in two parts."""

    def __init__(
        self, config: ModuleSearch, data: CustomData, space: CustomSpace, device: torch.device
    ) -> None:
        self.config, self.space, self.device = config, space, device
        metric = data.metric or (accuracy if data.loss is None else None)
        self.metric_name = name_of(metric) if metric else ""
        # of the user's own, and in place: its weights are those that are trained
        module = space.module.to(device).train()
        self.objective = CustomObjective(data.loss or classification, metric)
        self.net = Supernet(
            module, space.groups, precision=PRECISIONS[config.precision], objective=self.objective
        )
        self.train, self.valid = (
            UserStream(
                passes(part, config.batch_size, config.seed, name), config.seed, name, device
            )
            for part, name in ((data.train, "train"), (data.valid, "valid"))
        )
        check_parameters(module)
        # a real batch, for whatever must be measured: nobody else knows what the module reads
        self.example = next(self.valid.whole())
        check_candidates(self.net, self.example)

    @torch.no_grad()
    def evaluate(self, batches: int | None = None) -> Validation:
        """The network in use on all of `valid`: no dropout, batch norm by the batch, as statistics
        would be stale.

        Always on everything: the first batches of a user's own order may all be of one kind.
        """
        sums, examples = torch.zeros(2, device=self.device), 0
        with by_the_batch(self.net.module):
            for batch in self.valid.whole():
                loss, right = self.net.objective.measure(*self.net.loss(batch), batch)
                sums += torch.stack([loss.to(sums.dtype) * len(batch.y), right])
                examples += len(batch.y)
        return Validation(*(sums / examples).tolist())

    def final_network(self, genotype: Genotype) -> nn.Module:
        return skeleton(self.space.module, genotype)

    def bare_network(self, genotype: Genotype) -> nn.Module:
        return self.space.network(genotype)

    def loss(self, network: nn.Module, batch: Batch, of_weights: bool = True) -> Tensor:
        network.requires_grad_(of_weights)
        return self.objective.criterion(run(network, batch), target_of(batch))

    @torch.no_grad()
    def multiply_adds(self, network: nn.Module) -> int:
        """Of one example, counted on real ones: a module of the user's may look at values, which
        meta tensors lack."""
        with by_the_batch(network), FlopCounterMode(display=False) as counter:
            run(network, self.example)
        # torch counts a multiplication and an addition as two
        return int(counter.get_total_flops()) // 2 // len(self.example.y)

    @torch.inference_mode()
    def seconds(self, network: nn.Module) -> float:
        real = materialised(network, self.device).eval()
        return statistics.median(
            warm_runs(lambda: run(real, self.example), Clock(self.device, exact=True))
        )

    def total_seconds(self, A_bar: Matrices) -> float:
        return self.seconds(self.final_network(self.space.genotype(A_bar)))

    def entries(self, of: str) -> Matrices:
        if of == "params":
            return own_parameters(self.net.module, self.net.groups)
        for name, group in self.net.groups.items():
            if group.inside:
                where = f"Choice {name!r} stands inside a candidate of {group.inside.group!r}"
                raise InputError(f"{where}: there only parameters can be limited: give max_params")
        check_holders(self.net.module)
        return costs.entries(self.net, self.example.x, of, Stopwatch(Torch(self.device)).added)

    def candidate_costs(self, of: str) -> dict[str, Tensor]:
        return costs.candidate_costs(
            self.net, self.example.x, of, Stopwatch(Torch(self.device)).added
        )

    def score(self, measured: Validation) -> float:
        """By the loss: of a metric of the user's nobody knows whether more is better."""
        return -measured.loss

    def figures(self, part: str, measured: Validation) -> dict[str, float]:
        metric = {f"{part}_{self.metric_name}": measured.figure} if self.metric_name else {}
        return {f"{part}_loss": measured.loss} | metric

    def keep(self, run: Run) -> None:
        """Nothing: the data are the user's."""

    def describe(self) -> dict[str, Any]:
        return {
            "choices": {name: list(group.candidates) for name, group in self.net.groups.items()}
        }

    @torch.no_grad()
    def recalibrate(self, network: nn.Module) -> None:
        """Running statistics as they are in this network, on a few training batches; in the search
        candidates and whatever follows them have seen each other's."""
        norms = [
            part
            for part in network.modules()
            if isinstance(part, _NormBase) and part.running_mean is not None
        ]
        # nothing to measure: no batch is run
        if not norms:
            return
        momenta = [norm.momentum for norm in norms]
        network.eval()
        for norm in norms:
            norm.train().reset_running_stats()
            norm.momentum = None  # the plain mean of all batches
        for batch in self.train.first(RECALIBRATION):
            run(network, batch)
        for norm, momentum in zip(norms, momenta, strict=True):
            norm.momentum = momentum


def run(network: nn.Module, batch: Batch) -> Any:
    """The network's output on a batch."""
    x: Any = batch.x
    return network(*x.args, **x.kwargs) if isinstance(x, Inputs) else network(x)


@contextmanager
def by_the_batch(module: nn.Module) -> Iterator[None]:
    """Evaluation mode, but batch norm by the statistics of the batch, and leaving its own as they
    are."""
    modes = {part: part.training for part in module.modules()}
    norms = [
        part for part in modes if isinstance(part, _NormBase) and part.running_mean is not None
    ]
    momenta = [norm.momentum for norm in norms]
    try:
        module.eval()
        for norm in norms:
            norm.train()
            # running statistics stay as they are: (1 - 0) * old + 0 * new
            norm.momentum = 0.0
        yield
    finally:
        for part, training in modes.items():
            part.training = training
        for norm, momentum in zip(norms, momenta, strict=True):
            norm.momentum = momentum
