"""The space `resnet`: what its blocks are, that decisions are independent, and how a network is cut
out of the network of Choices."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from proxnas.cells.genotype import Genotype
from proxnas.cells.kinds import CHAIN_BODIES, CHAIN_ENTRIES, CHAIN_STAGES
from proxnas.common.errors import InputError
from proxnas.core.selection import random_selection
from proxnas.core.supernet import Supernet
from proxnas.domains.images.networks.chain import BODIES, ENTRIES, STAGES, chain_network
from proxnas.domains.images.networks.cnn import Size
from proxnas.domains.images.operations import final_norm
from proxnas.domains.images.spaces.resnet import GROUPS, cut_out, middle, resnet
from proxnas.report.layout import drawings
from support.commands import call, stripes

SIZE = Size(1, 8, 3, 4)


def random_A_bar(seed: int) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return {name: random_selection(group, generator) for name, group in GROUPS.items()}


def weights(network: torch.nn.Module) -> int:
    return sum(w.numel() for w in network.parameters())


def test_the_operations_of_a_chain_are_those_that_genotypes_know() -> None:
    assert tuple(ENTRIES) == CHAIN_ENTRIES
    assert tuple(BODIES) == CHAIN_BODIES
    assert STAGES == CHAIN_STAGES


@pytest.mark.parametrize("kind", BODIES)
@pytest.mark.parametrize("C", [6, 16])
def test_a_body_keeps_the_map_and_its_input(kind: str, C: int) -> None:
    x = torch.randn(2, C, 5, 7)
    before = x.clone()
    assert BODIES[kind](C, final_norm)(x).shape == x.shape
    assert torch.equal(x, before)


@pytest.mark.parametrize("kind", ENTRIES)
@pytest.mark.parametrize(("side", "after"), [(8, 4), (7, 4), (3, 3)])
def test_an_entry_halves_what_is_not_small_already(kind: str, side: int, after: int) -> None:
    entry = ENTRIES[kind](3, 8, 1, final_norm)
    assert entry(torch.randn(2, 3, side, side)).shape == (2, 8, after, after)


def test_the_middle_network_is_the_plain_one() -> None:
    """Three stages of 32, 64, 128 channels: entries 3x3, then one 3x3 each."""
    network = chain_network(resnet().genotype(middle()), Size(1, 32, 3, 10))
    convolutions = 9 * (3 * 32 + 32 * 64 + 64 * 128) + 9 * (32**2 + 64**2 + 128**2)
    norms = 2 * 2 * (32 + 64 + 128)
    assert weights(network) == convolutions + norms + 128 * 10 + 10


@pytest.mark.parametrize("seed", range(4))
def test_what_is_cut_out_computes_what_was_trained(seed: int) -> None:
    torch.manual_seed(seed)
    space, A_bar = resnet(), random_A_bar(seed)
    net = Supernet(space.choice_network(SIZE), space.groups)
    net.use(A_bar)
    x = torch.randn(3, 3, 16, 16)
    for _ in range(2):
        net(x)  # running statistics of their own
    net.module.eval()
    assert torch.equal(cut_out(net.module, A_bar, SIZE).eval()(x), net(x))


def test_sizes_are_sums_over_independent_decisions() -> None:
    """Swapping one block changes the number of weights by the same whatever the others are."""
    space = resnet()

    def count(seed: int, kind: int) -> int:
        A_bar = random_A_bar(seed)
        A_bar["body"][1] = 0.0
        A_bar["body"][1, kind] = 1.0
        return weights(space.network(space.genotype(A_bar), SIZE))

    for kind in range(1, len(BODIES)):
        assert len({count(seed, kind) - count(seed, 0) for seed in range(3)}) == 1


def test_kinds_differ_in_size() -> None:
    sizes = {kind: weights(BODIES[kind](32, final_norm)) for kind in BODIES}
    assert sizes["skip_connect"] == 0
    assert sizes["bottleneck_4"] < sizes["bottleneck_2"] < sizes["res_3x3"] < sizes["res_5x5"]
    assert 2 * sizes["res_one_3x3"] == sizes["res_3x3"]


def test_a_genotype_must_be_a_chain() -> None:
    text = resnet().genotype(middle()).to_json()
    assert Genotype.from_json(text).to_json() == text
    for old, new in (
        ('["conv_3x3", 0]', '["res_3x3", 0]'),  # an entry doubles the channels
        ('["res_one_3x3", 1]', '["conv_3x3", 1]'),
        ('["res_one_3x3", 3]', '["res_one_3x3", 1]'),  # reads the state before it, no other
        ('"concat": [6]', '"concat": [5]'),
    ):
        assert old in text
        with pytest.raises(InputError, match="chain"):
            Genotype.from_json(text.replace(old, new))


def test_it_is_drawn_as_one_chain() -> None:
    (drawing,) = drawings(resnet().genotype(random_A_bar(0)))
    assert drawing.title == "chain of blocks"


def test_a_search_within_a_limit_then_a_training(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Through the commands: the network keeps the limit, is trained, drawn and tested."""
    data, searched, trained = tmp_path / "data.npz", tmp_path / "s", tmp_path / "t"
    np.savez(data, **stripes())
    quick = ["--epochs", "1", "--batch-size", "16", "--threads", "1", "--quiet"]
    limit = ["--final-channels", "4", "--channels", "4", "--max-params", "2k"]
    assert not call("search", data, "--space", "resnet", *limit, *quick, "--run", searched)
    assert not call("train", searched, data, "--channels", "4", *quick, "--run", trained)
    assert json.loads((trained / "result.json").read_text())["params"] <= 2000
    assert not call("test", trained, data)
    capsys.readouterr()
    assert not call("show", searched)
    assert "conv" in capsys.readouterr().out
