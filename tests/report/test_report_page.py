"""report/page.py, page_data.py, live.py: one file, small, closed to everything; names from files
stay text."""

from __future__ import annotations

import base64
import hashlib
import html
import http.client
import json
import re
import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from proxnas.cli.main import main
from proxnas.cli.search import parse_search
from proxnas.common.config_file import read_values
from proxnas.report import page_data as pages
from proxnas.report.facts import reproduce
from proxnas.report.live import serve
from proxnas.report.page import live_html, report_html
from proxnas.report.page_data import page_data, thin_rows
from proxnas.report.reading import find_runs, read_run
from proxnas.runs.options import storable
from proxnas.searching.options import SearchOptions
from support.run_folders import make_rows, make_run, make_training, write_json, write_rows

CSS = (Path(pages.__file__).parent / "page.css").read_text()
EVIL = (
    "</script><script>window.hacked = 1</script><img src=x onerror='window.hacked = 2'>\u2028&amp;"
)


def data_of(page: bytes) -> Any:
    block = re.search(rb'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert block
    return json.loads(block[1])


def test_a_long_search_makes_a_small_page(tmp_path: Path) -> None:
    page = report_html([read_run(make_run(tmp_path / "a", epochs=50))])
    assert len(page) < 1_500_000
    run = data_of(page)["runs"][0]
    assert run["replay"]["epochs"] == list(range(1, 51))
    normal, reduce = run["replay"]["groups"]
    assert (normal["title"], reduce["title"]) == ("normal cell", "reduction cell")
    assert (len(normal["A"]), len(normal["A"][0]), len(normal["A"][0][0])) == (50, 14, 12)
    assert normal["edges"][:5] == [
        "c_{k-2} → 2",
        "c_{k-1} → 2",
        "c_{k-2} → 3",
        "c_{k-1} → 3",
        "2 → 3",
    ]


def test_many_runs_show_fewer_frames_but_all_of_their_curves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pages, "MOST_BYTES", 250_000)
    records = [
        read_run(make_run(tmp_path / name, epochs=20, seed=seed)) for seed, name in enumerate("ab")
    ]
    data = page_data(records)
    assert len(json.dumps(data)) <= 250_000
    for run in data["runs"]:
        frames = run["replay"]["epochs"]
        assert 2 <= len(frames) < 20 and (frames[0], frames[-1]) == (1, 20)
        assert len(run["epochs"]) == len(run["charts"][0]["lines"][0]["values"]) == 20


def test_thinned_keeps_the_ends() -> None:
    rows = [{"epoch": i} for i in range(1000)]
    kept = [row["epoch"] for row in thin_rows(rows, 10)]
    assert len(kept) == 10 and (kept[0], kept[-1]) == (0, 999) and kept == sorted(set(kept))
    assert thin_rows(rows, 2000) == rows


def test_each_frame_draws_the_cell_of_its_epoch(tmp_path: Path) -> None:
    run = page_data([read_run(make_run(tmp_path / "a", epochs=6))])["runs"][0]["replay"]
    rows = make_rows(6)
    for row, cells in zip(rows, run["cells"], strict=True):
        for name, number in zip(("normal", "reduce"), cells, strict=True):
            wanted = sorted(
                op for node in row["genotype"]["cells"][name]["nodes"] for op, _ in node
            )
            drawn = re.findall(
                r'<rect class="op".*?<text.*?>(.*?)</text>', run["drawings"][number], re.DOTALL
            )
            assert sorted(drawn) == wanted
    assert len(run["drawings"]) == len(set(run["drawings"]))


def test_the_page_may_run_its_own_script_and_nothing_else(tmp_path: Path) -> None:
    for page, live in (
        (report_html([read_run(make_run(tmp_path / "a"))]), False),
        (live_html("a"), True),
    ):
        text = page.decode()
        policy = html.unescape(re.search(r'Policy" content="(.*?)"', text)[1])  # type: ignore[index]
        rules = dict(rule.split(" ", 1) for rule in policy.split("; "))
        assert rules.pop("connect-src", "") == ("'self'" if live else "")
        script = re.search(r"<script>(.*?)</script>", text, re.DOTALL)[1]  # type: ignore[index]
        style = re.search(r"<style>(.*?)</style>", text, re.DOTALL)[1]  # type: ignore[index]
        for name, content in (("script-src", script), ("style-src", style)):
            digest = hashlib.sha256(content.encode()).digest()
            assert rules[name] == f"'sha256-{base64.b64encode(digest).decode()}'"
        assert rules["default-src"] == "'none'"
        outside = re.sub(r'"http://www.w3.org/2000/svg"|xmlns=\S+', "", text)
        assert "http://" not in outside and "https://" not in outside


