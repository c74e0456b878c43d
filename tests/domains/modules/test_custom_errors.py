"""What cannot be searched is refused before the search, in one line that names the place."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import proxnas
from proxnas.core.choice import Choice

DATA = (torch.randn(8, 4), torch.arange(8) % 2)


class Model(nn.Module):
    """Parts by name and a forward of its own."""

    def __init__(
        self, forward: Callable[[Any, Tensor], Tensor] | None = None, **parts: nn.Module
    ) -> None:
        super().__init__()
        for name, part in parts.items():
            self.add_module(name, part)
        self.out = nn.Linear(4, 2)
        self.function = forward or (lambda model, x: model.out(model.block(x)))

    def forward(self, x: Tensor) -> Tensor:
        return self.function(self, x)


def block(**candidates: nn.Module) -> Model:
    return Model(block=Choice(candidates))


def refused(
    module: nn.Module, *words: str, train: Any = DATA, valid: Any = DATA, **options: Any
) -> None:
    with pytest.raises((proxnas.InputError, ValueError)) as caught:
        proxnas.search(module, train, valid, **{"epochs": 1} | options)
    message = str(caught.value)
    assert "\n" not in message and "--" not in message
    assert not [word for word in words if word not in message], message


class Wide(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x).mean(-1, keepdim=True)


class Halved(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x).half()


class Twice(nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return x, x


class Kept(nn.Module):
    """A candidate called none that is not nothing."""

    def forward(self, x: Tensor) -> Tensor:
        return x


def test_candidates_must_put_out_the_same() -> None:
    refused(
        block(a=nn.Linear(4, 4), b=Wide(4, 4)),
        "Choice 'block': candidate 'b' puts out shape (8, 1), 'a' (8, 4): all candidates must put"
        " out the same shape",
    )
    refused(
        block(a=nn.Linear(4, 4), b=Halved(4, 4)),
        "candidate 'b' puts out dtype torch.float16, 'a' torch.float32",
    )
    refused(
        block(a=nn.Linear(4, 4), b=Twice()),
        "candidate 'b' of 'block' puts out a tuple: it must be one tensor",
    )
    refused(block(a=Twice(), b=nn.Linear(4, 4)), "candidate 'a' of 'block' puts out a tuple")
    refused(
        block(a=nn.Linear(4, 4), none=Kept()),
        "candidate 'none' is no connection and must put out zeros",
    )


def test_an_inner_choice_of_an_unselected_candidate_is_checked_too() -> None:
    inner = Choice({"a": nn.Tanh(), "b": Wide(4, 4)})
    refused(
        block(flat=nn.Linear(4, 4), deep=nn.Sequential(nn.Linear(4, 4), inner)),
        "Choice 'block.deep.1'",
        "shape",
    )


def test_a_candidate_that_fails_is_named() -> None:
    refused(
        block(a=nn.Linear(4, 4), b=nn.Linear(5, 4)),
        "candidate 'b' fails on its input: RuntimeError: mat1 and mat2",
    )


def test_a_choice_needs_candidates_and_a_module_a_choice() -> None:
    with pytest.raises(ValueError, match="a Choice needs at least one candidate"):
        Choice({})
    refused(
        nn.Linear(4, 2),
        "the module holds no Choice: there is nothing to search",
        "put proxnas.Choice({",
    )


def test_parameters_shared_between_candidates() -> None:
    linear = nn.Linear(4, 4)
    refused(
        block(a=linear, b=nn.Sequential(linear, nn.Tanh())),
        "Choice 'block': candidates 'a' and 'b' share the parameter '0.weight': give each its own",
    )


@pytest.mark.parametrize("first", [True, False], ids=["selected", "only scored"])
def test_a_candidate_that_changes_its_input_in_place(first: bool) -> None:
    parts = {"relu": nn.ReLU(inplace=True), "fine": nn.Linear(4, 4)}
    module = Model(
        lambda m, x: m.out(m.block(x + 0)),
        block=Choice(parts if first else dict(reversed(parts.items()))),
    )
    refused(
        module,
        "changed in place",
        "ReLU(inplace=True)",
        "candidate 'relu' of 'block'",
        "out-of-place form",
    )


def test_a_choice_that_is_never_called() -> None:
    unused = Choice({"a": nn.Linear(4, 4), "b": nn.Tanh()})
    module = Model(block=Choice({"a": nn.Linear(4, 4), "b": nn.Tanh()}), unused=unused)
    refused(
        module, "Choice 'unused' is never called in forward: call it, or take it out of the module"
    )


def test_names_that_clash() -> None:
    shared = Choice({"a": nn.Linear(4, 4)}, share="block")
    refused(Model(block=Choice({"a": nn.Tanh()}), other=shared), "two Choices are called 'block'")
    rows = Choice({"a": nn.Linear(4, 4)}, share=proxnas.core.groups.Row("cell", 1))
    refused(Model(block=rows), "Choice 'block' has row 1 of 'cell': share by name only")


def test_nothing_to_train() -> None:
    refused(Choice({"a": nn.Tanh(), "b": nn.Identity()}), "no parameters that can be trained")


def test_a_module_with_a_route_of_its_own_is_left_alone() -> None:
    class Router(nn.Linear):
        route = "to the sea"

    module = Model(
        lambda m, x: m.out(m.router(m.block(x))),
        block=Choice({"a": nn.Tanh()}),
        router=Router(4, 4),
    )
    found = proxnas.search(module, DATA, DATA, epochs=1)
    assert found.module.router.route == "to the sea"  # type: ignore[union-attr]


def once() -> Iterator[Any]:
    yield DATA


class Fading:
    """Empty from the second time on."""

    def __init__(self) -> None:
        self.batches = [DATA]

    def __iter__(self) -> Iterator[Any]:
        return iter([self.batches.pop()] if self.batches else [])

    def __len__(self) -> int:
        return 1


@pytest.mark.parametrize(
    ("train", "words"),
    [
        (
            once(),
            (
                "train: a generator can be gone through only once: give a list of batches, a"
                " DataLoader or a Dataset"
            ),
        ),
        (Fading(), "train: gives no batches when gone through again"),
        ([], "train: gives no batches"),
        (3, "train: a int is no data"),
        (DATA[0], "train: a Tensor is no data: give a DataLoader, a Dataset or (inputs, targets)"),
        ([DATA[0]], "train: gave a Tensor: a batch is (inputs, target)"),
        ([(DATA[0],)], "train: gave a tuple of 1: a batch is"),
        ([("words", DATA[1])], "train: gave inputs of type str"),
        ([(DATA[0][:0], DATA[1][:0])], "train: gave a batch without examples"),
        ((DATA[0], DATA[1][:3]), "train: tensors of (8, 4), (3,): give equal lengths"),
        (
            torch.utils.data.Subset(torch.utils.data.TensorDataset(*DATA), []),
            "train: the dataset is empty",
        ),
    ],
)
def test_data_that_are_none(train: Any, words: str) -> None:
    refused(block(a=nn.Linear(4, 4), b=nn.Tanh()), words, train=train, epochs=3)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"method": "naps"}, "unknown method 'naps': did you mean"),
        ({"epochs": 0}, "epochs 0: give a number from 1 to 1000000"),
        ({"device": "tpu"}, "device 'tpu': give auto, cpu"),
        ({"schedule": "steps"}, "unknown schedule 'steps'"),
        (
            {"optimizer": torch.optim.Adam, "learning_rate": 0.1},
            "learning_rate 0.1: the optimizer has a rate of its own",
        ),
        ({"start": {"blok": "a"}}, "unknown Choice in start 'blok': did you mean block"),
        ({"start": {"block": "c"}}, "unknown candidate of 'block' in start 'c'"),
        ({"start": {"block": "a"}, "method": "random"}, "start: is for nasp"),
        ({"loss": lambda output, target: output}, "the loss is (8, 2), not one number"),
        ({"loss": lambda output, target: 0.0}, "the loss is float, not one number"),
        ({"loss": nn.CrossEntropyLoss(), "method": "bayesnas"}, "bayesnas: is for classification"),
        ({"learning_rate": 1e30, "epochs": 4, "clip": 1e9}, "is not finite"),
    ],
)
def test_options_that_make_no_sense(options: dict[str, Any], words: str) -> None:
    refused(block(a=nn.Linear(4, 4), b=nn.Tanh()), words, **options)


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("DARTS", {"order": 3}, "order 3: give one of 1, 2"),
        ("NASP", {"eta": -1.0}, "eta -1.0: give a number of at least 0"),
        ("NASP", {"eta": "much"}, "eta 'much': give a number"),
        ("NASP", {"arch_every": 0}, "arch_every 0: give a number of at least 1"),
    ],
)
def test_options_of_methods_are_checked_when_they_are_made(
    name: str, options: dict[str, Any], words: str
) -> None:
    with pytest.raises(proxnas.InputError) as caught:
        getattr(proxnas, name)(**options)
    assert str(caught.value) == words


class Logits(dict[str, Tensor]):
    """An output as Hugging Face's models have it: a dict with attributes."""

    @property
    def logits(self) -> Tensor:
        return self["logits"]


