"""How much memory a piece of work takes at its peak, beyond what was taken before."""

from __future__ import annotations

import gc
import resource
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

PROC = Path("/proc/self")


class Peak:
    """Filled in when the work is done."""

    bytes: int = 0


@contextmanager
def peak_memory(device: torch.device) -> Iterator[Peak]:
    """Peak memory of the block: of the device's allocator, or of the process on a CPU."""
    peak = Peak()
    gc.collect()
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        yield peak
        peak.bytes = torch.cuda.max_memory_allocated(device) - before
    else:
        before = _restart_peak()
        yield peak
        # VmHWM: the most that was ever resident, since it was last forgotten
        peak.bytes = max(0, _status("VmHWM") - before)


def _restart_peak() -> int:
    """The memory in use now; Linux is asked to forget an earlier, higher peak."""
    try:
        (PROC / "clear_refs").write_text("5")
    except OSError:  # not Linux, or not allowed: the peak may then include earlier work
        return _status("VmHWM")
    return _status("VmRSS")


def _status(key: str) -> int:
    """A figure of /proc/self/status in bytes; elsewhere the system's own peak."""
    try:
        lines = (PROC / "status").read_text().splitlines()
    except OSError:
        unit = 1 if sys.platform == "darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(key + ":"))
