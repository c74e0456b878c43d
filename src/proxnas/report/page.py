"""One HTML page that shows runs and needs nothing else: style, script and data are inside, and it
may load nothing.

The page's own policy forbids all scripts and styles but these two, and any request (a live page may
ask its server). Names from files reach the page as JSON and are set as text, so a run called
<script> is shown, not obeyed.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any

from proxnas.common.files import write_atomically
from proxnas.report.page_data import page_data, text
from proxnas.report.reading import Record

FILE = "report.html"
IN_SCRIPT = {ord(sign): f"\\u{ord(sign):04x}" for sign in "<>&\u2028\u2029"}
"""What could end the JSON block, or a line within it."""


def report_html(records: Sequence[Record]) -> bytes:
    """The report of these runs."""
    names = [record.name for record in records]
    title = names[0] if len(names) == 1 else common(names) or f"{len(names)} runs"
    return _page(f"proxnas: {title}", page_data(records), live=False)


def write_report(records: Sequence[Record], out: Path) -> Path:
    """Writes the report of these runs; returns the file, which is replaced whole, and left alone if
    it is the same."""
    content = report_html(records)
    # whoever watches the file must not think that it is new
    if out.is_file() and out.read_bytes() == content:
        return out
    write_atomically(out, content)
    return out


def live_html(name: str) -> bytes:
    """The same page without data, which it asks its server for."""
    return _page(f"proxnas: {name}", {}, live=True)


def common(names: Sequence[str]) -> str:
    """The run that all of them are or are part of; empty if there is none."""
    first = {name.split("/")[0] for name in names}
    return first.pop() if len(first) == 1 else ""


def policy(live: bool) -> str:
    """The Content-Security-Policy of a page: its own script and style, and nothing from
    anywhere."""
    asks = "; connect-src 'self'" if live else ""
    return (
        f"default-src 'none'; script-src '{_digest(_script())}'; style-src"
        f" '{_digest(_part('page.css'))}'; img-src data:{asks}; base-uri 'none'; form-action 'none'"
    )


def json_for_script(data: Any) -> str:
    """JSON that can stand in a script element."""
    return json.dumps(data, allow_nan=False, separators=(",", ":")).translate(IN_SCRIPT)


def _page(title: str, data: Any, live: bool) -> bytes:
    filled = Template(_part("page.html")).substitute(
        # in the page itself: one that is opened as a file comes without headers
        policy=html.escape(policy(live)),
        title=html.escape(text(title)),
        style=_part("page.css"),
        data=json_for_script(data),
        script=_script(),
    )
    return filled.encode()


@cache
def _part(name: str) -> str:
    return files("proxnas.report").joinpath(name).read_text(encoding="utf-8")


def _script() -> str:
    return _part("charts.js") + _part("page.js")


def _digest(content: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
