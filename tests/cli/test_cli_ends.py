"""The command line: help, and how commands end."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from proxnas import __version__
from proxnas.cli.main import COMMANDS, main
from proxnas.common.errors import flag_of
from proxnas.common.options import changed, flatten
from proxnas.domains.images.data.images import Images
from proxnas.searching.defaults import resolve
from proxnas.searching.job import Search
from support.commands import call, one_line


def test_version_and_usage(capsys: Any) -> None:
    assert call("--version") == 0
    assert capsys.readouterr().out == f"proxnas {__version__}\n"
    for argv in ([], ["--help"], ["-h"], ["help"]):
        assert call(*argv) == 0
        out = capsys.readouterr().out
        assert all(name in out and text in out for name, text in COMMANDS.items())


def test_help_names_every_flag(capsys: Any) -> None:
    assert call("search", "--help") == 0
    out = capsys.readouterr().out
    for name in flatten(resolve({})):
        assert flag_of(name) in out
    assert "--no-" not in out


KNOWS_METHODS = ("search", "compare")
"""Commands that list the options of methods, whose files import torch."""


def test_help_does_without_torch() -> None:
    """Of one command after the other in one process, which has loaded nothing at the end."""
    code = """
import json, sys
from proxnas.cli.main import main
for argv in json.loads(sys.argv[1]):
    before = sys.stdout.tell()
    try:
        code = main(argv)
    except SystemExit as stop:
        code = stop.code
    loaded = [name for name in ("torch", "sklearn", "matplotlib") if name in sys.modules]
    print(json.dumps([argv, code or 0, loaded]), file=sys.stderr)
    assert sys.stdout.tell() - before > 10, argv
"""
    helps = [[name, "--help"] for name in COMMANDS if name not in KNOWS_METHODS]
    commands = [["--help"], ["--version"], *helps]
    with tempfile.TemporaryFile("w+") as out:
        argv = [sys.executable, "-c", code, json.dumps(commands)]
        ran = subprocess.run(argv, stdout=out, stderr=subprocess.PIPE, text=True)
    ended = [json.loads(line) for line in ran.stderr.splitlines()]
    assert ended == [[argv, 0, []] for argv in commands]
    assert ran.returncode == 0


def test_bad_flags_are_found_without_torch() -> None:
    ran = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "proxnas", "train", "x", "y", "--epochs", "0"],
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 2
    assert ran.stderr.endswith("proxnas: error: --epochs 0: give a number from 1 to 1000000\n")
    assert "proxnas.training.options" in ran.stderr and not re.search(
        r"\| +torch$", ran.stderr, re.MULTILINE
    )


def raiser(error: BaseException) -> Callable[[list[str]], None]:
    def command(argv: list[str]) -> None:
        raise error

    return command


def test_an_internal_error_asks_to_be_reported(
    monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.setattr("proxnas.cli.show.main", raiser(RuntimeError("boom")))
    assert call("show", "x") == 1
    error = capsys.readouterr().err
    assert error.startswith("Traceback (most recent call last)") and "RuntimeError: boom" in error
    last = error.splitlines()[-1]
    assert (
        last.startswith("proxnas: error: internal error")
        and "please report" in last
        and __version__ in last
    )


def test_a_keyboard_interrupt_ends_quietly(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setattr("proxnas.cli.show.main", raiser(KeyboardInterrupt()))
    assert call("show", "x") == 130
    assert capsys.readouterr().err == "proxnas: stopped\n"


def test_a_full_disk_is_one_line(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setattr(
        "proxnas.cli.show.main", raiser(OSError(28, "No space left on device", "a/b.json"))
    )
    assert call("show", "x") == 2
    assert one_line(capsys.readouterr().err).startswith("a/b.json: No space left on device: check")


@pytest.mark.parametrize("flags", ["--method gdas --max-skip 2", "--space rnn --max-skip 2"])
def test_a_limit_on_skip_connections_is_refused_where_it_would_do_nothing(
    flags: str, capsys: Any
) -> None:
    assert main(["search", "pydocs" if "rnn" in flags else "digits", *flags.split()]) == 2
    assert "--max-skip 2: is " in capsys.readouterr().err


def test_a_cell_without_weights_is_warned_of(
    make_search: Callable[..., Search], tiny_images: Images, tmp_path: Path, capsys: Any
) -> None:
    """A keeps what it starts with: a seed that starts with a convolution, and one that starts
    without."""
    words = "--space nasbench201 --arch-learning-rate 1e-12 --explore 0 --look-ahead 0"
    flags = words.split()
    start = make_search(*flags)
    starts = (
        (seed, Search(changed(start.config, seed=seed), tiny_images).genotype().to_json())
        for seed in range(500)
    )
    poor = next(seed for seed, cell in starts if "conv" not in cell)
    sizes = "--cells 1 --channels 2 --final-cells 1 --final-channels 2 --epochs 1 --batch-size 128"
    flags += [*sizes.split(), "--threads", "1", "--quiet"]
    for seed, warned in ((0, False), (poor, True)):
        run = tmp_path / str(seed)
        assert main(["search", "digits", *flags, "--seed", str(seed), "--run", str(run)]) == 0
        assert ("warning" in json.loads((run / "result.json").read_text())) == warned
        assert (
            "proxnas: warning: no operation with weights in cell" in capsys.readouterr().err
        ) == warned


def test_a_reader_who_has_seen_enough_is_no_error() -> None:
    # true ends before anything is said
    command = f"{sys.executable} -m proxnas zoo --json | true; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (141, "")
