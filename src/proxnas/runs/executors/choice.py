"""The flags of commands that make several runs, and the executor that they ask for: processes on
this machine, or tasks of a Ray cluster. No torch here: `--help` must be quick."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

from proxnas.common.cores import Asked
from proxnas.common.errors import OptionError
from proxnas.common.options import Options, Range
from proxnas.runs.executors.tasks import Executor

ADDRESS = r"|local|auto|[^\s/]+:\d{1,5}"
"""What --ray takes."""

WHERE = ("workers", "ray", "cpus_per_task", "gpus_per_task")
"""Flags that say where the work is done, not what it is."""


@dataclass(frozen=True)
class ManyFlags(Options):
    """How many runs at once."""

    heading: ClassVar[str] = "several at once:"

    workers: Annotated[int, Range(1, 1024)] = 1
    """Runs at the same time, each in a process of its own; they share the cores, or take --threads
    each. random, evolution, local, reinforce, pnas, mnasnet, nao: of one search, cells that are
    evaluated at the same time."""
    ray: str = ""
    """In place of --workers a Ray cluster: local, auto or HOST:PORT. Alone or `local`:
    a Ray on this machine; auto: the cluster that this machine is part of; or HOST:PORT. All nodes
    must see the run folder."""
    cpus_per_task: Annotated[int, Range(0, 1024)] = 0
    """Of each run or evaluation; 0: --threads, else an equal share of the machine, with --ray 1."""
    gpus_per_task: float = -1.0
    """The same with --ray; 0.5: two share one; -1: one if the cluster has any."""

    def check(self) -> None:
        """An address of a cluster, and what only clusters have."""
        super().check()
        if not re.fullmatch(ADDRESS, self.ray):
            advice = "give local, auto or HOST:PORT ({data} goes before {ray})"
            raise OptionError("ray", self.ray, advice)
        if self.ray and self.workers > 1:
            advice = "with {ray} the cluster says how many: give one of the two"
            raise OptionError("workers", self.workers, advice)
        gpus = self.gpus_per_task
        if gpus != -1 and not self.ray:
            raise OptionError("gpus_per_task", f"{gpus:g}", "is for {ray}: leave it out")
        if gpus != -1 and not (0 <= gpus <= 1 or gpus in range(65)):
            advice = "give a whole number up to 64, or a share of one"
            raise OptionError("gpus_per_task", f"{gpus:g}", advice)

    @property
    def at_once(self) -> bool:
        """Whether workers are asked for."""
        return self.workers > 1 or self.ray != ""


def make_executor(
    flags: ManyFlags, threads: Asked = "auto", devices: Sequence[str] = ()
) -> Executor:
    """The executor that the flags ask for."""
    number = 0 if threads == "auto" else threads
    if flags.ray:
        # imported only where it is asked for: it comes with an extra
        from proxnas.runs.executors.ray import RayExecutor

        return RayExecutor(flags.ray, flags.cpus_per_task or number or 1, flags.gpus_per_task)
    from proxnas.runs.executors.processes import LocalExecutor

    return LocalExecutor(flags.workers, flags.cpus_per_task or threads, devices)


def check_executor(flags: ManyFlags) -> None:
    """An InputError if the executor that the flags ask for cannot be had; before anything is read
    or written."""
    if flags.ray:
        from proxnas.runs.executors.ray import check_ray

        check_ray(flags.ray)
