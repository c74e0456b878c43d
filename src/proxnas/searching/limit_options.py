"""The flags that keep networks small: R(A) and its cost, and limits on the final network.

No torch here: `--help` must be quick.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from proxnas.common import quantities
from proxnas.common.errors import InputError


class Limit(NamedTuple):
    """What may not be exceeded, by how much, and how it was asked for."""

    of: str
    value: float
    asked: str


@dataclass(frozen=True)
class BudgetFlags:
    """Limits on the final network, of which one can be given."""

    cost: str = "auto"
    """What R(A) counts: params, flops, latency (measured on this machine) or a JSON file
    {operation: cost}; auto: what the limit is on, else params."""
    max_params: str = ""
    """Most parameters of the final network, for example 500k."""
    max_flops: str = ""
    """Most multiply-adds of the final network for one image, for example 20M."""
    max_latency: str = ""
    """Longest time of the final network for one image on this machine, for example 2ms."""

    def limit(self) -> Limit | None:
        """The limit that is asked for; an InputError for what is none."""
        given = {name: getattr(self, f"max_{name}") for name in ("params", "flops", "latency")}
        asked = {name: text for name, text in given.items() if text}
        if len(asked) > 1:
            flags = " and ".join(f"--max-{name} {text}" for name, text in asked.items())
            raise InputError(f"{flags}: give one limit only")
        for of, text in asked.items():
            read = quantities.seconds if of == "latency" else quantities.count
            return Limit(of, read(f"--max-{of}", text), f"--max-{of} {text}")
        return None

    def cost_of_R(self) -> str:
        """params, flops, latency or the name of a file."""
        limit = self.limit()
        return self.cost if self.cost != "auto" else limit.of if limit else "params"

    def check_budget(self) -> None:
        """An InputError for limits that cannot be read and costs that do not exist."""
        self.limit()
        if self.cost not in ("auto", "params", "flops", "latency") and not self.cost.endswith(
            ".json"
        ):
            raise InputError(
                f"--cost {self.cost}: give params, flops, latency or a .json file of costs"
            )
