"""One search: build it from its configuration, step, log, checkpoint, stop when converged."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from proxnas import methods
from proxnas.cells.genotype import Genotype
from proxnas.cells.table import validation
from proxnas.common.clock import Clock
from proxnas.common.cores import available
from proxnas.common.environment import pick_device, set_deterministic, set_threads
from proxnas.common.errors import OptionError
from proxnas.common.options import changed, flatten
from proxnas.common.seeds import stable_seed
from proxnas.common.types import Matrices, State
from proxnas.core.size.complexity import parameters
from proxnas.core.space import Space
from proxnas.domains import of_data, spaces
from proxnas.methods.base import Judged, Mixing, Preferring, Priced, Setup
from proxnas.methods.optimizers import WeightOptions
from proxnas.methods.options import MethodOptions, SamplesCells, TrainsPartly
from proxnas.runs.divergence import Guard
from proxnas.runs.fingerprint import Fingerprint
from proxnas.runs.folder import Run, write_atomically
from proxnas.runs.job import Hurried, Totals, check_finite
from proxnas.runs.metrics import Metrics, Row, Validation
from proxnas.searching import sizing
from proxnas.searching.muon_steps import MuonSteps
from proxnas.searching.options import SearchOptions
from proxnas.searching.start import start

if TYPE_CHECKING:
    from proxnas.domains.domain import Data


class Search:
    """A method over a supernet and two streams, with everything that a checkpoint must hold."""

    def __init__(
        self,
        config: SearchOptions,
        data: Data,
        space: Space[Any] | None = None,
        exact_clock: bool = False,
        judge: Callable[[Genotype], float] | None = None,
        adjust: Callable[[Setup[Any]], Setup[Any]] = lambda setup: setup,
    ) -> None:
        """`judge`: how good a cell is, from 0 to 1, for sampling methods; None: the table, or a
        short training. `adjust`: what no configuration can hold, such as an optimizer of the
        user's."""
        config = with_fixed_threads(config)
        self.config, self.data = config, data
        self.judge = _judge(config) if judge is None else judge
        self.device = _prepared_device(config)
        wiring = getattr(config, "wiring", "free")
        self.space: Space[Any] = space or spaces.wired_as(spaces.find(config.space), wiring)
        self.wiring: dict[str, Any] | None = None
        """What was found out before the search of how its nodes shall be wired."""
        # the task builds the network, whose weights come from torch's own random numbers
        torch.manual_seed(stable_seed(config.seed, "weights"))
        self.task = of_data(data).task(config, data, self.space, self.device)
        self.net, self.train, self.valid = self.task.net, self.task.train, self.task.valid
        self.evaluate = self.task.evaluate
        self.final_network = self.task.final_network
        self.clock = Clock(self.device, exact_clock)
        # one for both: the optimizer of w judges its steps, the loop asks for the verdicts
        self.guard = Guard()
        with self._random_numbers_kept():
            self.budget = sizing.budget(config, self.task, self.space)
        self.seconds: float | None = None
        self.setup = adjust(self._setup())
        self.method = methods.make(config.method, self.setup)
        self.totals = Totals(self.device)
        self.epochs_done = self.quiet_epochs = self.steps_done = 0
        self.hurried = False

    def _setup(self) -> Setup[MethodOptions]:
        c, own = self.config, self.config.method_options
        weights = WeightOptions(
            **flatten(c.weights),
            clip_unrolled=c.domain.weightless,  # as DARTS' recurrent search
            epochs=c.epochs,
            drift=isinstance(own, TrainsPartly) and own.unselected == "drift",
            guard=self.guard,
        )
        if getattr(c, "weight_optimizer", "sgd") == "muon":
            weights = weights.of(partial(MuonSteps, rate=c.learning_rate))
        seed = stable_seed(c.seed, "architecture")
        with self._random_numbers_kept():
            weighed = own.weighs_cost(self.budget is not None)
            costs = sizing.costs_of_R(c, self.task) if weighed else None
        setup: Setup[MethodOptions] = Setup(
            self.net, self.train, self.valid, own, weights, self.clock, self.evaluate, seed
        )
        setup = replace(
            setup, score=self.task.score, judge=self.judge, genotype=self.space.genotype
        )
        # only some methods have the option
        cell = getattr(own, "start", "")
        begin = start(cell, self.space) if cell else None
        return replace(setup, costs=costs, budget=self.budget, start=begin)

    @property
    def fingerprint(self) -> Fingerprint:
        """Of the data."""
        return self.data.fingerprint

    def _random_numbers_kept(self) -> AbstractContextManager[object]:
        """Sizes may be counted on networks that run: a limit must not change what is drawn in the
        search."""
        return torch.random.fork_rng([self.device] if self.device.type == "cuda" else [])

    def genotype(self) -> Genotype:
        """The cell as it stands, within the limit."""
        return self.space.genotype(self.returned())

    def returned(self) -> Matrices:
        """A_bar as it would be returned: methods that know of no limit are brought within it
        here."""
        A, A_bar = self.method.architecture()
        if self.budget is None:
            return A_bar
        # the projection adds entries up across rows, where logits mean nothing
        compared = self.method.preferences() if isinstance(self.method, Preferring) else A
        return self.budget.project(compared, A_bar)

    def validation(self) -> Validation:
        """How good the cell is that would be returned now: by the shared weights, whatever mixture
        trained them, or by its own where each cell is trained by itself."""
        returned = self.returned()
        if not isinstance(self.method, Judged):
            return self.measure(returned)
        if returned is self.method.architecture()[1]:
            return self.method.validation()
        with self._random_numbers_kept():
            return self.method.judge(returned)

    def measure(self, A_bar: Matrices) -> Validation:
        """How good a cell is by the weights as they stand; its entries are factors only with the
        value rule a_k."""
        self.net.use(A_bar, weighted=any(((a != 0) & (a != 1)).any() for a in A_bar.values()))
        return self.evaluate()

    def supernet(self) -> Validation | None:
        """How good the mixture is that the method trains; None: it trains cells."""
        if not isinstance(self.method, Mixing):
            return None
        self.method.use_mixture()
        return self.evaluate()

    def figures(self) -> dict[str, float]:
        """What a row says of the part for A: of the cell and, where it is another network, of what
        is trained."""
        supernet = self.supernet()
        of_supernet = self.task.figures("supernet", supernet) if supernet else {}
        return self.task.figures("valid", self.validation()) | of_supernet

    def describe_space(self) -> dict[str, Any]:
        """What the rows and columns of A stand for, for those who read the run folder."""
        groups = {
            name: {
                "candidates": list(group.candidates),
                "nodes": [list(rows) for rows in group.nodes],
            }
            for name, group in self.net.groups.items()
        }
        return {"space": self.config.space, "groups": groups}

    def __len__(self) -> int:
        """Batches of the half for w; with a judge an equal part of the evaluations."""
        if self.judge is None:
            return len(self.train)
        own, epochs, n = self.config.method_options, self.config.epochs, self.epochs_done
        assert isinstance(own, SamplesCells), "others are not judged"
        # rounded so that the parts of all epochs add up to the evaluations
        return (n + 1) * own.evaluations // epochs - n * own.evaluations // epochs

    def done(self) -> bool:
        return self.epochs_done >= self.config.epochs or self.converged

    @property
    def converged(self) -> bool:
        return 0 < self.config.course.patience <= self.quiet_epochs

    def step(self) -> Metrics:
        return self.method.step()

    def choose_now(self) -> None:
        """There was no time for the last step: what would be decided then is decided now."""
        self.hurried = True
        if isinstance(self.method, Hurried):
            self.method.choose_now()

    def row(self, start: float) -> Row:
        train = Validation(*self.totals.means())
        # while A is not moved yet its rest says nothing
        quiet = not self.totals.changes and self.epochs_done >= self.config.warmup_epochs()
        self.quiet_epochs = self.quiet_epochs + 1 if quiet else 0
        with self.clock("evaluate"):
            # before the figures, which are of the cell that is returned, and only at the end
            if self.budget and (
                self.hurried or self.epochs_done + 1 >= self.config.epochs or self.converged
            ):
                self.seconds = sizing.settle(self.budget, self.task, self.genotype)
            figures = self.figures()
        check_finite(train.loss + figures["valid_loss"])
        self.steps_done += self.totals.steps
        seconds = self.clock.take_since(start, "arch", "forward", "backward", "evaluate")
        (A, _), A_bar = self.method.architecture(), self.returned()
        genotype = self.space.genotype(A_bar)
        return Row(
            epoch=self.epochs_done + 1,
            step=self.steps_done,
            figures=self.task.figures("train", train) | figures,
            seconds=seconds,
            changes=self.totals.changes,
            params=parameters(self.final_network(genotype)),
            eta=self.method.eta if self.budget and isinstance(self.method, Priced) else None,
            A={name: matrix.tolist() for name, matrix in A.items()},
            selected={name: matrix.nonzero().tolist() for name, matrix in A_bar.items()},
            genotype=json.loads(genotype.to_json()),
        )

    def write(self, run: Run) -> None:
        write_atomically(run / "genotype.json", self.genotype().to_json())

    def state_dict(self) -> State:
        return {
            "weights": self.net.module.state_dict(),
            "method": self.method.state_dict(),
            "budget": self.budget.state_dict() if self.budget else None,
            "seconds": self.seconds,
            "train": self.train.state_dict(),
            "valid": self.valid.state_dict(),
            "totals": self.totals.state_dict(),
            "epochs_done": self.epochs_done,
            "quiet_epochs": self.quiet_epochs,
            "steps_done": self.steps_done,
            "random": torch.get_rng_state(),
        }

    def load_state_dict(self, state: State) -> None:
        self.net.module.load_state_dict(state["weights"])
        # before the method, which may bring the cells that it takes up within the limit
        if self.budget:
            self.budget.load_state_dict(state["budget"])
        self.seconds = state["seconds"]
        self.method.load_state_dict(state["method"])
        self.train.load_state_dict(state["train"])
        self.valid.load_state_dict(state["valid"])
        self.totals.load_state_dict(state["totals"])
        self.epochs_done, self.quiet_epochs = state["epochs_done"], state["quiet_epochs"]
        self.steps_done = state["steps_done"]
        torch.set_rng_state(state["random"])


def with_fixed_threads(config: SearchOptions) -> SearchOptions:
    """With a number of threads that stays, if seconds count: those of one number say nothing about
    another."""
    if not config.timed or config.threads != "auto":
        return config
    return changed(config, threads=available())


def _prepared_device(config: SearchOptions) -> torch.device:
    """The device that is asked for, with torch told of threads and of determinism."""
    device = pick_device(config.device)
    set_threads(config.threads)
    set_deterministic(config.deterministic)
    return device


def _judge(config: SearchOptions) -> Callable[[Genotype], float] | None:
    """The table's validation column, if the table is to evaluate."""
    own, epochs = config.method_options, config.course.epochs
    if not isinstance(own, SamplesCells) or own.evaluate == "train":
        return None
    if own.evaluations < epochs:
        advice = f"fewer than {{epochs}} {epochs}: give at least one an epoch"
        raise OptionError("evaluations", own.evaluations, advice)
    return validation(Path(config.table))
