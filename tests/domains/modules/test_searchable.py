"""Choices in modules that were built without any: `proxnas.searchable`."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import proxnas
from proxnas.common.errors import InputError
from proxnas.core.choice import Choice
from proxnas.domains.modules.searchable import KEPT


class Block(nn.Module):
    """As libraries have them: a layer of two, around which x goes."""

    def __init__(self) -> None:
        super().__init__()
        self.mlp = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 32))
        self.norm = nn.LayerNorm(32)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = x + self.mlp(self.norm(x))
        return out


def net(blocks: int = 2) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 32), *(Block() for _ in range(blocks)), nn.Linear(32, 2))


def names_of(module: nn.Module) -> dict[str, tuple[str, ...]]:
    """Place of each Choice -> its candidates."""
    return {name: part.names for name, part in module.named_modules() if isinstance(part, Choice)}


def x_of(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1))


def test_it_does_what_it_did_and_the_module_is_left_as_it_is() -> None:
    before = net()
    after = proxnas.searchable(before)
    assert torch.equal(before(x_of(3, 4)), after(x_of(3, 4)))
    assert not names_of(before)
    # the first and the last map are too small for a rank
    assert names_of(after) == {
        f"{block}.mlp.{layer}": (KEPT, "low_rank") for block in (1, 2) for layer in (0, 2)
    }


def test_a_search_within_a_limit_makes_it_smaller() -> None:
    x, y = x_of(32, 4), (x_of(32, 4)[:, 0] > 0).long()
    before = net(1)
    size = sum(w.numel() for w in before.parameters())
    searched = proxnas.searchable(before)
    found = proxnas.search(searched, (x[:16], y[:16]), (x[16:], y[16:]), epochs=1, max_params=3000)
    model = found.model()
    assert sum(w.numel() for w in model.parameters()) <= 3000 < size and not names_of(model)
    again = proxnas.derive(proxnas.searchable(before), found.genotype)
    assert again.state_dict().keys() == model.state_dict().keys()


@pytest.mark.parametrize(
    ("layer", "shape"),
    [
        (nn.Conv2d(8, 16, 3, padding=1), (2, 8, 7, 9)),
        (nn.Conv2d(8, 16, 5, 2, 2, bias=False), (2, 8, 7, 8)),
        (nn.Conv2d(8, 16, 3, padding="same", dilation=2, padding_mode="reflect"), (2, 8, 9, 9)),
        (nn.Conv2d(8, 16, (1, 7), padding=(0, 3)), (2, 8, 7, 9)),
        (nn.Conv1d(8, 16, 3, 2, padding=1), (2, 8, 9)),
        (nn.Conv3d(8, 16, 3, padding=1, dtype=torch.float64), (2, 8, 4, 5, 6)),
        (nn.Linear(64, 32, bias=False), (2, 5, 64)),
    ],
)
def test_what_is_lighter_puts_out_the_same_shape(layer: nn.Module, shape: tuple[int, ...]) -> None:
    choice = proxnas.searchable(layer.eval())
    assert (
        isinstance(choice, Choice) and len(choice.names) > 1 and not choice.candidates[1].training
    )
    kept, *others = choice.candidates
    x = x_of(*shape).to(next(layer.parameters()).dtype)
    for other in others:
        assert other(x).shape == kept(x).shape and other(x).dtype == kept(x).dtype
        assert sum(w.numel() for w in other.parameters()) < sum(
            w.numel() for w in kept.parameters()
        )


@pytest.mark.parametrize(
    "layer",
    [
        nn.Conv2d(8, 8, 3, padding=1, groups=8),
        nn.Conv2d(8, 8, 2),
        nn.Conv2d(8, 8, 3),
        nn.Conv2d(8, 8, 1),
        nn.Linear(31, 400),
        nn.Sequential(nn.MultiheadAttention(64, 2)),
        nn.TransformerEncoderLayer(64, 2),
    ],
    ids=str,
)
def test_what_has_nothing_lighter_is_left(layer: nn.Module) -> None:
    with pytest.raises(InputError, match="has no layer that something lighter is known for"):
        proxnas.searchable(layer)


def test_a_low_rank_begins_as_the_layer_is() -> None:
    layer = nn.Linear(40, 32)
    with torch.no_grad():
        layer.weight.copy_(x_of(32, 8) @ x_of(8, 40))
    kept, low = proxnas.searchable(layer).candidates  # type: ignore[misc]
    torch.testing.assert_close(low(x_of(5, 40)), kept(x_of(5, 40)), rtol=1e-4, atol=1e-4)


def test_tied_weights_and_layers_that_stand_twice() -> None:
    tied = nn.Sequential(nn.Linear(64, 64), nn.Linear(64, 64), nn.Linear(64, 64))
    tied[2].weight = tied[0].weight
    assert set(names_of(proxnas.searchable(tied))) == {"1"}
    layer = nn.Linear(64, 64)
    twice = proxnas.searchable(nn.Sequential(layer, nn.ReLU(), layer))
    assert isinstance(twice[0], Choice) and twice[0] is twice[2]  # type: ignore[index]


def test_by_type_by_name_and_within_each_other() -> None:
    def half(layer: nn.Linear) -> dict[str, nn.Module] | None:
        if layer.in_features != 32 or layer.out_features != 64:
            return None
        return {"half": nn.Sequential(nn.Linear(32, 16), nn.Linear(16, 64))}

    found = proxnas.searchable(
        net(), {nn.ReLU: {"gelu": nn.GELU()}, "*.mlp": {"skip": nn.Identity()}, nn.Linear: half}
    )
    inside = {
        "candidates.0.0": (KEPT, "half"),
        "candidates.0.1": (KEPT, "gelu"),
        "": (KEPT, "skip"),
    }
    wanted = {f"{k}.mlp.{name}".rstrip("."): of for k in (1, 2) for name, of in inside.items()}
    assert names_of(found) == wanted
    # * is one part: neither what is inside mlp, nor the module itself
    assert set(names_of(proxnas.searchable(net(), {"*": {"skip": nn.Identity()}}))) == set("0123")
    # of a dict each layer has its own
    one, two = (proxnas.searchable(net(), {"*.mlp.0": {"a": nn.Linear(32, 64)}})[k] for k in (1, 2))  # type: ignore[index]
    assert one.mlp[0].candidates[1] is not two.mlp[0].candidates[1]


@pytest.mark.parametrize(
    ("rules", "words"),
    [
        ({"1.mpl": {}}, "no layer of Sequential is called '1.mpl': there is 1.mlp"),
        ({nn.Conv2d: {}}, "Sequential has no Conv2d: it has Block, LayerNorm, Linear"),
        ({nn.ReLU: {}}, "none is given for any layer"),
        ({nn.ReLU: {KEPT: nn.GELU()}}, "'as_is' of ReLU is there already"),
        ({nn.ReLU: {"a": nn.GELU()}, "*.mlp.1": {"a": nn.GELU()}}, r"'a' of '\*.mlp.1' is there"),
        ({nn.ReLU: {"gelu": torch.tanh}}, "'gelu' of ReLU is a builtin"),
    ],
)
def test_rules_that_cannot_be_followed(rules: Any, words: str) -> None:
    with pytest.raises(InputError, match=words):
        proxnas.searchable(net(), rules)
