"""The help of a command with many options: a line an option, in the groups that declare them, with
the values that would be used. No torch here."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterator
from typing import Annotated, Any, Literal, get_args, get_origin

from tyro.constructors import PrimitiveConstructorSpec

from proxnas.common.errors import POSITIONAL, flag_of
from proxnas.common.options import Options, hints_of, parts_of

WIDTH = 99
COLUMN = 31
"""Where the text of an option begins."""


def field_docs(cls: type[Any]) -> dict[str, str]:
    """Field -> the string below it in the source, in one line; those of base classes too."""
    found: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        if issubclass(base, Options) and base is not Options:
            found |= _docs_in(base)
    return found


def _docs_in(cls: type[Any]) -> dict[str, str]:
    try:
        source = textwrap.dedent(inspect.getsource(cls))
    except (OSError, TypeError):  # made where there is no file
        return {}
    body = ast.parse(source).body[0]
    assert isinstance(body, ast.ClassDef)
    found = {}
    # a string on its own right below a field is its help
    for field, below in zip(body.body, body.body[1:], strict=False):
        if not (isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)):
            continue
        if isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant):
            found[field.target.id] = " ".join(str(below.value.value).split())
    return found


def summary(text: str, width: int) -> str:
    """The first sentence; as many of its clauses as fit in a line, but one at least."""
    clauses = text.split(". ")[0].rstrip(".").split("; ")
    kept = clauses.pop(0)
    for clause in clauses:
        if len(kept) + len(clause) + 2 <= width:
            kept += f"; {clause}"
    return kept


def help_lines(options: Options, titles: dict[type[Options], str]) -> Iterator[str]:
    """A group a part that has a title, by the class or one that it is made of."""
    for part in parts_of(options):
        title = next((titles[base] for base in type(part).__mro__ if base in titles), None)
        if title is None:
            continue
        yield ""
        heading = title.format(" ".join((type(part).__doc__ or "").split()))
        yield from textwrap.wrap(heading, WIDTH)
        docs = field_docs(type(part))
        for name, hint in hints_of(type(part)).items():
            if not isinstance(getattr(part, name), Options):
                yield from _option(name, getattr(part, name), hint, docs.get(name, ""))


def _option(name: str, value: Any, hint: Any, doc: str) -> Iterator[str]:
    shown = "" if isinstance(value, bool) else f" {_value_text(value, hint) or 'TEXT'}"
    head = f"  {flag_of(name)}{'' if name in POSITIONAL else shown}"
    choices = _choices(hint)
    behind = f" ({', '.join(choices)})" if choices else ""
    width = WIDTH - COLUMN
    text = summary(doc, width - len(behind)) + behind
    lines = textwrap.wrap(text, width) or [""]
    if len(head) >= COLUMN:
        yield head
    else:
        yield f"{head:<{COLUMN}}{lines.pop(0)}".rstrip()
    for line in lines:
        yield f"{'':<{COLUMN}}{line}"


def _value_text(value: Any, hint: Any) -> str:
    """The value as a command line takes it; an option may have a word for a number."""
    for note in get_args(hint)[1:] if get_origin(hint) is Annotated else ():
        if isinstance(note, PrimitiveConstructorSpec):
            return " ".join(note.str_from_instance(value))
    return str(value)


def _choices(hint: Any) -> list[str]:
    if get_origin(hint) is Annotated:
        hint = get_args(hint)[0]
    return [str(choice) for choice in get_args(hint)] if get_origin(hint) is Literal else []
