"""Memory of tensors that are gone is used again, not given back to the system.

The C library of Linux takes large blocks from the system and gives them back at once, page by page,
zeroed anew each time. A step of a training makes and drops the same tensors over and over: keeping
them saves a tenth of its time.
"""

from __future__ import annotations

import ctypes
import platform

TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3
"""Names of glibc's mallopt: so much free memory at the end of the heap is given back, and blocks of
that size are taken from the system."""
MOST = 1 << 30
"""Bytes, of either."""


def keep_freed_memory() -> bool:
    """From now on, in this process. Whether the C library can."""
    if platform.libc_ver()[0] != "glibc":
        return False
    library = ctypes.CDLL(None)
    return all(library.mallopt(name, MOST) == 1 for name in (MMAP_THRESHOLD, TRIM_THRESHOLD))
