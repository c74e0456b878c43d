"""The pages can be read: links lead somewhere, paragraphs and lines are short, what is named is
there, and a site can be made of them."""

from __future__ import annotations

import json
import re
import shlex
import statistics
import subprocess
import sys
from importlib import import_module
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from markdown_it import MarkdownIt
from markdown_it.token import Token

from proxnas.cli.main import main
from support.places import ROOT

DOCS = sorted((ROOT / "docs").glob("*.md"))
CHANGES = ROOT / "CHANGELOG.md"
"""Its entries are one line each, so that those of two branches merge line by line."""
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", CHANGES, *DOCS]
MOST_WORDS = 100
"""Of a paragraph, or of an item of a list."""
MOST_COLUMNS = 100
MARKDOWN = MarkdownIt().enable("table")
FREE = {"fence", "code_block", "html_block", "table_open"}
"""What is not wrapped."""


def page_name(page: Path) -> str:
    return page.name


each_page = pytest.mark.parametrize("page", PAGES, ids=page_name)


def tokens(page: Path) -> list[Token]:
    """The page, as Markdown."""
    return MARKDOWN.parse(page.read_text(encoding="utf-8"))


def links(page: Path) -> list[str]:
    """The targets of all links and images that do not lead elsewhere in the world."""
    found = []
    for token in tokens(page):
        for child in token.children or []:
            target = child.attrs.get("href") or child.attrs.get("src")
            if target and not re.match(r"https?:", str(target)):
                found.append(str(target))
    return found


def anchors(page: Path) -> set[str]:
    """What can stand behind the # of a link to the page."""
    found = set()
    for before, token in pairwise(tokens(page)):
        if before.type == "heading_open":
            plain = re.sub(r"[^\w\s-]", "", token.content.lower())
            found.add(re.sub(r"\s+", "-", plain.strip()))
    return found


def paragraphs(page: Path) -> list[str]:
    return [
        token.content for before, token in pairwise(tokens(page)) if before.type == "paragraph_open"
    ]


def wide_lines(page: Path) -> list[str]:
    """The lines that are too long, but for tables, code and those that a link makes long."""
    lines = page.read_text(encoding="utf-8").splitlines()
    for token in tokens(page):
        if token.type in FREE and token.map:
            start, end = token.map
            lines[start:end] = [""] * (end - start)
    return [line for line in lines if len(re.sub(r"\]\(.*?\)", "]", line)) > MOST_COLUMNS]


def sources() -> set[str]:
    """The files that a page may name, each by every end of its path: prox.py, core/prox.py, ..."""
    found = set()
    for folder in ("src/proxnas", "tests", "benchmarks", "examples"):
        for path in (ROOT / folder).rglob("*.py"):
            parts = path.relative_to(ROOT).parts
            found |= {"/".join(parts[i:]) for i in range(len(parts))}
    return found


@each_page
def test_every_link_leads_somewhere(page: Path) -> None:
    lost = []
    for link in links(page):
        name, _, anchor = link.partition("#")
        target = page.parent / name if name else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            lost.append(link)
    assert lost == []


@pytest.mark.parametrize("page", DOCS, ids=page_name)
def test_the_links_of_a_page_stay_on_the_site(page: Path) -> None:
    assert [link for link in links(page) if link.startswith(("/", "../"))] == []


@each_page
def test_paragraphs_are_short(page: Path) -> None:
    long = {text[:60]: len(text.split()) for text in paragraphs(page)}
    assert {text: words for text, words in long.items() if words > MOST_WORDS} == {}


@pytest.mark.parametrize("page", [page for page in PAGES if page != CHANGES], ids=page_name)
def test_lines_are_short(page: Path) -> None:
    assert wide_lines(page) == []


