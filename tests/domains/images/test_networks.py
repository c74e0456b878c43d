"""Final networks: stems, auxiliary head, path dropout, cells of any form; plain modules for
compiler and exporter."""

from __future__ import annotations

import shutil
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from proxnas.cells import zoo
from proxnas.cells.genotype import Genotype
from proxnas.cells.parts import Cell, Edge
from proxnas.common.errors import InputError
from proxnas.core.size.complexity import parameters
from proxnas.domains.images import networks
from proxnas.domains.images.networks.cnn import Size, forward_auxiliary
from proxnas.domains.images.networks.parts import AuxiliaryHead, DropPath, set_drop_path
from proxnas.domains.images.operations import CNN, FactorizedReduce

SMALL = Size(cells=3, channels=4, image_channels=3, classes=5)
NB201 = Genotype.from_string(
    "|nor_conv_3x3~0|+|skip_connect~0|avg_pool_3x3~1|+|none~0|nor_conv_1x1~1|skip_connect~2|"
)


def cell(*nodes: list[tuple[str, int]], concat: tuple[int, ...] = ()) -> Cell:
    made = tuple(tuple(Edge(op, i) for op, i in node) for node in nodes)
    return Cell(made, concat or tuple(range(2, 2 + len(nodes))))


def both(one: Cell) -> Genotype:
    return Genotype("cnn", {"normal": one, "reduce": one})


EVERYTHING = both(
    cell([(op, k % 2) for k, op in enumerate(CNN)], [("sep_conv_3x3", 2), ("skip_connect", 0)])
)
"""All operations, from both inputs, in one node."""


@pytest.fixture(params=["cnn", "nasbench201"])
def network(request: pytest.FixtureRequest) -> Any:
    return networks.build_network(
        zoo.find_cell("DARTS_V2") if request.param == "cnn" else NB201, SMALL
    )


# ----------------------------------------------------------------- the forms


@pytest.mark.parametrize(
    ("stem", "side", "sides"),
    [
        ("cifar", 32, (32, 32)),
        ("imagenet", 224, (56, 28)),
        ("tinyimagenet", 64, (64, 32)),
        ("imagenet", 225, (57, 29)),
    ],
)
def test_a_stem_gives_the_two_states_that_the_first_cell_reads(
    stem: str, side: int, sides: tuple[int, int]
) -> None:
    with torch.device("meta"):
        network = networks.build_network(zoo.find_cell("DARTS_V2"), Size(3, 4, 3, 5, stem))
        states = network.stem(torch.empty(1, 3, side, side))
    assert tuple(x.shape[2] for x in states) == sides
    assert isinstance(network.cells[0].preprocess.before_last, FactorizedReduce) == (
        stem != "cifar"
    )


def test_images_are_halved_where_the_protocol_says() -> None:
    """ImageNet: 224 -> 28 by the stem, 14 and 7 by the cells at one and two thirds."""
    with torch.device("meta"):
        network = networks.build_network(zoo.find_cell("DARTS_V2"), Size(14, 4, 3, 5, "imagenet"))
    sides: list[int] = []
    for each in network.cells:
        each.register_forward_hook(lambda module, given, output: sides.append(output.shape[2]))
    network.eval()(torch.empty(1, 3, 224, 224, device="meta"))
    assert sides == [28] * 4 + [14] * 5 + [7] * 5


def test_an_unknown_stem_is_named() -> None:
    with pytest.raises(InputError, match="unknown stem 'imagnet': did you mean imagenet"):
        Size(3, 4, 3, 5, stem="imagnet")


def test_a_nasbench201_network_has_its_own_stem_and_no_auxiliary_head() -> None:
    with pytest.raises(InputError, match="has the stem cifar, not imagenet"):
        networks.build_network(NB201, Size(1, 4, 3, 5, stem="imagenet"))
    network = networks.build_network(NB201, Size(1, 4, 3, 5, auxiliary=True))
    assert forward_auxiliary(network, torch.randn(2, 3, 8, 8))[1] is None


def test_a_recurrent_cell_makes_no_image_classifier() -> None:
    with pytest.raises(InputError, match="kind rnn makes no image classifier"):
        networks.build_network(zoo.find_cell("RNN_GDAS"), SMALL)


def test_every_kind_has_a_function_that_exists() -> None:
    for kind in networks.NETWORKS:
        genotype = NB201 if kind == "nasbench201" else zoo.find_cell("DARTS_V2")
        assert isinstance(networks.build_network(genotype, SMALL), nn.Module)


# ------------------------------------------------------------ auxiliary head


@pytest.mark.parametrize("stem", ["cifar", "imagenet", "tinyimagenet"])
@pytest.mark.parametrize("side", [8, 29, 64])
def test_the_auxiliary_head_reads_maps_of_any_size(stem: str, side: int) -> None:
    """8: the digits, whose map has 2 x 2 pixels, after a deep stem one; 64: a map larger than the
    head was made for."""
    network = networks.build_network(
        zoo.find_cell("DARTS_V2"), Size(3, 4, 1, 5, stem, auxiliary=True)
    )
    logits, auxiliary = forward_auxiliary(network, torch.randn(2, 1, side, side))
    assert logits.shape == auxiliary.shape == (2, 5)
    (logits.sum() + auxiliary.sum()).backward()
    assert all(w.grad is not None and w.grad.isfinite().all() for w in network.parameters())


