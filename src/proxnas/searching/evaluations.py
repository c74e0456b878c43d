"""A search whose cells are evaluated by several workers at once, here or on a cluster.

The strategy is asked for a cell whenever there is room for one more; RUN/evaluations/NUMBER is the
run of its evaluation (evaluation.py). The checkpoint is written after a cell was asked for and
before its worker begins, with all cells that are under way: whenever the search is killed, it knows
them, and those that have ended meanwhile have their result in their folder, which is never run
again.

All but evolution are told in the order in which they asked, so what they find does not depend on
how many workers there are. Evolution is told at once: which parents a child can have depends on who
was quicker.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from rich.console import Console

from proxnas.common.environment import describe, in_turn
from proxnas.common.errors import AboutOptions, escape
from proxnas.common.files import make_folder
from proxnas.common.metrics_row import MetricsRow
from proxnas.common.stored import EVALUATION
from proxnas.common.types import State
from proxnas.methods.cells import Cell, stored
from proxnas.methods.sampling import Sampling
from proxnas.runs.deadline import Deadline
from proxnas.runs.executors.choice import make_executor
from proxnas.runs.executors.progress import show_board
from proxnas.runs.executors.tasks import Outcome, RunTask, check_done
from proxnas.runs.folder import CELL, EVALUATIONS, Run, write_atomically
from proxnas.runs.job import Totals
from proxnas.runs.loggers import Progress
from proxnas.runs.metrics import Metrics, Validation
from proxnas.searching.job import Search


def run_evaluations(
    this: Search, run: Run, progress: Progress, deadline: Deadline
) -> list[MetricsRow]:
    """In place of `run_epochs`: runs the search to its end, from where its folder stands; returns
    its rows.

    When the deadline is over no more cells are begun; those under way are waited for.
    """
    assert isinstance(this.method, Sampling)
    cells = Evaluations(this, run, this.method, progress, deadline)
    cells.begin()
    deadline.take_up(run.metrics())
    run.write_json("environment.json", describe(this.device))
    config, all_of_them = this.config, this.config.evaluations
    executor = make_executor(
        config.workers_options, config.threads, in_turn(config.device, config.workers)
    )
    with show_board(
        Console(highlight=False),
        f"{all_of_them} evaluations",
        all_of_them,
        config.quiet,
        cells.told,
    ) as board:
        outcomes = executor.run(cells.tasks(), board, cells.done)
    check_done(outcomes, "evaluations")
    if not this.done():
        cells.cut_short()
    return run.metrics()


@dataclass
class Evaluations:
    """Which cells are under way, which have ended and wait for an earlier one, how many the
    strategy was told."""

    search: Search
    run: Run
    method: Sampling
    progress: Progress
    deadline: Deadline
    under_way: dict[int, Cell] = field(default_factory=dict)
    ended: dict[int, dict[str, Any]] = field(default_factory=dict)
    asked: int = 0
    told: int = 0
    failed: bool = False
    start: float = field(default_factory=time.perf_counter)

    def begin(self) -> None:
        """From the checkpoint, or with the cell that the strategy was asked for when it was
        made."""
        state = self.run.load_checkpoint()
        if state is None:
            self.under_way, self.asked = {0: self.method.first()}, 1
            self.save()
        elif "under_way" not in state:
            raise AboutOptions(
                f"{{workers}} or {{ray}}: the search in {escape(self.run.folder)} was begun"
                " without: leave it out"
            )
        else:
            self.load_state_dict(state)
        self.run.cut_metrics(self.search.epochs_done)

    def tasks(self) -> Iterator[RunTask | None]:
        """Those that were under way, then new ones as long as there are any; None: first one of
        them must end."""
        for number in sorted(self.under_way):
            yield self._task(number)
        most = self.search.config.evaluations
        while self.asked < most and not (self.failed or self.search.done() or self.deadline.over()):
            if not self.method.strategy.ready():
                # the strategy must hear of a cell under way before it can say another
                yield None
                continue
            self.under_way[self.asked] = self.method.strategy.ask()
            self.asked += 1
            self.save()  # before it begins: it is never asked for again
            yield self._task(self.asked - 1)

    def _task(self, number: int) -> RunTask:
        config, folder = self.search.config, self.run / EVALUATIONS / f"{number:05}"
        make_folder(folder)
        cell = {"number": number, "cell": self.method.within(self.under_way[number])}
        write_atomically(folder / CELL, json.dumps(cell) + "\n")
        device = () if config.device == "auto" else (f"--device={config.device}",)
        return RunTask(f"evaluation {number}", ("evaluate", *device), folder)

    def done(self, outcome: Outcome) -> None:
        """Tells the strategy, in its order; after a failure what is under way is still waited
        for."""
        self.failed = self.failed or bool(outcome.code)
        if outcome.code:
            return
        number = int(outcome.task.folder.name)
        self.ended[number] = Run(outcome.task.folder).result(EVALUATION, EVALUATION)
        while self.ended:
            nearest = min(self.ended)
            # an earlier one is still at work: this one waits, lest the clock decide what is found
            if self.method.strategy.in_order and nearest != min(self.under_way):
                return
            self._tell(nearest, self.ended.pop(nearest))

    def _tell(self, number: int, result: dict[str, Any]) -> None:
        with self.search.clock("arch"):
            changes = self.method.tell(
                self.under_way.pop(number), Validation.from_json(result["valid"])
            )
        self.told += 1
        # means of a whole evaluation, added like one large step
        train, totals = result["train"], self.search.totals
        loss, right = torch.tensor(
            [train["loss"], train["accuracy"] * train["images"]], device=self.search.device
        )
        totals.add(Metrics(loss, right, train["images"], changes))
        totals.steps += train["steps"] - 1  # a step of `add` was a whole evaluation
        self._log()

    def _log(self) -> None:
        """The rows of all epochs whose share of the evaluations is told: with few evaluations each
        ends several."""
        config, search = self.search.config, self.search
        due = self.told * config.epochs // config.evaluations
        if search.epochs_done >= due or search.done():
            return
        while search.epochs_done < due and not search.done():
            self._epoch()
            # the figures stand for the epochs of the same cells
            search.totals.steps = search.totals.changes = 0
        search.totals = Totals(search.device)
        search.write(self.run)
        self.save()

    def _epoch(self) -> None:
        search = self.search
        self.progress.begin(search.epochs_done + 1, search.config.epochs, 0)
        row = search.row(self.start).to_json()
        self.start = time.perf_counter()
        search.epochs_done += 1
        self.run.append_metrics(row)
        self.progress.epoch(row)

    def cut_short(self) -> None:
        """The deadline came before the last evaluation: the cells since the last epoch make one
        that ends early."""
        self.deadline.cut = True
        self.save()
        if self.search.totals.count:
            self.search.choose_now()
            self._epoch()
        self.search.write(self.run)

    def save(self) -> None:
        self.run.save_checkpoint(self.state_dict())

    def state_dict(self) -> State:
        """All but the weights, which never change here."""
        state = {
            name: value for name, value in self.search.state_dict().items() if name != "weights"
        }
        cells = {str(number): cell for number, cell in self.under_way.items()}
        return state | {"under_way": cells, "asked": self.asked, "told": self.told}

    def load_state_dict(self, state: State) -> None:
        self.search.load_state_dict(state | {"weights": self.search.net.module.state_dict()})
        self.under_way = {int(number): stored(cell) for number, cell in state["under_way"].items()}
        self.asked, self.told = state["asked"], state["told"]
