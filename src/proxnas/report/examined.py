"""What test.json of a run tells, for its page: leaderboard, confusion, calibration and mistakes.
Nothing in the file is believed: what is not as it should be is left out."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from proxnas.report.facts import leaderboard, leaderboard_texts, number

FILE = "test.json"
MOST_PICTURES, MOST_BYTES = 24, 40_000
COLUMNS = ("", "validation", "test", "parameters", "time", "ms an image")
WIDE = 220
"""Of the drawing of the calibration."""


def leaderboard_table(result: Mapping[str, Any]) -> list[list[str]]:
    """Rows of texts, the first is the head; empty without a leaderboard."""
    rows = leaderboard(result)
    if not rows:
        return []
    table = [list(COLUMNS)]
    for row in rows:
        table.append([f"{row['name']}{' (delivered)' * row['delivered']}", *leaderboard_texts(row)])
    return table


def examined_figures(test: Mapping[str, Any]) -> dict[str, Any] | None:
    """The figures that a page shows of a test; None without any."""
    classes = test.get("classes")
    if not isinstance(classes, list) or not all(isinstance(name, str) for name in classes):
        return None
    return {
        "classes": classes,
        "confusion": _matrix(test.get("confusion"), len(classes)),
        "confused": _confusion_rows(test.get("confused"), classes),
        **_calibration(test.get("calibration")),
        "mistakes": _mistakes(test.get("mistakes")),
    }


def _matrix(values: Any, count: int) -> list[list[int]]:
    # (K, K) of whole numbers, or nothing
    rows = values if isinstance(values, list) and len(values) == count else []
    sound = all(
        isinstance(row, list) and len(row) == count and all(type(n) is int for n in row)
        for row in rows
    )
    return rows if sound else []


def _confusion_rows(values: Any, classes: list[str]) -> list[list[str]]:
    found = []
    for row in values if isinstance(values, list) else []:
        if isinstance(row, list) and len(row) == 3 and all(type(n) is int for n in row):
            true, answer, count = row
            if 0 <= true < len(classes) and 0 <= answer < len(classes):
                found.append([classes[true], classes[answer], str(count)])
    return found


def _calibration(values: Any) -> dict[str, Any]:
    """The error as text, and the curve as a drawing."""
    if not isinstance(values, Mapping) or not isinstance(values.get("bins"), list):
        return {"calibration": "", "curve": ""}
    points = []
    for row in values["bins"]:
        if isinstance(row, list) and len(row) == 3:
            confidence, accuracy, count = map(number, row)
            points.append((confidence, accuracy, count))
    error = f"expected calibration error {number(values.get('error')):.4f}"
    return {"calibration": error, "curve": reliability(points)}


def reliability(points: list[tuple[float, float, float]]) -> str:
    """The reliability curve as SVG: probability to the right, how often that is right upwards; dots
    are as large as there are answers."""
    side, edge = WIDE - 40, 30

    def place(x: float, y: float) -> tuple[float, float]:
        # within the square, whatever the file says; y of SVG points down
        return edge + side * min(max(x, 0.0), 1.0), 10 + side * (1 - min(max(y, 0.0), 1.0))

    most = max((count for _, _, count in points), default=1.0)
    dots, line = [], []
    for confidence, accuracy, count in points:
        x, y = place(confidence, accuracy)
        # by the root of how many answers there are: what the eye compares is the area
        line.append(f"{x:.1f} {y:.1f}")
        radius = 2 + 5 * (count / max(most, 1)) ** 0.5
        dots.append(f'<circle class="dot" cx="{x:.1f}" cy="{y:.1f}" r="{radius:.1f}"/>')
    (left, bottom), (right, top) = place(0, 0), place(1, 1)
    path = (
        f'<path class="curve" fill="none" stroke="#0072b2" d="M{" L".join(line)}"/>' if line else ""
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDE} {WIDE}" role="img"'
        ' aria-label="reliability curve">'
        f'<path class="axis" fill="none" stroke="#52606d" d="M{left} {top} V{bottom} H{right}"/>'
        f'<path class="even" fill="none" stroke="#c5ccd3" stroke-dasharray="4 3"'
        f' d="M{left} {bottom} L{right} {top}"/>{path}{"".join(dots)}'
        f'<text x="{left}" y="{WIDE - 8}" font-size="11">0</text>'
        f'<text x="{(left + right) / 2 - 30}" y="{WIDE - 8}" font-size="11">probability</text>'
        f'<text x="{right - 6}" y="{WIDE - 8}" font-size="11">1</text>'
        f'<text x="4" y="{top + 8}" font-size="11">1</text>'
        f'<text x="14" y="{(top + bottom) / 2 + 14}" font-size="11"'
        f' transform="rotate(-90 14 {(top + bottom) / 2 + 14})">right</text></svg>'
    )


def _mistakes(values: Any) -> list[dict[str, Any]]:
    found = []
    for row in (values if isinstance(values, list) else [])[:MOST_PICTURES]:
        if not isinstance(row, Mapping):
            continue
        png = row.get("png")
        # base64 and nothing else may stand in a data: address
        if not isinstance(png, str) or not re.fullmatch(rf"[A-Za-z0-9+/=]{{1,{MOST_BYTES}}}", png):
            continue
        said = f"taken for {str(row.get('answer'))[:60]} ({number(row.get('probability')):.3f})"
        true, at = str(row.get("true"))[:60], row.get("image")
        found.append({"png": png, "said": said, "true": true, "image": f"test image {at}"})
    return found
