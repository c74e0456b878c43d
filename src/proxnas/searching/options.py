"""What a search is told: the options of all who take part in it, composed.

`SearchOptions.from_values` makes them of flat values, by name. Which options there are depends on
the method and on the domain of the space: each declares its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from proxnas.common.errors import OptionError
from proxnas.common.options import Composed, build, flat_hints
from proxnas.domains.search_options import DomainOptions
from proxnas.domains.spaces import SPACES, traits_of
from proxnas.methods.limit_options import LimitOptions
from proxnas.methods.options import (
    Beside,
    MethodOptions,
    RatesOfW,
    SamplesCells,
    TrainsPartly,
    WarmsUp,
)
from proxnas.runs.executors.choice import ManyFlags
from proxnas.runs.loggers import LogFlags
from proxnas.searching.own_options import Course, SearchJob, What
from proxnas.searching.owners import all_parts, asks_for_nothing, foreign, parts_for


@dataclass(frozen=True, kw_only=True)
class SearchOptions(Composed):
    """Search a cell on DATA: digits, a file or folder of images, or hf:NAME; with --space rnn a
    text."""

    what: What = field(default_factory=What)
    course: Course = field(default_factory=Course)
    method_options: MethodOptions
    limits: LimitOptions = field(default_factory=LimitOptions)
    domain: DomainOptions
    weights: RatesOfW = field(default_factory=RatesOfW)
    job: SearchJob = field(default_factory=SearchJob)
    workers_options: ManyFlags = field(default_factory=ManyFlags)
    logging: LogFlags = field(default_factory=LogFlags)

    @classmethod
    def from_values(cls, values: Mapping[str, Any]) -> SearchOptions:
        """The options with these values, the others as declared."""
        space, method = values.get("space", What.space), values.get("method", What.method)
        # which fields there are follows from the space and the method
        parts = parts_for(space, method)
        return build(SearchOptions, without_foreign(values, space, method), parts)

    @classmethod
    def all_hints(cls) -> dict[str, Any]:
        """Name -> type of every option that some search has."""
        found: dict[str, Any] = {}
        for part in all_parts():
            found |= flat_hints(part)
        own = flat_hints(SearchOptions, {"method_options": MethodOptions, "domain": DomainOptions})
        return own | found

    def check(self) -> None:
        """Rules between the parts."""
        what, own = self.what, self.method_options
        if self.weights.learning_rate_min > self.weights.learning_rate:
            low = self.weights.learning_rate_min
            raise OptionError("learning_rate_min", low, "give at most {learning_rate}")
        if self.domain.weightless:
            self._check_text()
        if getattr(own, "fixed_reduction", False) and self.limits.limit():
            advice = "has a cell of its own size: leave it out, or the limit"
            raise OptionError("fixed_reduction", True, advice)
        if isinstance(own, SamplesCells) and own.evaluate == "table" and not self.course.table:
            raise OptionError("evaluate", own.evaluate, "give {table} FILE too")
        if self.course.table and not traits_of(what.space).has_tables:
            tabled = [name for name in SPACES if traits_of(name).has_tables]
            raise OptionError("table", self.course.table, f"needs {{space}} {' or '.join(tabled)}")
        if self.course.refine:
            self._check_refine()
        self._check_wiring()
        self._check_weight_optimizer()
        by = self.limits.latency_by
        if by not in ("auto", "torch") and not self.domain.cells_of_images:
            advice = f"is for images, not for {{space}} {what.space}: leave it out, or give torch"
            raise OptionError("latency_by", by, advice)

    def _check_text(self) -> None:
        own = self.method_options
        # asked for is what differs from the method's own default
        plain = type(own)()
        for name in own.for_images:
            if getattr(own, name) != getattr(plain, name):
                advice = f"is not for {{space}} {self.what.space}: leave it out"
                raise OptionError(name, getattr(own, name), advice)
        if own.traits.draws_answers:
            advice = "cannot search recurrent cells: choose another"
            raise OptionError("method", self.what.method, advice)

    def _check_wiring(self) -> None:
        wiring, advice = getattr(self, "wiring", "free"), ""
        if wiring != "free" and not traits_of(self.what.space).wired:
            advice = f"is not for {{space}} {self.what.space}: leave it out, or give free"
        elif wiring == "auto" and self.method_options.traits.samples_cells:
            advice = f"{self.what.method} trains cells by themselves: give free or inputs"
        if advice:
            raise OptionError("wiring", wiring, advice)

    def _check_weight_optimizer(self) -> None:
        own = self.method_options
        drifts = isinstance(own, TrainsPartly) and own.unselected == "drift"
        if drifts and getattr(self, "weight_optimizer", "sgd") == "muon":
            advice = "turns weights whatever their gradient: give sgd, or {unselected} still"
            raise OptionError("weight_optimizer", "muon", advice)

    def _check_refine(self) -> None:
        what, advice = self.what, ""
        if self.method_options.traits.samples_cells:
            advice = f"{what.method} trains cells by themselves already: leave it out"
        elif not self.domain.cells_of_images:
            advice = f"is for cells of images, not for {{space}} {what.space}: leave it out"
        if advice:
            raise OptionError("refine", self.course.refine, advice)

    def warmup_epochs(self) -> float:
        """Epochs at the start in which only w is trained."""
        own = self.method_options
        return own.warmup_epochs(self.course.epochs) if isinstance(own, WarmsUp) else 0.0

    def cost_of_R(self) -> str:
        """params, flops, latency or the name of a file; params where the method has no R."""
        cost = getattr(self.method_options, "cost", "auto")
        if cost == "auto":
            limit = self.limits.limit()
            return limit.of if limit else "params"
        return str(cost)

    @property
    def timed(self) -> bool:
        """Whether seconds of networks count."""
        return bool(self.limits.max_latency) or self.cost_of_R() == "latency"

    def weight_of_R(self) -> float:
        """The weight of R(A) that is asked for."""
        eta: float = getattr(self.method_options, "eta", 0.0)
        return eta

    def idle(self) -> dict[str, str]:
        """Option -> when it does nothing, in words, for those that do nothing in this search."""
        found = self.method_options.idle(self._beside())
        if not self.timed:
            found["latency_by"] = "without {max_latency} or {cost} latency"
        if getattr(self, "weight_optimizer", "sgd") == "muon":
            # it keeps the norms of convolutions, and has a momentum of its own
            for name in ("momentum", "weight_decay"):
                found.setdefault(name, "with {weight_optimizer} muon")
        return found

    def beyond(self) -> str:
        """What the search does beyond the published algorithm, and how to do without; empty: it is
        that one."""
        own = self.method_options
        added = own.beyond(self._beside())
        # refine 0 is what the paper has
        if self.course.refine and "paper" in own.presets:
            added = [*added, "short trainings of the found cell and others like it"]
        if "paper" in own.presets:
            if getattr(self, "weight_optimizer", "sgd") == "muon":
                added = [*added, "Muon for w"]
            wiring = getattr(self, "wiring", "free")
            added += {
                "free": [],
                "auto": ["wiring by short trainings of random cells"],
                "inputs": ["nodes that read inputs only"],
            }[wiring]
        return f"{', '.join(added)} (preset paper: without)" if added else ""

    def _beside(self) -> Beside:
        space = self.what.space
        traits = traits_of(space)
        return Beside(
            space,
            self.limits.limit() is not None,
            self.cost_of_R(),
            self.domain.weightless,
            one_cell=not traits.reduces,
            images=self.domain.cells_of_images,
            cells=traits.many_edges,
        )

    def over_all_epochs(self) -> str:
        """What follows a schedule over all epochs of the search, in words; empty if nothing
        does."""
        epochs, own = self.course.epochs, self.method_options
        if not own.traits.any_length:
            return f"{self.what.method} is made for {epochs} epochs from the start"
        if getattr(own, "explore", 0.0):
            return f"its {{explore}} falls to 0 over {epochs} epochs"
        if getattr(own, "evidence", 0.0):
            return f"its {{evidence}} is waited for where {epochs} epochs are enough steps"
        if self.limits.limit():
            return f"its limit is approached over {epochs} epochs"
        if self.weights.learning_rate_min != self.weights.learning_rate:
            return f"its learning rate falls to its end over {epochs} epochs"
        if getattr(self, "wiring", "free") == "auto":
            return f"its {{wiring}} is found out where {epochs} epochs are longer than that"
        return ""

    @property
    def max_skip(self) -> int:
        """Most skip connections of a cell; -1: any number, and so where the method has rules of its
        own."""
        number: int = getattr(self.method_options, "max_skip", -1)
        return number

    # what the loop of epochs goes by

    @property
    def epochs(self) -> int:
        return self.course.epochs

    @property
    def learning_rate(self) -> float:
        return self.weights.learning_rate

    @property
    def threads(self) -> Literal["auto"] | int:
        return self.job.threads

    @property
    def checkpoint_minutes(self) -> float:
        return self.job.checkpoint_minutes


def without_foreign(values: Mapping[str, Any], space: str, method: str) -> dict[str, Any]:
    """The values that a search by the method in the space has a use for; an InputError for others,
    unless they ask for nothing, as in files of versions that wrote all of them."""
    known = flat_hints(SearchOptions, parts_for(space, method))
    kept = {name: value for name, value in values.items() if name in known}
    for name, value in values.items():
        if name not in known and value != asks_for_nothing(name):
            raise foreign(name, value, space, method)
    return kept
