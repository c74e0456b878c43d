"""The examples run, made small, and so does the Python in README.md and docs/custom.md."""

from __future__ import annotations

import re
import runpy
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
SMALL = {"transformer": ["2", "1"], "tabular": ["1"], "segmentation": ["8", "1"]}
FIT = "images 50k --search-epochs 1 --epochs 1 --cells 1 --channels 2 --batch-size 16 --threads 1 --quiet"
SMALL["image_folder"] = FIT.split()
"""Arguments that make an example short."""
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


def test_every_example_is_small_and_listed() -> None:
    assert {path.stem for path in EXAMPLES} == SMALL.keys()
    for path in EXAMPLES:
        assert len(path.read_text(encoding="utf-8").splitlines()) < 60
        assert f"examples/{path.name}" in (ROOT / "docs" / "custom.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_runs(path: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: Any) -> None:
    monkeypatch.chdir(tmp_path)
    if path.stem == "image_folder":
        runpy.run_path(str(path))["digits"](tmp_path / "images", 60)
    monkeypatch.setattr("sys.argv", [str(path), *SMALL[path.stem]])
    runpy.run_path(str(path), run_name="__main__")
    assert " = " in capsys.readouterr().out  # what was chosen


def python_blocks(page: Path) -> str:
    return "\n".join(re.findall(r"^```python\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL))


@pytest.mark.parametrize("page", ["README.md", "docs/custom.md"])
def test_the_python_of_a_page_runs(page: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    code = python_blocks(ROOT / page)
    assert "proxnas.search(" in code
    exec(compile(code, page, "exec"), {"__name__": page})


def test_the_comparison_of_transformers_runs() -> None:
    comparison = runpy.run_path(str(ROOT / "benchmarks" / "any_model.py"))
    row = comparison["compare"](comparison["example"](), seed=0, steps=2, batches=1, epochs=1)
    assert {"found", "attention", "convolution", "mlp", "blocks", "seconds"} <= row.keys() and len(row["blocks"]) == 3
