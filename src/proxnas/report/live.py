"""A page that follows a run: two fixed answers on this machine only, made anew from the run folder
when it changes.

No path of a request is ever looked up on disk. A request must name this server as its host, so that
a page from elsewhere that points a name of its own at 127.0.0.1 gets nothing. Whoever restarts the
search need not restart this.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Collection, Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

from proxnas.common.errors import InputError, OptionError, escape
from proxnas.report.page import json_for_script, live_html, policy
from proxnas.report.page_data import page_data
from proxnas.report.reading import Record, find_runs, in_use, run_folders

ADDRESS = "127.0.0.1"
WATCHED = (
    "config.json",
    "environment.json",
    "space.json",
    "metrics.jsonl",
    "genotype.json",
    "result.json",
)
PAGE, JSON = "text/html; charset=utf-8", "application/json"


class Snapshot:
    """The data of a folder as JSON, read again only if a file has changed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.seen: object = None
        self.content = b""
        self.version = ""
        self.lock = threading.Lock()  # requests come in threads

    def read(self) -> tuple[bytes, str]:
        """(JSON, its version)."""
        with self.lock:
            signs = self._signs()
            if signs != self.seen:
                self.content = json_for_script(page_data(self._records())).encode()
                self.version = f'"{hashlib.sha256(self.content).hexdigest()[:20]}"'
                self.seen = signs
            return self.content, self.version

    def _signs(self) -> object:
        """What is different whenever the data may be."""
        # in_use too: a run that is killed changes no file
        folders = list(run_folders(self.folder))
        return [(path, in_use(path), *(_stat(path / name) for name in WATCHED)) for path in folders]

    def _records(self) -> list[Record]:
        try:
            return find_runs(self.folder)
        except InputError:  # not begun yet, or just being replaced
            return []


def _stat(path: Path) -> tuple[int, int]:
    try:
        found = path.stat()
    except OSError:
        return 0, 0
    return found.st_mtime_ns, found.st_size


class Answers(BaseHTTPRequestHandler):
    """Answers by what stands in `routes`, to whoever names one of the `hosts`."""

    routes: ClassVar[Mapping[str, Callable[[], tuple[bytes, str, str]]]] = {}
    """Path -> (content, its version, its kind)."""
    hosts: ClassVar[Collection[str]] = ()
    server_version, sys_version = "proxnas", ""
    protocol_version = "HTTP/1.1"
    timeout = 30  # of a connection that says nothing

    def do_GET(self) -> None:
        if self.headers.get("Host") not in self.hosts:
            self._answer(HTTPStatus.FORBIDDEN)
        elif self.path not in self.routes:
            self._answer(HTTPStatus.NOT_FOUND)
        else:
            content, version, kind = self.routes[self.path]()
            # the page asks every few seconds: what it has already is not sent again
            same = version != "" and self.headers.get("If-None-Match") == version
            status = HTTPStatus.NOT_MODIFIED if same else HTTPStatus.OK
            self._answer(status, content, kind, version)

    def _answer(
        self, status: HTTPStatus, content: bytes = b"", kind: str = "text/plain", version: str = ""
    ) -> None:
        body = b"" if status == HTTPStatus.NOT_MODIFIED else content or status.phrase.encode()
        self.send_response(status)
        headers = _headers(kind, version) | {"Content-Length": str(len(body))}
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing: the terminal belongs to whoever watches."""


def serve(folder: Path, port: int) -> ThreadingHTTPServer:
    """A server that listens (port 0: a free one); `serve_forever` answers."""
    page, snapshot = live_html(folder.resolve().name), Snapshot(folder)

    class Handler(Answers):
        routes: ClassVar = {
            "/": lambda: (page, "", PAGE),
            "/data.json": lambda: (*snapshot.read(), JSON),
        }

    server = _bound(port, Handler)
    # the port is known only now, and nobody is answered before `serve_forever`
    Handler.hosts = {f"{name}:{server.server_port}" for name in (ADDRESS, "localhost")}
    return server


def _headers(kind: str, version: str) -> dict[str, str]:
    safe = {
        "Content-Type": kind,
        "Cache-Control": "no-store",
        # frame-ancestors counts in a header only, not in the policy of the page itself
        "Content-Security-Policy": f"{policy(live=True)}; frame-ancestors 'none'",
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "no-referrer",
        "Cross-Origin-Resource-Policy": "same-origin",
    }
    return safe | ({"ETag": version} if version else {})


def _bound(port: int, handler: type[BaseHTTPRequestHandler]) -> ThreadingHTTPServer:
    try:
        server = ThreadingHTTPServer((ADDRESS, port), handler)
    except (OSError, OverflowError) as error:
        advice = f"cannot be used ({escape(error)}): choose another, or leave it out"
        raise OptionError("port", port, advice) from error
    # a browser keeps its connection open: that must not keep the server alive
    server.daemon_threads = True
    return server
