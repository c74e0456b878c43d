"""Tasks on a Ray cluster, or on a Ray of this machine's own.

A Ray task starts the same command line that a local worker is, on the node that Ray chose, and
returns its exit code. The run folders, the data and the working directory must lie where all nodes
see them, under the same paths. Ray's own retries are off: the pool counts deaths, and a begun run
goes on from its checkpoint wherever it is started again.

Whoever dies, the rest follows: a node that loses its cluster ends its Ray workers, a Ray worker
that ends closes the pipe that its run watches (interrupt.py), and the run writes its checkpoint and
frees its folder.
"""

from __future__ import annotations

import logging
import os
import re
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from proxnas.common.errors import AboutOptions, OptionError, escape
from proxnas.common.files import make_folder
from proxnas.common.interrupt import STOPPING
from proxnas.runs.executors.pool import LOOK, End, drive
from proxnas.runs.executors.processes import start_process, words
from proxnas.runs.executors.tasks import Board, Outcome, RunTask

ANSWER = 5.0
"""Seconds that a cluster may take to answer."""
VISIBLE = 60.0
"""Seconds until a file that another node has written must be seen here: network file systems keep
what they know."""
COUNT = 1.0
"""Seconds between two counts of the cluster's nodes."""
STORE = 80 * 2**20
"""Bytes of shared memory of a Ray of our own, the least that it takes: exit codes need no room."""
GRACE = 120.0
"""Seconds that runs have for their checkpoints when asked to stop: a cluster may be gone
altogether."""
GREETING = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))
"""The first words of every gRPC client: HTTP/2 and no settings."""


class RayExecutor:
    """A Ray task a task, as many at a time as the cluster has room for."""

    patience = 180.0  # an NFS server keeps the locks of a machine that is gone for 90 seconds

    def __init__(self, address: str, cpus: int = 1, gpus: float = -1) -> None:
        """`gpus`: of each task; -1: one, if the cluster has any."""
        self.address, self.cpus, self.gpus = address, cpus, gpus
        self._counted, self._slots = float("-inf"), 0

    def run(
        self, tasks: Iterable[RunTask | None], board: Board, done: Callable[[Outcome], None]
    ) -> list[Outcome]:
        """See Executor."""
        with connect_ray(self.address) as ray:
            self.ray = ray
            if self.gpus < 0:
                self.gpus = 1.0 if ray.cluster_resources().get("GPU", 0) >= 1 else 0.0
            self._check()
            return drive(self, tasks, board, done, GRACE)

    def slots(self) -> int:
        """How many tasks fit on the nodes that are alive; whoever joins is used."""
        if time.monotonic() > self._counted + COUNT:
            nodes = [node["Resources"] for node in self.ray.nodes() if node["Alive"]]
            self._counted = time.monotonic()
            # node by node: a task cannot lie across two
            self._slots = sum(fitting(node, self.cpus, self.gpus) for node in nodes)
        return self._slots

    def _check(self) -> None:
        if not self.slots():
            asked = f"{{cpus_per_task}} {self.cpus}"
            if self.gpus:
                asked += f" {{gpus_per_task}} {self.gpus:g}"
            raise AboutOptions(
                f"{asked}: no node of the Ray cluster has so many: give fewer, or add nodes"
            )

    def launch(self, task: RunTask, slot: int) -> RayWorker:
        make_folder(task.log.parent)  # also what a node must see
        options = {
            "num_cpus": self.cpus,
            "num_gpus": self.gpus,
            "max_retries": 0,
            "scheduling_strategy": "SPREAD",
        }
        remote = self.ray.remote(**options)(work)
        reference = remote.remote(self.command(task), str(task.log.absolute()), str(Path.cwd()))
        return RayWorker(task, slot, self.ray, reference)

    def command(self, task: RunTask) -> list[str]:
        """What the Python of a node is told."""
        return words(task, task.folder.absolute(), self.cpus)


@dataclass
class RayWorker:
    """A Ray task of ours."""

    task: RunTask
    slot: int
    ray: Any
    reference: Any
    ended: End | None = field(default=None)
    seen: float = 0.0

    def poll(self) -> End | None:
        if self.ended is None and self.ray.wait([self.reference], timeout=0)[0]:
            self.ended, self.seen = self._end(), time.monotonic()
        if (
            self.ended
            and self.ended.code == 0
            and not self._visible()
            and time.monotonic() < self.seen + VISIBLE
        ):
            return None
        return self.ended

    def _end(self) -> End:
        errors = self.ray.exceptions
        try:
            return End(*self.ray.get(self.reference))
        except errors.TaskCancelledError:
            return End(128 + signal.SIGTERM)
        except errors.RayTaskError as error:
            return End(
                1,
                f"the worker failed ({' '.join(str(error.cause).split())[:200]}): see"
                f" {self.task.log}",
            )
        except errors.RayError as error:  # the worker, or the whole node
            kind = type(error).__name__
            return End(
                1,
                f"its node or worker was lost again and again ({kind}): see {self.task.log}",
                lost=True,
            )

    def _visible(self) -> bool:
        with suppress(OSError):
            os.listdir(self.task.folder)  # makes a network file system look again
        return self.task.finished

    def stop(self) -> None:
        # a KeyboardInterrupt within `work`, which passes it on as SIGTERM
        self.ray.cancel(self.reference)

    def kill(self) -> None:
        if self.ended is None:
            with suppress(Exception):  # a cluster that is gone cannot be told, and has no workers
                self.ray.cancel(self.reference, force=True)