@each_page
def test_every_file_of_the_source_that_is_named_is_there(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    named = re.findall(r"`((?:[\w-]+/)*\w+\.py)\b", text)
    # what a run folder gets is no source
    assert set(named) - sources() - {"use_model.py"} == set()


def test_every_page_is_in_the_navigation() -> None:
    named = re.findall(r"([\w-]+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)
    assert sorted(named) == [page.name for page in DOCS]


def test_every_page_can_be_reached_from_the_index() -> None:
    seen, waiting = set(), [ROOT / "docs" / "index.md"]
    while waiting:
        page = waiting.pop()
        if page not in seen:
            seen.add(page)
            targets = (page.parent / link.partition("#")[0] for link in links(page))
            waiting += [target for target in targets if target.suffix == ".md"]
    assert seen == set(DOCS)


def test_long_lines_and_paragraphs_would_be_seen(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    wide = "x" * 101
    table = f"| a |\n|---|\n| {wide} |\n"
    link = f"[a page]({'far/' * 30}page.md#part) and more"
    page.write_text(f"# A: b `c`\n\n{wide}\n\n{table}\n```\n{wide}\n```\n\n{link}\n")
    assert wide_lines(page) == [wide]
    assert anchors(page) == {"a-b-c"} and links(page)[0].endswith("page.md#part")
    page.write_text("- " + "word " * 101)
    assert [len(text.split()) for text in paragraphs(page)] == [101]


@pytest.mark.skipif(
    find_spec("mkdocs") is None or find_spec("material") is None,
    reason="mkdocs is not installed: pip install 'proxnas[docs]'",
)
def test_mkdocs_makes_a_site_of_the_pages(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "-d", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "index.html").is_file()


def shown_results() -> dict[str, tuple[str, str, str]]:
    """Search -> (mean, std, worst) as results.md has them."""
    text = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
    rows = (line.strip("|").split("|") for line in text.splitlines() if line.startswith("|"))
    return {
        row[0].strip(): (row[2].strip(), row[3].strip(), row[4].strip())
        for row in rows
        if len(row) == 6
    }


THREE = range(100, 103)


@pytest.mark.parametrize(
    ("search", "configuration", "seeds", "only"),
    [
        ("darts-1st", "darts-1st 3 epochs", THREE, {}),
        ("random-ws", "random-ws", THREE, {}),
        ("gdas", "gdas", THREE, {}),
        ("asng", "asng", THREE, {}),
        ("enas", "enas", THREE, {"schedules": "by step"}),
    ],
)
def test_the_results_are_those_of_the_raw_rows(
    search: str, configuration: str, seeds: range, only: dict[str, str]
) -> None:
    lines = (ROOT / "docs" / "quality.jsonl").read_text().splitlines()
    rows = [
        row
        for row in map(json.loads, lines)
        if row["configuration"] == configuration
        and row["seed"] in seeds
        and all(row.get(key) == value for key, value in only.items())
    ]
    assert sorted(row["seed"] for row in rows) == list(seeds)
    tested = [row["table"]["cifar10_test"] for row in rows]
    figures = statistics.mean(tested), statistics.stdev(tested), min(tested)
    shown = [row for name, row in shown_results().items() if name.startswith(search)]
    assert shown == [tuple(f"{figure:.2f}" for figure in figures)]


def judged(space: str, configuration: str) -> list[dict[str, Any]]:
    """The rows that reports are made of."""
    lines = (ROOT / "docs" / "quality_judged.jsonl").read_text().splitlines()
    rows = [row for row in map(json.loads, lines) if row["space"] == space]
    return [row for row in rows if row["configuration"] == configuration and row["seed"] >= 110]


@pytest.mark.parametrize(
    ("search", "configuration"),
    [("nasp (default", "nasp refined"), ("nasp, the search alone", "nasp refined, before")],
)
def test_the_results_of_the_default_are_those_of_the_raw_rows(
    search: str, configuration: str
) -> None:
    values = [row["judge"] for row in judged("nasbench201", configuration)]
    figures = statistics.mean(values), statistics.stdev(values), min(values)
    shown = [row for name, row in shown_results().items() if name.startswith(search)]
    assert shown == [tuple(f"{figure:.2f}" for figure in figures)]


@pytest.mark.parametrize("space", ["darts7", "darts8"])
def test_the_results_in_the_space_of_darts_are_those_of_the_raw_rows(space: str) -> None:
    rows = judged(space, "nasp")
    values = [row["judge"] for row in rows]
    equals = statistics.mean(row["equals"] for row in rows)
    figures = statistics.mean(values), statistics.stdev(values), min(values), equals
    text = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines()]
    [shown] = [row for row in cells if len(row) == 8 and row[0] == space]
    assert shown[2:6] == [f"{figure:.2f}" for figure in figures]


def commands(page: Path) -> list[str]:
    """The proxnas commands in the code of a page."""
    found = []
    for token in tokens(page):
        if token.type in ("fence", "code_block"):
            lines = token.content.replace("\\\n", " ").splitlines()
            found += [line.strip() for line in lines if line.strip().startswith("proxnas ")]
    return found


@pytest.mark.slow
@each_page
def test_every_command_has_the_flags_that_it_shows(
    page: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = {}
    for command in commands(page):
        _, *words = shlex.split(command.split("&")[0], comments=True)
        try:
            code = main([*words, "--help"])
        except SystemExit as stop:
            code = int(stop.code or 0)
        flags = set(re.findall(r"--[a-z][\w-]*", capsys.readouterr().out))
        missing = {word for word in words if word.startswith("--")} - flags
        if code or missing:
            wrong[command] = missing
    assert wrong == {}


@each_page
def test_what_a_page_imports_is_there(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for module, names in re.findall(r"^ *from (proxnas[\w.]*) import ([\w, ]+)$", text, re.M):
        for name in names.split(","):
            assert hasattr(import_module(module), name.strip()), f"{module}: {name}"


def test_the_changes_of_the_first_version_are_what_there_is() -> None:
    """Sections by subject, each once; there is nothing before it that it could have changed."""
    titles = re.findall(r"^### (.*)$", CHANGES.read_text(encoding="utf-8"), re.MULTILINE)
    assert len(titles) == len(set(titles))
    assert not {"Added", "Changed", "Fixed", "Removed"} & set(titles)
