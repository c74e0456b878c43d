"""The options that keep networks small: limits on the final network, and what R(A) counts.

No torch here: `--help` must be quick.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from proxnas.common import quantities
from proxnas.common.errors import AboutOptions, OptionError, escape
from proxnas.common.options import Options
from proxnas.methods.options import CostOption


class Limit(NamedTuple):
    """What may not be exceeded, by how much, and how that was written."""

    of: str
    value: float
    text: str

    def asked(self) -> str:
        """The option and its value, for an `AboutOptions`."""
        return f"{{max_{self.of}}} {escape(self.text)}"


@dataclass(frozen=True)
class LimitOptions(Options):
    """Limits on the final network, of which one can be given."""

    heading: ClassVar[str] = "limits: {}"

    max_params: str = ""
    """Most parameters of the final network, for example 500k."""
    max_flops: str = ""
    """Most multiply-adds of it for one image, for example 20M."""
    max_latency: str = ""
    """Longest time of it for one image on this machine, for example 2ms."""
    latency_by: str = "auto"
    """What measures latency: onnx (ONNX Runtime, by which networks are deployed), torch, or a
    table of `proxnas latency build`: table (the one that is kept) or its FILE.json. auto: the
    table that is kept, if it fits; else onnx, if it is installed; else torch."""

    def check(self) -> None:
        """One limit at most, and one that can be read."""
        super().check()
        self.limit()
        check_latency_by(self.latency_by)

    def limit(self) -> Limit | None:
        """The limit that is asked for; an InputError for what is none."""
        given = {name: getattr(self, f"max_{name}") for name in ("params", "flops", "latency")}
        asked = {name: text for name, text in given.items() if text}
        if len(asked) > 1:
            both = " and ".join(f"{{max_{name}}} {escape(text)}" for name, text in asked.items())
            raise AboutOptions(f"{both}: give one limit only")
        for of, text in asked.items():
            read = quantities.seconds if of == "latency" else quantities.count
            return Limit(of, read(f"max_{of}", text), text)
        return None


@dataclass(frozen=True)
class BudgetFlags(CostOption, LimitOptions):
    """The same with what R(A) counts, for commands that search by one method of many."""


RUNTIMES = ("auto", "onnx", "torch", "table")


def check_latency_by(by: str) -> None:
    """An InputError for what measures nothing."""
    if by not in RUNTIMES and not by.endswith(".json"):
        raise OptionError("latency_by", by, "give auto, onnx, torch, table or a .json file")