def test_the_auxiliary_head_is_darts_own_on_the_map_it_was_made_for() -> None:
    """ReLU, average of 5 x 5 moved by 3, 1 x 1, 2 x 2, linear; the ImageNet form without the last
    norm."""
    head = AuxiliaryHead(6, 5, stride=3, last_norm=True).eval()
    conv1, norm1, _, conv2, norm2, _ = head.features
    x = torch.randn(2, 6, 8, 8)
    y = norm1(
        conv1(nn.functional.avg_pool2d(x.relu(), 5, stride=3, count_include_pad=False))
    ).relu()
    y = head.classifier(norm2(conv2(y)).relu().flatten(1))
    torch.testing.assert_close(head(x), y)
    kinds = [type(part) for part in AuxiliaryHead(6, 5, stride=2, last_norm=False).features]
    assert kinds == [nn.Conv2d, nn.BatchNorm2d, nn.ReLU, nn.Conv2d, nn.ReLU]


def test_the_auxiliary_head_changes_neither_answers_nor_counts() -> None:
    torch.manual_seed(1)
    network = networks.build_network(
        zoo.find_cell("DARTS_V2"), Size(3, 4, 3, 5, auxiliary=True)
    ).eval()
    x = torch.randn(2, 3, 32, 32)
    plain = networks.build_network(zoo.find_cell("DARTS_V2"), SMALL).eval()
    plain.load_state_dict(
        {k: v for k, v in network.state_dict().items() if not k.startswith("auxiliary")}
    )
    assert torch.equal(network(x), plain(x)) and torch.equal(
        forward_auxiliary(network, x)[0], plain(x)
    )
    assert parameters(network) == parameters(plain) == sum(w.numel() for w in plain.parameters())
    assert forward_auxiliary(plain, x)[1] is None


def test_the_auxiliary_head_sits_after_two_thirds_of_the_cells() -> None:
    network = networks.build_network(
        zoo.find_cell("DARTS_V2"), Size(6, 4, 3, 5, auxiliary=True)
    ).eval()
    seen: list[Tensor] = []
    network.cells[4].register_forward_hook(lambda module, given, output: seen.append(output))
    network.auxiliary.register_forward_hook(lambda module, given, output: seen.append(given[0]))
    forward_auxiliary(network, torch.randn(2, 3, 16, 16))
    assert seen[0] is seen[1]


# -------------------------------------------------------------- path dropout


def test_paths_are_dropped_image_by_image_with_the_probability_given() -> None:
    drop = DropPath()
    drop.probability = 0.3
    y = drop(torch.ones(20_000, 2, 3, 3))
    kept = y.flatten(1).amax(1)
    assert torch.equal(y, kept[:, None, None, None].expand_as(y))  # whole images
    torch.testing.assert_close(kept.unique(), torch.tensor([0.0, 1 / 0.7]))
    assert (kept > 0).float().mean().item() == pytest.approx(0.7, abs=0.02)
    assert drop.eval()(y) is y


def test_drop_path_is_off_in_evaluation_and_at_zero(network: Any) -> None:
    x = torch.randn(4, 3, 8, 8)
    set_drop_path(network, 0.5)
    network.eval()
    assert torch.equal(network(x), network(x))
    network.train()
    for (
        module
    ) in network.modules():  # the only other thing that changes from call to call in training
        if isinstance(module, nn.BatchNorm2d):
            module.eval()
    assert not torch.equal(network(x), network(x))
    set_drop_path(network, 0.0)
    assert torch.equal(network(x), network(x))


def test_identities_are_never_dropped() -> None:
    identities = both(cell([("skip_connect", 0), ("skip_connect", 1)]))
    network = networks.build_network(
        identities, Size(3, 4, 3, 5)
    ).train()  # a normal cell, two reduction cells
    dropped: list[int] = []
    for each in network.cells:
        each.drop_path.register_forward_hook(
            lambda module, given, output: dropped.append(output.shape[2])
        )
    network(torch.randn(2, 3, 8, 8))
    assert dropped == [4, 4, 2, 2]  # those of reduction cells are convolutions


@pytest.mark.parametrize("probability", [-0.1, 1.0, float("nan")])
def test_a_path_cannot_be_dropped_always_or_less_than_never(
    network: Any, probability: float
) -> None:
    with pytest.raises(ValueError, match="probability"):
        set_drop_path(network, probability)


# --------------------------------------------------------- cells of any form


