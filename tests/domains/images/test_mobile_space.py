"""The space `mobile`: its blocks, independent decisions, and genotypes that are chains."""

from __future__ import annotations

import pytest
import torch

from proxnas.cells.genotype import Genotype
from proxnas.cells.kinds import CHAINS, MOBILE_BLOCKS, MOBILE_FIRST, MOBILE_LATER, SKIP
from proxnas.cells.parts import Edge
from proxnas.common.errors import InputError
from proxnas.core.selection import random_selection
from proxnas.core.supernet import Supernet
from proxnas.domains.images.networks.cnn import Size
from proxnas.domains.images.networks.mobile import (
    BlockPlace,
    Kind,
    Shuffle,
    kind,
    make_block,
    mobile_network,
    places,
)
from proxnas.domains.images.operations import final_norm
from proxnas.domains.images.spaces.mobile import GROUPS, middle, mobile
from proxnas.report.layout import drawings

SIZE = Size(1, 2, 3, 4)


def random_A_bar(seed: int) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return {name: random_selection(group, generator) for name, group in GROUPS.items()}


def weights(network: torch.nn.Module) -> int:
    return sum(w.numel() for w in network.parameters())


def test_a_kind_is_read_from_its_name() -> None:
    assert kind("mb6_5x5_se") == Kind(6, 5, True)
    assert kind("mb3_7x7") == Kind(3, 7)
    assert len(set(map(kind, MOBILE_FIRST))) == len(MOBILE_FIRST) == 12


@pytest.mark.parametrize("name", MOBILE_LATER)
def test_the_weights_of_a_block_follow_from_its_name(name: str) -> None:
    C = 8
    block = make_block(name, BlockPlace(C, C, 1), final_norm)
    x = torch.randn(2, C, 6, 5)
    assert block(x).shape == x.shape
    if name == SKIP:
        assert weights(block) == 0 and torch.equal(block(x), x)
        return
    made = kind(name)
    wide = made.expansion * C
    expected = 2 * C * wide + wide * made.kernel**2 + 2 * (wide + wide + C)
    if made.excite:
        expected += 2 * wide * (C // 4) + wide + C // 4
    assert weights(block) == expected


def test_the_input_is_added_only_where_the_shape_stays() -> None:
    x = torch.randn(2, 8, 6, 6)
    for place, adds in (
        (BlockPlace(8, 8, 1), True),
        (BlockPlace(8, 8, 2), False),
        (BlockPlace(8, 12, 1), False),
    ):
        block = make_block("mb3_3x3", place, final_norm).eval()
        torch.nn.init.zeros_(block.f[-1].weight)  # type: ignore[union-attr, operator, index]
        y = block(x)
        assert torch.equal(y, x) if adds else not y.any()


def test_channels_of_groups_are_taken_in_turn() -> None:
    x = torch.arange(6.0).view(1, 6, 1, 1)
    assert Shuffle(2)(x).flatten().tolist() == [0, 3, 1, 4, 2, 5]


def test_the_plain_network_has_the_sizes_of_the_papers_at_16_channels() -> None:
    """24, 40, 80, 96, 192, 320 channels; the image of 224 pixels ends as 7 x 7."""
    size = Size(1, 16, 3, 1000, "imagenet")
    assert [stage[-1].C for stage in places(size)] == [24, 40, 80, 96, 192, 320]
    genotype = mobile().genotype(middle())
    with torch.device("meta"):
        network = mobile_network(genotype, size).eval()
        x = network.blocks(network.stem(torch.empty(1, 3, 224, 224)))
    assert x.shape[1:] == (320, 7, 7)


@pytest.mark.parametrize(("stem", "side"), [("cifar", 32), ("tinyimagenet", 64)])
def test_small_images_are_halved_less_often(stem: str, side: int) -> None:
    size = Size(1, 2, 3, 4, stem)
    genotype = mobile().genotype(middle())
    with torch.device("meta"):
        network = mobile_network(genotype, size).eval()
        x = network.blocks(network.stem(torch.empty(1, 3, side, side)))
    assert x.shape[2:] == (4, 4)


def test_depth_is_searched_and_not_told() -> None:
    with pytest.raises(InputError, match=r"^cells 2: .* leave it out"):
        places(Size(2, 8, 3, 4))


@pytest.mark.parametrize("seed", range(3))
def test_the_network_of_a_genotype_computes_what_was_selected(seed: int) -> None:
    torch.manual_seed(seed)
    space, A_bar = mobile(), random_A_bar(seed)
    net = Supernet(space.choice_network(SIZE), space.groups)
    net.use(A_bar)
    network = space.network(space.genotype(A_bar), SIZE)
    chosen = [choice.candidates for choice in net.module.get_submodule("blocks").children()]
    nodes = space.genotype(A_bar).cells["mobile"].nodes
    names = [MOBILE_FIRST if CHAINS["mobile"][i] != MOBILE_LATER else MOBILE_LATER
             for i in range(len(nodes))]  # fmt: skip
    for mine, candidates, node, kinds in zip(
        network.get_submodule("blocks"), chosen, nodes, names, strict=True
    ):
        mine.load_state_dict(candidates[kinds.index(node[0].op)].state_dict())
    for part in ("stem", "head", "classifier"):
        network.get_submodule(part).load_state_dict(net.module.get_submodule(part).state_dict())
    x = torch.randn(2, 3, 16, 16)
    assert torch.equal(network.eval()(x), net.module.eval()(x))


def test_sizes_are_sums_over_independent_decisions() -> None:
    space = mobile()

    def count(seed: int, k: int) -> int:
        A_bar = random_A_bar(seed)
        A_bar["later"][7] = 0.0
        A_bar["later"][7, k] = 1.0
        return weights(space.network(space.genotype(A_bar), SIZE))

    for k in range(1, len(MOBILE_LATER)):
        assert len({count(seed, k) - count(seed, 0) for seed in range(3)}) == 1


def test_a_genotype_is_a_chain_whose_stages_begin_with_a_block() -> None:
    text = mobile().genotype(middle()).to_json()
    genotype = Genotype.from_json(text)
    assert genotype.to_json() == text
    assert len(genotype.cells["mobile"].nodes) == sum(MOBILE_BLOCKS)
    (drawing,) = drawings(genotype)
    assert drawing.title == "chain of inverted residual blocks"
    cell = genotype.cells["mobile"]
    for place in (0, 4, 20):  # the first blocks of stages
        nodes = list(cell.nodes)
        nodes[place] = (Edge(SKIP, place),)
        with pytest.raises(InputError, match=f"node {place + 1}: needs one edge"):
            Genotype("mobile", {"mobile": type(cell)(tuple(nodes), cell.concat)})
