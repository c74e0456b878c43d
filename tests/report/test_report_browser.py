"""The report in a real browser: it draws, answers to pointer and keys, and asks nobody for
anything.

Where no chromium is found these tests are skipped, or fail if PROXNAS_REQUIRE_BROWSER is set.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from proxnas.domains.images.examine import png
from proxnas.report.live import serve
from proxnas.report.page import report_html
from proxnas.report.reading import find_runs
from support.run_folders import OPS, make_rows, make_run, make_training, write_json, write_rows

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
FLAGS = (
    *(
        "--no-sandbox",
        "--disable-gpu",
        "--disable-quic",
        "--no-first-run",
        "--disable-background-networking",
    ),
    *("--disable-component-update", "--disable-sync"),
)
EVIL = "</script><script>window.hacked = 1</script><img src=x onerror='window.hacked = 2'>"
Open = Callable[..., "Page"]


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    path = next(filter(None, map(shutil.which, NAMES)), None)
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        path = None
    if path is None:
        reason = "needs chromium and playwright (Debian: apt install chromium; make install)"
        (pytest.fail if os.environ.get("PROXNAS_REQUIRE_BROWSER") else pytest.skip)(reason)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=list(FLAGS))
        yield browser
        browser.close()


@pytest.fixture
def show(browser: Browser, tmp_path: Path) -> Iterator[Open]:
    """show(folder...) -> the page of a report; at the end nothing was complained of, and nobody was
    asked."""
    complaints: list[str] = []
    asked: list[str] = []
    contexts = []

    def open_page(*folders: Path, url: str = "", scheme: str = "light", width: int = 1200) -> Page:
        if not url:
            file = tmp_path / "report.html"
            file.write_bytes(
                report_html([record for folder in folders for record in find_runs(folder)])
            )
            url = file.as_uri()
        context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)  # type: ignore[arg-type]
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(20_000)
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("request", lambda request: asked.append(request.url.removeprefix(url)))
        page.goto(url)
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert complaints == []
    inside = [url for url in asked if url.startswith("data:image/png;base64,")]
    assert set(asked) - set(inside) <= {"", "data.json", "data:,"}


def operations(page: Page) -> list[list[str]]:
    """The operations that are drawn, a list a cell."""
    script = (
        "all => all.map(svg => [...svg.querySelectorAll('rect.op + text')].map(text =>"
        " text.textContent))"
    )
    found: list[list[str]] = page.eval_on_selector_all(".cells svg", script)
    return found


def wanted(row: dict[str, Any]) -> list[list[str]]:
    cells = row["genotype"]["cells"].values()
    return [sorted(op for node in cell["nodes"] for op, _ in node) for cell in cells]


def test_what_a_test_tells_is_shown_and_not_obeyed(show: Open, tmp_path: Path) -> None:
    run = make_training(tmp_path / "a")
    dot = png(np.zeros((1, 1, 1), np.uint8))
    mistake = {"png": dot, "true": EVIL[:40], "answer": "b", "probability": 0.75, "image": 3}
    told = {"classes": [EVIL, "b"], "confusion": [[3, 1], [0, 4]], "mistakes": [mistake]}
    told |= {"calibration": {"error": 0.125, "bins": [[0.7, 0.5, 3], [0.9, 0.95, 5]]}}
    write_json(run / "test.json", told)
    page = show(run)
    assert page.locator(".matrix td.on").all_inner_texts() == ["3", "4"]
    assert page.get_by_text("expected calibration error 0.1250").count() == 1
    assert page.locator(".curve svg circle").count() == 2
    assert page.locator(".mistake img").evaluate("image => image.naturalWidth") == 1
    assert (
        page.locator(".mistake figcaption").inner_text() == f"taken for b (0.750), is {EVIL[:40]}"
    )
    assert page.evaluate("window.hacked") is None


def test_the_slider_replays_the_search(show: Open, tmp_path: Path) -> None:
    rows = make_rows(5)
    page = show(make_run(tmp_path / "a", epochs=5))
    slider = page.get_by_role("slider", name="epoch")

    def check(t: int) -> None:
        assert [sorted(cell) for cell in operations(page)] == wanted(rows[t])
        marked = page.locator(".matrix").first.locator("td.on").all_inner_texts()
        values = [rows[t]["A"]["normal"][e][k] for e, k in rows[t]["selected"]["normal"]]
        assert marked == [f"● {value:.2f}" for value in values]
        assert (
            page.locator("output").inner_text()
            == slider.get_attribute("aria-valuetext")
            == f"epoch {t + 1} of 5"
        )
        legend = page.locator(".chart", has_text="parameters").locator(".legend").inner_text()
        assert legend == f"params {rows[t]['params']:,}"

    check(4)
    slider.fill("1")
    check(1)
    slider.focus()
    page.keyboard.press("ArrowLeft")
    check(0)
    page.keyboard.press("End")
    check(4)
    script = """out => {
        window.seen = [];
        const watch = new MutationObserver(() => seen.push(out.textContent));
        watch.observe(out, {childList: true});
    }"""
    page.locator("output").evaluate(script)
    page.get_by_role(
        "button", name="play"
    ).click()  # from the beginning, since it stands at the end
    page.get_by_role("button", name="pause").wait_for()
    page.get_by_role("button", name="play").wait_for()  # at the end again
    assert page.evaluate("window.seen") == [f"epoch {t} of 5" for t in range(1, 6)]


def test_hovering_shows_values(show: Open, tmp_path: Path) -> None:
    rows = make_rows(5)
    page = show(make_run(tmp_path / "a", epochs=5))
    tip = page.get_by_role("tooltip")
    assert not tip.is_visible()
    chart = page.locator(".chart", has_text="accuracy").first.locator("svg")
    box = chart.bounding_box()
    assert box
    chart.hover(position={"x": box["width"] * 0.999, "y": box["height"] / 2})
    said = tip.inner_text().splitlines()
    assert said[0] == "epoch 5" and said[1].startswith("train: ")
    assert float(said[1].split()[1]) == pytest.approx(rows[4]["train_accuracy"], rel=1e-3)
    chart.focus()
    page.keyboard.press("Home")
    assert "epoch 1, train: " in (chart.get_attribute("aria-label") or "")
    panel = page.locator(".panels").first.locator("canvas").first
    box = panel.bounding_box()
    assert box
    panel.hover(position={"x": 1, "y": 1})
    a = rows[0]["A"]["normal"][0][0]
    assert tip.inner_text().splitlines()[:2] == ["epoch 1", f"{OPS[0]}: {float(f'{a:.4g}')}"]
    page.mouse.move(0, 0)
    assert not tip.is_visible()


def test_each_warning_has_a_line_and_long_facts_have_room(show: Open, tmp_path: Path) -> None:
    folder = make_training(tmp_path / "a", warning="one: do this; two: do that")
    page = show(folder)
    assert page.locator(".warning").all_inner_texts() == ["one: do this", "two: do that"]
    script = "() => facts({facts: [['a', 'short'], ['b', 'long '.repeat(20)]]}).innerHTML"
    assert page.evaluate(script).count('class="wide"') == 1


def test_names_are_shown_as_text(show: Open, tmp_path: Path) -> None:
    run = make_run(tmp_path / "<i>run<", epochs=2, data=EVIL)
    write_json(run / "environment.json", {EVIL: EVIL, "command": ["x", EVIL]})
    space = json.loads((run / "space.json").read_text())
    space["groups"]["normal"]["candidates"][0] = EVIL
    write_json(run / "space.json", space)
    page = show(run, make_training(tmp_path / "b", warning=EVIL, method=EVIL))
    for row in page.get_by_text("Environment").all():
        row.click()
    assert page.get_by_text(EVIL, exact=True).count() >= 5
    assert page.evaluate("window.hacked") is None
    assert (
        page.locator("img, i:not(.legend i), body script:not([type])").count() == 1
    )  # the page's own


def test_several_runs_are_compared(show: Open, tmp_path: Path) -> None:
    page = show(
        make_run(tmp_path / "a"), make_run(tmp_path / "b", epochs=2, seed=1, finished=False)
    )
    rows = page.locator("#comparison tbody tr").all_inner_texts()
    assert [row.split("\t")[:2] for row in rows] == [["a", "finished"], ["b", "stopped"]]
    lines = page.locator("#comparison .legend li").all_inner_texts()
    assert lines[0].startswith("a 0.") and lines[1].startswith("b 0.")
    assert lines[1].endswith("(epoch 2)") and "none" not in lines[1]  # it ended before the other
    assert page.get_by_role("slider").count() == 2


def background(page: Page) -> int:
    colour = page.evaluate("getComputedStyle(document.body).backgroundColor")
    return sum(map(int, re.findall(r"\d+", colour)))


def test_light_and_dark(show: Open, tmp_path: Path) -> None:
    run = make_run(tmp_path / "a", epochs=2)
    light, dark = show(run), show(run, scheme="dark")
    assert background(light) == 3 * 255 and background(dark) < 150
    button = dark.get_by_role("button", name="Dark colours")
    assert button.get_attribute("aria-pressed") == "true"
    fill = "getComputedStyle(document.querySelector('.cells rect.node')).fill"
    before = dark.evaluate(fill)
    button.click()
    assert background(dark) == 3 * 255 and dark.evaluate(fill) != before
    assert button.get_attribute("aria-pressed") == "false"


def test_it_fits_a_phone(show: Open, tmp_path: Path) -> None:
    fit = tmp_path / "a-name-that-is-much-too-long-for-the-screen-of-a-phone-and-has-no-space-in-it"
    make_run(fit / "search", epochs=2)
    make_training(fit / "train")
    write_json(fit / "config.json", {"command": "fit", "data": "digits"})
    page = show(fit, width=390)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert page.get_by_role("slider").is_visible()


def test_controls_have_names(show: Open, tmp_path: Path) -> None:
    page = show(make_run(tmp_path / "a", epochs=2))
    script = """all => {
        const name = e => e.getAttribute('aria-label') || e.labels?.length || e.textContent.trim();
        return all.filter(e => !name(e)).map(e => e.outerHTML.slice(0, 80));
    }"""
    named = "button, input, [tabindex], canvas[role], svg[role], section"
    assert page.locator(named).count() > 30
    assert page.eval_on_selector_all(named, script) == []
    levels = page.eval_on_selector_all("h1, h2, h3", "all => all.map(e => Number(e.tagName[1]))")
    assert levels[0] == 1 and all(b - a <= 1 for a, b in itertools.pairwise(levels))


def test_a_live_page_follows_the_run(show: Open, tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", epochs=2, finished=False)
    with serve(run, 0) as server:
        thread = threading.Thread(
            target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True
        )
        thread.start()
        page = show(url=f"http://127.0.0.1:{server.server_port}/")
        status = page.get_by_role("status")
        status.get_by_text("run, stopped, epoch 2 of 50").wait_for()
        page.get_by_text("Configuration").click()
        write_rows(run, make_rows(3))
        status.get_by_text("epoch 3 of 50").wait_for()
        assert [sorted(cell) for cell in operations(page)] == wanted(
            make_rows(3)[-1]
        )  # it follows the last epoch
        assert (
            page.locator("details", has_text="Configuration").first.get_attribute("open")
            is not None
        )
        page.get_by_role("slider").fill("0")
        write_rows(run, make_rows(4))
        status.get_by_text("epoch 4 of 50").wait_for()
        assert (
            page.get_by_role("slider").input_value() == "0"
        )  # unless somebody looks at another one
        write_rows(run, make_rows(1))  # the search was stopped and resumed
        status.get_by_text("epoch 1 of 50").wait_for()
        server.shutdown()
        thread.join()
        page.close()
