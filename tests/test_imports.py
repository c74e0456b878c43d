"""The arrows of the architecture: who may import whom, read from the source."""

from __future__ import annotations

import ast
import subprocess
import sys
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import proxnas
import proxnas.cli.main

ROOT = Path(proxnas.__file__).parent
FILES = {
    ".".join(("proxnas", *path.relative_to(ROOT).with_suffix("").parts)).removesuffix(
        ".__init__"
    ): path
    for path in sorted(ROOT.rglob("*.py"))
}
"""Module -> file."""
ROOMS = (
    "common",
    "cells",
    "report",
    "runs",
    "core",
    "methods",
    "training",
    "domains",
    "searching",
    "workflows",
    "cli",
)
"""In the order in which they may import each other, as docs/architecture.md has them."""
DOMAINS = ("images", "text", "modules")
WITHOUT_TORCH = [
    "proxnas",
    "proxnas.cells.genotype",
    "proxnas.common.errors",
    "proxnas.searching.options",
    "proxnas.searching.defaults",
    "proxnas.methods.options",
    "proxnas.common.words",
    "proxnas.cli.main",
    "proxnas.common.interrupt",
    "proxnas.common.launch",
    "proxnas.common.cores",
    "proxnas.runs.processes",
    "proxnas.common.files",
    "proxnas.runs.progress",
    "proxnas.methods",
    "proxnas.domains.spaces",
    "proxnas.domains.images.domain",
    "proxnas.domains.text.domain",
    "proxnas.domains.modules.domain",
    "proxnas.training.options",
    "proxnas.workflows.about",
    "proxnas.workflows.train",
    "proxnas.cli.train",
    "proxnas.cli.test",
    "proxnas.report.cell",
    "proxnas.report.figures",
    "proxnas.report.live",
    "proxnas.report.terminal",
    "proxnas.domains.images.options",
    "proxnas.runs.loggers",
    "proxnas.runs.options",
    "proxnas.cli.report",
    "proxnas.cli.runs",
    "proxnas.cli.watch",
    "proxnas.cli.search",
    "proxnas.cli.show",
    "proxnas.cli.bench",
    "proxnas.cells.zoo",
    "proxnas.cells.designs",
    "proxnas.domains.images.networks",
    "proxnas.report.model_card",
    "proxnas.cli.zoo",
    "proxnas.cli.export",
    "proxnas.cli.generate",
    "proxnas.domains.text.data.corpus",
    "proxnas.runs.executors.tasks",
    "proxnas.runs.executors.pool",
    "proxnas.runs.executors.processes",
    "proxnas.runs.executors.ray",
    "proxnas.cli.evaluate",
    "proxnas.runs.executors.progress",
    "proxnas.cli.compare",
    "proxnas.cli.sweep",
    "proxnas.methods.limit_options",
    "proxnas.common.quantities",
    "proxnas.report.comparison",
    "proxnas.report.tables",
]


def test_the_source_is_found() -> None:
    assert {
        "proxnas",
        "proxnas.cli.main",
        "proxnas.methods.proximal",
        "proxnas.domains.images.spaces.cnn",
    } <= FILES.keys()


def is_type_checking(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.If)
        and isinstance(node.test, ast.Name)
        and node.test.id == "TYPE_CHECKING"
    )


def statements(node: ast.AST, at_import: bool) -> list[ast.AST]:
    """The nodes below; with `at_import` only those that run when the module is imported."""
    found: list[ast.AST] = []
    for child in ast.iter_child_nodes(node):
        if at_import and (
            isinstance(child, ast.FunctionDef | ast.Lambda) or is_type_checking(child)
        ):
            continue
        found += [child, *statements(child, at_import)]
    return found


@cache
def imports(module: str, at_import: bool) -> frozenset[str]:
    """The modules that a module names in its import statements, proxnas or not."""
    found: set[str] = set()
    for node in statements(ast.parse(FILES[module].read_text(encoding="utf-8")), at_import):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0 and node.module, f"{module}: relative import"
            submodules = {f"{node.module}.{alias.name}" for alias in node.names} & FILES.keys()
            found |= (
                submodules if len(submodules) == len(node.names) else {node.module, *submodules}
            )
    return frozenset(found - {module})


