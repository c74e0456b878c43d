"""The help of a command with many options: a line an option, in the groups that declare them, with
the values that would be used. No torch here."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterator
from typing import Annotated, Any, Literal, NamedTuple, get_args, get_origin

from tyro.conf import Positional
from tyro.constructors import PrimitiveConstructorSpec

from proxnas.common.errors import flag_of
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


class Shown(NamedTuple):
    """An option in a help."""

    name: str
    value: Any
    hint: Any
    doc: str


def page(options: Options, prog: str) -> str:
    """The help of a command: its own options first, then those that it has in common with others,
    with the values that would be used."""
    groups = groups_of(options)
    places = [place for shown in groups.get("", []) if (place := place_of(shown))]
    paragraphs = inspect.cleandoc(type(options).__doc__ or "").split("\n\n")
    lines = [" ".join(["usage:", prog, *places, "[OPTIONS]"])]
    for paragraph in paragraphs:
        lines += ["", *wrapped(" ".join(paragraph.split()))]
    for heading, group in groups.items():
        lines += ["", *([heading] if heading else [])]
        for shown in group:
            lines += option_lines(shown, shown.doc)
    return "\n".join(lines)


def groups_of(options: Options) -> dict[str, list[Shown]]:
    """Heading -> the options below it; those of the class itself are the first."""
    cls = type(options)
    left = {shown.name: shown for shown in shown_of(options)}
    # words by their place come first, as they are given; then what is nearer to the command
    places = [shown for shown in left.values() if place_of(shown)]
    groups = {"": places}
    for shown in places:
        del left[shown.name]
    for base in cls.__mro__:
        heading = "" if base is cls else getattr(base, "heading", "")
        for name in inspect.get_annotations(base):
            if name in left:
                groups.setdefault(heading.format(_words_of(base)), []).append(left.pop(name))
    return groups


def shown_of(options: Options) -> Iterator[Shown]:
    """The options of a part itself, as they are declared."""
    docs = field_docs(type(options))
    for name, hint in hints_of(type(options)).items():
        value = getattr(options, name)
        if not isinstance(value, Options):
            yield Shown(name, value, hint, docs.get(name, ""))


def help_lines(options: Options) -> Iterator[str]:
    """The options of a composition, a group a part; of each the first sentence."""
    for part in parts_of(options):
        if not part.heading:
            continue
        yield ""
        yield from wrapped(part.heading.format(_words_of(type(part))))
        for shown in shown_of(part):
            room = WIDTH - COLUMN - len(_behind(shown.hint))
            yield from option_lines(shown, summary(shown.doc, room))


def wrapped(text: str, width: int = WIDTH) -> list[str]:
    """The lines of a text; no flag is broken over two of them."""
    return textwrap.wrap(text, width, break_on_hyphens=False)


def _words_of(cls: type[Any]) -> str:
    return " ".join((cls.__doc__ or "").split())


def option_lines(shown: Shown, text: str) -> list[str]:
    """The flag with its value, and the text beside it."""
    value = "" if isinstance(shown.value, bool) else f" {_value_text(shown) or 'TEXT'}"
    head = f"  {place_of(shown) or flag_of(shown.name) + value}"
    lines = wrapped((text + _behind(shown.hint)).strip(), WIDTH - COLUMN) or [""]
    found = []
    if len(head) >= COLUMN:
        found.append(head)
    else:
        found.append(f"{head:<{COLUMN}}{lines.pop(0)}".rstrip())
    return found + [f"{'':<{COLUMN}}{line}" for line in lines]


def place_of(shown: Shown) -> str:
    """What stands for an option that is a word by its place; empty: it is a flag."""
    notes = get_args(shown.hint)[1:] if get_origin(shown.hint) is Annotated else ()
    if Positional not in notes:
        return ""
    named = [note.metavar for note in notes if getattr(note, "metavar", None)]
    return str(named[0]) if named else flag_of(shown.name)


def _behind(hint: Any) -> str:
    choices = _choices(hint)
    return f" ({', '.join(choices)})" if choices else ""


def _value_text(shown: Shown) -> str:
    """The value as a command line takes it; an option may have a word for a number."""
    for note in get_args(shown.hint)[1:] if get_origin(shown.hint) is Annotated else ():
        if isinstance(note, PrimitiveConstructorSpec):
            return " ".join(note.str_from_instance(shown.value))
    return str(shown.value)


def _choices(hint: Any) -> list[str]:
    if get_origin(hint) is Annotated:
        hint = get_args(hint)[0]
    return [str(choice) for choice in get_args(hint)] if get_origin(hint) is Literal else []
