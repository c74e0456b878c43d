"""What commands are told that make many searches, and how each search and training is asked for.

No torch here: `--help` must be quick.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeVar

from proxnas.common.errors import unknown
from proxnas.common.say import say
from proxnas.domains import of_space
from proxnas.domains.domain import trainable
from proxnas.domains.spaces import SPACES
from proxnas.runs.executors.choice import check as check_executor
from proxnas.runs.executors.tasks import Outcome, check_done
from proxnas.runs.options import RunConfig, check_minutes, flag, require
from proxnas.runs.worker_options import ManyFlags, check_many, whole_numbers
from proxnas.searching.settings import (
    asked_of,
    flag_words,
    parse,
    parse_resumed,
    read_values,
    resolve_search,
)
from proxnas.searching.uses import NEEDS, PROXIMAL, of_use, why_idle
from proxnas.training.options import DataArgument
from proxnas.workflows.folders import run_folder
from proxnas.workflows.train_settings import need, stored

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

    COMMAND: ClassVar[str] = ""
    SETS: ClassVar[tuple[str, ...]] = ITS_OWN

    data: DataArgument = ""
    """As in `proxnas search`, and so is --space."""
    space: str = "darts7"
    seeds: str = ""
    """Seeds with commas between; default: three, from --seed on."""
    epochs: int = 0
    """Epochs of every search; 0: as the protocol says."""
    minutes: float = 0.0
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

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.space not in SPACES:
            raise unknown("--space", self.space, SPACES)
        require(
            0 <= self.epochs <= 1_000_000,
            "--epochs",
            self.epochs,
            "give a number from 0 to 1000000",
        )
        check_minutes(self.minutes)
        require(
            not (self.resume and self.force), "--force", True, "give either --resume or --force"
        )
        protocols = self.protocols()
        require(
            not self.train or self.train in protocols,
            "--train",
            self.train,
            f"choose {', '.join(protocols)}",
        )
        require(
            not self.train_config or bool(self.train),
            "--train-config",
            self.train_config,
            "needs --train",
        )
        check_many(self)
        self.all_seeds()

    def protocols(self) -> list[str]:
        """Those of the trainings that suit the space."""
        return list(trainable(of_space(self.space)).protocols)

    def all_seeds(self) -> list[int]:
        """The seeds of each setting."""
        return (
            whole_numbers("--seeds", self.seeds)
            if self.seeds
            else [self.seed + i for i in range(SEEDS)]
        )


AnyStudy = TypeVar("AnyStudy", bound=StudyConfig)


def study_command(
    argv: list[str],
    cls: type[AnyStudy],
    default_folder: Callable[[AnyStudy], str],
    work: Callable[[AnyStudy, Path], Sequence[Outcome]],
    *named: str,
) -> None:
    """Parses the flags, runs what is not finished, prints the tables and says where the rest is.

    `named`: fields that the default folder's name has besides those of every study.
    """
    prog = f"proxnas {cls.COMMAND}"
    config = parse(cls, prog, argv)
    plain = default_folder(config)
    folder = run_folder(
        config, plain, partial(parse, cls, prog), "data", "space", *named, "seed", "seeds"
    )
    if not config.force and (folder / "config.json").exists():
        config = parse_resumed(argv, stored(folder, cls.COMMAND, cls), folder, prog)
    need(config, "data")
    check_executor(config)
    outcomes = work(config, folder)
    say((folder / "table.md").read_text(encoding="utf-8"))
    say(f"tables and figures in {folder}")
    check_done(list(outcomes))


def study_argv(config: StudyConfig, method: str, seed: int, special: dict[str, Any]) -> list[str]:
    """The command line of one search, without the flags that say where and how it runs."""
    flags: dict[str, Any] = {"space": config.space, "method": method, "seed": seed}
    if (
        config.space == "nasbench201"
    ):  # searches are compared, not what short trainings add to one of them
        flags["refine"] = 0
    flags |= {key: getattr(config, key) for key in ("epochs", "table") if getattr(config, key)}
    flags |= special
    if method in PROXIMAL and config.preset != "default":
        flags["preset"] = config.preset
    flags |= {key: value for key, value in search_values(config).items() if of_use(method, key)}
    alike = {key: value for key, value in flags.items() if key != "seed"}
    idle = _idle(config.data, *words(config, alike)) if NEEDS.keys() & alike else ()
    return [
        "search",
        config.data,
        *words(config, {key: value for key, value in flags.items() if key not in idle}),
    ]


@lru_cache(1000)
def _idle(*argv: str) -> tuple[str, ...]:
    """The flags of a search that do nothing beside the others: what one method of a study needs,
    another has no use for. Kept, because a study asks for every seed."""
    config, defaults = resolve_search(list(argv))
    return tuple(name for name in asked_of(config, defaults) if why_idle(config, name))


def train_argv(config: StudyConfig, cell: Path, seed: int) -> list[str]:
    """The command line of the training of a cell."""
    flags: dict[str, Any] = {"protocol": config.train, "seed": seed}
    shared = trainable(of_space(config.space)).shared
    flags |= {key: value for key, value in search_values(config).items() if key in shared}
    return ["train", str(cell), config.data, *words(config, flags | train_values(config))]


def train_values(config: StudyConfig) -> dict[str, Any]:
    """More flags of the trainings, from the file."""
    cls = trainable(of_space(config.space)).train_options
    values = read_values(Path(config.train_config), cls) if config.train_config else {}
    for name in values:
        require(
            name not in ("data", "cell", "protocol", "seed"),
            "--train-config",
            config.train_config,
            f"{flag(name)} is not for there: `proxnas {config.COMMAND}` sets it itself",
        )
    cls(**values)  # a bad value is named now, not after the searches
    return values


def words(config: StudyConfig, flags: dict[str, Any]) -> list[str]:
    """Flags as words, with the device if one is named, and determinism if asked for."""
    machine: dict[str, Any] = {} if config.device == "auto" else {"device": config.device}
    machine |= {"deterministic": True} if config.deterministic else {}
    return [word for key, value in (flags | machine).items() for word in flag_words(key, value)]


def search_values(config: StudyConfig) -> dict[str, Any]:
    """More flags of the searches, from the file."""
    values = (
        _read_once(config.search_config, _changed(config.search_config))
        if config.search_config
        else {}
    )
    for name in values:
        instead = f"`proxnas {config.COMMAND} --help` lists what it sets itself"
        require(
            name not in config.SETS,
            "--search-config",
            config.search_config,
            f"{flag(name)} is not for there: {instead}",
        )
    return values


@lru_cache(1)
def _read_once(path: str, changed: int) -> dict[str, Any]:
    """The values of a file that was last changed then: a study of a thousand runs asks a thousand
    times."""
    return read_values(Path(path))


def _changed(path: str) -> int:
    return (
        Path(path).stat().st_mtime_ns if Path(path).exists() else 0
    )  # what is missing is named by the reader
