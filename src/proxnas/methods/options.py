"""What the options of every method are, its traits, and the groups of fields that several share.

No torch here: options are read and written without it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal

from proxnas.common.errors import AboutOptions, OptionError
from proxnas.common.options import BELOW_ONE, NOT_NEGATIVE, POSITIVE, Options, Range

CELLS = Range(1, 10_000_000)
RATE_OF_A = Range(0, above=True, reason="or A never moves")
ONE_OR_HALF = -1
"""A warm-up of one epoch, but of at most half of the search: as published where there are two, and
short searches are not all warm-up."""


@dataclass(frozen=True)
class Traits:
    """What others must know of a method."""

    samples_cells: bool = False
    """It evaluates whole cells one after the other, each trained by itself."""
    starts_from_A: bool = False
    """It has an A, which may begin with what is known."""
    draws_answers: bool = False
    """It draws classes from the logits of a whole batch: for classification by cross-entropy only,
    by one process, and not for language models, which never hold them."""
    comes_to_rest: bool = True
    """It may stop changing its cell; else it draws another in every step."""
    any_length: bool = False
    """It has no schedule of its own over all epochs: a search may be made longer."""
    refines: bool = False
    """What it finds is refined by itself in spaces that say by what."""
    past_warmup: Mapping[str, Any] = field(default_factory=dict)
    """Options that put it behind its warm-up, where a step takes longer: for measurements."""


@dataclass(frozen=True)
class Beside:
    """What else is known of a search: whether an option of a method does anything may depend on
    it."""

    space: str
    limited: bool
    """Whether the final network has a limit."""
    cost: str = "params"
    """What R(A) counts."""
    weightless: bool = False
    """Candidates have neither weights nor products."""
    one_cell: bool = False
    """There is no reduction cell."""
    images: bool = True
    """Classes of images are learnt, not text, nor what somebody's module is for."""
    cells: bool = True
    """There are cells whose edges have the same candidates."""


@dataclass(frozen=True)
class MethodOptions(Options):
    """What a method is told. Its fields have the method's own defaults."""

    heading: ClassVar[str] = "the method: {}"

    public: ClassVar[str] = ""
    """Its name in `proxnas`; empty: the method's name in one word, Toy for toy."""
    traits: ClassVar[Traits] = Traits()
    defaults: ClassVar[Mapping[str, Any]] = {}
    """Option of another group -> its default in searches by this method."""
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    """Name -> what was published, where that differs from the defaults."""
    for_images: ClassVar[tuple[str, ...]] = ()
    """Fields that mean nothing for recurrent cells."""

    def beyond(self, beside: Beside) -> list[str]:
        """What a search does beyond the published algorithm, in words; none: it is that one."""
        return []

    def weighs_cost(self, limited: bool) -> bool:
        """Whether the search must know what candidates cost; `limited`: networks have a limit."""
        return False

    def idle(self, beside: Beside) -> dict[str, str]:
        """Option -> when it does nothing, in words, for those that do nothing beside the others."""
        resting = "because it draws another cell in every step, and so never comes to rest"
        return {} if self.traits.comes_to_rest else {"patience": resting}


@dataclass(frozen=True)
class RatesOfW(Options):
    """How the shared weights w are trained: SGD with the rates of the public DARTS and NASP
    codes."""

    heading: ClassVar[str] = "weights:"

    learning_rate: Annotated[float, NOT_NEGATIVE] = 0.025
    """Rate of w, on a cosine down to --learning-rate-min."""
    learning_rate_min: Annotated[float, NOT_NEGATIVE] = 0.001
    momentum: Annotated[float, BELOW_ONE] = 0.9
    weight_decay: Annotated[float, NOT_NEGATIVE] = 3e-4
    clip: Annotated[float, NOT_NEGATIVE] = 5.0
    """Largest norm of the gradient of w."""


@dataclass(frozen=True)
class HasRateOfA(MethodOptions):
    """A, or what draws cells, moves at a rate."""

    arch_learning_rate: Annotated[float, RATE_OF_A] = 3e-4
    """Rate of the steps of A."""


@dataclass(frozen=True)
class HasNoiseInA(MethodOptions):
    """A begins with noise."""

    arch_noise: Annotated[float, NOT_NEGATIVE] = 1e-3
    """Standard deviation of the noise in the initial A; without it all rows tie."""


@dataclass(frozen=True)
class DescendsA(HasNoiseInA, HasRateOfA):
    """A takes steps by its gradient."""

    traits: ClassVar[Traits] = Traits(starts_from_A=True)

    arch_beta1: Annotated[float, BELOW_ONE] = 0.5
    """Of Adam on A."""
    arch_beta2: Annotated[float, BELOW_ONE] = 0.999
    arch_decay: Annotated[float, NOT_NEGATIVE] = 0.0
    """Weight decay of A."""


