"""complexity.py and the operations it counts: by formula, by hand, and against published tables."""

from __future__ import annotations

import csv
import gzip
from collections.abc import Callable

import pytest
import torch
from torch import nn

from proxnas.cells import kinds
from proxnas.cells.genotype import Genotype
from proxnas.common.types import Matrices
from proxnas.core.choice import Choice
from proxnas.core.size.complexity import R, R_gradient, multiply_adds, parameter_costs, parameters
from proxnas.core.supernet import Supernet
from proxnas.domains import spaces
from proxnas.domains.images import operations as ops
from proxnas.domains.images.networks.cnn import Size
from proxnas.domains.images.networks.nasbench201 import DiscreteCell, nasbench201_network
from proxnas.domains.images.operations import final_norm, search_norm
from proxnas.searching.job import Search
from support.places import SHARED

TABLE = SHARED / "data" / "nasbench201_cifar10.csv.gz"
needs_table = pytest.mark.skipif(
    not TABLE.is_file(), reason=f"no {TABLE.name} in $PROXNAS_SHARED/data"
)


def some() -> tuple[Matrices, dict[str, torch.Tensor]]:
    A = {name: torch.rand(14, 3, dtype=torch.float64) for name in ("normal", "reduce")}
    costs = {
        "normal": torch.tensor([0.0, 0.25, 0.75]).double(),
        "reduce": torch.tensor([0.5, 0.5, 0.0]).double(),
    }
    return A, costs


def test_R_is_the_sum_of_squared_columns_by_their_share_of_parameters() -> None:
    A = {"cell": torch.tensor([[0.5, 0.0], [1.0, 2.0]], dtype=torch.float64)}
    costs = {"cell": torch.tensor([0.2, 0.8], dtype=torch.float64)}
    assert R(A, costs).item() == pytest.approx(0.2 * (0.25 + 1.0) + 0.8 * 4.0)


def test_R_adds_up_groups_and_leaves_out_those_without_costs() -> None:
    A, costs = some()
    each = [R(A, {name: cost}).item() for name, cost in costs.items()]
    assert R(A, costs).item() == pytest.approx(sum(each)) and min(each) > 0
    assert R(A, {}).item() == 0.0


def test_R_gradient_is_autograds() -> None:
    A, costs = some()
    leaves = {name: a.clone().requires_grad_() for name, a in A.items()}
    exact = torch.autograd.grad(R(leaves, costs), list(leaves.values()))
    for ours, autograd in zip(R_gradient(A, costs).values(), exact, strict=True):
        torch.testing.assert_close(ours, autograd)
        assert ours.abs().max() > 0


def test_R_gradient_at_a_discrete_point_touches_the_selected_entries_only() -> None:
    A_bar = {"cell": torch.tensor([[0.0, 1.0], [0.0, 0.0]], dtype=torch.float64)}
    gradient = R_gradient(A_bar, {"cell": torch.tensor([0.4, 0.6], dtype=torch.float64)})["cell"]
    torch.testing.assert_close(
        gradient, torch.tensor([[0.0, 1.2], [0.0, 0.0]], dtype=torch.float64)
    )


# public code, at 12 channels: p of its eight normal operations; two others that it lists
AT_12_CHANNELS = {
    "none": 0,
    "skip_connect": 0,
    "max_pool_3x3": 0,
    "avg_pool_3x3": 0,
    "dil_conv_3x3": 12 * 9 + 144,
    "dil_conv_5x5": 444,
    "sep_conv_3x3": 2 * (12 * 9 + 144),
    "sep_conv_5x5": 888,
    "sep_conv_7x7": 1464,
    "conv_1x1": 144,
    "conv_3x3": 1296,
    "conv_3x1_1x3": 864,
    "conv_7x1_1x7": 2016,
}


@pytest.mark.parametrize(("name", "count"), AT_12_CHANNELS.items())
def test_parameters_of_operations_are_those_the_public_code_lists(name: str, count: int) -> None:
    assert parameters(ops.CNN[name](12, 1, search_norm)) == count


def test_costs_are_shares_of_the_parameters_counted_in_the_modules() -> None:
    """In the paper's normal cell, all cells of which have 12 channels here."""
    space = spaces.find("nasp12")
    net = Supernet(
        space.search_network(Size(1, 6, 3, 10)), space.groups
    )  # one cell: a reduction cell of 12 channels
    assert (
        parameter_costs(net)["reduce"].count_nonzero() == 1
    )  # pooling is free; identity halves by a convolution
    net = Supernet(
        nn.Sequential(Choice({op: ops.CNN[op](12, 1, search_norm) for op in space.normal}))
    )
    p = torch.tensor([AT_12_CHANNELS[op] for op in space.normal], dtype=torch.float64)
    assert p.sum() == 5412  # sum of the public code
    torch.testing.assert_close(parameter_costs(net)["0"], p / 5412)


def test_costs_are_means_over_the_places_of_a_group() -> None:
    """conv_3x3 at 2, 4, 8 channels; shares add up to 1."""
    space = spaces.find("nasbench201")
    costs = parameter_costs(Supernet(space.search_network(Size(1, 2, 3, 10)), space.groups))["cell"]
    squares = (2**2 + 4**2 + 8**2) / 3
    torch.testing.assert_close(
        costs, torch.tensor([0, 0, squares, 9 * squares, 0]).double() / (10 * squares)
    )


