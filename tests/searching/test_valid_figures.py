"""`valid_*` of rows and results is of the discrete cell that is returned, whatever a method
trains."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import proxnas
from proxnas import Choice
from proxnas.cells.genotype import Genotype
from proxnas.common.types import Matrices
from proxnas.methods import METHODS, find
from proxnas.methods.sampling import Sampling
from proxnas.runs.metrics import Validation
from proxnas.searching.job import Search
from proxnas.searching.start import selecting
from support.methods import SAMPLING
from support.searches import same, steps, stored
from support.short_searches import short

MakeSearch = Callable[..., Search]
SHARED = [method for method in METHODS if method not in SAMPLING]
MIXING = [method for method in METHODS if hasattr(find(method), "use_mixture")]
SHORT = ("--epochs", "1", "--arch-learning-rate", "0.1")  # five steps


def after_an_epoch(search: Search) -> dict[str, Any]:
    """The row that the loop would write."""
    for _ in range(len(search)):
        search.totals.add(search.step())
    return search.row(time.perf_counter()).to_json()


def measured(search: Search, A_bar: Matrices, weighted: bool = False) -> dict[str, float]:
    """By hand: the means over the images of the half for A."""
    search.net.use(A_bar, weighted)
    losses, right = [], []
    with torch.no_grad():
        for batch in search.task.part.evaluation_batches(64):  # type: ignore[attr-defined]
            output = search.net(batch.x)
            losses.append(nn.functional.cross_entropy(output, batch.y, reduction="none"))
            right.append(output.argmax(1) == batch.y)
    means = [float(torch.cat(parts).double().mean()) for parts in (losses, right)]
    return search.task.figures("valid", Validation(*means))


def with_and_without_limit() -> list[Any]:
    """Every method; both ways for nasp and, in `make test-all`, for all."""
    found = []
    for number, method in enumerate(SHARED):
        for turn, limit in enumerate(("", "5500")):
            quick = method == "nasp" or number % 2 == turn
            marks = [] if quick else [pytest.mark.slow]
            found.append(pytest.param(method, limit, marks=marks))
    return found


@pytest.mark.parametrize(("method", "limit"), with_and_without_limit())
def test_the_figures_of_a_row_are_those_of_its_genotype(
    method: str, limit: str, make_search: MakeSearch
) -> None:
    size = ("--final-cells", "1", "--final-channels", "4")
    size += ("--max-params", limit) if limit else ()
    search = make_search("--method", method, "--space", "nasbench201", *short(method), *size)
    row = after_an_epoch(search)
    cell = selecting(Genotype.from_object(row["genotype"]), search.space)
    assert cell is not None
    found = {name: row[name] for name in ("valid_loss", "valid_accuracy")}
    assert found == pytest.approx(measured(search, cell), rel=1e-5)
    assert {name for name in row if name.startswith("supernet")} == (
        {"supernet_loss", "supernet_accuracy"} if method in MIXING else set()
    )


def test_a_cell_that_a_limit_puts_in_place_of_the_best_is_trained_by_itself(
    make_search: MakeSearch,
) -> None:
    """As where seconds are measured at the end, and the limit is tightened: weights of another cell
    say nothing about it."""
    size = ("--final-cells", "1", "--final-channels", "4", "--max-params", "5500")
    words = ("--method", "random", "--space", "nasbench201", *short("random"), *size)
    search = make_search(*words)
    steps(search, 4)
    assert search.budget is not None
    search.budget.aim = search.budget.sizes.smallest
    before, returned = stored(search.state_dict()), search.returned()
    assert returned is not search.method.architecture()[1]
    found = search.validation()
    assert same(stored(search.state_dict()), before)
    alone = make_search(*words).method
    assert isinstance(alone, Sampling)
    expected = None
    while expected is None:
        expected = alone.evaluator.step(returned).measured
    assert found == expected


def test_what_the_mixture_had_is_another_figure(make_search: MakeSearch) -> None:
    search = make_search("--method", "darts-1st", "--space", "nasbench201", *SHORT)
    row = after_an_epoch(search)
    A, _ = search.method.architecture()
    mixture = measured(search, {name: a.softmax(-1) for name, a in A.items()}, weighted=True)
    assert row["supernet_loss"] == pytest.approx(mixture["valid_loss"], rel=1e-5)
    assert row["supernet_accuracy"] == pytest.approx(mixture["valid_accuracy"])
    assert abs(row["valid_loss"] - row["supernet_loss"]) > 1e-3


@pytest.mark.parametrize("method", ["nasp", "darts-1st", "asap", "snas", "gdas"])
def test_perplexities_are_those_of_the_returned_cell(method: str, make_search: MakeSearch) -> None:
    search = make_search("--method", method, "--space", "rnn", *short(method, "rnn"))
    steps(search, 2)
    row, returned = search.figures(), search.returned()
    assert (
        row["valid_loss"]
        == search.measure({name: (a != 0).double() for name, a in returned.items()}).loss
    )
    assert ("supernet_perplexity" in row) == (method in MIXING)


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize(
    "method", ["darts-1st", "snas", "gdas", proxnas.NASP(value="a_k", explore=0.0)]
)
def test_the_figures_of_a_module_are_those_of_the_model_that_is_returned(method: Any) -> None:
    torch.manual_seed(1)
    net = nn.Sequential(
        Choice({"a": nn.Linear(4, 4), "b": nn.Tanh(), "c": nn.Linear(4, 4)}), nn.Linear(4, 2)
    )
    data = (torch.randn(32, 4), torch.randint(2, (32,)))
    found = proxnas.search(net, data, data, method, epochs=1, batch_size=7)
    output = found.model()(data[0]).detach()
    assert found.result["valid_loss"] == pytest.approx(
        float(nn.functional.cross_entropy(output, data[1])), rel=1e-6
    )
