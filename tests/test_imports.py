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
import proxnas.cli

ROOT = Path(proxnas.__file__).parent
FILES = {
    ".".join(("proxnas", *path.relative_to(ROOT).with_suffix("").parts)).removesuffix(".__init__"): path
    for path in sorted(ROOT.rglob("*.py"))
}
"""Module -> file."""
WITHOUT_TORCH = [
    "proxnas",
    "proxnas.genotype",
    "proxnas.errors",
    "proxnas.config",
    "proxnas.settings",
    "proxnas.cli",
    "proxnas.interrupt",
    "proxnas.launch",
    "proxnas.cores",
    "proxnas.processes",
    "proxnas.files",
    "proxnas.progress",
    "proxnas.methods",
    "proxnas.method_options",
    "proxnas.spaces",
    "proxnas.report.cell",
    "proxnas.report.figures",
    "proxnas.report.live",
    "proxnas.report.terminal",
    "proxnas.image_flags",
    "proxnas.log_flags",
    "proxnas.run_config",
    "proxnas.commands.report",
    "proxnas.commands.runs",
    "proxnas.commands.watch",
    "proxnas.commands.search",
    "proxnas.commands.show",
    "proxnas.commands.bench",
    "proxnas.zoo",
    "proxnas.designs",
    "proxnas.sampling_flags",
    "proxnas.networks",
    "proxnas.report.model_card",
    "proxnas.commands.zoo",
    "proxnas.commands.export",
    "proxnas.text_commands",
    "proxnas.commands.generate",
    "proxnas.data.corpus",
    "proxnas.executor",
    "proxnas.pool",
    "proxnas.local_executor",
    "proxnas.ray_executor",
    "proxnas.commands.evaluate",
    "proxnas.many_progress",
    "proxnas.commands.compare",
    "proxnas.commands.sweep",
    "proxnas.budget_flags",
    "proxnas.quantities",
    "proxnas.report.comparison",
    "proxnas.report.tables",
]


def test_the_source_is_found() -> None:
    assert {"proxnas", "proxnas.cli", "proxnas.methods.proximal", "proxnas.spaces.cnn"} <= FILES.keys()


def is_type_checking(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def statements(node: ast.AST, at_import: bool) -> list[ast.AST]:
    """The nodes below; with `at_import` only those that run when the module is imported."""
    found: list[ast.AST] = []
    for child in ast.iter_child_nodes(node):
        if at_import and (isinstance(child, ast.FunctionDef | ast.Lambda) or is_type_checking(child)):
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
            found |= submodules if len(submodules) == len(node.names) else {node.module, *submodules}
    return frozenset(found - {module})


def within(module: str, *places: str) -> bool:
    """Whether the module is one of these, or inside one."""
    return any(module == place or module.startswith(f"{place}.") for place in places)


def arrows(*sources: str, at_import: bool = False) -> list[tuple[str, str]]:
    """(module, imported module) for all modules inside `sources`."""
    return [(module, name) for module in FILES if within(module, *sources) for name in imports(module, at_import)]


def reachable(module: str) -> set[str]:
    """All modules imported by it, directly or through modules of proxnas, anywhere in their code."""
    seen: set[str] = set()
    waiting = [module]
    while waiting:
        new = imports(waiting.pop(), at_import=False) - seen
        seen |= new
        waiting += new & FILES.keys()
    return seen


def test_methods_know_no_space_no_data_and_no_run() -> None:
    forbidden = ("spaces", "data", "run", "searching", "cli", "commands", "report", "networks")
    places = [f"proxnas.{name}" for name in forbidden]
    assert [arrow for arrow in arrows("proxnas.methods") if within(arrow[1], *places)] == []


@pytest.mark.parametrize(
    "module",
    [
        "choice",
        "scoring",
        "supernet",
        "prox",
        "selection",
        "complexity",
        "ops",
        "types",
        "costs",
        "projection",
        "budget",
        "cost_file",
        "launch",
        "cores",
        "processes",
        "threads",
        "distributed",
        "consensus",
    ],
)
def test_the_foundations_know_nothing_above_them(module: str) -> None:
    names = ("methods", "spaces", "searching", "run", "data", "cli", "commands", "report")
    above = [f"proxnas.{name}" for name in names]
    assert [name for _, name in arrows(f"proxnas.{module}") if within(name, *above)] == []


def test_spaces_and_networks_know_no_method() -> None:
    above = [f"proxnas.{name}" for name in ("methods", "searching", "run", "data", "cli", "commands", "report")]
    assert [arrow for arrow in arrows("proxnas.spaces", "proxnas.networks") if within(arrow[1], *above)] == []


def test_data_knows_no_model() -> None:
    allowed = ("proxnas.data", "proxnas.errors", "proxnas.types", "proxnas.launch", "proxnas.interrupt", "proxnas.say")
    found = [
        arrow for arrow in arrows("proxnas.data") if within(arrow[1], "proxnas") and not within(arrow[1], *allowed)
    ]
    assert found == []


def test_the_report_reads_files_only() -> None:
    for module in FILES:
        if within(module, "proxnas.report"):
            assert [name for name in reachable(module) if within(name, "torch", "proxnas.methods")] == []


def test_only_the_command_line_imports_commands() -> None:
    assert [arrow for arrow in arrows("proxnas") if within(arrow[1], "proxnas.commands")] == []
    # cli names them in its dict, and imports them when they are called
    named = {target.split(":")[0] for target, _ in proxnas.cli.COMMANDS.values()}
    assert named == {module for module in FILES if module.startswith("proxnas.commands.")}


def test_nothing_imports_the_command_line() -> None:
    assert {module for module, name in arrows("proxnas") if name == "proxnas.cli"} == {"proxnas.__main__"}


def test_there_is_no_cycle() -> None:
    graph = {module: imports(module, at_import=True) & FILES.keys() for module in FILES}
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
    ran = subprocess.run([sys.executable, "-c", code, *WITHOUT_TORCH], capture_output=True, text=True)
    assert (ran.returncode, ran.stderr) == (0, "")


def test_every_module_can_be_imported_first() -> None:
    """No module counts on another having been imported before: what it names at import exists without it."""
    for module, name in arrows("proxnas", at_import=True):
        if within(name, "proxnas"):
            assert name in FILES, f"{module} imports {name}, which is not there"
