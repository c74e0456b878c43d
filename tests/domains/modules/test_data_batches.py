"""Data of the user's own as streams: what is a batch, in which order, and going on where a stream
stood."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

import proxnas
from proxnas.common.types import Batch, Inputs
from proxnas.domains.modules.batches import UserStream, as_batch, passes, target_of

CPU = torch.device("cpu")
X, Y = torch.arange(10.0)[:, None], torch.arange(10)


class Noisy(Dataset[Any]):
    """Draws a random number an item, as augmentation does."""

    def __getitem__(self, i: int) -> tuple[Tensor, int]:
        return X[i] + torch.rand(1), i

    def __len__(self) -> int:
        return 10


class Endless(IterableDataset[Any]):
    def __iter__(self) -> Iterator[Any]:
        return iter(zip(X, Y, strict=True))


class Pairs:
    """Can be iterated anew, has no length."""

    def __iter__(self) -> Iterator[Any]:
        return iter([(X[:5], Y[:5]), (X[5:], Y[5:])])


KINDS: dict[str, Any] = {
    "tensors": (X, Y),
    "dataset": Noisy(),
    "shuffled loader": DataLoader(Noisy(), 3, shuffle=True),
    "loader with a generator": DataLoader(Noisy(), 3, shuffle=True, generator=torch.Generator()),
    "list": [(X[:6], Y[:6]), (X[6:], Y[6:])],
    "without a length": Pairs(),
    "iterable dataset": DataLoader(Endless(), 4),
    "bare iterable dataset": Endless(),
}


def stream(data: Any, seed: int = 0, name: str = "train") -> UserStream:
    return UserStream(passes(data, 4, seed, name), seed, name, CPU)


def numbers(batch: Batch) -> list[float]:
    return [*batch.x.flatten().tolist(), *batch.y.tolist()]


@pytest.mark.parametrize("kind", KINDS)
def test_a_stream_goes_on_where_it_stood(kind: str) -> None:
    data = KINDS[kind]
    straight = stream(data)
    batches = [numbers(straight.next()) for _ in range(3 * len(straight))]
    for stop in (1, len(straight), len(straight) + 1):
        first = stream(data)
        for _ in range(stop):
            first.next()
        torch.rand(3)  # whatever else draws random numbers in between
        second = stream(data)
        second.load_state_dict(first.state_dict())
        assert [numbers(second.next()) for _ in range(len(batches) - stop)] == batches[stop:]


@pytest.mark.parametrize("kind", KINDS)
def test_the_whole_is_everything_once_and_the_same_each_time(kind: str) -> None:
    this = stream(KINDS[kind])
    this.next()
    whole = [numbers(batch) for batch in this.whole()]
    assert sorted(y for batch in this.whole() for y in batch.y.tolist()) == list(range(10))
    assert [numbers(batch) for batch in this.whole()] == whole


def test_a_dataset_is_shuffled_anew_each_pass_by_the_seed_and_the_name() -> None:
    def order(this: UserStream) -> list[int]:
        return [y for _ in range(len(this)) for y in this.next().y.tolist()]

    this = stream((X, Y))
    assert len(this) == 2  # the incomplete third is left out
    first, second = order(this), order(this)
    assert first != second and order(stream((X, Y))) == first
    assert order(stream((X, Y), seed=1)) != first != order(stream((X, Y), name="valid"))
    assert len(stream(TensorDataset(X[:3], Y[:3]))) == 1  # smaller than a batch


def test_random_numbers_outside_are_not_touched() -> None:
    torch.manual_seed(1)
    expected = torch.rand(2)
    torch.manual_seed(1)
    this = stream(KINDS["shuffled loader"])
    this.next()
    assert torch.equal(torch.rand(2), expected)


def test_forms_of_a_batch() -> None:
    x, y = torch.randn(3, 2), torch.arange(3)
    assert as_batch([x, y], CPU, "train").x is x
    several = as_batch((x, 2 * x, y), CPU, "train")
    assert (
        isinstance(several.x, Inputs)
        and torch.equal(several.x.args[1], 2 * x)
        and len(several.y) == 3
    )
    nested = as_batch(((x, 2 * x), y), CPU, "train").x
    assert isinstance(nested, Inputs) and len(nested.args) == 2
    keywords = as_batch(({"a": x, "flag": True}, y), CPU, "train").x
    assert isinstance(keywords, Inputs) and keywords.kwargs["flag"] is True
    assert keywords[:2].kwargs["a"].shape == (2, 2)
    arrays = as_batch((np.ones((3, 2), np.float32), np.arange(3)), CPU, "train")
    assert arrays.x.dtype == torch.float32 and arrays.y.tolist() == [0, 1, 2]
    boxes = as_batch((x, {"boxes": torch.ones(3, 4), "names": ["a"]}), CPU, "train")
    assert len(boxes.y) == 3 and target_of(boxes)["names"] == ["a"]


class TwoInputs(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.join = proxnas.Choice({"first": First(), "both": nn.Bilinear(2, 2, 2)})
        self.out = nn.Linear(2, 2)

    def forward(self, a: Tensor, b: Tensor, scale: float = 1.0) -> dict[str, Tensor]:
        return {"logits": self.out(self.join(a, b)) * scale}


class First(nn.Module):
    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        return a


@pytest.mark.parametrize("keywords", [False, True])
def test_a_module_with_several_inputs_and_an_output_and_target_of_its_own(keywords: bool) -> None:
    a, y = torch.randn(6, 2), torch.arange(6) % 2
    inputs: Any = {"a": a, "b": 2 * a, "scale": 0.5} if keywords else (a, 2 * a)

    def loss(output: dict[str, Tensor], target: dict[str, Tensor]) -> Tensor:
        return nn.functional.cross_entropy(output["logits"], target["label"])

    batches = [(inputs, {"label": y})]
    method = proxnas.SNAS(resource=0.1)  # counts costs on some examples of the inputs
    for each in ("nasp", method):
        found = proxnas.search(TwoInputs(), batches, batches, each, loss=loss, epochs=2)
        assert found.genotype["join"] in ("first", "both") and found.result["flops"] > 0
