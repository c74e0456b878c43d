"""--help shows the values that a command line would really have."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from proxnas.cli.search import parse_search
from proxnas.common.errors import POSITIONAL
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
    """Option -> the value that stands behind it."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        if option := re.match(r"  ([A-Z]+|--[a-z0-9-]+)(?: (\S+))?", line):
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
    printed = shown(out)
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
    command: str, parse: Parse, capsys: pytest.CaptureFixture[str]
) -> None:
    name, *words = command.split()
    assert call(name, *words, "--help") == 0
    out = capsys.readouterr().out
    printed, used = shown(out), flatten(parse(words))
    if "image_size" in used:
        used["image_size"] = used["image_size"] or "auto"  # 0 is written so
    assert printed.keys() == used.keys()
    for option, value in used.items():
        if option not in POSITIONAL and not isinstance(value, bool) and value != "":
            assert printed[option] == str(value)
    assert max(map(len, out.splitlines())) <= 100


def test_options_of_a_fit_come_before_those_of_all_commands(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert call("fit", "--help") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "usage: proxnas fit DATA [OPTIONS]"
    options = [line.split()[0] for line in lines if re.match(r"  (DATA|--)", line)]
    assert options[:3] == ["DATA", "--minutes", "--space"]
    groups = [line for line in lines if re.match(r"[a-z][a-z ]*:", line)]
    assert groups[1:] == [
        "data and networks:",
        "limits: Limits on the final network, of which one can be given.",
        "the run:",
    ]
    # an option of several classes stands once, with the words of the nearest
    assert options.count("--minutes") == 1 and "kept by the clock" in "\n".join(lines)


def test_every_option_of_every_page_says_what_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    pages = ("fit", "fit pydocs", "train", "train zoo:LSTM", "test", "compare", "sweep", "bench")
    for command in (*pages, "predict", "generate", "evaluate", "latency build"):
        assert call(*command.split(), "--help") == 0
        out = capsys.readouterr().out
        silent = [line for line in out.splitlines() if re.fullmatch(r"  --\S+( \S+)?", line)]
        # a long flag has its words in the next line
        assert [line for line in silent if len(line) < 31] == []


def test_help_beside_a_wrong_flag_names_it_and_helps(capsys: pytest.CaptureFixture[str]) -> None:
    assert call("search", "digits", "--method", "nsap", "--help") == 0
    said = capsys.readouterr()
    assert "unknown --method 'nsap'" in said.err and "--look-ahead" in said.out
