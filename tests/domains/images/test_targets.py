"""Numbers and labels in place of classes: figures, a fit, and what the model says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn import metrics

from proxnas.common.errors import InputError
from proxnas.domains.images.baselines import baselines
from proxnas.domains.images.data.columns import kind_of
from proxnas.domains.images.data.images import load
from proxnas.domains.images.data.sheet import data_sheet, sheet_lines
from proxnas.domains.images.export import as_input, deployed
from proxnas.domains.images.parts import train_parts
from proxnas.domains.images.targets import CLASSES, Labels, Numbers, from_json, rename_accuracy
from proxnas.domains.trained import load_model
from proxnas.report.facts import leaderboard, leaderboard_texts
from support.commands import call, one_line
from support.quick_fits import hurry


def table(folder: Path, kind: str, count: int = 120) -> Path:
    """Grey images: of a brightness (numbers), or with bright halves (labels)."""
    random = np.random.RandomState(0)
    lines = []
    for n in range(count):
        x = random.randint(0, 40, (8, 8))
        if kind == "numbers":
            light = int(random.randint(0, 200))
            x += light
            cell = f"{0.5 + light / 100},{light}"
        else:
            left, top = random.randint(0, 2, 2)
            x[:, :4] += 100 * left
            x[:4] += 100 * top
            cell = "|".join(["any", *["left"] * left, *["top"] * top])
        Image.fromarray(x.astype(np.uint8)).save(folder / f"{n}.png")
        lines.append(f"{n}.png,{cell}")
    head = "file,light,bytes" if kind == "numbers" else "file,tags"
    (folder / "labels.csv").write_text("\n".join([head, *lines]) + "\n")
    return folder


def test_figures_are_those_of_scikit_learn() -> None:
    random = np.random.RandomState(0)
    y, answers = random.randn(50, 3), random.randn(50, 3)
    found = Numbers((0.0,) * 3, (1.0,) * 3).figures(answers, y)
    assert found["r2"] == pytest.approx(metrics.r2_score(y, answers))
    assert found["mae"] == pytest.approx(metrics.mean_absolute_error(y, answers))
    truth, shares = (random.rand(50, 3) < 0.4).astype(np.float32), random.rand(50, 3)
    found = Labels().figures(shares, truth)
    assert found["map"] == pytest.approx(metrics.average_precision_score(truth, shares))
    assert found["f1"] == pytest.approx(metrics.f1_score(truth, shares > 0.5, average="macro"))
    assert found["subset_accuracy"] == metrics.accuracy_score(truth, shares > 0.5)
    truth[:, 1] = 0  # nobody can tell how well a label is found that no image has
    assert Labels().figures(shares, truth)["each"]["average_precision"][1] is None


def test_the_network_answers_in_the_unit_of_the_numbers() -> None:
    target = Numbers((10.0, -3.0), (5.0, 0.1))
    y = torch.tensor([[15.0, -3.0], [0.0, -2.9]])
    outputs = torch.tensor([[1.0, 0.0], [-2.0, 1.0]])
    torch.testing.assert_close(target.exported(outputs), y)
    assert float(target.loss(outputs, y, None, 0.1)) == pytest.approx(0, abs=1e-9)
    first, _ = target.answers(outputs, ["a", "b"], 1)
    assert first == [("a", 15.0), ("b", pytest.approx(-3.0))]
    assert from_json(json.loads(json.dumps(target.to_json())), 2) == target
    for damaged in ({"kind": "numbers", "mean": [1.0], "std": [1.0]}, {"kind": "x"}, 3):
        with pytest.raises(InputError, match="damaged"):
            from_json(damaged, 2)


def test_kinds_are_told_apart_by_what_stands_in_the_cells() -> None:
    for cells, kind in (
        ([("cat",), ("dog",)], "classes"),
        ([("1",), ("2",)], "classes"),
        ([("1.5",), ("2",)], "numbers"),
        ([("1", "200"), ("2", "7")], "numbers"),
        ([("0", "1"), ("1", "1")], "labels"),
        ([("cat;dog",), ("dog",)], "labels"),
    ):
        assert kind_of(cells, "t") == kind
    with pytest.raises(InputError, match=r"\?kind=numbers or \?kind=classes"):
        kind_of([(str(n),) for n in range(300)], "t")
    captions = [(f"a photo of {n}",) for n in range(300)]
    with pytest.raises(InputError, match=r"300 different labels of 300 images.*\?label=COLUMN"):
        kind_of(captions, "t")
    assert kind_of(captions, "t", for_model=True) == kind_of(captions * 3, "t") == "classes"


def test_names_of_figures() -> None:
    values = {"test_accuracy": 1, "leaderboard": [{"valid_accuracy": None, "name": "x"}]}
    values["test_subset_accuracy"] = 2
    assert CLASSES.named(values) == values
    assert rename_accuracy(values, "r2") == {
        "test_r2": 1,
        "leaderboard": [{"valid_r2": None, "name": "x"}],
        "test_subset_accuracy": 2,
    }


@pytest.mark.parametrize("kind", ["numbers", pytest.param("labels", marks=pytest.mark.slow)])
def test_a_fit_learns_them(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    hurry(monkeypatch, steps=80)
    data, run = table(tmp_path, kind), tmp_path / "run"
    command = ["fit", str(data), "--minutes=0.03", "--threads=1", "--run", str(run)]
    assert call(*command) == 0
    shown = capsys.readouterr().out
    found = json.loads((run / "result.json").read_text())
    figure = {"numbers": "r2", "labels": "map"}[kind]
    assert found[f"test_{figure}"] > 0.5 and "test_accuracy" not in found
    rows = leaderboard(found)
    assert len(rows) == 4 and all(f"test_{figure}" in row for row in rows)
    assert rows[0][f"test_{figure}"] < rows[-1][f"test_{figure}"]
    assert leaderboard_texts(rows[-1])[1] == f"{found[f'test_{figure}']:.4f}" in shown
    assert f"valid_{figure}" in (run / "metrics.jsonl").read_text()
    assert found["data_sheet"]["target"] == kind and "data: " in shown
    assert "numbers of an image" in (run / "model_card.md").read_text() or kind == "labels"
    assert call("test", run, data) == 0
    assert f"{figure} {found[f'test_{figure}']:.4f}" in capsys.readouterr().out
    assert call("predict", run, data / "3.png", "--json") == 0
    (answered,) = json.loads(capsys.readouterr().out)
    images, model = load(str(data)), load_model(run)
    x = np.asarray(images.x_test)
    outputs = model.model.outputs(x)
    exported = deployed(model.model)(as_input(x))
    torch.testing.assert_close(exported, model.model.target.exported(outputs), atol=1e-4, rtol=1e-4)
    score = images.target.score(exported.detach().numpy(), images.y_test)
    assert score == pytest.approx(found[f"test_{figure}"], abs=1e-4)
    if kind == "numbers":
        assert [answer["name"] for answer in answered["answers"]] == ["light", "bytes"]
    else:
        assert answered["answers"][0]["class"] in ("any", "left", "top")


def test_other_commands_refuse_them_in_one_line(tmp_path: Path, capsys: Any) -> None:
    data = str(table(tmp_path, "numbers", 20))
    for words in (
        ["search", data, "--space", "nasbench201", "--run", str(tmp_path / "a")],
        ["train", "zoo:DARTS_V2", data, "--run", str(tmp_path / "b")],
        ["fit", data, "--space", "darts7", "--run", str(tmp_path / "c")],
    ):
        assert call(*words) == 2
        assert "its targets are numbers" in one_line(
            capsys.readouterr().err.splitlines()[-1] + "\n"
        )


def test_parts_and_simple_models_of_numbers(tmp_path: Path) -> None:
    images = load(str(table(tmp_path, "numbers")))
    assert images.y_train.shape == (96, 2) and images.y_train.dtype == np.float32
    assert abs(np.median(images.y_test[:, 1]) - np.median(images.y_train[:, 1])) < 20
    train, valid = train_parts(images, 0.1)
    assert valid is not None and len(valid[1]) == 9
    rows = baselines(train, valid, (images.x_test, images.y_test), images.target)
    assert [row.name for row in rows] == ["mean", "nearest neighbours", "ridge regression"]
    assert rows[0].test_accuracy < 0.1 and rows[2].test_accuracy > 0.9
    assert any("light from 0.5" in line for line in sheet_lines(data_sheet(images)))