@dataclass(frozen=True)
class WarmsUp(MethodOptions):
    """Only w is trained at first."""

    warmup: Annotated[float, Range(0, also=ONE_OR_HALF)] = 0.0
    """Epochs at the start in which only w is trained. 0.5 is half of one; -1: one, but at most
    half of the search."""

    def warmup_epochs(self, epochs: int) -> float:
        """--warmup, or what stands for -1."""
        return min(1.0, epochs / 2) if self.warmup == ONE_OR_HALF else self.warmup

    def first_due(self, steps_per_epoch: int, epochs: int, every: int = 1) -> int:
        """The first step behind the warm-up that updates A."""
        # the first multiple of `every` that is no longer warm-up, as `due` has it
        return every * math.ceil(self.warmup_epochs(epochs) * steps_per_epoch / every)

    def check_moves(self, steps_per_epoch: int, epochs: int, every: int = 1) -> None:
        """An InputError if no step updates A: what is returned would be the noise that it starts
        as."""
        warmup, steps = self.warmup_epochs(epochs), steps_per_epoch * epochs
        if self.first_due(steps_per_epoch, epochs, every) >= steps:
            beside = f" {{arch_every}} {every}" if every > 1 else ""
            raise AboutOptions(
                f"{{warmup}} {warmup:g}{beside}: in none of the {steps} steps of {{epochs}}"
                f" {epochs} would A move: give less, or more {{epochs}}"
            )


@dataclass(frozen=True)
class Alternates(WarmsUp):
    """Steps of A between those of w."""

    arch_every: Annotated[int, Range(1)] = 1
    """Update A in every so many-th step only."""

    def due(self, t: int, steps_per_epoch: int, epochs: int) -> bool:
        """Whether step t updates A."""
        # a warm-up may end within an epoch
        warm = t >= self.warmup_epochs(epochs) * steps_per_epoch
        return warm and t % self.arch_every == 0

    def check_due(self, steps_per_epoch: int, epochs: int) -> None:
        """An InputError if no step does."""
        self.check_moves(steps_per_epoch, epochs, self.arch_every)


@dataclass(frozen=True)
class Anneals(MethodOptions):
    """A temperature falls over the search."""

    tau_start: Annotated[float, POSITIVE] = 1.0
    """Temperature in the first step."""
    tau_end: Annotated[float, POSITIVE] = 0.1
    """Temperature towards the last step."""

    @property
    def tau(self) -> tuple[float, float]:
        """From, to."""
        return self.tau_start, self.tau_end


@dataclass(frozen=True)
class TrainsPartly(MethodOptions):
    """Shared weights are trained through some candidates at a time; the others come back later."""

    unselected: Literal["still", "drift"] = "still"
    """Weights of unselected candidates. They may drift by momentum and decay, as in the public
    code."""


@dataclass(frozen=True)
class CountsSkips(MethodOptions):
    """Cells are derived by the common rule, which can count skip connections."""

    for_images: ClassVar[tuple[str, ...]] = ("max_skip",)

    max_skip: Annotated[int, Range(-1)] = -1
    """Most skip connections a cell may have; -1: any number."""


@dataclass(frozen=True)
class SamplesCells(MethodOptions):
    """Whole cells are evaluated, one after the other."""

    traits: ClassVar[Traits] = Traits(samples_cells=True)
    # the best cell may stay the best for long while better ones are still to come
    defaults: ClassVar[Mapping[str, Any]] = {"patience": 0}

    evaluations: Annotated[int, CELLS] = 8
    """Cells to evaluate, each trained for an equal share of the epochs."""
    evaluate: Literal["train", "table"] = "train"
    """By a short training and the half for A, or by the validation column of --table (an epoch is
    then an equal part of the evaluations)."""

    def idle(self, beside: Beside) -> dict[str, str]:
        """Nothing is trained by a table."""
        rates = ("learning_rate", "learning_rate_min", "momentum", "weight_decay", "clip")
        trains = self.evaluate == "train"
        why = "with {evaluate} table, which trains nothing"
        return super().idle(beside) | ({} if trains else dict.fromkeys(rates, why))


COSTS = ("auto", "params", "flops", "latency")


def check_cost(cost: str) -> None:
    """An InputError for what R(A) cannot count."""
    if cost not in COSTS and not cost.endswith(".json"):
        raise OptionError("cost", cost, "give params, flops, latency or a .json file of costs")


@dataclass(frozen=True)
class CostOption(Options):
    """What size means."""

    cost: str = "auto"
    """What candidates cost, in R(A) too: params, flops, latency (measured on this machine) or a
    JSON file {operation: cost}; auto: what the limit is on, else params."""

    def check(self) -> None:
        """A cost that exists."""
        super().check()
        check_cost(self.cost)


@dataclass(frozen=True)
class CountsCost(CostOption, MethodOptions):
    """What candidates cost counts beside the loss."""

    def idle_weight(self, name: str, weight: float, beside: Beside) -> dict[str, str]:
        """What does nothing: the cost without its weight, the weight where nothing costs."""
        found = {}
        if not weight and not self.weighs_cost(beside.limited):
            found["cost"] = f"without {{{name}}}"
        # p_k = 0 for all k, and R = 0 whatever its weight
        if beside.weightless and beside.cost in ("params", "flops"):
            found[name] = (
                f"in {{space}} {beside.space}, whose candidates have neither weights nor"
                " products: give {cost} latency, or"
            )
        return found
