"""The examples run, made small, and so does the Python in README.md and docs/custom.md."""

from __future__ import annotations

import inspect
import re
import runpy
from pathlib import Path
from typing import Any

import pytest
from sklearn.datasets import load_digits

from support.places import ROOT
from support.quick_fits import pretend_to_export

SMALL = {"transformer": ["2", "1"], "tabular": ["1"], "segmentation": ["8", "1"]}
FIT = (
    "images 50k --search-epochs 1 --epochs 1 --cells 1 --channels 2 --batch-size 16 --threads 1"
    " --quiet"
)
SMALL["image_folder"] = FIT.split()
"""Arguments that make an example short."""
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


def test_every_example_is_small_and_listed() -> None:
    assert {path.stem for path in EXAMPLES} == SMALL.keys()
    for path in EXAMPLES:
        assert len(path.read_text(encoding="utf-8").splitlines()) < 90
        assert f"examples/{path.name}" in (ROOT / "docs" / "custom.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_runs(
    path: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    pretend_to_export(monkeypatch)
    if path.stem == "image_folder":
        runpy.run_path(str(path))["digits"](tmp_path / "images", 60)
    assert run(path, monkeypatch, *SMALL[path.stem]) == 0
    assert " = " in capsys.readouterr().out  # what was chosen


def run(path: Path, monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    """The exit code of an example."""
    monkeypatch.setattr("sys.argv", [str(path), *arguments])
    try:
        runpy.run_path(str(path), run_name="__main__")
    except SystemExit as stop:
        return int(stop.code or 0)
    return 0


@pytest.mark.slow
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_runs_as_shipped(
    path: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(path, monkeypatch) == 0
    assert " = " in capsys.readouterr().out


def test_the_folder_of_images_can_be_fitted_as_shipped(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: Any
) -> None:
    """Its own images and limit are good ones: all is built and planned, nothing is searched."""
    monkeypatch.chdir(tmp_path)
    fit = runpy.run_path(str(ROOT / "examples" / "image_folder.py"))["fit"]
    images, limit = (
        inspect.signature(fit).parameters["folder"].default,
        inspect.signature(fit).parameters["limit"].default,
    )
    assert fit(images, limit, "--dry-run", "--threads", "1") == 0
    assert "final network" in capsys.readouterr().out


def test_an_example_that_fails_says_so_by_its_exit_code(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    path = ROOT / "examples" / "image_folder.py"
    runpy.run_path(str(path))["digits"](tmp_path / "images", 60)
    assert run(path, monkeypatch, "images", "1k", "--batch-size", "16", "--threads", "1") == 2


def python_blocks(page: Path) -> str:
    return "\n".join(
        re.findall(
            r"^```python\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
        )
    )


def readers_data() -> dict[str, Any]:
    """What a reader of the README is supposed to have."""
    x, y = load_digits(return_X_y=True)
    x = x.astype("float32") / 16
    return {"x_train": x[:300], "y_train": y[:300], "x_valid": x[300:600], "y_valid": y[300:600]}


@pytest.mark.parametrize("page", ["README.md", "docs/custom.md"])
def test_the_python_of_a_page_runs(
    page: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    code = python_blocks(ROOT / page)
    assert "proxnas.search(" in code
    exec(compile(code, page, "exec"), {"__name__": page, **readers_data()})


def test_the_comparison_of_transformers_runs() -> None:
    comparison = runpy.run_path(str(ROOT / "benchmarks" / "any_model.py"))
    row = comparison["compare"](comparison["example"](), seed=0, steps=2, batches=1, epochs=1)
    assert {"found", "attention", "convolution", "mlp", "blocks", "seconds"} <= row.keys() and len(
        row["blocks"]
    ) == 3
