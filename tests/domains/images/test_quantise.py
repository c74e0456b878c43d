"""The int8 version of an exported network, and the program that uses the files: without proxnas,
without torch."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from proxnas.common.onnx_runtime import onnx_available, onnx_session
from proxnas.domains.images import fit_files
from proxnas.domains.images.data.images import load
from proxnas.domains.images.domain import IMAGES
from proxnas.domains.images.export import export_model
from proxnas.domains.images.fit_files import (
    compare_files,
    warnings_about,
    write_files,
    write_program,
)
from proxnas.domains.images.model import Model
from proxnas.domains.images.networks.chain import chain_network
from proxnas.domains.images.networks.cnn import Size, channels_last
from proxnas.domains.images.quantise import answers, quantise, some_of
from proxnas.domains.images.spaces.resnet import middle, resnet
from proxnas.domains.images.targets import Numbers
from proxnas.domains.trained import TrainedModel

pytestmark = pytest.mark.skipif(not onnx_available(), reason="the extra onnx is not installed")


def chain_model(**changes: Any) -> Model:
    """A chain of residual stages that nobody trained."""
    import torch

    torch.manual_seed(0)
    images, genotype = load("digits"), resnet().genotype(middle())
    size = changes.get("size", Size(1, 8, 1, 10))
    parts: dict[str, Any] = {
        "network": channels_last(chain_network(genotype, size)).eval(),
        "genotype": genotype,
        "size": size,
        "classes": images.classes,
        "mean": images.mean,
        "std": images.std,
        "shape": images.shape,
    }
    return Model(**parts | changes)


@pytest.fixture(scope="module")
def model() -> Model:
    return chain_model()


@pytest.fixture(scope="module")
def folder(model: Model, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With model.onnx, its int8 version, and the program."""
    place = tmp_path_factory.mktemp("files")
    images = load("digits")
    export_model(model, images.x_test[:4], place / "model.onnx")
    quantise(place / "model.onnx", place / "model_int8.onnx", some_of(images.x_train, 64))
    write_program(TrainedModel(IMAGES, model), place)
    return place


def test_the_int8_version_answers_like_the_float_one(folder: Path) -> None:
    import onnx

    x = np.asarray(load("digits").x_test)
    exact, coarse = (
        answers(onnx_session((folder / name).read_bytes()), x)
        for name in ("model.onnx", "model_int8.onnx")
    )
    assert np.sqrt(np.mean((exact - coarse) ** 2)) < 0.1 * exact.std()
    files = [onnx.load(folder / name) for name in ("model.onnx", "model_int8.onnx")]
    assert any(weights.data_type == onnx.TensorProto.INT8 for weights in files[1].graph.initializer)
    told = [{entry.key: entry.value for entry in file.metadata_props} for file in files]
    assert told[0] == told[1] and len(json.loads(told[0]["classes"])) == 10
    session = onnx_session((folder / "model_int8.onnx").read_bytes())
    assert session.get_inputs()[0].type == "tensor(uint8)"
    assert answers(session, x[:1]).shape == (1, 10)  # one image, or any number


