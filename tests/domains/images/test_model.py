"""A model file round-trips, and a damaged or foreign one is refused in one line."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

from proxnas.cells.genotype import Genotype
from proxnas.common.errors import InputError
from proxnas.domains.images.model import load_model, save_model
from proxnas.domains.trained import load_model as load_trained
from proxnas.training.model_file import find_model
from support.models import CELL, made


@pytest.fixture
def path(tmp_path: Path) -> Path:
    save_model(tmp_path / "model.safetensors", made())
    return tmp_path / "model.safetensors"


Change = Callable[[dict[str, torch.Tensor], dict[str, str]], Any]


def change(path: Path, how: Change) -> None:
    with safe_open(path, framework="pt") as file:
        weights, metadata = {name: file.get_tensor(name) for name in file.keys()}, file.metadata()  # noqa: SIM118
    how(weights, metadata)
    save_file(weights, path, metadata)


def test_a_model_comes_back_as_it_was(tmp_path: Path) -> None:
    model = made()
    save_model(tmp_path / "m.safetensors", model)
    back = load_model(tmp_path / "m.safetensors")
    assert (back.genotype, back.size, back.classes) == (model.genotype, model.size, model.classes)
    assert (back.mean, back.std, back.shape, back.pixels, back.info) == (
        *(model.mean, model.std, model.shape, model.pixels, model.info),
    )
    x = torch.randn(2, 3, 8, 8)
    assert not back.network.training
    torch.testing.assert_close(back.network(x), model.network(x), rtol=1e-5, atol=1e-6)
    assert [p.name for p in tmp_path.iterdir()] == ["m.safetensors"]


def test_the_same_model_gives_the_same_bytes(tmp_path: Path) -> None:
    """The library puts metadata into another order each time: of 20 files one would differ."""
    model = made()
    for number in range(20):
        save_model(tmp_path / str(number), model)
    contents = {path.read_bytes() for path in tmp_path.iterdir()}
    assert len(contents) == 1
    (content,) = contents
    length = int.from_bytes(content[:8], "little")
    assert length % 8 == 0
    names = list(json.loads(content[8 : 8 + length])["__metadata__"])
    assert names == sorted(names) and len(names) > 5


def test_it_is_found_in_run_folders(path: Path, tmp_path: Path) -> None:
    assert find_model(path) == find_model(path.parent) == path
    (tmp_path / "fit").mkdir()
    with pytest.raises(
        InputError, match=r"holds no model.safetensors: give the folder of a finished"
    ):
        load_model(tmp_path / "fit")
    (tmp_path / "fit" / "train").mkdir()
    path.rename(tmp_path / "fit" / "train" / path.name)
    assert find_model(tmp_path / "fit").parent.name == "train"
    with pytest.raises(InputError, match=r"nothing: no such file"):
        load_model("nothing")


WRONG: dict[str, tuple[Change, str]] = {
    "wrong shape": (
        lambda w, m: w.update({"stem.0.weight": torch.zeros(4, 3, 5, 5)}),
        r"has shape \[4, 3, 5, 5\]",
    ),
    "missing weight": (lambda w, m: w.pop("classifier.bias"), "classifier.bias is missing"),
    "surplus weight": (lambda w, m: w.update(more=torch.zeros(1)), "more has no place"),
    "wrong dtype": (
        lambda w, m: w.update({"classifier.bias": torch.zeros(3, dtype=torch.int32)}),
        "is torch.int32",
    ),
    "not finite": (lambda w, m: w["classifier.bias"].fill_(float("nan")), "not finite"),
    "another genotype": (
        lambda w, m: m.update(
            genotype=Genotype.from_string(CELL.replace("nor_conv_1x1", "nor_conv_3x3")).to_json()
        ),
        "has shape",
    ),
    "garbage genotype": (lambda w, m: m.update(genotype="]["), "genotype: not JSON"),
    "rnn genotype": (
        lambda w, m: m.update(genotype='{"schema":1,"kind":"rnn","cells":{}}'),
        "genotype: ",
    ),
    "no genotype": (lambda w, m: m.pop("genotype"), "not written by proxnas"),
    "garbage size": (lambda w, m: m.update(size="{"), "size is not JSON"),
    "absurd size": (
        lambda w, m: m.update(size=m["size"].replace('"channels": 4', '"channels": 1000000000')),
        "channels 1000000000, not 1 to 4096",
    ),
    "negative size": (
        lambda w, m: m.update(size=m["size"].replace('"cells": 1', '"cells": -1')),
        "cells -1",
    ),
    "unknown size": (
        lambda w, m: m.update(size=m["size"].replace('"cells"', '"kells"')),
        "not an object of cells",
    ),
    "classes": (
        lambda w, m: m.update(classes='["a", "b"]'),
        "classes in its metadata is not a list of 3",
    ),
    "mean": (lambda w, m: m.update(mean="[NaN, 0, 0]"), "mean in its metadata"),
    "std": (lambda w, m: m.update(std="[0, 1, 1]"), "std in its metadata"),
    "shape": (
        lambda w, m: m.update(shape="[1, 8, 8]"),
        "does not fit the network's 3 image channels",
    ),
    "pixels": (lambda w, m: m.update(pixels='"int4"'), "pixels or info"),
    "info": (lambda w, m: m.update(info="[]"), "pixels or info"),
    "no info": (lambda w, m: m.pop("info"), "info is missing"),
}


@pytest.mark.parametrize(("how", "said"), WRONG.values(), ids=WRONG)
def test_a_wrong_file_is_named(path: Path, how: Change, said: str) -> None:
    change(path, how)
    with pytest.raises(InputError, match=said) as error:
        load_model(path)
    assert str(error.value).startswith(f"{path}: ") and "\n" not in str(error.value)


@pytest.mark.parametrize(
    "content", [b"", b"garbage" * 100, b"\xff" * 8 + b"{}", b"\x80\x02}q\x00."]
)
def test_what_is_no_safetensors_file_is_named(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    with pytest.raises(InputError, match="not a readable safetensors file"):
        load_model(path)


def test_a_truncated_file_is_named(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(InputError, match="not a readable safetensors file"):
        load_model(path)


def test_predict_from_arrays(path: Path) -> None:
    model = load_model(path)
    x = np.random.RandomState(0).randint(0, 256, (70, 8, 8, 3)).astype(np.uint8)
    answers = model.predict(x, top=2)
    assert len(answers) == 70 and all(len(row) == 2 for row in answers)
    scale = torch.tensor(model.std)
    logits = model.network(
        ((torch.from_numpy(x) / 255 - torch.tensor(model.mean)) / scale).permute(0, 3, 1, 2)
    )
    best = logits.softmax(-1).max(-1)
    assert [row[0].name for row in answers] == [model.classes[k] for k in best.indices]
    assert [row[0].probability for row in answers] == pytest.approx(best.values.tolist(), rel=1e-4)
    assert len(model.predict(x[:1], top=99)[0]) == 3
    with pytest.raises(
        InputError, match=r"images of shape \(1, 9, 8, 3\): this model reads \(N, 8, 8, 3\)"
    ):
        model.predict(np.zeros((1, 9, 8, 3), np.uint8))
    with pytest.raises(
        InputError, match=r"images of torch.float64: this model was trained on uint8"
    ):
        model.predict(np.zeros((1, 8, 8, 3)))


def test_metadata_are_json(path: Path) -> None:
    with safe_open(path, framework="pt") as file:
        metadata = file.metadata()
    assert metadata.pop("proxnas")
    assert json.loads(metadata["info"]) == {"params": 7, "test_accuracy": 0.5}
    assert all(json.loads(text) for text in metadata.values())


def test_arrays_that_cannot_be_written_to_are_answered(path: Path) -> None:
    """Warnings are errors here, and torch warns of them."""
    model = load_model(path)
    C, H, W = model.shape
    images = np.zeros((2, H, W, C), model.pixels)
    images.flags.writeable = False
    assert model.normalised(images).shape == (2, C, H, W)


def test_a_model_is_shown_in_a_line(path: Path) -> None:
    shown = repr(load_trained(path))
    assert shown.startswith("TrainedModel(") and len(shown) < 400 and "\n" not in shown
