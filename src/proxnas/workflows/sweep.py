"""`proxnas.sweep`: one method with several weights of R(A), or within several limits, and what size
costs in accuracy. No torch here: `--help` must be quick."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from proxnas import methods
from proxnas.common import quantities
from proxnas.common.errors import AboutOptions, OptionError, unknown_value
from proxnas.report import comparison, sweep_report
from proxnas.runs.executors.tasks import Outcome
from proxnas.workflows.study import Study, StudyResult, failures, fill, operations, study_in_python
from proxnas.workflows.study_options import ITS_OWN, StudyConfig, study_values

SWEPT = ("eta", "max_params", "max_flops", "max_latency")
"""Flags of a search that a sweep takes lists for, of which one is given."""


class Setting(NamedTuple):
    """One value of what is swept."""

    flag: str
    text: str
    value: float

    @property
    def name(self) -> str:
        """Its name in folders and tables: eta-0.1, max-params-500k."""
        return f"{self.flag.replace('_', '-')}-{self.text}"


@dataclass(frozen=True)
class SweepConfig(StudyConfig):
    """Search with several weights of the size regulariser, or within several limits, and draw size
    against accuracy.

    The same command goes on where the folder stands: nothing that is finished is run again.
    """

    COMMAND: ClassVar[str] = "sweep"
    SETS: ClassVar[tuple[str, ...]] = (*ITS_OWN, *SWEPT, "cost")

    method: str = "nasp"
    """By which method."""
    eta: str = ""
    """Values of the size regulariser's weight with commas between, for example 0,0.1,1,10."""
    max_params: str = ""
    """In its place: limits on the parameters of the final network, for example 200k,400k."""
    max_flops: str = ""
    """On its multiply-adds for one image, for example 20M,40M."""
    max_latency: str = ""
    """On its time for one image on this machine, for example 2ms,4ms."""
    cost: str = "auto"
    """As in `proxnas search`."""

    def check(self) -> None:
        """A method that exists, and values of one option."""
        super().check()
        if self.method not in methods.names():
            raise unknown_value("method", self.method, methods.names())
        # else a file or the run folder may name them
        if any(getattr(self, name) for name in SWEPT):
            self.settings()

    def settings(self) -> list[Setting]:
        """What is swept, from the smallest value to the largest."""
        given = {name: getattr(self, name) for name in SWEPT if getattr(self, name)}
        if len(given) != 1:
            listed = ", ".join(f"{{{name}}}" for name in SWEPT)
            raise AboutOptions(
                f"give one of {listed} with values to sweep over, for example {{eta}} 0,0.1,1,10"
            )
        ((name, texts),) = given.items()
        found = sorted(
            (Setting(name, text, _value(name, text)) for text in texts.split(",")),
            key=lambda s: s.value,
        )
        if len({setting.value for setting in found}) < len(found):
            raise OptionError(name, texts, "name each value once")
        return found


def _value(name: str, text: str) -> float:
    if name == "eta":
        # the text becomes part of a folder's name: nothing but digits, a point and an exponent
        if not re.fullmatch(r"\d{1,9}(\.\d{1,9})?(e-?\d{1,2})?", text):
            advice = "give numbers of at least 0 with commas between, for example 0,0.1,1,10"
            raise OptionError("eta", text, advice)
        return float(text)
    read = quantities.seconds if name == "max_latency" else quantities.count
    return read(name, text)


def search_values(config: SweepConfig, name: str, seed: int) -> dict[str, Any]:
    """What one search is asked for, without where and how it runs."""
    setting = next(setting for setting in config.settings() if setting.name == name)
    swept = setting.value if setting.flag == "eta" else setting.text
    special: dict[str, Any] = {setting.flag: swept}
    if config.cost != "auto":
        special["cost"] = config.cost
    return study_values(config, config.method, seed, special)


def sweep(
    data: Any, *, run: str | os.PathLike[str] | None = None, progress: bool = False, **options: Any
) -> StudyResult:
    """Searches with several weights of the size regulariser, or within several limits, and puts
    size beside accuracy, as `proxnas sweep` does. The same call goes on where its folder stands.

    Args:
        data: as `proxnas.fit` takes it.
        run: a folder for all runs, tables and figures; without it a new one in the system's place
            for such things.
        progress: say how far it is.
        options: as `proxnas sweep` takes them, with underscores, of which one is what is swept:
            eta=[0, 0.1, 1], max_params=["200k", "400k"], max_flops or max_latency; space, method,
            seeds=[0, 1, 2], epochs, minutes, train, workers, ...
    """
    return study_in_python(SweepConfig, sweep_in, data, run, progress, options)


def sweep_in(config: SweepConfig, folder: Path) -> StudyResult:
    """The sweep in its folder; an InputError if there is nothing to sweep over."""
    settings = config.settings()
    names = [setting.name for setting in settings]
    search = partial(search_values, config)
    # the smallest limit, which is the first, is the one that may be impossible
    study = Study(names, search, names[0], partial(write, config), partial(draw_figures, config))
    return fill(study, config, folder)


def rows_of(config: SweepConfig, found: comparison.Comparison) -> list[comparison.Row]:
    """The rows of table.json: those of a comparison, with what was swept in place of the method's
    name."""
    settings = {setting.name: setting for setting in config.settings()}
    rows = []
    for row in comparison.rows(found, operations(config.space)):
        setting = settings[row["method"]]
        swept: dict[str, Any]
        if setting.flag == "eta":
            swept = {"eta": setting.value}
        else:
            # max_params -> params
            swept = {"limit": setting.value, "of": setting.flag[4:]}
        rows.append(row | {"setting": setting.name, "method": config.method} | swept)
    return sweep_report.with_front(rows)


def write(config: SweepConfig, folder: Path, outcomes: Sequence[Outcome]) -> list[comparison.Row]:
    """table.md, table.csv and table.json from the runs that are finished."""
    from proxnas.runs.folder import write_atomically

    found = comparison.read_comparison(folder)
    rows = rows_of(config, found)
    for name, content in sweep_report.files(found, rows, failures(outcomes)).items():
        write_atomically(folder / name, content)
    return rows


def draw_figures(config: SweepConfig, folder: Path) -> list[Path]:
    """The figures, as .svg and .png."""
    found = comparison.read_comparison(folder)
    return sweep_report.draw_sweep(found, rows_of(config, found), folder)
