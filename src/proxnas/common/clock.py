"""Where the time of a step goes: seconds by name."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import torch


class Clock:
    """Adds up seconds by name.

    On an accelerator kernels run behind the host's back; `exact` waits for them at each reading,
    which costs time and is therefore for measurements only.
    """

    def __init__(self, device: torch.device, exact: bool = False) -> None:
        self.seconds: dict[str, float] = {}
        self._wait = exact and device.type != "cpu"

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        start = self.now()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + self.now() - start

    def now(self) -> float:
        if self._wait:
            torch.accelerator.synchronize()
        return time.perf_counter()

    def take(self) -> dict[str, float]:
        """The seconds since the last call."""
        taken, self.seconds = self.seconds, {}
        return taken

    def take_since(self, start: float, *parts: str) -> dict[str, float]:
        """The same, of these parts at least, and as `other` what else has passed since `start`."""
        seconds = dict.fromkeys(parts, 0.0) | self.take()
        other = max(0.0, time.perf_counter() - start - sum(seconds.values()))
        return seconds | {"other": other}
