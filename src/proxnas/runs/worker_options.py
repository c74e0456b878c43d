"""The flags of commands that make several runs. No torch here: `--help` must be quick."""

from __future__ import annotations

import re
from dataclasses import dataclass

from proxnas.common.errors import InputError

ADDRESS = r"|local|auto|[^\s/]+:\d{1,5}"
"""What --ray takes."""

WHERE = ("workers", "ray", "cpus_per_task", "gpus_per_task")
"""Flags that say where the work is done, not what it is."""


@dataclass(frozen=True)
class ManyFlags:
    """How many runs at once."""

    workers: int = 1
    """Runs at the same time, each in a process of its own; they share the cores, or take --threads
    each. random, evolution, local, reinforce, pnas: of one search, cells that are evaluated at the
    same time."""
    ray: str = ""
    """In place of --workers: a Ray cluster, as many at a time as it has room for. Alone or `local`:
    a Ray on this machine; auto: the cluster that this machine is part of; or HOST:PORT. All nodes
    must see the run folder."""
    cpus_per_task: int = 0
    """Of each run or evaluation; 0: --threads, else an equal share of the machine, with --ray 1."""
    gpus_per_task: float = -1.0
    """The same with --ray; 0.5: two share one; -1: one if the cluster has any."""

    @property
    def at_once(self) -> bool:
        """Whether workers are asked for."""
        return self.workers > 1 or self.ray != ""


def with_address(argv: list[str]) -> list[str]:
    """The command line with `--ray` alone spelt out: a flag of ours may go without its value."""
    following = [*argv[1:], "--"]
    alone = (
        word == "--ray" and after.startswith("-")
        for word, after in zip(argv, following, strict=False)
    )
    return ["--ray=local" if bare else word for word, bare in zip(argv, alone, strict=True)]


def whole_numbers(flag: str, text: str) -> list[int]:
    """The seeds of --seeds."""
    if not re.fullmatch(r"\d{1,9}(,\d{1,9})*", text):
        raise InputError(
            f"{flag} {text!r}: give whole numbers with commas between, for example 0,1,2"
        )
    numbers = [int(number) for number in text.split(",")]
    if len(set(numbers)) < len(numbers):
        raise InputError(f"{flag} {text}: name each seed once")
    return numbers


def check_many(flags: ManyFlags) -> None:
    """An InputError for impossible values."""
    if not 1 <= flags.workers <= 1024:
        raise InputError(f"--workers {flags.workers}: give a number from 1 to 1024")
    if not re.fullmatch(ADDRESS, flags.ray):
        raise InputError(
            f"--ray {flags.ray}: give local, auto or HOST:PORT (DATA goes before --ray)"
        )
    if flags.ray and flags.workers > 1:
        raise InputError(
            f"--workers {flags.workers}: with --ray the cluster says how many: give one of the two"
        )
    if not 0 <= flags.cpus_per_task <= 1024:
        raise InputError(f"--cpus-per-task {flags.cpus_per_task}: give a number from 0 to 1024")
    _check_gpus(flags)


def _check_gpus(flags: ManyFlags) -> None:
    gpus = flags.gpus_per_task
    if gpus != -1 and not flags.ray:
        raise InputError(f"--gpus-per-task {gpus:g}: is for --ray: leave it out")
    if gpus != -1 and not (0 <= gpus <= 1 or gpus in range(65)):
        raise InputError(
            f"--gpus-per-task {gpus:g}: give a whole number up to 64, or a share of one"
        )
