"""The executor that the flags ask for: processes on this machine, or tasks of a Ray cluster."""

from __future__ import annotations

from collections.abc import Sequence

from proxnas.common.cores import Asked
from proxnas.runs.executors.tasks import Executor
from proxnas.runs.worker_options import ManyFlags


def make(flags: ManyFlags, threads: Asked = "auto", devices: Sequence[str] = ()) -> Executor:
    """The executor that the flags ask for."""
    number = 0 if threads == "auto" else threads
    if flags.ray:
        from proxnas.runs.executors.ray import RayExecutor

        return RayExecutor(flags.ray, flags.cpus_per_task or number or 1, flags.gpus_per_task)
    from proxnas.runs.executors.processes import LocalExecutor

    return LocalExecutor(flags.workers, flags.cpus_per_task or threads, devices)


def check(flags: ManyFlags) -> None:
    """An InputError if the executor that the flags ask for cannot be had; before anything is read
    or written."""
    if flags.ray:
        from proxnas.runs.executors.ray import check_ray

        check_ray(flags.ray)
