"""--help shows the values that a command line would really have."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from typing import Any

import pytest

from proxnas.cli.search import parse_search
from proxnas.common.options import flatten
from proxnas.common.words import parse_options
from proxnas.domains.images.fitting import FitConfig
from proxnas.domains.text.fitting import TextFitConfig
from proxnas.runs.options import RunConfig
from proxnas.workflows.compare import CompareConfig
from proxnas.workflows.sweep import SweepConfig
from proxnas.workflows.train import parse_train
from support.commands import call

Parse = Callable[[list[str]], RunConfig]


def plain(cls: type[RunConfig]) -> Parse:
    return lambda argv: parse_options(cls, "proxnas", argv)


CASES: list[tuple[str, Parse]] = [
    ("search", parse_search),
    ("search digits --method darts-1st --space nasp12", parse_search),
    ("search digits --space nasbench201 --preset paper --epochs 3", parse_search),
    ("search --method evolution --protocol cifar", parse_search),
    ("search pydocs --space rnn --method enas", parse_search),
    ("train", parse_train),
    ("train zoo:DARTS_V2 digits --protocol imagenet", parse_train),
    ("train zoo:LSTM pydocs --protocol wt2", parse_train),
    ("fit digits --method gdas", plain(FitConfig)),
    ("fit pydocs --protocol ptb", plain(TextFitConfig)),
    ("compare digits --methods nasp,random --seeds 0,1", plain(CompareConfig)),
    ("sweep digits --eta 0,1", plain(SweepConfig)),
]


def shown(text: str) -> dict[str, str]:
    """Flag -> the default that the help has for it."""
    found: dict[str, str] = {}
    name = ""
    for line in text.splitlines():
        line = line.strip("│ ")
        if flag := re.match(r"--([a-z0-9-]+)|\[?([A-Z]+)\]?(?= {2,})", line):
            name = (flag[1] or flag[2].lower()).replace("-", "_")
            if alias := re.match(
                r"--[a-z-]+ [A-Z]+, --([a-z-]+) [A-Z]+$", line
            ):  # the flag's own name stands last
                name = alias[1].replace("-", "_")
        if default := re.search(r"\(default: (.*?)\)$", line):
            found[name.removeprefix("no_")] = default[1]
    return found


def shown_in_a_line(text: str) -> dict[str, str]:
    """The same for a help that has a line an option with the value behind it."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        if option := re.match(r"  (DATA|--[a-z0-9-]+)(?: (\S+))?", line):
            found[option[1].lower().lstrip("-").replace("-", "_")] = option[2] or ""
    return found


SEARCHES = [words for words, parse in CASES if parse is parse_search]


@pytest.mark.parametrize("command", SEARCHES)
def test_help_of_search_shows_what_will_be_used(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    name, *words = command.split()
    assert call(name, *words, "--help") == 0
    out = capsys.readouterr().out
    used = flatten(parse_search(words))
    if "image_size" in used:
        used["image_size"] = used["image_size"] or "auto"  # 0 is written so
    printed = shown_in_a_line(out)
    assert printed.keys() == used.keys() and "--print-config" in out
    for option, value in used.items():
        if option != "data" and not isinstance(value, bool) and value != "":
            assert printed[option] == str(value)
    lines = out.splitlines()
    assert len(lines) <= 110 and max(map(len, lines)) <= 100
    assert out.count("(") == out.count(")")  # no sentence is cut within brackets


def test_common_options_come_first_and_of_the_methods_only_the_chosen(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert call("search", "digits", "--method", "gdas", "--help") == 0
    lines = capsys.readouterr().out.splitlines()
    flags = [line.split()[0] for line in lines if line.startswith("  --")]
    assert flags[:6] == [
        *("--space", "--method", "--preset", "--protocol", "--epochs", "--batch-size")
    ]
    assert "--tau-end" in flags and not {"--look-ahead", "--evaluations", "--bptt"} & set(flags)


OTHERS = [case for case in CASES if case[1] is not parse_search]


@pytest.mark.parametrize(("command", "parse"), OTHERS, ids=[command for command, _ in OTHERS])
def test_help_shows_what_will_be_used(
    command: str, parse: Parse, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "2000")  # no value is broken over two lines
    name, *words = command.split()
    assert call(name, *words, "--help") == 0
    printed = shown(capsys.readouterr().out)
    config: Any = parse(words)
    used = {field.name: getattr(config, field.name) for field in dataclasses.fields(config)}
    used["image_size"] = used.get("image_size") or "auto"  # 0 is written so
    wrong = {
        key: (value, used[key])
        for key, value in printed.items()
        if value.strip("'") != str(used[key])
    }
    assert not wrong
    assert len(printed) >= len(used) - 2  # but for what stands without a flag
    assert printed.keys() >= {"seed", "epochs"}


def test_help_beside_a_wrong_flag_names_it_and_helps(capsys: pytest.CaptureFixture[str]) -> None:
    assert call("search", "digits", "--method", "nsap", "--help") == 0
    said = capsys.readouterr()
    assert "unknown --method 'nsap'" in said.err and "--look-ahead" in said.out