def work(command: list[str], log: str, directory: str) -> tuple[int, str]:
    """On a node: (exit code, why it could not even begin) of a run."""
    if not Path(log).parent.is_dir() or not Path(directory).is_dir():
        node = socket.gethostname()
        missing = directory if Path(log).parent.is_dir() else Path(log).parent
        why = (
            f"{missing}: node {node} of the cluster does not see it: keep runs and data where"
            " all nodes see them"
        )
        return 2, why
    os.chdir(directory)  # what a relative DATA refers to
    process = start_process([sys.executable, *command], Path(log))
    try:
        while process.poll() is None:
            time.sleep(LOOK)
    except BaseException:  # cancelled: KeyboardInterrupt
        # the run writes its checkpoint before it ends
        process.terminate()
        process.wait()
        raise
    return process.returncode, ""


def fitting(resources: dict[str, float], cpus: int, gpus: float) -> int:
    """How many tasks fit on a node."""
    by_cpu = resources.get("CPU", 0) / cpus
    return int(min(by_cpu, resources.get("GPU", 0) / gpus) if gpus else by_cpu)


@contextmanager
def connect_ray(address: str) -> Iterator[Any]:
    """Ray, connected and silent; left again afterwards, and ended if it is our own."""
    check_ray(address)
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    # a task without GPUs sees none
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "1")
    import ray

    own: dict[str, Any] = (
        {"include_dashboard": False, "object_store_memory": STORE} if address == "local" else {}
    )
    _silence()
    before = _handlers()
    try:
        ray.init(address, log_to_driver=False, logging_level=logging.ERROR, **own)
    except (OSError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
        why = " ".join(str(error).split())[:200]
        raise OptionError("ray", address, f"{escape(why)}: is the cluster up?") from error
    finally:
        _restore(before)  # Ray has put its own in their place
    try:
        yield ray
    finally:
        ray.shutdown()
        _restore(before)


def _silence() -> None:
    """Ray prints what befalls its nodes to our standard output, and has no option against it."""
    worker: Any = import_module("ray._private.worker")
    if hasattr(worker, "listen_error_messages"):
        worker.listen_error_messages = lambda *arguments: None


def _handlers() -> dict[signal.Signals, Any]:
    main = threading.current_thread() is threading.main_thread()
    return {signum: signal.getsignal(signum) for signum in STOPPING} if main else {}


def _restore(handlers: dict[signal.Signals, Any]) -> None:
    for signum, handler in handlers.items():
        signal.signal(signum, handler)


def check_ray(address: str) -> None:
    """An InputError unless Ray is installed and somebody answers at the address.

    Ray itself would try for minutes, and then end the process.
    """
    if find_spec("ray") is None:
        raise AboutOptions("{ray} needs the extra: pip install 'proxnas[ray]'")
    found = _running() if address == "auto" else address
    if found == "local" or not (parts := re.fullmatch(r"\[?(.+?)\]?:(\d+)", found)):
        return
    try:
        with socket.create_connection((parts[1], int(parts[2])), timeout=ANSWER) as connection:
            connection.settimeout(ANSWER)
            connection.sendall(GREETING)
            answer = connection.recv(9)
    except OSError as error:
        why = error.strerror or str(error)
        advice = escape(f"no answer from {found} ({why}): start one with `ray start`")
        raise OptionError("ray", address, advice) from error
    if answer[3:4] != bytes((4,)):  # the settings, with which every such server begins
        advice = f"what answers at {escape(found)} is no Ray cluster: give its HOST:PORT"
        raise OptionError("ray", address, advice)


def _running() -> str:
    """The address that `auto` stands for."""
    named = os.environ.get("RAY_ADDRESS", "")
    if named and named != "auto":
        return named
    from ray._private.services import canonicalize_bootstrap_address

    found: str | None = canonicalize_bootstrap_address("auto")
    if not found:
        advice = "no Ray runs on this machine: start one with `ray start`, or give {ray} HOST:PORT"
        raise OptionError("ray", "auto", advice)
    return found