def plain(forward: Callable[[Any, Tensor], Any] | None = None) -> Model:
    return Model(
        forward,
        block=Choice({"a": nn.Linear(4, 4), "b": nn.Sequential(nn.Linear(4, 4), nn.Tanh())}),
    )


def test_an_output_that_is_no_tensor_needs_a_loss() -> None:
    wrapped = plain(lambda model, x: Logits(logits=model.out(model.block(x))))
    refused(
        wrapped,
        "puts out a Logits, not a tensor",
        "loss=lambda output, target: cross_entropy(output.logits, target)",
    )
    refused(
        plain(lambda model, x: (model.out(model.block(x)), x)),
        "puts out a tuple, not a tensor",
        "give loss=",
    )
    found = proxnas.search(
        wrapped,
        DATA,
        DATA,
        epochs=1,
        loss=lambda output, y: nn.functional.cross_entropy(output.logits, y),
    )
    assert found.genotype.keys() == {"block"}


@pytest.mark.parametrize("shape", [(8,), (8, 1)])
def test_labels_that_are_no_classes_say_what_to_do(shape: tuple[int, ...]) -> None:
    data = (DATA[0], DATA[1].float().view(shape))
    words = [f"the target holds float32 of shape {(4, *shape[1:])}", "target.long()", "mse_loss"]
    refused(plain(), *words, train=data, valid=data, batch_size=4)


def test_classes_that_the_output_has_not() -> None:
    data = (DATA[0], DATA[1] + 1)
    refused(
        plain(), "classes from 1 to 2", "puts out 2", "number them from 0", train=data, valid=data
    )


@pytest.mark.parametrize("kind", [np.int64, np.int32, np.uint8, np.bool_])
def test_arrays_are_as_good_as_tensors(kind: type) -> None:
    arrays = (DATA[0].double().numpy(), DATA[1].numpy().astype(kind))
    arrays[1].flags.writeable = False
    found = [
        proxnas.search(seeded_module(), data, data, epochs=2, batch_size=4)
        for data in (DATA, arrays)
    ]
    assert (
        found[0].A == found[1].A and found[0].result["valid_loss"] == found[1].result["valid_loss"]
    )


def seeded_module() -> Model:
    torch.manual_seed(0)
    return plain()


def test_arrays_of_words_are_no_data() -> None:
    words = (np.array(["a", "b"]), np.arange(2))
    refused(plain(), "train: an array of <U1: give numbers", train=words, valid=words)
