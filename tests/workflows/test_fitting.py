"""`proxnas.fit` in Python: what the command makes of the same data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import proxnas
from proxnas.cli.main import main
from support.commands import stripes
from support.quick_fits import pretend_to_export

SMALL: dict[str, Any] = {
    "space": "nasbench201",
    "search_epochs": 1,
    "epochs": 1,
    "batch_size": 16,
    "cells": 1,
    "channels": 4,
    "threads": 1,
}


def test_arrays_make_a_model_that_is_the_commands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend_to_export(monkeypatch)
    arrays = stripes(100)
    model = proxnas.fit(arrays, run=tmp_path / "python", **SMALL)
    np.savez(tmp_path / "data.npz", **arrays)
    words = [f"--{name.replace('_', '-')}={value}" for name, value in SMALL.items()]
    argv = ["fit", str(tmp_path / "data.npz"), *words, "--quiet"]
    assert main([*argv, "--run", str(tmp_path / "command")]) == 0
    other = proxnas.load_model(tmp_path / "command")
    images = arrays["x_train"][:5]
    ours, theirs = model.predict(images), other.predict(images)
    assert [str(answer) for answer in ours] == [str(answer) for answer in theirs]
    again = proxnas.fit(arrays, run=tmp_path / "python", resume=True, **SMALL)  # it is finished
    assert [str(answer) for answer in again.predict(images)] == [str(answer) for answer in ours]


class Shapes:
    """A map-style Dataset of (image, label) with names for its labels."""

    classes = ("one", "two", "three", "four")

    def __len__(self) -> int:
        return 100

    def __init__(self) -> None:
        self.arrays = stripes(100)

    def __getitem__(self, number: int) -> tuple[Any, int]:
        return self.arrays["x_train"][number], int(self.arrays["y_train"][number])


def test_a_dataset_becomes_a_model_that_can_all_a_model_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = Shapes()
    with monkeypatch.context() as patch:
        pretend_to_export(patch)
        model = proxnas.fit(data, run=tmp_path / "run", **SMALL)
    ((name, chance),) = model.predict([data[0][0]])[0]
    assert name in Shapes.classes and 0 < chance <= 1
    tested = model.test(data)
    assert tested["classes"] == list(Shapes.classes)
    assert model.score(data) == tested["accuracy"] == model.result["test_accuracy"]
    assert model.export(torch=tmp_path / "m.pt2").files["torch"].exists()
    assert "<html" in model.report(tmp_path / "page.html").read_text()
    again = proxnas.load_model(model.save(tmp_path / "copy.safetensors"))
    assert str(again.predict([data[1][0]])) == str(model.predict([data[1][0]]))


def test_a_text_becomes_a_model_that_can_all_a_model_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = tmp_path / "words.txt"
    text.write_text("a b c d e f g h\nb d f h a c e g\n" * 40)
    sizes = {"units": 4, "batch_size": 4, "bptt": 8, "search_epochs": 1, "epochs": 1}
    with monkeypatch.context() as patch:
        pretend_to_export(patch)
        model = proxnas.fit(text, run=tmp_path / "run", words=5, threads=1, **sizes)
    ((word, chance),) = model.predict("a b")[0]
    assert isinstance(word, str) and 0 < chance <= 1
    tested = model.test(str(text))
    assert tested["perplexity"] == pytest.approx(model.result["test_perplexity"])
    assert model.score(str(text)) == -tested["loss"]
    assert model.export(torch=tmp_path / "m.pt2").files["torch"].exists()
    assert "<html" in model.report(tmp_path / "page.html").read_text()
    again = proxnas.load_model(model.save(tmp_path / "copy.safetensors"))
    assert str(again.predict("a b")) == str(model.predict("a b"))
    assert len(model.generate("a", words=3).split()) == 4


def test_bad_values_name_the_field(tmp_path: Path) -> None:
    with pytest.raises(proxnas.InputError, match=r"^minutes -1"):
        proxnas.fit("digits", run=tmp_path / "run", minutes=-1.0)
    with pytest.raises(proxnas.InputError, match=r"^data: a int is no data set"):
        proxnas.fit(3, run=tmp_path / "run")
    assert not (tmp_path / "run" / "config.json").exists()


def test_data_of_an_earlier_run_are_not_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend_to_export(monkeypatch)
    arrays = stripes(100)
    run = tmp_path / "run"
    proxnas.fit(arrays, run=run, **SMALL)
    before = (run / "data.npz").read_bytes()
    others = arrays | {"x_train": arrays["x_train"][::-1]}
    for options in ({}, {"resume": True}):
        with pytest.raises(proxnas.InputError, match=r"holds other data .* give force"):
            proxnas.fit(others, run=run, **SMALL, **options)
    with pytest.raises(proxnas.InputError, match="holds a finished run"):
        proxnas.fit(arrays, run=run, **SMALL)
    assert (run / "data.npz").read_bytes() == before


def test_nothing_is_pickled(tmp_path: Path) -> None:
    bad = np.array([{}, {}], dtype=object)
    with pytest.raises(proxnas.InputError, match="x_train: an array of Python objects"):
        proxnas.fit((bad, [0, 1]), run=tmp_path / "run")
    assert not (tmp_path / "run").exists()
