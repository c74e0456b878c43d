"""Limits on a user's own module: sizes where Choices stand inside candidates, and what a search
within them returns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import proxnas
from proxnas.common.errors import InputError
from proxnas.common.types import Matrices
from proxnas.core.choice import Choice
from proxnas.core.groups import Group, Holder
from proxnas.core.size.budget import Sizes
from proxnas.core.size.complexity import parameters
from proxnas.core.size.nesting import best_within, losses, own_parameters, reached
from proxnas.domains.modules.space import CustomSpace, derive

GROUPS: dict[str, Group] = {
    "a": Group(("x", "y", "z")),
    "a.y": Group(("x", "y"), inside=Holder("a", 1)),
    "a.y.x": Group(("x", "y", "z"), inside=Holder("a.y", 0)),
    "a.z": Group(("x", "y"), inside=Holder("a", 2)),
    "b": Group(("x", "y")),
}


def selections(groups: Mapping[str, Group]) -> Iterator[Matrices]:
    """All there are, also of what is not reached."""
    rows = [
        torch.eye(len(group.candidates), dtype=torch.float64).split(1) for group in groups.values()
    ]
    for chosen in product(*rows):
        yield dict(zip(groups, chosen, strict=True))


def drawn(seed: int) -> Matrices:
    generator = torch.Generator().manual_seed(seed)
    draw = {
        name: torch.randint(0, 6, group.shape, generator=generator)
        for name, group in GROUPS.items()
    }
    return {name: x.double() for name, x in draw.items()}


def total(A: Matrices, A_bar: Matrices) -> float:
    counted = reached(A_bar, GROUPS)
    return sum(float((A[name] * counted[name]).sum()) for name in A)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.integers(0, 25))
def test_the_best_of_what_is_reached_is_found(seed: int, room: int) -> None:
    A, costs = drawn(seed), drawn(seed + 1)
    fitting = [A_bar for A_bar in selections(GROUPS) if total(costs, A_bar) <= room]
    found = best_within(A, costs, GROUPS, room)
    if found is None:
        assert not fitting
        return
    assert total(costs, found) <= room
    assert total(A, found) == max(total(A, A_bar) for A_bar in fitting)
    assert all(matrix.sum() == 1 for matrix in found.values())


def test_a_candidate_wins_nothing_by_holding_more_decisions() -> None:
    A = {name: torch.full(group.shape, 0.5, dtype=torch.float64) for name, group in GROUPS.items()}
    A["a"][0, 0] = (
        0.6  # the candidate that holds nothing is ahead, though the others' sums are larger
    )
    free = {name: torch.zeros_like(a) for name, a in A.items()}
    best = best_within(losses(A, GROUPS), free, GROUPS, 1.0)
    assert best is not None and best["a"].tolist() == [[1, 0, 0]]
    flat = {"a": GROUPS["a"]}
    assert losses({"a": A["a"]}, flat)["a"] is A["a"]


class Net(nn.Module):
    """A Choice in a candidate, one in a candidate of that, one outside, and a weight that is used
    twice."""

    def __init__(self) -> None:
        super().__init__()
        self.out = nn.Linear(8, 2)
        inner = Choice({"prelu": nn.PReLU(16), "relu": nn.ReLU()})
        wide = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 8))
        last = Choice({"wide": wide, "narrow": nn.Linear(16, 8)})
        big = nn.Sequential(
            nn.Linear(8, 16), Choice({"active": inner, "skip": nn.Identity()}), last
        )
        self.a = Choice({"big": big, "linear": nn.Linear(8, 8), "skip": nn.Identity()})
        self.b = Choice({"linear": nn.Linear(8, 8), "tied": Tied(self.out), "skip": nn.Identity()})

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.out(self.b(self.a(x)))
        return y


class Tied(nn.Module):
    """Goes through the weights of the last layer and back."""

    def __init__(self, out: nn.Linear) -> None:
        super().__init__()
        self.out = out
        self.scale = nn.Parameter(torch.ones(8))

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.scale * (self.out(x) @ self.out.weight)
        return y


def test_sums_of_own_parameters_are_the_sizes_of_all_plain_modules() -> None:
    space = CustomSpace(Net())
    assert space.groups["a.big.1.active"].inside == Holder("a.big.1", 0)

    def counted(A_bar: Matrices) -> int:
        return parameters(derive(space.module, space.genotype(A_bar)))

    sizes = Sizes("params", own_parameters(space.module, space.groups), space.groups, counted)
    every = [(sizes(A_bar), counted(A_bar)) for A_bar in selections(space.groups)]
    assert len(every) == 3 * 2 * 2 * 2 * 3
    assert all(said == true for said, true in every)
    assert (sizes.smallest, sizes.largest) == (min(every)[0], max(every)[0])


def examples(n: int) -> tuple[Tensor, Tensor]:
    x = torch.randn(n, 8, generator=torch.Generator().manual_seed(n))
    return x, (x.abs().sum(1) > 6.4).long()


def find(module: nn.Module, method: Any = "nasp", **options: Any) -> proxnas.Found:
    torch.manual_seed(0)
    return proxnas.search(
        module, examples(48), examples(32), method, **{"epochs": 2, "batch_size": 8} | options
    )


@pytest.mark.parametrize(
    "method", ["nasp", "pa", "lazy-pa", "darts-1st", "gdas", "snas", "random", "evolution"]
)
@pytest.mark.parametrize(("asked", "limit"), [(30, 30), ("100", 100), ("0.3k", 300)])
def test_a_found_module_keeps_the_limit(method: str, asked: int | str, limit: int) -> None:
    found = find(Net(), method, max_params=asked)
    budget = found.result["budget"]
    assert parameters(found.model()) == found.result["params"] <= limit
    assert budget == {"of": "params", "limit": limit, "smallest": 18, "largest": 1858}


def test_without_a_limit_there_is_no_budget() -> None:
    assert find(Net()).result["budget"] is None


class Flat(nn.Module):
    """Widths to choose from, one decision for two places."""

    def __init__(self) -> None:
        super().__init__()
        self.parts = nn.ModuleList(self.block() for _ in range(2))
        self.out = nn.Linear(8, 2)

    def block(self) -> Choice:
        widths = {
            f"w{n}": nn.Sequential(nn.Linear(8, n), nn.ReLU(), nn.Linear(n, 8))
            for n in (2, 16, 256)
        }
        return Choice(widths, share="width")

    def forward(self, x: Tensor) -> Tensor:
        for part in self.parts:
            x = x + part(x)
        y: Tensor = self.out(x)
        return y


def test_multiply_adds_are_limited_where_nothing_is_nested() -> None:
    found = find(Flat(), max_flops="1k")
    width = {2: 80, 16: 528}  # 2 * 2 * 8 * n + 16
    assert found.genotype["width"] in ("w2", "w16")
    assert (
        found.result["flops"]
        == width[int(found.genotype["width"][1:])]
        <= 1000
        == found.result["budget"]["limit"]
    )


def test_seconds_are_limited_too() -> None:
    found = find(Flat(), max_latency="10s")  # what no machine misses
    assert found.result["budget"]["of"] == "latency" and 0 < found.result["latency"] < 10


@pytest.mark.parametrize(
    ("limits", "words"),
    [
        (
            {"max_params": 17},
            (
                "max_params 17: the smallest network of this space and size has 18 parameters: give"
                " at least"
            ),
        ),
        ({"max_params": "many"}, "max_params many: give a number above 0"),
        (
            {"max_params": 100, "max_flops": "1k"},
            "max_params 100 and max_flops 1k: give one limit only",
        ),
        (
            {"max_flops": "1k"},
            (
                "Choice 'a.big.1' stands inside a candidate of 'a': there only parameters can be"
                " limited"
            ),
        ),
    ],
)
def test_impossible_limits_are_refused(limits: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words) as refusal:
        find(Net(), **limits)
    assert "final" not in str(refusal.value)


def test_what_stands_in_several_places_has_no_sum() -> None:
    inner = Choice({"relu": nn.ReLU(), "prelu": nn.PReLU()})
    twice = nn.Sequential(
        Choice({"x": inner, "y": nn.Identity()}), Choice({"x": inner, "y": nn.Identity()})
    )
    with pytest.raises(
        InputError,
        match=r"Choice '0.0.x': stands in candidate 0 of '0.0' and candidate 0 of '0.1': ",
    ):
        find(nn.Sequential(twice, nn.Linear(8, 2)), max_params=1000)
    shared = nn.Linear(8, 8)
    lent = nn.Sequential(
        *(Choice({"x": shared, "y": nn.Identity()}) for _ in range(2)), nn.Linear(8, 2)
    )
    with pytest.raises(
        InputError, match=r"parameter '0.candidates.0.weight': stands in candidate 0 of '0' and"
    ):
        find(lent, max_params=1000)
