"""What is printed can do nothing but be read."""

from __future__ import annotations

import ast
import io
import json
from pathlib import Path
from typing import Any
from unicodedata import bidirectional, category

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from rich.console import Console

import proxnas
from proxnas.cells.genotype import Genotype
from proxnas.common.errors import InputError
from proxnas.common.say import note, plain, plain_lines, say
from proxnas.domains.images import networks
from proxnas.domains.images.model import Model, save_model
from proxnas.domains.images.networks.cnn import Size
from proxnas.report.terminal import print_summary
from proxnas.runs.executors.progress import LineBoard
from proxnas.runs.executors.tasks import Outcome, RunTask
from proxnas.runs.progress import Lines
from support.commands import call
from support.run_folders import make_run, write_json

EVIL = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202eevil\r"
CELL = "|nor_conv_1x1~0|+|skip_connect~0|none~1|+|avg_pool_3x3~0|nor_conv_3x3~1|skip_connect~2|"


def harmless(text: str) -> bool:
    return not any(sign in text for sign in "\x1b\x07\x9b\u202e\r")


@given(st.text(st.characters()))
def test_nothing_that_steers_is_left_and_all_else_is(text: str) -> None:
    shown = plain(text)
    assert not {category(sign) for sign in shown} & {"Cc", "Cs", "Zl", "Zp"}
    assert not {bidirectional(sign) for sign in shown} & {
        "LRE",
        "RLE",
        "LRO",
        "RLO",
        "PDF",
        "LRI",
        "RLI",
        "FSI",
        "PDI",
    }
    rest = iter(shown)
    assert all(
        sign in rest
        for sign in text
        if category(sign)[0] != "C" and category(sign) not in ("Zl", "Zp")
    )
    assert plain(shown) == shown
    assert plain_lines(text).count("\n") == text.count("\n")


def test_printable_text_of_any_language_stays() -> None:
    text = "Katze, кошка, 猫, گربه\u200cها, 👩\u200d🚀, 100 µs"
    assert plain(text) == text


def test_escapes_say_what_they_were() -> None:
    assert plain("\x1b[31m\x9b\u202e\n") == "\\x1b[31m\\x9b\\u202e\\x0a"


def test_lines(capsys: Any) -> None:
    say(f"one\ntwo {EVIL}")
    note(f"said\n {EVIL}")
    out, err = capsys.readouterr()
    assert harmless(out) and out.count("\n") == 2
    assert harmless(err) and err.count("\n") == 1 and err.startswith("proxnas: said \\x1b")


def test_nobody_else_prints() -> None:
    """Text reaches the terminal by say.py, or by rich with `plain`; JSON on request is plain by
    itself."""
    found = []
    for path in sorted(Path(proxnas.__file__).parent.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Name) and node.id == "print" and path.name != "say.py":
                found.append(f"{path.name}:{node.lineno}")
    assert found == []


def test_an_error_that_holds_a_name(capsys: Any, tmp_path: Path) -> None:
    assert call("runs", tmp_path / EVIL) == 2
    assert harmless(capsys.readouterr().err)
    assert call(EVIL) == 2
    assert harmless(capsys.readouterr().err)


def test_lists_and_summaries_of_runs(capsys: Any, tmp_path: Path) -> None:
    run = make_run(tmp_path / "runs" / "run", data=EVIL, method=EVIL)
    result = json.loads((run / "result.json").read_text()) | {
        "warning": EVIL,
        "space": f"[bold]{EVIL}",
    }
    write_json(run / "result.json", result)
    assert call("runs", tmp_path / "runs") == 0
    print_summary(result, Path(EVIL), {EVIL: EVIL})
    out, err = capsys.readouterr()
    assert harmless(out) and harmless(err) and "[bold]" in out


def test_progress_and_messages_of_workers(tmp_path: Path) -> None:
    out = io.StringIO()
    console = Console(file=out, highlight=False, width=200)
    task = RunTask(EVIL, ("search",), tmp_path)
    LineBoard(console, 1, 0).end(Outcome(task, 2, EVIL))
    lines = Lines(console, f"[bold]{EVIL}")
    lines.begin(1, 2, 3)
    lines.epoch({"epoch": 1, "seconds": {}, f"valid_{EVIL}": 0.5})
    assert (
        harmless(out.getvalue()) and "[bold]" in out.getvalue() and out.getvalue().count("\n") == 2
    )


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A model whose classes have evil names."""
    genotype, size = (
        Genotype.from_string(CELL),
        Size(cells=1, channels=4, image_channels=3, classes=2),
    )
    torch.manual_seed(0)
    network = networks.build_network(genotype, size).eval()
    classes = (f"a{EVIL}", f"b{EVIL}")
    save_model(
        tmp_path / "m", Model(network, genotype, size, classes, (0.5,) * 3, (0.5,) * 3, (3, 8, 8))
    )
    return tmp_path / "m"


def test_predict(model: Path, capsys: Any, tmp_path: Path) -> None:
    Image.new("RGB", (8, 8)).save(tmp_path / "x.png")
    assert call("predict", model, tmp_path / "x.png", "--threads", "1") == 0
    out = capsys.readouterr().out
    assert harmless(out) and "\\x1b" in out


def test_test(model: Path, capsys: Any, tmp_path: Path) -> None:
    for name in (f"a{EVIL}", f"b{EVIL}"):
        (tmp_path / "set" / name).mkdir(parents=True)
        for number in range(5):
            Image.new("RGB", (8, 8)).save(tmp_path / "set" / name / f"{number}.png")
    code = call("test", model, tmp_path / "set", "--threads", "1")
    out, err = capsys.readouterr()
    assert (code in (0, 2), harmless(out), harmless(err)) == (
        True,
        True,
        True,
    ) and "\\x1b" in out + err


def test_a_traceback_of_ours(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    def fail(argv: list[str]) -> None:
        raise RuntimeError(EVIL)

    monkeypatch.setattr("proxnas.cli.runs.main", fail)
    assert call("runs") == 1
    assert harmless(capsys.readouterr().err)


def test_what_an_error_quotes_is_not_lost() -> None:
    assert "\\x1b" in plain(InputError(EVIL))