def test_names_from_files_cannot_leave_their_block(tmp_path: Path) -> None:
    run = make_run(tmp_path / "<b>run</b>", data=EVIL, method=EVIL)
    write_json(run / "environment.json", {EVIL: EVIL, "command": [EVIL, EVIL]})
    space = json.loads((run / "space.json").read_text())
    space["groups"]["normal"]["candidates"][0] = EVIL
    write_json(run / "space.json", space)
    write_json(run / "result.json", {"warning": EVIL, "method": EVIL})
    page = report_html([read_run(run)])
    assert page.count(b"<script") == 2 and b"onerror='" not in page.replace(
        b"\\u003cimg src=x onerror='", b""
    )
    assert b"<img" not in page and b"<b>run" not in page and "\u2028".encode() not in page
    shown = data_of(page)["runs"][0]
    assert shown["warning"] == EVIL and [EVIL, EVIL] in shown["environment"]
    assert shown["replay"]["groups"][0]["candidates"][0] == EVIL


def test_a_name_that_is_no_utf8(tmp_path: Path) -> None:
    run = make_run(tmp_path / "a", data="caf\udce9")
    assert data_of(report_html([read_run(run)]))["runs"][0]["config"]


def test_kinds_of_runs(tmp_path: Path) -> None:
    fit = tmp_path / "fit"
    make_run(fit / "search", epochs=2)
    make_training(fit / "train")
    write_json(fit / "config.json", {"command": "fit", "data": "digits", "epochs": 3})
    (fit / "genotype.json").write_bytes((fit / "train" / "genotype.json").read_bytes())
    whole, search, train = page_data(find_runs(fit))["runs"]
    assert (whole["command"], search["command"], train["command"]) == ("fit", "search", "train")
    assert whole["replay"]["epochs"] == [] and search["replay"]["epochs"] == [1, 2]
    assert train["replay"] is None  # drawn above
    assert [chart["title"] for chart in train["charts"]] == [
        "accuracy",
        "loss",
        "seconds of an epoch",
    ]


def test_text_random_and_empty_runs(tmp_path: Path) -> None:
    rows = [
        {"epoch": t, "train_perplexity": 90.0 / t, "valid_perplexity": 99.0 / t} for t in (1, 2)
    ]
    run = make_run(tmp_path / "text", epochs=1)
    write_rows(run, rows)
    (shown,) = page_data([read_run(run)])["runs"]
    assert [chart["title"] for chart in shown["charts"]] == ["perplexity"]
    bare = [
        {name: value for name, value in row.items() if name not in ("A", "selected")}
        for row in make_rows(3)
    ]
    write_rows(run, bare)  # a method that has no A
    (shown,) = page_data([read_run(run)])["runs"]
    assert shown["replay"]["epochs"] == [1, 2, 3] and shown["replay"]["groups"] == []
    empty = tmp_path / "empty"
    empty.mkdir()
    write_json(empty / "config.json", {"command": "search", "epochs": 9})
    (shown,) = page_data([read_run(empty)])["runs"]
    assert (shown["status"], shown["progress"], shown["replay"]) == (
        "stopped",
        "epoch 0 of 9",
        None,
    )


def contrast(one: str, other: str) -> float:
    """WCAG's contrast of two colours #rrggbb."""

    def luminance(colour: str) -> float:
        parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        r, g, b = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts)
        return 0.2126 * r + 0.7152 * g + 0.0722 * b

    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
def test_colours_can_be_told_apart(theme: int) -> None:
    block = re.findall(r"^:root.*?\{(.*?)^\}", CSS, re.MULTILINE | re.DOTALL)[theme]
    colours = dict(re.findall(r"--(\w+): (#[0-9a-f]{6})", block))
    for ground in ("paper", "panel"):
        for text in ("ink", "soft", "link", "warn"):
            assert contrast(colours[text], colours[ground]) >= 4.5, (text, ground)
        for n in range(7):
            assert contrast(colours[f"c{n}"], colours[ground]) >= 3, (n, ground)
    for box in ("input", "node", "output", "op", "conv", "pool"):
        assert contrast(colours["ink"], colours[box]) >= 4.5, box


# the commands


