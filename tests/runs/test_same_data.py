"""A run goes on with the data that it was begun with, and with no others."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import proxnas
from proxnas.domains.images.data.images import LoadOptions, load
from proxnas.domains.text.data.text import load as load_text
from proxnas.runs import fingerprint
from support.commands import SMALL, call, interrupted_at, one_line, stripes

TRAIN = [
    "--epochs",
    "2",
    "--cells",
    "1",
    "--channels",
    "4",
    "--batch-size",
    "16",
    "--threads",
    "1",
    "--quiet",
]
CELL = "|nor_conv_1x1~0|+|skip_connect~0|none~1|+|none~0|none~1|skip_connect~2|"


def arrays(path: Path, **changes: Any) -> Path:
    np.savez(path, **stripes(80, **changes))
    return path


def photos(root: Path) -> Path:
    for k, name in enumerate(("cat", "dog")):
        (root / name).mkdir(parents=True)
        for i in range(10):
            pixels = np.random.default_rng(10 * k + i).integers(0, 256, (8, 8, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(root / name / f"{i}.bmp")
    return root


def changed(before: Any, after: Any) -> list[str]:
    return fingerprint.differences(before.fingerprint, after.fingerprint)


def test_what_changed_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    before = load(str(arrays(path)))
    assert before.fingerprint.keys() == {"images", "labels", "classes"}
    assert changed(before, load(str(arrays(path)))) == []
    y = stripes(80)["y_train"]
    assert changed(before, load(str(arrays(path, y_train=np.roll(y, 1))))) == ["labels"]
    assert changed(before, load(str(arrays(path, y_train=y + 5)))) == ["classes"]
    x = stripes(80)["x_train"]
    x[-1, -1, -1] += 1
    assert changed(before, load(str(arrays(path, x_train=x)))) == ["images"]


def test_a_folder_is_the_same_wherever_it_lies_and_however_it_is_read(tmp_path: Path) -> None:
    before = load(str(photos(tmp_path / "here")))
    shutil.copytree(tmp_path / "here", tmp_path / "there")  # with other dates
    for path in (tmp_path / "there").rglob("*.bmp"):
        path.touch()
    for options in (LoadOptions(), LoadOptions(image_size=4), LoadOptions(resident_limit=0)):
        assert changed(before, load(str(tmp_path / "there"), options)) == []
    a, b = tmp_path / "there" / "cat" / "0.bmp", tmp_path / "there" / "cat" / "1.bmp"
    first, second = a.read_bytes(), b.read_bytes()
    a.write_bytes(second)
    b.write_bytes(first)  # of the same size
    assert changed(before, load(str(tmp_path / "there"))) == ["images"]
    a.write_bytes(first)
    b.write_bytes(second)
    assert changed(before, load(str(tmp_path / "there"))) == []
    a.rename(tmp_path / "there" / "dog" / "zero.bmp")
    assert changed(before, load(str(tmp_path / "there"))) == ["images", "labels"]


def test_of_many_images_a_sample_is_read_but_every_name_and_label(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fingerprint, "MOST_FILES", 5)
    before = load(str(photos(tmp_path)))
    (tmp_path / "cat" / "1.bmp").rename(tmp_path / "cat" / "1a.bmp")
    assert changed(before, load(str(tmp_path))) == ["images"]
    monkeypatch.setattr(fingerprint, "MOST_BYTES", 1000)
    rows = np.random.default_rng(0).integers(0, 256, (100, 10, 10, 1), dtype=np.uint8)
    y = np.arange(100) % 2

    def digest(x: np.ndarray[Any, Any]) -> str:
        return fingerprint.of_arrays({"train": (x, y)}, ["a", "b"])["images"]

    first, unread = rows.copy(), rows.copy()
    first[10] += 1
    unread[11] += 1
    assert digest(rows) == digest(unread) != digest(first)


def test_a_text_is_known_by_its_parts(tmp_path: Path) -> None:
    for part in ("train", "valid", "test"):
        (tmp_path / f"{part}.txt").write_text("a b a b\n" * 9)
    before = load_text(str(tmp_path))
    (tmp_path / "valid.txt").write_text("a b b a\n" * 9)
    assert changed(before, load_text(str(tmp_path))) == ["valid text"]


def test_a_search_is_not_resumed_on_other_labels(tmp_path: Path, capsys: Any) -> None:
    data, run = arrays(tmp_path / "a.npz"), tmp_path / "run"
    argv = ["search", data, *SMALL, "--quiet", "--run", run]
    with interrupted_at(3):
        assert call(*argv) == 130
    config = json.loads((run / "config.json").read_text())
    assert config["fingerprint"] == dict(load(str(data)).fingerprint)
    capsys.readouterr()
    arrays(data, y_train=np.random.RandomState(1).permutation(stripes(80)["y_train"]))
    assert call(*argv, "--resume") == 2
    error = one_line(capsys.readouterr().err)
    assert (
        error.startswith(f"{run / 'config.json'}: ")
        and "(other labels)" in error
        and "--force" in error
    )
    arrays(data)
    assert call(*argv, "--resume") == 0
    assert "fingerprint" not in capsys.readouterr().err


def test_a_run_of_before_goes_on_with_a_note(tmp_path: Path, capsys: Any) -> None:
    data, run = arrays(tmp_path / "a.npz"), tmp_path / "run"
    argv = ["search", data, *SMALL, "--quiet", "--run", run]
    with interrupted_at(3):
        assert call(*argv) == 130
    config = json.loads((run / "config.json").read_text())
    del config["fingerprint"]
    (run / "config.json").write_text(json.dumps(config))
    capsys.readouterr()
    assert call(*argv, "--resume") == 0
    assert "tells nothing of its data" in capsys.readouterr().err


def test_a_training_says_that_the_data_of_its_search_changed(tmp_path: Path, capsys: Any) -> None:
    data, found, run = arrays(tmp_path / "a.npz"), tmp_path / "found", tmp_path / "run"
    assert call("search", data, *SMALL, "--quiet", "--run", found) == 0
    arrays(data, y_train=np.roll(stripes(80)["y_train"], 1))
    capsys.readouterr()
    assert call("train", found, data, *TRAIN, "--run", run) == 0  # may be meant
    (line,) = (line for line in capsys.readouterr().err.splitlines() if "changed" in line)
    assert (
        line.startswith("proxnas: warning: ") and "changed since this search (other labels)" in line
    )
    other = arrays(tmp_path / "other.npz", y_train=np.roll(stripes(80)["y_train"], 2))
    assert call("train", found, other, *TRAIN, "--run", tmp_path / "transfer") == 0
    assert "changed" not in capsys.readouterr().err


def test_a_fit_searches_and_trains_on_the_same_data(tmp_path: Path, capsys: Any) -> None:
    from proxnas.domains.images.training import ImageTraining

    data, run = arrays(tmp_path / "a.npz"), tmp_path / "run"
    argv = [
        "fit",
        data,
        "--space",
        "nasbench201",
        "--search-epochs",
        "1",
        "--epochs",
        "1",
        "--cells",
        "1",
    ]
    argv += ["--channels", "4", "--batch-size", "16", "--threads", "1", "--quiet", "--run", run]

    def stop(self: ImageTraining) -> object:
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(ImageTraining, "step", stop)
        assert call(*argv) == 130
    assert (run / "search" / "result.json").exists()
    shutil.rmtree(run / "train")
    arrays(data, y_train=np.roll(stripes(80)["y_train"], 1))
    capsys.readouterr()
    assert call(*argv, "--resume") == 2
    error = one_line(capsys.readouterr().err)
    assert "search/config.json: " in error and "changed since this search (other labels)" in error


def test_tensors_of_a_module_of_ones_own_are_known_other_data_are_not(tmp_path: Path) -> None:
    from torch.utils.data import DataLoader, TensorDataset

    from proxnas import Choice, InputError

    module = torch.nn.Sequential(
        Choice({"a": torch.nn.Linear(4, 4), "b": torch.nn.Identity()}, "first"),
        torch.nn.Linear(4, 2),
    )
    x, y = torch.randn(16, 4), torch.arange(16) % 2

    def search(y: torch.Tensor, **options: Any) -> object:
        return proxnas.search(module, (x, y), (x, y), epochs=1, batch_size=8, **options)

    search(y, run=tmp_path / "run")
    (tmp_path / "run" / "result.json").unlink()
    search(y, run=tmp_path / "run", resume=True)
    with pytest.raises(InputError, match="other train data and valid data"):
        search(1 - y, run=tmp_path / "run", resume=True)
    loader = DataLoader(TensorDataset(x, y), 8)
    proxnas.search(module, loader, loader, epochs=1, run=tmp_path / "loader")
    assert "fingerprint" not in json.loads((tmp_path / "loader" / "config.json").read_text())