def test_a_node_is_the_sum_of_all_its_edges_also_of_equal_ones() -> None:
    """Several operations an edge, the same source twice, one input, five nodes, a part of them put
    out."""
    nodes = [
        [("sep_conv_3x3", 0), ("max_pool_3x3", 0), ("skip_connect", 1)],
        [("avg_pool_3x3", 2), ("avg_pool_3x3", 2)],
        [("skip_connect", 3)],
        [("none", 0), ("dil_conv_3x3", 1)],
        [("none", 0), ("none", 1)],
    ]
    network = networks.build_network(
        both(cell(*nodes, concat=(1, 4, 5, 6))), Size(1, 4, 3, 5)
    ).eval()
    one = network.cells[0]  # a reduction cell: inputs are halved on all their ways
    states = network.stem(torch.randn(2, 3, 9, 9))
    s0, s1 = one.preprocess(*states)
    ops = one.operations
    n2 = ops[0][0](s0) + ops[0][1](s0) + ops[0][2](s1)
    n4 = 2 * nn.functional.avg_pool2d(n2, 3, 1, 1, count_include_pad=False)
    expected = torch.cat([one.halved["1"](s1), n4, ops[3][0](s1), torch.zeros_like(n4)], dim=1)
    torch.testing.assert_close(one(*states), expected)
    assert len(ops[3]) == 1  # an absent edge is not built


def test_factors_are_kept() -> None:
    plain = both(cell([("avg_pool_3x3", 0), ("avg_pool_3x3", 1)]))
    weighted = both(Cell(((Edge("avg_pool_3x3", 0, 0.25), Edge("avg_pool_3x3", 1, 0.25)),), (2,)))
    x = torch.randn(2, 3, 8, 8)
    outputs = []
    for genotype in (plain, weighted):
        torch.manual_seed(0)
        network = networks.build_network(genotype, Size(1, 4, 3, 5)).eval()
        outputs.append(network.cells[0](*network.stem(x)))
    torch.testing.assert_close(outputs[1], 0.25 * outputs[0])


def test_gdas_fixed_reduction_is_what_its_authors_describe() -> None:
    """Two grouped convolutions and two poolings beside each other, each of one input."""
    network = networks.build_network(zoo.find_cell("GDAS_FRC"), Size(1, 16, 3, 5))
    convolution, _, pooling, _ = (node[0] for node in network.cells[0].operations)
    kinds = [type(part).__name__ for part in convolution]
    assert kinds == ["Conv2d", "Conv2d", "BatchNorm2d", "ReLU", "Conv2d", "BatchNorm2d"]
    assert [
        (part.kernel_size, part.stride, part.groups) for part in (convolution[0], convolution[1])
    ] == [((1, 3), (1, 2), 8), ((3, 1), (2, 1), 8)]
    assert [type(part).__name__ for part in pooling] == ["MaxPool2d", "BatchNorm2d"]


# ---------------------------------------------------- compiler and exporter


def test_torch_export_takes_every_operation_and_any_number_of_images() -> None:
    network = networks.build_network(EVERYTHING, Size(2, 4, 3, 5, auxiliary=True)).eval()
    x = torch.randn(3, 3, 9, 9)
    program = torch.export.export(
        network, (x,), dynamic_shapes=({0: torch.export.Dim("batch")},)
    ).module()
    for images in (x, x[:1]):
        torch.testing.assert_close(program(images), network(images))


def test_the_compiler_takes_the_network_in_one_piece_whatever_the_probability() -> None:
    """A probability that rises every epoch must not have it compiled anew every epoch."""
    network = networks.build_network(zoo.find_cell("DARTS_V2"), Size(1, 4, 3, 5))
    traced: list[Any] = []

    def backend(graph: Any, _: Any) -> Any:
        traced.append(graph)
        return graph.forward

    torch.compiler.reset()
    compiled = torch.compile(network.train(), backend=backend, fullgraph=True)
    x = torch.randn(2, 3, 8, 8)
    for probability in (0.1, 0.2, 0.3, 0.4):
        set_drop_path(network, probability)
        compiled(x)
    assert len(traced) <= 2
    torch.compiler.reset()


def test_a_compiled_drop_path_drops_as_often_as_it_is_told() -> None:
    drop = DropPath()
    torch.compiler.reset()
    compiled = torch.compile(drop, backend="eager", fullgraph=True)
    for probability in (0.1, 0.6, 0.9):
        drop.probability = probability
        share = (compiled(torch.ones(20_000, 1, 1, 1)) == 0).float().mean().item()
        assert share == pytest.approx(probability, abs=0.02)
    torch.compiler.reset()


@pytest.mark.slow
@pytest.mark.filterwarnings(
    "ignore:`torch.jit:DeprecationWarning"
)  # torch's compiler about torch itself
@pytest.mark.skipif(shutil.which("cc") is None, reason="torch.compile needs a C compiler")
def test_a_compiled_network_gives_the_same_answers() -> None:
    network = networks.build_network(zoo.find_cell("DARTS_V2"), Size(1, 4, 3, 5)).eval()
    x = torch.randn(2, 3, 9, 9)
    with torch.no_grad():
        torch.testing.assert_close(torch.compile(network)(x), network(x))
