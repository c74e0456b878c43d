"""`proxnas.fit` in Python: what the command makes of the same data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import proxnas
from proxnas.cli.main import main
from support.commands import stripes

SMALL: dict[str, Any] = {
    "space": "nasbench201",
    "search_epochs": 1,
    "epochs": 1,
    "batch_size": 16,
    "cells": 1,
    "channels": 4,
    "threads": 1,
}


def test_arrays_make_a_model_that_is_the_commands(tmp_path: Path) -> None:
    arrays = stripes()
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


def test_a_pair_is_what_trains(tmp_path: Path) -> None:
    arrays = stripes()
    model = proxnas.fit((arrays["x_train"], arrays["y_train"]), run=tmp_path / "run", **SMALL)
    assert (tmp_path / "run" / "data.npz").exists()
    assert 0 <= model.score(str(tmp_path / "run" / "data.npz")) <= 1


def test_bad_values_name_the_field(tmp_path: Path) -> None:
    with pytest.raises(proxnas.InputError, match=r"^minutes -1"):
        proxnas.fit("digits", run=tmp_path / "run", minutes=-1.0)
    with pytest.raises(proxnas.InputError, match="data is a int: give a name"):
        proxnas.fit(3, run=tmp_path / "run")
    assert not (tmp_path / "run" / "config.json").exists()


def test_data_of_an_earlier_run_are_not_lost(tmp_path: Path) -> None:
    arrays = stripes()
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