def test_candidates_without_parameters_cost_nothing() -> None:
    net = Supernet(Choice({"a": nn.Identity(), "b": nn.Tanh()}))
    costs = parameter_costs(net)
    A = {name: torch.ones(1, 2, dtype=torch.float64) for name in costs}
    assert R(A, costs).item() == 0.0
    assert all(g.tolist() == [[0.0, 0.0]] for g in R_gradient(A, costs).values())


def test_a_larger_eta_finds_a_smaller_cell(make_search: Callable[..., Search]) -> None:
    sizes = []
    for eta in ("0", "0.1", "10"):
        search = make_search(
            *("--eta", eta, "--arch-learning-rate", "0.05", "--space", "darts7"),
            *("--explore", "0", "--pooling", "0"),
        )
        for _ in range(6):
            search.method.step()
        sizes.append(parameters(search.final_network(search.genotype())))
    assert sizes[0] > sizes[2] and sizes[0] >= sizes[1] >= sizes[2]


def test_eta_may_count_the_normal_cell_only(make_search: Callable[..., Search]) -> None:
    costs = [
        make_search("--eta", "1", "--eta-cells", cells).method.state_dict()["costs"]
        for cells in ("all", "normal")
    ]
    assert [set(c) for c in costs] == [{"normal", "reduce"}, {"normal"}]


def test_multiply_adds_by_hand() -> None:
    conv = nn.Conv2d(
        3, 8, 3, padding=1, bias=False
    )  # 6 x 5 places, 3 x 3 window, 3 channels, 8 outputs
    assert multiply_adds(conv, (3, 6, 5)) == 6 * 5 * 9 * 3 * 8
    depthwise = nn.Conv2d(4, 4, 5, stride=2, padding=2, groups=4)  # 8 x 8 -> 4 x 4
    assert multiply_adds(depthwise, (4, 8, 8)) == 4 * 4 * 25 * 4
    network = nn.Sequential(
        conv, nn.BatchNorm2d(8), nn.ReLU(), nn.AvgPool2d(6), nn.Flatten(), nn.Linear(8, 10)
    )
    assert multiply_adds(network, (3, 6, 6)) == 6 * 6 * 9 * 3 * 8 + 8 * 10


def test_multiply_adds_leaves_the_module_as_it_is() -> None:
    module = nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4)).train()
    before = {name: x.clone() for name, x in module.state_dict().items()}
    multiply_adds(module, (3, 4, 4))
    assert module.training and all(
        torch.equal(x, before[name]) for name, x in module.state_dict().items()
    )


# ------------------------------------------------------------ operations


def test_genotypes_name_the_operations_that_exist() -> None:
    assert kinds.OPERATIONS["cnn"] == tuple(ops.CNN)
    assert kinds.OPERATIONS["nasbench201"] == tuple(ops.NASBENCH201)


@pytest.mark.parametrize("side", [8, 7])
@pytest.mark.parametrize("name", ops.CNN)
def test_every_operation_keeps_or_halves_the_image_and_leaves_its_input(
    name: str, side: int
) -> None:
    for stride, out in ((1, side), (2, (side + 1) // 2)):
        op = ops.CNN[name](4, stride, search_norm)
        x = torch.randn(2, 4, side, side)
        before = x.clone()
        assert op(x).shape == (2, 4, out, out)
        assert torch.equal(x, before)


# ------------------------------------------------------ published numbers


def table(number: int) -> list[dict[str, str]]:
    """So many rows, spread over the whole table."""
    with gzip.open(TABLE, "rt") as file:
        rows = list(csv.DictReader(file))
    return rows[:: len(rows) // number][:number]


def sizes(module: nn.Module, shape: tuple[int, int, int]) -> tuple[int, int]:
    return parameters(module), multiply_adds(module, shape)


CLASSES = 10
"""The table's `flops` are the multiply-adds of all convolutions and of the classifier, plus one for
each bias of the classifier; batch norm, pooling and additions are not counted."""


@needs_table
@pytest.mark.parametrize("number", [8, pytest.param(200, marks=pytest.mark.slow)])
def test_nasbench201_networks_have_the_sizes_of_the_table(number: int) -> None:
    for row in table(number):
        with torch.device("meta"):
            network = nasbench201_network(
                Genotype.from_string(row["arch"]), Size(5, 16, 3, CLASSES)
            )
        assert sizes(network, (3, 32, 32)) == (int(row["params"]), int(row["flops"]) - CLASSES), (
            row["arch"]
        )


@needs_table
def test_200_nasbench201_cells_have_the_sizes_of_the_table() -> None:
    """The cells alone, 5 a stage, added to the skeleton without cells: four times faster than whole
    networks."""
    places = [(16, 32), (32, 16), (64, 8)]
    with torch.device("meta"):
        skeleton = sizes(
            nasbench201_network(Genotype.from_string(EMPTY), Size(0, 16, 3, CLASSES)), (3, 32, 32)
        )
        for row in table(200):
            cell = Genotype.from_string(row["arch"])
            each = [sizes(DiscreteCell(cell, C, final_norm), (C, side, side)) for C, side in places]
            total = [base + 5 * sum(parts) for base, *parts in zip(skeleton, *each, strict=True)]
            assert total == [int(row["params"]), int(row["flops"]) - CLASSES], row["arch"]


EMPTY = "|none~0|+|none~0|none~1|+|none~0|none~1|none~2|"