def test_layers_stay_in_float_where_answers_change(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import onnx

    monkeypatch.setattr("proxnas.domains.images.quantise.DIFFERENT", -1.0)
    x = some_of(load("digits").x_train, 32)
    tried: list[Any] = []

    def note(source: Path, images: Any, kept: Any) -> bytes:
        tried.append(kept)
        return (folder / ("model.onnx" if kept else "model_int8.onnx")).read_bytes()

    monkeypatch.setattr("proxnas.domains.images.quantise._quantised", note)
    quantise(folder / "model.onnx", tmp_path / "q.onnx", x)
    assert tried[0] == [] and len(tried[1]) == 2
    types = {node.name: node.op_type for node in onnx.load(folder / "model.onnx").graph.node}
    assert [types[name] for name in tried[1]] == ["Conv", "Gemm"]
    assert (tmp_path / "q.onnx").read_bytes() == (folder / "model.onnx").read_bytes()  # as it is


@pytest.mark.slow
def test_numbers_of_unlike_units_stay_apart(tmp_path: Path) -> None:
    """One is a thousandth of the other: bytes of one scale for both would lose it."""
    size = Size(1, 8, 1, 2)
    scale = Numbers((0.5, 500.0), (0.2, 200.0))
    model = chain_model(size=size, classes=("small", "large"), target=scale)
    x = some_of(load("digits").x_train, 64)
    export_model(model, x[:4], tmp_path / "model.onnx")
    quantise(tmp_path / "model.onnx", tmp_path / "q.onnx", x)
    exact, coarse = (
        answers(onnx_session((tmp_path / name).read_bytes()), x)
        for name in ("model.onnx", "q.onnx")
    )
    error = np.sqrt(np.mean((exact - coarse) ** 2, 0)) / np.array(scale.std)
    assert (error < 0.05).all(), error


def test_both_versions_are_held_to_each_other_on_test_images(folder: Path) -> None:
    images = load("digits")
    same = compare_files(folder / "model.onnx", folder / "model.onnx", images)
    assert same["test_accuracy"] == same["float_accuracy"] and same["test_images"] == 359
    logits = answers(onnx_session((folder / "model.onnx").read_bytes()), np.asarray(images.x_test))
    assert same["float_accuracy"] == pytest.approx(np.mean(logits.argmax(1) == images.y_test))


def test_a_loss_of_more_than_a_point_is_said() -> None:
    worse = {"file": "m", "float_accuracy": 0.95, "test_accuracy": 0.93, "test_images": 100}
    worse["test_images"] = 200
    assert "0.0200 worse" in warnings_about(worse)[0] and "0.9300" in warnings_about(worse)[0]
    assert warnings_about(worse | {"test_accuracy": 0.945}) == []
    assert warnings_about(worse | {"test_images": 100}) == []  # two images: chance
    assert warnings_about({"skipped": "why"}) == []


def test_a_fit_goes_on_without_the_int8_version(
    model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> None:
        raise RuntimeError("no such kernel")

    def pretend(model: Any, images: Any, *files: Path | None) -> dict[Path, float]:
        (tmp_path / "model.onnx").write_bytes(b"")
        return {tmp_path / "model.onnx": 0.0}

    from proxnas.core.size.latency import Latency

    quick = Latency(0.001, 0.001, 0.001, 3, 1, "cpu", 1)
    monkeypatch.setattr("proxnas.domains.images.quantise.quantise", fail)
    monkeypatch.setattr("proxnas.domains.images.export.export_model", pretend)
    monkeypatch.setattr("proxnas.domains.images.deliver.onnx_latency", lambda *_: quick)
    made, doubts = write_files(
        TrainedModel(IMAGES, model), tmp_path, load("digits"), {}, lambda text: None
    )
    assert made["int8"] == {"skipped": "RuntimeError: no such kernel"} and doubts == []
    assert made["latency_ms"] == 1 and made["onnx"] == "model.onnx"
    card = (tmp_path / "model_card.md").read_text()
    assert ("no such kernel" in card and "use\\_model" in card) or "`use_model.py`" in card
    assert not (tmp_path / fit_files.INT8).exists()


WITHOUT = """
import runpy, sys
sys.modules["proxnas"] = sys.modules["torch"] = sys.modules["sklearn"] = None
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def test_the_program_answers_files_as_the_model_does(
    folder: Path, model: Model, tmp_path: Path
) -> None:
    grey = np.random.RandomState(0).randint(0, 256, (8, 8), np.uint8)
    large = np.random.RandomState(1).randint(0, 256, (40, 56, 3), np.uint8)
    Image.fromarray(grey).save(tmp_path / "grey.png")
    Image.fromarray(grey.astype(np.uint16) * 257).save(tmp_path / "sixteen.png")
    Image.fromarray(large).save(tmp_path / "large.png")
    Image.fromarray(large).save(tmp_path / "large.jpg")
    turned = Image.Exif()
    turned[0x0112] = 6
    Image.fromarray(large).save(tmp_path / "turned.jpg", exif=turned)
    Image.fromarray(large).save(tmp_path / "turned.png", exif=turned)
    Image.fromarray(np.dstack([large, large[..., 0]])).save(tmp_path / "clear.png")
    Image.fromarray(large).convert("P").save(tmp_path / "palette.gif")
    files = sorted(str(file) for file in tmp_path.iterdir())
    command = [sys.executable, "-I", "-c", WITHOUT, str(folder / "use_model.py"), *files]
    ran = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert ran.returncode == 0, ran.stderr
    expected = [
        f"{file}  {answer.name} {answer.probability:.4f}"
        for file, (answer,) in zip(files, model.predict(files), strict=True)
    ]
    assert ran.stdout.splitlines() == expected
    assert len((folder / "use_model.py").read_text().splitlines()) <= 45
    for files, said in (([], "python use_model.py IMAGE..."), ([__file__], "no image that can be")):
        ran = subprocess.run(command[:5] + files, capture_output=True, text=True, cwd=tmp_path)
        assert ran.returncode == 1 and said in ran.stderr and "Traceback" not in ran.stderr


def test_files_do_not_tell_the_scale_of_floats(tmp_path: Path) -> None:
    assert write_program(TrainedModel(IMAGES, chain_model(pixels="float32")), tmp_path) is None
    assert list(tmp_path.iterdir()) == []
