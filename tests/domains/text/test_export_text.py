"""Exported language models: a step, its states going in and coming out."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
import torch

from proxnas.common.errors import InputError
from proxnas.domains.text.data.text import TextOptions
from proxnas.domains.text.domain import TEXT
from proxnas.domains.text.export import export_text_model
from proxnas.domains.text.language import LanguageSize
from proxnas.domains.text.model import TextModel, language_network

VOCABULARY = (*map(str, range(19)), "<unk>")
CELLS = ["zoo:RNN_DARTS_V2", "zoo:LSTM"]


@pytest.fixture(params=CELLS)
def model(request: pytest.FixtureRequest) -> TextModel:
    cell, size = TEXT.read_cell(request.param), LanguageSize(20, 6)
    network = language_network(cell, size).eval()
    with torch.no_grad():
        for w in network.parameters():
            w.mul_(20)  # so that states matter
    return TextModel(network, cell, size, VOCABULARY, TextOptions(), {})


def test_a_program_needs_no_proxnas_and_continues_its_text(
    model: TextModel, tmp_path: Path
) -> None:
    file = tmp_path / "model.pt2"
    assert export_text_model(model, program=file)[file] < 1e-5
    extra = {"vocabulary": "", "input": ""}
    program = torch.export.load(io.BytesIO(file.read_bytes()), extra_files=extra).module()
    assert json.loads(extra["vocabulary"]) == list(VOCABULARY) and "int64 (N,)" in extra["input"]
    x = torch.randint(20, (5, 2))
    with torch.no_grad():
        expected, *last = model.network(x)
        states = model.network.initial(2)
        for words, logits in zip(x, expected, strict=True):
            got, *after = program(words, states)
            torch.testing.assert_close(got, logits)
            states = tuple(after)
    torch.testing.assert_close(list(states), last)
    assert (expected[1] - model.network(x[1:2])[0][0]).abs().max() > 1e-3  # the state does matter


def test_onnx_answers_as_the_network(model: TextModel, tmp_path: Path) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    file = tmp_path / "model.onnx"
    assert export_text_model(model, onnx=file)[file] < 1e-4
    session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
    states = [f"state_{i}" for i in range(len(model.network.initial(1)))]
    assert [entry.name for entry in session.get_inputs()] == ["words", *states]
    assert [entry.name for entry in session.get_outputs()] == [
        "logits",
        *(f"next_{name}" for name in states),
    ]
    assert session.get_modelmeta().custom_metadata_map["tokens"] == "word"


def test_a_wrong_export_is_not_written(
    model: TextModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("proxnas.domains.text.export.TOLERANCE", -1.0)
    with pytest.raises(RuntimeError, match="nothing was written"):
        export_text_model(model, program=tmp_path / "model.pt2")
    assert list(tmp_path.iterdir()) == []


def test_places_that_do_not_exist(model: TextModel, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="existing folder"):
        export_text_model(model, program=tmp_path / "nowhere" / "model.pt2")
