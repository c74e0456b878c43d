"""Search methods with their options, for Python: `proxnas.NASP(eta=0.1)`.

The fields have the names and meanings of the flags of `proxnas search`; None is the method's own
default.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Literal, Protocol

from proxnas.common.errors import unknown
from proxnas.methods import METHODS
from proxnas.searching.settings import METHOD_DEFAULTS


class MethodOptions(Protocol):
    """A method and what is asked of it."""

    @property
    def method(self) -> str:
        """Its name in METHODS."""


@dataclass(frozen=True, kw_only=True)
class _Architecture:
    """How A moves."""

    arch_learning_rate: float | None = None
    """How far a step moves A."""
    arch_noise: float | None = None
    """Standard deviation of the noise in the initial A."""
    arch_decay: float | None = None
    """Weight decay of A."""


@dataclass(frozen=True, kw_only=True)
class _Alternating(_Architecture):
    """Steps of A between those of w."""

    warmup: float | None = None
    """Epochs at the start in which only w is trained."""
    arch_every: int | None = None
    """Update A in every so many-th step only."""


@dataclass(frozen=True, kw_only=True)
class _Proximal(_Alternating):
    """What NASP, PA and lazy PA are told."""

    eta: float | None = None
    """Weight of the size regulariser R(A): larger finds smaller networks."""
    cost: str | None = None
    """What R(A) counts: params, flops, latency (measured on this machine) or a JSON file
    {candidate: cost}."""
    order: Literal[1, 2] | None = None
    """Gradient at w, or DARTS' second order."""
    value: Literal["one", "a_k"] | None = None
    """Factor of a selected candidate: 1, or its entry of A as in the paper."""
    arch_optimizer: Literal["adam", "scaled", "sgd"] | None = None
    """Steps of A; scaled: descent with one common scale for all entries."""
    explore: float | None = None
    """Scale of the noise on A when a step selects, falling to 0 over the search."""
    look_ahead: int | None = None
    """Steps between two looks ahead at what training each candidate promises; 0: none."""
    horizon: float | None = None
    """How many steps of its training a look ahead credits a candidate with."""
    score_nodes: float | None = None
    """Chance of a Choice to be scored in a step."""


@dataclass(frozen=True, kw_only=True)
class NASP(_Proximal):
    """Proximal iterations (Alg. 2 of the paper): one candidate a Choice runs, all are scored."""

    method: ClassVar[str] = "nasp"


@dataclass(frozen=True, kw_only=True)
class PA(_Proximal):
    """The proximal algorithm (Eq. prox1)."""

    method: ClassVar[str] = "pa"


@dataclass(frozen=True, kw_only=True)
class LazyPA(_Proximal):
    """The proximal algorithm with lazy steps (Eq. prox2)."""

    method: ClassVar[str] = "lazy-pa"


@dataclass(frozen=True, kw_only=True)
class DARTS(_Alternating):
    """A mixture of all candidates; order 2 by the unrolled gradient."""

    order: Literal[1, 2] = 1

    @property
    def method(self) -> str:
        return {1: "darts-1st", 2: "darts-2nd"}.get(self.order, f"darts of order {self.order}")


@dataclass(frozen=True, kw_only=True)
class _Tempered(_Architecture):
    """A temperature that falls."""

    tau_start: float | None = None
    """Temperature in the first step."""
    tau_end: float | None = None
    """Temperature towards the last step."""


@dataclass(frozen=True, kw_only=True)
class GDAS(_Tempered):
    """One sampled candidate a Choice, the gradient straight through the sample."""

    method: ClassVar[str] = "gdas"

    unsampled_gradient: Literal["zero", "sum"] | None = None
    """Of the entries that were not sampled."""


@dataclass(frozen=True, kw_only=True)
class SNAS(_Tempered):
    """A relaxed sample of all candidates; w and A descend the training loss together."""

    method: ClassVar[str] = "snas"

    resource: float | None = None
    """Weight of the expected cost in the loss."""


@dataclass(frozen=True, kw_only=True)
class RandomSearch:
    """Random selections, each trained from the same weights for an equal share of the epochs; the
    best is kept."""

    method: ClassVar[str] = "random"

    evaluations: int | None = None
    """How many selections."""


def settings_of(method: str | MethodOptions) -> dict[str, Any]:
    """The values of SearchConfig that a method stands for: its defaults, and what is asked
    otherwise."""
    name = method if isinstance(method, str) else getattr(method, "method", type(method).__name__)
    if name not in METHODS:
        raise unknown("method", str(name), METHODS)
    asked: dict[str, Any] = {} if isinstance(method, str) else asdict(method)  # type: ignore[call-overload]
    if isinstance(method, DARTS):
        del asked["order"]  # it is in the name
    given = {key: value for key, value in asked.items() if value is not None}
    return {"method": name} | METHOD_DEFAULTS.get(name, {}) | given