def test_report_writes_the_page_and_figures(
    tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = make_training(tmp_path / "a")
    assert main(["report", str(run), "--figures", str(tmp_path / "figures")]) == 0
    said = capsys.readouterr().out
    assert f"report in {run / 'report.html'}\n" in said
    for name in (
        "curves.svg",
        "curves.png",
        "time.svg",
        "time.png",
        "cell.svg",
        "cell.png",
        "cell.pdf",
    ):
        assert (
            f"figure in {tmp_path / 'figures' / name}\n" in said
            and (tmp_path / "figures" / name).is_file()
        )
    monkeypatch.chdir(tmp_path)
    assert main(["report", str(run), str(make_training(tmp_path / "b"))]) == 0
    assert len(data_of((tmp_path / "report.html").read_bytes())["runs"]) == 2
    assert main(["report", str(run), "--out", "x.html"]) == 0 and (tmp_path / "x.html").exists()


@pytest.mark.parametrize(
    "argv", [[], ["none"], [".", "--out", "no/such/x.html"], [".", "--figures", "config.json"]]
)
def test_report_bad_input(
    argv: list[str], tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_run(tmp_path, epochs=1)
    monkeypatch.chdir(tmp_path)
    try:
        code = main(["report", *argv])
    except SystemExit as stop:
        code = int(stop.code or 0)
    assert code == 2 and capsys.readouterr().err


def test_the_command_that_is_shown_runs_the_same(stripes: Path, tmp_path: Path) -> None:
    flags = [
        "--space",
        "nasbench201",
        "--cells",
        "1",
        "--channels",
        "4",
        "--epochs",
        "2",
        "--eta",
        "0.1",
        "--preset",
        "paper",
    ]
    config = storable(parse_search([str(stripes), *flags]))
    run = tmp_path / "with space"
    run.mkdir()
    write_json(run / "config.json", {"proxnas": "0.1.0", "command": "search"} | config)
    _, command, *argv = shlex.split(reproduce(read_run(run)))
    again = parse_search(argv)
    assert command == "search" and storable(again) == config == read_values(
        run / "config.json", SearchOptions
    )
    assert again.run == f"{run}-again"


# the live page


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ThreadingHTTPServer]:
    (make_run(tmp_path / "run", finished=False) / "secret.txt").write_text("secret")
    with serve(tmp_path / "run", 0) as server:
        thread = threading.Thread(
            target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True
        )
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def ask(
    server: ThreadingHTTPServer, path: str, method: str = "GET", **headers: str
) -> tuple[int, bytes, Any]:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=10)
    try:
        connection.request(method, path, headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.read(), answer.headers
    finally:
        connection.close()


def test_only_two_answers_and_only_for_this_host(server: ThreadingHTTPServer) -> None:
    assert server.server_address[0] == "127.0.0.1"
    status, page, headers = ask(server, "/")
    assert (
        status == 200
        and b"<html" in page
        and "frame-ancestors 'none'" in headers["Content-Security-Policy"]
    )
    assert ask(server, "/data.json", Host=f"localhost:{server.server_port}")[0] == 200
    for path in (
        "/secret.txt",
        "/../run/secret.txt",
        "//secret.txt",
        "/data.json/..",
        "/config.json",
        "/%2e%2e/",
        "/x",
    ):
        status, content, _ = ask(server, path)
        assert status == 404 and b"secret" not in content
    for host in ("evil.example", f"evil.example:{server.server_port}", "127.0.0.1", ""):
        assert ask(server, "/data.json", Host=host)[0] == 403
    assert ask(server, "/", "POST")[0] == 501


def test_the_data_follow_the_run(server: ThreadingHTTPServer, tmp_path: Path) -> None:
    def epochs(version: str = "") -> tuple[int, Any]:
        status, content, headers = ask(
            server, "/data.json", **({"If-None-Match": version} if version else {})
        )
        return status, (
            json.loads(content)["runs"][0]["epochs"] if content else None,
            headers["ETag"],
        )

    run = tmp_path / "run"
    status, (seen, version) = epochs()
    assert (status, seen) == (200, [1, 2, 3, 4])
    assert epochs(version)[0] == 304
    write_rows(run, make_rows(5))
    assert epochs(version)[1][0] == [1, 2, 3, 4, 5]
    write_rows(run, make_rows(2))  # resumed from an earlier checkpoint
    assert epochs(version)[1][0] == [1, 2]
    for path in run.iterdir():  # --force
        path.unlink()
    assert json.loads(ask(server, "/data.json")[1]) == {"runs": []}
    make_run(run, epochs=1, finished=False)
    assert epochs()[1][0] == [1]


def test_watch_says_where_and_ends_when_asked(tmp_path: Path, capsys: Any) -> None:
    run = make_run(tmp_path / "a")
    argv = [sys.executable, "-m", "proxnas", "watch", str(run)]
    before = signal.signal(
        signal.SIGINT, signal.SIG_IGN
    )  # as a shell does to what it puts into the background
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    signal.signal(signal.SIGINT, before)
    assert process.stdout and process.stderr
    line = process.stdout.readline()
    port = int(re.search(r"http://127\.0\.0\.1:(\d+)/", line)[1])  # type: ignore[index]
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    connection.request("GET", "/data.json")
    assert json.loads(connection.getresponse().read())["runs"][0]["name"] == "a"
    connection.close()
    assert main(["watch", str(run), "--port", str(port)]) == 2  # taken
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=20) == 130
    assert process.stderr.read() == "proxnas: stopped\n"
    process.stdout.close()
    process.stderr.close()
    assert main(["watch", str(tmp_path / "none")]) == 2
    assert main(["watch", str(run), "--port", "99999"]) == 2
    assert "--port 99999" in capsys.readouterr().err
