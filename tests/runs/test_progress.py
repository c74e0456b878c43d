"""What is said of how far a run is."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from proxnas.common.metrics_row import MetricsRow
from proxnas.runs.progress import Lines, LiveBar, bar_with


def row(epoch: int, seconds: float = 2.0) -> MetricsRow:
    return {"epoch": epoch, "step": epoch, "seconds": {"forward": seconds}}


def test_time_left_is_that_of_the_epochs_to_come() -> None:
    file = io.StringIO()
    lines = Lines(Console(file=file, width=80), "a run")
    lines.begin(1, 3, 5)
    for epoch in (1, 2, 3):
        lines.epoch(row(epoch))
    said = file.getvalue().splitlines()
    assert "epoch 1/3" in said[0] and said[0].endswith("left 4.0 s")
    assert "epoch 3/3" in said[2] and "left" not in said[2]


@pytest.mark.parametrize("planned", [1, 74])
def test_a_run_by_the_clock_ends_when_its_time_is_over(planned: int) -> None:
    """However wrong the number of epochs was that it was planned with."""
    file, used = io.StringIO(), 0.0
    lines = Lines(Console(file=file, width=80), "a run", lambda: (used, 8.0))
    lines.begin(1, planned, 5)
    for epoch in (1, 2, 3, 4):
        used = 2.0 * epoch
        lines.epoch(row(epoch))
    said = file.getvalue().splitlines()
    for epoch, (line, left) in enumerate(
        zip(said, ("6.0 s", "4.0 s", "2.0 s", ""), strict=True), 1
    ):
        assert f" epoch {epoch}/4 " in line and line.endswith(f"left {left}" if left else "2.0")


def test_the_bar_of_a_run_by_the_clock_is_full_when_its_time_is_over() -> None:
    used = 0.0
    with bar_with(Console(file=io.StringIO())) as bar:
        live = LiveBar(bar, "a run", lambda: (used, 10.0))
        live.begin(1, 100, 5)
        for step in range(1, 5):
            used = 2.5 * step
            live.step(0)
            assert (bar.tasks[0].completed, bar.tasks[0].total) == (step, 4)
