"""Malformed files for every reader: mutated real ones, bombs, and pickles that would run code.

A reader may answer or raise an InputError. Anything else is a finding: another exception, five
seconds of computing, a gigabyte of memory, or a canary that sings. All of it happens in one process
with real limits.
"""

from __future__ import annotations

import random
import resource
import signal
import tempfile
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

from faults.mutate import mutated
from faults.samples import Sample, samples

SECONDS, GIGABYTE = 5, 2**30


class Hang(BaseException):
    """A reader took too long; no reader's `except Exception` may swallow it."""


@dataclass
class Report:
    """What a number of malformed files came to."""

    inputs: int = 0
    refused: int = 0
    findings: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return f"{self.inputs} inputs, {self.refused} refused, {len(self.findings)} findings"


@contextmanager
def limits() -> Iterator[None]:
    """A gigabyte more than now, and `Hang` after five seconds of the processor since the last
    `wind`."""

    def hang(signum: int, frame: FrameType | None) -> None:
        raise Hang(f"over {SECONDS} seconds")

    pages = int(Path("/proc/self/statm").read_text().split()[0])
    before, handler = resource.getrlimit(resource.RLIMIT_AS), signal.signal(signal.SIGVTALRM, hang)
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + GIGABYTE, before[1]))
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, handler)
        resource.setrlimit(resource.RLIMIT_AS, before)


def judge(sample: Sample, content: bytes, place: Path, report: Report) -> None:
    """One malformed file for one reader."""
    from proxnas.common.errors import InputError

    report.inputs += 1
    path = place / sample.file
    path.write_bytes(content)
    signal.setitimer(signal.ITIMER_VIRTUAL, SECONDS)
    try:
        sample.read(path)
    except InputError as error:
        report.refused += 1
        if _out_of_memory(error):  # refused by the limit of this process only
            report.findings.append(f"{sample.name}: out of memory: {error}"[:300])
    except SystemExit as stop:  # tyro's own box for a bad flag
        report.refused += stop.code == 2
        if stop.code != 2:
            report.findings.append(f"{sample.name}: exit {stop.code}")
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        where = traceback.extract_tb(error.__traceback__)[-1]
        report.findings.append(
            f"{sample.name}: {type(error).__name__}: {error} ({where.filename}:{where.lineno})"[
                :300
            ]
        )
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)


def _out_of_memory(error: BaseException | None) -> bool:
    while error is not None:
        if isinstance(error, MemoryError) or "allocate" in str(error):
            return True
        error = error.__cause__ or error.__context__
    return False


def fuzz(
    inputs: int, seed: int = 0, only: str = "", tell: Callable[[str], Any] = lambda line: None
) -> Report:
    """So many malformed files, shared among all readers."""
    total = Report()
    with tempfile.TemporaryDirectory() as place:
        chosen = [sample for sample in samples(Path(place) / "real") if only in sample.name]
        contents = [sample.content for sample in chosen]
        with limits():
            for number, sample in enumerate(chosen):
                report, draw = Report(), random.Random(f"{seed} {sample.name}")
                for _ in range((inputs + number) // len(chosen)):
                    judge(sample, mutated(sample.content, draw, contents), sample.place, report)
                (sample.place / sample.file).write_bytes(sample.content)
                tell(f"  {sample.name:<28} {report}")
                total.inputs += report.inputs
                total.refused += report.refused
                total.findings += report.findings
    return total
