"""Exported files: checked, complete, and usable where proxnas is not installed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from proxnas.cells.genotype import Genotype
from proxnas.cells.parts import Cell, Edge
from proxnas.cli.main import main
from proxnas.common import onnx_runtime
from proxnas.common.errors import InputError
from proxnas.domains.images import export, networks
from proxnas.domains.images.data.images import load
from proxnas.domains.images.domain import IMAGES
from proxnas.domains.images.export import (
    Deployed,
    as_input,
    deployed,
    export_model,
    export_onnx,
    export_torch,
)
from proxnas.domains.images.model import Model, save_model
from proxnas.domains.images.networks.cnn import Size, channels_last
from proxnas.domains.images.operations import CNN
from proxnas.domains.trained import TrainedModel, found_by
from proxnas.training.model_file import FILE

needs_onnx = pytest.mark.skipif(
    not onnx_runtime.onnx_available(), reason="the extra onnx is not installed"
)


def both(*nodes: tuple[Edge, ...]) -> Genotype:
    cell = Cell(nodes, tuple(range(2, 2 + len(nodes))))
    return Genotype("cnn", {"normal": cell, "reduce": cell})


CELL = both(
    (Edge("sep_conv_3x3", 0), Edge("skip_connect", 1)),
    (Edge("max_pool_3x3", 0), Edge("dil_conv_3x3", 1), Edge("skip_connect", 2)),
)
EVERYTHING = both(tuple(Edge(op, k % 2) for k, op in enumerate(CNN)))
"""All operations in one node."""


def digits_model(genotype: Genotype = CELL, cells: int = 1, **changes: Any) -> Model:
    """With the weights of an untrained network, but statistics as after training."""
    torch.manual_seed(3)
    images = load("digits")
    size = Size(cells, 4, 1, 10)
    network = channels_last(networks.build_network(genotype, size))
    for part in network.modules():
        if isinstance(part, nn.BatchNorm2d):
            part.running_mean.uniform_(-0.5, 0.5)
            part.running_var.uniform_(0.5, 2)
    info = {"data": "digits", "protocol": "quick", "test_accuracy": 0.9722, "epochs": 3, "seed": 0}
    parts: dict[str, Any] = {
        "mean": images.mean,
        "std": images.std,
        "shape": images.shape,
        "info": info,
    }
    parts |= {
        "network": network.eval(),
        "genotype": genotype,
        "size": size,
        "classes": images.classes,
    }
    return Model(**parts | changes)


@pytest.fixture(scope="module")
def digits() -> Any:
    return np.asarray(load("digits").x_test[:6])


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("fit") / "train"
    folder.mkdir()
    save_model(folder / FILE, digits_model())
    (folder / "config.json").write_text('{"data": "digits"}')
    (folder / "result.json").write_text('{"cell": "zoo:DARTS_V2"}')
    return folder


@pytest.fixture(scope="module")
def onnx_file(run_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """By the command, without DATA: the run says digits. With its card. (Exporting takes seconds,
    so once for all.)"""
    if not onnx_runtime.onnx_available():
        pytest.skip("the extra onnx is not installed")
    folder = tmp_path_factory.mktemp("files")
    assert (
        main(
            ["export", str(run_folder), "--onnx", f"{folder}/m.onnx", "--card", f"{folder}/card.md"]
        )
        == 0
    )
    return folder / "m.onnx"


# ----------------------------------------------------------------------- ONNX


WITHOUT_PROXNAS = """
import json, sys
import numpy as np, onnxruntime
session = onnxruntime.InferenceSession(sys.argv[1])
images = np.load(sys.argv[2])
answers = [session.run(["logits"], {"images": x})[0].tolist() for x in (images, images[:1])]
assert "proxnas" not in sys.modules and "torch" not in sys.modules
print(json.dumps({"answers": answers, "about": session.get_modelmeta().custom_metadata_map}))
"""


def test_an_onnx_file_answers_as_the_model_where_there_is_no_proxnas(
    onnx_file: Path, digits: Any, tmp_path: Path
) -> None:
    np.save(tmp_path / "x.npy", as_input(digits).numpy())
    command = [sys.executable, "-I", "-c", WITHOUT_PROXNAS, str(onnx_file), str(tmp_path / "x.npy")]
    ran = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path)
    told = json.loads(ran.stdout)
    model = digits_model()
    with torch.no_grad():
        expected = model.network(model.normalised(digits))
    torch.testing.assert_close(torch.tensor(told["answers"][0]), expected, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(torch.tensor(told["answers"][1]), expected[:1], atol=1e-4, rtol=1e-4)
    assert json.loads(told["about"]["classes"]) == list(model.classes)
    assert Genotype.from_json(told["about"]["genotype"]) == CELL


def test_the_card_s_five_lines_run_as_they_are(
    onnx_file: Path, digits: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    card = (onnx_file.parent / "card.md").read_text()
    code = card.split("```python\n")[1].split("```")[0]
    assert len(code.splitlines()) == 5
    monkeypatch.chdir(onnx_file.parent)
    names = {"pictures": digits}
    exec(code, names)  # the card that was just written
    model = digits_model()
    assert names["answers"].tolist() == model.probabilities(digits).argmax(1).tolist()
    assert "97.22%" in card and "zoo:DARTS\\_V2" in card and "| latency of the ONNX file |" in card


@needs_onnx
@pytest.mark.slow
def test_onnx_takes_every_operation_with_and_without_stride(tmp_path: Path, digits: Any) -> None:
    model = digits_model(EVERYTHING, cells=3)
    assert export_model(model, digits, onnx=tmp_path / "m.onnx")[tmp_path / "m.onnx"] < 1e-4


@needs_onnx
def test_an_onnx_file_that_answers_differently_is_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A network whose answers change from call to call cannot be exported faithfully."""

    class Moody(nn.Module):
        calls = 0.0

        def forward(self, x: Tensor) -> Tensor:
            Moody.calls += 1
            return x.mean((2, 3)) * Moody.calls

    (tmp_path / "m.onnx").write_text("earlier")
    with pytest.raises(RuntimeError, match=r"m\.onnx: answers differ .* nothing was written"):
        export_onnx(Moody().eval(), torch.ones(2, 3, 4, 4), tmp_path / "m.onnx")
    assert [p.name for p in tmp_path.iterdir()] == ["m.onnx"] and (
        tmp_path / "m.onnx"
    ).read_text() == "earlier"


