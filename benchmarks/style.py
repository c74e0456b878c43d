"""How the code measures: the table of docs/architecture.md, of the package below a folder.

python benchmarks/style.py [FOLDER]      default: this checkout
"""

from __future__ import annotations

import ast
import io
import statistics
import sys
import tokenize
from collections import Counter
from pathlib import Path

SHORTEST_FILE = 10  # an __init__.py that only states a law is no file to measure
OPTIONS = (
    "*/options.py",
    "*/*_options.py",
    "common/config_file.py",
    "common/help.py",
    "common/words.py",
    "searching/defaults.py",
    "searching/owners.py",
)
"""Configuration: the files whose purpose is to declare options, or to read and combine them."""


def is_text(node: ast.AST) -> bool:
    """A docstring, or the help below a field."""
    value = node.value if isinstance(node, ast.Expr) else None
    return isinstance(value, ast.Constant) and isinstance(value.value, str)


def lines_by_kind(source: str) -> Counter[str]:
    """How many lines are docstrings, imports, blank, comments alone, and code."""
    kinds = dict.fromkeys(range(1, len(source.splitlines()) + 1), "code")
    for number, line in enumerate(source.splitlines(), 1):
        if not line.strip():
            kinds[number] = "blank"
        elif line.lstrip().startswith("#"):
            kinds[number] = "comment"
    for node in ast.walk(ast.parse(source)):
        kind = "docstring" if is_text(node) else ""
        if isinstance(node, ast.Import | ast.ImportFrom):
            kind = "import"
        if kind:
            assert isinstance(node, ast.stmt)
            kinds |= dict.fromkeys(range(node.lineno, (node.end_lineno or 0) + 1), kind)
    return Counter(kinds.values())


def main(folder: Path) -> None:
    """Prints a figure a line."""
    package = folder / "src" / "proxnas"
    options = {file for pattern in OPTIONS for file in package.rglob(pattern)}
    total, configuration = Counter[str](), Counter[str]()
    files, functions = [], []
    found = Counter[str]()
    for file in sorted(package.rglob("*.py")):
        source = file.read_text()
        lines = source.splitlines()
        kinds = lines_by_kind(source)
        total += kinds
        if file in options:
            configuration += kinds
        if len(lines) >= SHORTEST_FILE:
            files.append(len(lines))
        found["over 100 columns"] += sum(len(line) > 100 for line in lines)
        for token in tokenize.generate_tokens(io.StringIO(source).readline):
            found["comments"] += token.type == tokenize.COMMENT
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.FunctionDef):
                functions.append((node.end_lineno or 0) - node.lineno + 1)
            found["ternaries"] += isinstance(node, ast.IfExp)
            found["comprehensions"] += isinstance(
                node, ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp
            )
    count = total.total()
    functions.sort()
    print(f"files of {SHORTEST_FILE} lines and more: {len(files)}, lines of all: {count:,}")
    print("shares:", ", ".join(f"{kind} {n / count:.0%}" for kind, n in total.most_common()))
    print(f"median file: {statistics.median(files):g}; over 300: {sum(n > 300 for n in files)}")
    print(
        f"functions: {len(functions)}, median {statistics.median(functions):g},"
        f" 90% {functions[len(functions) * 9 // 10]}, over 30: {sum(n > 30 for n in functions)}"
    )
    for name, number in found.items():
        print(f"{name}: {number}, {1000 * number / count:.1f} a 1,000 lines")
    print(
        f"configuration: {len(options)} files, {configuration.total():,} lines,"
        f" {configuration['code']:,} of them code"
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parents[1])
