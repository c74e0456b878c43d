"""What commands are told that make many searches, and how each search and training is asked for.

No torch here: `--help` must be quick.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, TypeVar

from proxnas import methods
from proxnas.common.config_file import read_values
from proxnas.common.errors import OptionError, unknown_value
from proxnas.common.options import COUNT_OR_NONE, build, flat_hints
from proxnas.common.quantities import whole_numbers
from proxnas.common.words import words_for
from proxnas.domains import of_space
from proxnas.domains.domain import trainable
from proxnas.domains.spaces import SPACES, traits_of
from proxnas.runs.executors.choice import ManyFlags
from proxnas.runs.options import MINUTES, RunConfig
from proxnas.searching.defaults import asked_of, below_flags, default_values, idle_among
from proxnas.searching.options import SearchOptions
from proxnas.searching.owners import parts_for
from proxnas.training.options import DataArgument

SEEDS = 3
"""So many seeds, from --seed on, unless --seeds names them."""
ITS_OWN = (
    "data",
    "space",
    "method",
    "seed",
    "seeds",
    "pick",
    "epochs",
    "minutes",
    "table",
    "order",
    "preset",
)
"""Flags of a search that these commands set themselves."""


@dataclass(frozen=True)
class StudyConfig(ManyFlags, RunConfig):
    """Many searches on one space and data; the same command goes on where its folder stands."""

    heading: ClassVar[str] = ""

    COMMAND: ClassVar[str] = ""
    SETS: ClassVar[tuple[str, ...]] = ITS_OWN

    data: DataArgument = ""
    """As in `proxnas search`."""
    space: str = "darts7"
    """Where to search."""
    seeds: str = ""
    """Seeds with commas between; default: three, from --seed on."""
    epochs: Annotated[int, COUNT_OR_NONE] = 0
    """Epochs of every search; 0: as the protocol says."""
    minutes: Annotated[float, MINUTES] = 0.0
    """Time of all runs of this call together: each gets an equal share of what is left when it
    begins, and stops when that is over; 0: any time."""
    train: str = ""
    """Also train each cell that is found by this protocol of `proxnas train` (quick, cifar, ...;
    for text quick, ptb, wt2), and take the test figures."""
    table: str = ""
    """Table of trained nasbench201 cells: take the test accuracies that it has for the cells."""
    preset: Literal["default", "paper", "official"] = "default"
    """Of the proximal methods, as in `proxnas search`."""
    search_config: str = ""
    """JSON file with more flags of the searches; a method that has no use for one is not given
    it."""
    train_config: str = ""
    """JSON file with more flags of the trainings."""
    resume: bool = False
    """Allowed for uniformity: the same command always goes on where its folder stands."""
    force: bool = False
    """Overwrite what is in the run folder."""

    def check(self) -> None:
        """Names that exist, and go together."""
        super().check()
        if self.space not in SPACES:
            raise unknown_value("space", self.space, SPACES)
        if self.resume and self.force:
            raise OptionError("force", True, "give either {resume} or {force}")
        protocols = self.protocols()
        if self.train and self.train not in protocols:
            raise OptionError("train", self.train, f"choose {', '.join(protocols)}")
        if self.train_config and not self.train:
            raise OptionError("train_config", self.train_config, "needs {train}")
        self.all_seeds()

    def protocols(self) -> list[str]:
        """Those of the trainings that suit the space."""
        return list(trainable(of_space(self.space)).protocols)

    def all_seeds(self) -> list[int]:
        """The seeds of each setting."""
        if self.seeds:
            return whole_numbers("seeds", self.seeds)
        return [self.seed + i for i in range(SEEDS)]


AnyStudy = TypeVar("AnyStudy", bound=StudyConfig)


def study_values(
    config: StudyConfig, method: str, seed: int, special: Mapping[str, Any]
) -> dict[str, Any]:
    """What one search is asked for, without where and how it runs."""
    alike = _values_alike(config, method, special)
    idle = _idle(config, method, tuple(special.items())) if alike else ()
    values = {name: value for name, value in alike.items() if name not in idle}
    return values | {"seed": seed} | _machine(config)


def _values_alike(config: StudyConfig, method: str, special: Mapping[str, Any]) -> dict[str, Any]:
    """The same for all seeds; a method that has no use for a value of the file is not given it."""
    values: dict[str, Any] = {"data": config.data, "space": config.space, "method": method}
    # searches are compared, not what short trainings add to one of them
    if traits_of(config.space).refined:
        values["refine"] = 0
    if traits_of(config.space).wired:
        values["wiring"] = "free"
    values |= {name: getattr(config, name) for name in ("epochs", "table") if getattr(config, name)}
    values |= special
    if config.preset in methods.options_of(method).presets:
        values["preset"] = config.preset
    # the file is for all methods of a study: each is given what it knows
    names = flat_hints(SearchOptions, parts_for(config.space, method))
    return values | {name: v for name, v in search_values(config).items() if name in names}


@lru_cache(1000)
def _idle(
    config: StudyConfig, method: str, special: tuple[tuple[str, Any], ...]
) -> tuple[str, ...]:
    """The options of a search that do nothing beside the others: what one method of a study needs,
    another has no use for. Kept, because a study asks for every seed."""
    values = _values_alike(config, method, dict(special))
    below = below_flags(values, {})
    options = build(SearchOptions, below.values | values, below.parts)
    return tuple(idle_among(options, asked_of(options, default_values(values, {}))))


def train_argv(config: StudyConfig, cell: Path, seed: int) -> list[str]:
    """The command line of the training of a cell."""
    flags: dict[str, Any] = {"protocol": config.train, "seed": seed}
    shared = trainable(of_space(config.space)).shared
    # a cell found on words must not be trained on letters
    flags |= {key: value for key, value in search_values(config).items() if key in shared}
    flags |= train_values(config) | _machine(config)
    return ["train", *words_for({"cell": str(cell), "data": config.data} | flags)]


def train_values(config: StudyConfig) -> dict[str, Any]:
    """More flags of the trainings, from the file."""
    cls = trainable(of_space(config.space)).train_options
    values = read_values(Path(config.train_config), cls) if config.train_config else {}
    for name in values:
        if name in ("data", "cell", "protocol", "seed"):
            advice = f"{{{name}}} is not for there: `proxnas {config.COMMAND}` sets it itself"
            raise OptionError("train_config", config.train_config, advice)
    cls(**values)  # a bad value is named now, not after the searches
    return values


def _machine(config: StudyConfig) -> dict[str, Any]:
    """The device if one is named, and determinism if asked for."""
    # auto is left out: the words are the same on every machine
    machine: dict[str, Any] = {} if config.device == "auto" else {"device": config.device}
    return machine | ({"deterministic": True} if config.deterministic else {})


def search_values(config: StudyConfig) -> dict[str, Any]:
    """More flags of the searches, from the file."""
    if config.search_config:
        values = _read_once(config.search_config, _changed_at(config.search_config))
    else:
        values = {}
    for name in values:
        instead = f"`proxnas {config.COMMAND} --help` lists what it sets itself"
        if name in config.SETS:
            advice = f"{{{name}}} is not for there: {instead}"
            raise OptionError("search_config", config.search_config, advice)
    return values


@lru_cache(1)
def _read_once(path: str, changed: int) -> dict[str, Any]:
    """The values of a file that was last changed then: a study of a thousand runs asks a thousand
    times."""
    return read_values(Path(path), SearchOptions)


def _changed_at(path: str) -> int:
    # what is missing is named by the reader
    return Path(path).stat().st_mtime_ns if Path(path).exists() else 0