@needs_onnx
def test_what_the_older_exporter_does_not_know_goes_by_the_newer_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or what it gets wrong: answers of a file are checked whoever wrote it."""
    network, x = nn.Sequential(nn.Flatten(), nn.Linear(32, 2)).eval(), torch.rand(3, 4, 4, 2)
    captured: list[object] = []
    newer = export._captured
    monkeypatch.setattr(export, "_captured", lambda *args: captured.append(1) or newer(*args))
    assert export_onnx(network, x, tmp_path / "a") < 1e-5 and not captured
    other = nn.Sequential(nn.Flatten(), nn.Linear(32, 2)).eval()
    wrong = export._traced(other, x, "logits")
    monkeypatch.setattr(export, "_traced", lambda *args: wrong)
    assert export_onnx(network, x, tmp_path / "b") < 1e-5 and captured


def test_without_the_extra_onnx_is_refused_in_one_line(
    run_folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(
        onnx_runtime, "find_spec", lambda name: None if name == "onnxscript" else object()
    )
    assert main(["export", str(run_folder), "--onnx", str(tmp_path / "m.onnx")]) == 2
    error = capsys.readouterr().err
    assert (
        error.startswith("proxnas: error: ")
        and "pip install 'proxnas[onnx]'" in error
        and error.count("\n") == 1
    )
    assert list(tmp_path.iterdir()) == []


# --------------------------------------------------------------- torch.export


def test_a_torch_program_is_written_and_reloads(
    run_folder: Path, digits: Any, tmp_path: Path
) -> None:
    assert (
        main(["export", str(run_folder / FILE), "digits", "--torch", str(tmp_path / "m.pt2")]) == 0
    )
    about = {"classes": ""}
    program = torch.export.load(tmp_path / "m.pt2", extra_files=about).module()
    model = digits_model()
    with torch.no_grad():
        expected = model.network(model.normalised(digits))
        torch.testing.assert_close(program(as_input(digits)), expected, atol=1e-4, rtol=1e-4)
        torch.testing.assert_close(
            program(as_input(digits)[:1]), expected[:1], atol=1e-4, rtol=1e-4
        )
    assert json.loads(about["classes"]) == list(model.classes)


def test_one_image_is_enough_for_a_program_of_any_number(tmp_path: Path) -> None:
    network = channels_last(nn.Sequential(nn.Conv2d(3, 2, 3), nn.Flatten(), nn.Linear(8, 2)).eval())
    assert export_torch(network, torch.rand(1, 3, 4, 4), tmp_path / "m.pt2") < 1e-5
    assert torch.export.load(tmp_path / "m.pt2").module()(torch.rand(5, 3, 4, 4)).shape == (5, 2)


# ------------------------------------------------------------------- contents


def test_normalisation_is_inside_and_held_to_the_model_s_own(tmp_path: Path, digits: Any) -> None:
    model = digits_model()
    made = deployed(model)
    assert as_input(digits).dtype == torch.uint8 and as_input(digits).shape[1:] == (8, 8, 1)
    with torch.no_grad():
        torch.testing.assert_close(
            made(as_input(digits)), model.network(model.normalised(digits)), atol=1e-5, rtol=1e-5
        )
    wrong = Deployed(made.network, [0.0], [1.0])
    with pytest.MonkeyPatch.context() as patch, pytest.raises(RuntimeError, match="answers differ"):
        patch.setattr(export, "deployed", lambda model: wrong)
        export_model(model, digits, program=tmp_path / "m.pt2")


def test_what_only_training_needs_is_left_out() -> None:
    network = networks.build_network(CELL, Size(1, 4, 1, 10, auxiliary=True))
    made = deployed(digits_model(network=network))
    assert not any("auxiliary" in name for name, _ in made.named_parameters())
    assert network.auxiliary is not None and network.training and not made.training


def test_float_images_are_not_divided(tmp_path: Path) -> None:
    """And the file reads what the model reads: bytes as bytes."""
    x = np.random.default_rng(0).normal(5, 3, (4, 8, 8, 1)).astype(np.float32)
    model = digits_model(pixels="float32", mean=(5.0,), std=(3.0,))
    assert export_model(model, x, program=tmp_path / "m.pt2")[tmp_path / "m.pt2"] < 1e-4
    assert torch.equal(as_input(x), torch.from_numpy(x))


def test_grey_arrays_may_lack_the_channel(digits: Any) -> None:
    assert torch.equal(as_input(digits[..., 0]), as_input(digits))


# --------------------------------------------------------------- command line


def refused(capsys: pytest.CaptureFixture[str], *argv: str) -> str:
    assert main(["export", *argv]) == 2
    error = capsys.readouterr().err
    assert error.startswith("proxnas: error: ") and error.count("\n") == 1
    return error


def test_bad_input_is_one_line_each(
    run_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, target = str(run_folder), str(tmp_path / "m.pt2")
    assert "nothing to write" in refused(capsys, model)
    assert "no such file" in refused(capsys, str(tmp_path / "nosuch"), "--torch", target)
    assert "existing folder" in refused(capsys, model, "--torch", str(tmp_path / "no" / "m.pt2"))
    assert "existing folder" in refused(capsys, model, "--torch", str(tmp_path))
    assert "unknown data" in refused(capsys, model, "digitz", "--torch", target)
    other = tmp_path / "other.npz"
    np.savez(other, x_train=np.zeros((8, 6, 6), np.uint8), y_train=np.arange(8) % 2)
    error = refused(capsys, model, str(other), "--torch", target)
    assert "images are 1x6x6 uint8, the model reads 1x8x8 uint8" in error
    assert "--threads -1" in refused(capsys, model, "--torch", target, "--threads", "-1")
    assert "nosuch" in refused(capsys, model, "--card", str(tmp_path / "nosuch" / "card.md"))
    assert not Path(target).exists()


def test_json_tells_what_was_written_and_how_it_was_checked(
    run_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = str(tmp_path / "m.pt2")
    assert main(["export", str(run_folder), "--torch", target, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["torch"] == target and told["images"] == "16 images of digits"
    assert 0 <= told["difference"]["torch"] <= 1e-4


@pytest.mark.parametrize("pixels", ["uint8", "float32"])
def test_without_any_data_it_is_checked_on_noise_and_says_so(
    pixels: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save_model(tmp_path / FILE, digits_model(pixels=pixels))
    assert main(["export", str(tmp_path / FILE), "--torch", str(tmp_path / "m.pt2")]) == 0
    assert "checked on noise (no DATA given)" in capsys.readouterr().out


# -------------------------------------------------------------------- deliver


def test_without_onnx_a_fit_delivers_a_torch_program_and_says_so_in_a_line(
    tmp_path: Path, digits: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("proxnas.domains.trained.onnx_available", lambda: False)
    said: list[str] = []
    found = {
        "method": "nasp",
        "space": "darts7",
        "data": "digits",
        "seed": 0,
        "epochs": 4,
        "seconds": 12.3,
    }
    model = TrainedModel(IMAGES, digits_model())
    files = model.deliver(tmp_path, digits, found, said.append).files
    assert {kind: path.name for kind, path in files.items()} == {
        "torch": "model.pt2",
        "card": "model_card.md",
    }
    assert len(said) == 1 and "pip install 'proxnas[onnx]'" in said[0]
    card = files["card"].read_text()
    assert "found by nasp in space darts7 on digits (epochs 4, seed 0, 12 seconds)" in card
    assert "torch.export.load('model.pt2')" in card


def test_how_a_cell_was_found_is_read_beside_the_training(tmp_path: Path) -> None:
    train, search = tmp_path / "train", tmp_path / "search"
    for folder in (train, search):
        folder.mkdir()
    assert found_by(train) == {}
    (train / "result.json").write_text('{"cell": "cell.json"}')
    assert found_by(train) == {"cell": "cell.json"}
    (search / "result.json").write_text('{"method": "nasp"}')
    assert found_by(train) == {"method": "nasp"}
    search.rename(tmp_path / "elsewhere")
    (train / "result.json").write_text(json.dumps({"cell": str(tmp_path / "elsewhere")}))
    assert found_by(train) == {"method": "nasp"}
    (train / "result.json").write_text("[1, 2")
    assert found_by(train) == {}


def test_a_fit_by_the_clock_has_no_search_beside_it(tmp_path: Path) -> None:
    (tmp_path / "search").mkdir()  # of something else
    (tmp_path / "search" / "result.json").write_text('{"method": "gdas"}')
    (tmp_path / "mine").mkdir()
    search = {"epochs": 0, "seconds": 0.0, "said": "no search: too few steps"}
    result = json.dumps({"method": "nasp", "search": search})
    (tmp_path / "mine" / "result.json").write_text(result)
    assert found_by(tmp_path / "mine")["said"] == "no search: too few steps"


def test_an_input_error_names_the_folder_before_any_work(tmp_path: Path, digits: Any) -> None:
    with pytest.raises(InputError, match="existing folder"):
        export_model(digits_model(), digits, program=tmp_path / "no" / "m.pt2")