def within(module: str, *places: str) -> bool:
    """Whether the module is one of these, or inside one."""
    return any(module == place or module.startswith(f"{place}.") for place in places)


def arrows(*sources: str, at_import: bool = False) -> list[tuple[str, str]]:
    """(module, imported module) for all modules inside `sources`."""
    return [
        (module, name)
        for module in FILES
        if within(module, *sources)
        for name in imports(module, at_import)
    ]


def reachable(module: str) -> set[str]:
    """All modules imported by it, directly or through modules of proxnas, anywhere in their
    code."""
    seen: set[str] = set()
    waiting = [module]
    while waiting:
        new = imports(waiting.pop(), at_import=False) - seen
        seen |= new
        waiting += new & FILES.keys()
    return seen


def room(module: str) -> str:
    """The room of a module, or "" for the package itself."""
    return module.removeprefix("proxnas").lstrip(".").split(".")[0]


def domain(module: str) -> str:
    """images, text or modules; "" for what the domains share and for every other room."""
    parts = module.split(".")
    return parts[2] if parts[1:2] == ["domains"] and parts[2:3] and parts[2] in DOMAINS else ""


def wrong_arrows() -> set[tuple[str, str]]:
    """Imports, late ones included, of a room further down, or of another domain."""
    found = set()
    for module, name in arrows("proxnas"):
        if not (room(module) in ROOMS and room(name) in ROOMS and within(name, "proxnas")):
            continue
        downwards = ROOMS.index(room(name)) > ROOMS.index(room(module))
        sideways = "" != domain(module) != domain(name) != ""
        if downwards or sideways:
            found.add((module.removeprefix("proxnas."), name.removeprefix("proxnas.")))
    return found


def test_the_house_has_these_rooms() -> None:
    entries = {path.stem for path in ROOT.iterdir() if path.name != "__pycache__"}
    assert entries == {*ROOMS, "__init__", "__main__", "py"}
    for name in ROOMS:
        law = ast.get_docstring(ast.parse((ROOT / name / "__init__.py").read_text()))
        assert law and len(law) > 60, (
            f"{name}/__init__.py does not say what lives there and what it may import"
        )


def test_a_room_imports_only_rooms_before_it() -> None:
    assert wrong_arrows() == set()


def test_a_method_knows_no_domain() -> None:
    assert [
        arrow
        for arrow in arrows("proxnas.core", "proxnas.methods")
        if within(arrow[1], "proxnas.domains")
    ] == []


def test_the_report_reads_files_only() -> None:
    for module in FILES:
        if within(module, "proxnas.report"):
            assert [
                name for name in reachable(module) if within(name, "torch", "proxnas.methods")
            ] == []


def test_the_command_line_names_every_command() -> None:
    # cli.main names them in its dict, and imports them when they are called
    named = {f"proxnas.cli.{command}" for command in proxnas.cli.main.COMMANDS}
    assert named == {module for module in FILES if module.startswith("proxnas.cli.")} - {
        "proxnas.cli.main"
    }


def test_nothing_imports_the_command_line() -> None:
    assert {module for module, name in arrows("proxnas") if name == "proxnas.cli.main"} == {
        "proxnas.__main__"
    }


def test_there_is_no_cycle() -> None:
    """Neither when modules are imported nor by imports within functions."""
    graph = {module: imports(module, at_import=False) & FILES.keys() for module in FILES}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(" -> ".join(reversed(error.args[1])))


def test_a_cycle_would_be_seen() -> None:
    with pytest.raises(CycleError):
        TopologicalSorter({"a": {"b"}, "b": {"a"}}).prepare()


def test_these_modules_do_without_torch() -> None:
    """In one process, one after the other; the first that loads torch is named."""
    code = """
import importlib, sys
for name in sys.argv[1:]:
    importlib.import_module(name)
    if "torch" in sys.modules:
        sys.exit(name)
"""
    ran = subprocess.run(
        [sys.executable, "-c", code, *WITHOUT_TORCH], capture_output=True, text=True
    )
    assert (ran.returncode, ran.stderr) == (0, "")


def test_every_module_can_be_imported_first() -> None:
    """No module counts on another having been imported before: what it names at import exists
    without it."""
    for module, name in arrows("proxnas", at_import=True):
        if within(name, "proxnas"):
            assert name in FILES, f"{module} imports {name}, which is not there"
