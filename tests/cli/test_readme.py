"""The commands that README.md shows work as they are shown, but for their length."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from proxnas.cli.main import main
from proxnas.searching.options import SearchOptions
from support.places import ROOT

README = ROOT / "README.md"
SHORT = {
    "fit": (
        "--search-epochs 1 --epochs 1 --cells 1 --channels 2 --batch-size 128 --threads 1 --quiet"
    ),
    "train": "--epochs 1 --cells 1 --channels 2 --batch-size 64 --threads 1 --quiet",
    "search": "--epochs 1 --cells 1 --channels 2 --batch-size 64 --threads 1 --quiet",
    "bench": "--rounds 1 --cells 1 --channels 2 --batch-size 2 --image-size 8 --threads 1 --quiet",
}
"""Flags appended to a command, over those it shows, to shorten it."""


def commands(text: str) -> list[str]:
    """The proxnas commands of the ```sh blocks; those with a <placeholder> cannot be run."""
    blocks = re.findall(r"^```sh\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    lines = [line.strip() for block in blocks for line in block.replace("\\\n", " ").splitlines()]
    return [line for line in lines if line.startswith("proxnas ") and "<" not in line]


def short(command: str) -> list[str]:
    """The words of a command as main takes them, made short."""
    _, *words = shlex.split(command, comments=True)
    return words if "--help" in words else [*words, *SHORT.get(words[0], "").split()]


def test_commands_are_found() -> None:
    text = (
        "```sh\nmake x\nproxnas a \\\n  --b  # why\nproxnas c <file>\n```\n```\nproxnas"
        " d\n```\nproxnas e\n"
    )
    assert [short(command) for command in commands(text)] == [["a", "--b"]]
    assert short("proxnas search digits")[:2] == ["search", "digits"]


def test_the_readme_shows_commands() -> None:
    assert commands(README.read_text(encoding="utf-8"))


def test_every_command_of_the_readme_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    """In one folder and in order, since one may show what another has made."""
    monkeypatch.chdir(tmp_path)
    failed = {}
    for command in commands(README.read_text(encoding="utf-8")):
        try:
            code = main(short(command))
        except SystemExit as stop:  # tyro's --help, or a flag that it does not know
            code = int(stop.code or 0)
        if code:
            failed[command] = capsys.readouterr().err
    assert not failed


def test_short_flags_exist() -> None:
    flags = {word for word in SHORT["search"].split() if word.startswith("--")}
    assert {flag[2:].replace("-", "_") for flag in flags} <= SearchOptions.all_hints().keys()
