"""The figures of a comparison, one function each: lines over search time, and how A and A_bar
change.

Shapes: T epochs, E edges, K candidates; A is (T, E, K).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from proxnas.report.comparison import Comparison, RunEntry
from proxnas.report.style import COLOURS, MARKERS, panels, save

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Array = NDArray[np.float64]
LINES = ("-", "--", ":")
PROXIMAL = ("nasp", "pa", "lazy-pa")
SECOND = "-2nd"
SMALL = (1.5, 1.2)  # inches of a panel for an edge


def draw_comparison(found: Comparison, folder: Path) -> list[Path]:
    """All figures that the runs allow, as .svg and .png; returns the files."""
    figures = {
        "convergence": convergence(found),
        "proximal": proximal(found),
        "stability": stability(found),
    }
    for name in found.names:
        if name in _methods_to_draw(found):
            figures[f"stability-{name}"] = edges(found.of(name)[0])
    files: list[Path] = []
    for name, figure in figures.items():
        if figure:
            files += save(figure, folder / f"{name}.svg")
    return files


def convergence(found: Comparison) -> Figure | None:
    """Validation accuracy (or perplexity) against search time, the mean over seeds with its
    spread."""
    names = [name for name in found.names if found.of(name)]
    if not names:
        return None
    figure, (axis,) = panels(size=(6.4, 4.2))
    _over_time(axis, found, names)
    axis.set_title(f"{found.config['space']} on {Path(found.config['data']).stem}")
    return figure


def proximal(found: Comparison) -> Figure | None:
    """NASP against PA and lazy PA, a panel an order of the gradient."""
    here = [
        name for name in found.names if name.removesuffix(SECOND) in PROXIMAL and found.of(name)
    ]
    orders = {
        order: [name for name in here if found.of(name)[0].second_order == (order == 2)]
        for order in (1, 2)
    }
    shown = {order: names for order, names in orders.items() if names}
    if len(here) < 2:
        return None
    figure, axes = panels(1, len(shown))
    for axis, (order, names) in zip(axes, shown.items(), strict=True):
        _over_time(axis, found, names)
        axis.set_title(f"gradient of order {order}")
    return figure


def stability(found: Comparison) -> Figure | None:
    """How much A and A_bar change from epoch to epoch, for DARTS and NASP: mean over the entries,
    and over seeds."""
    names = _methods_to_draw(found)
    if not names:
        return None
    figure, (of_A, of_A_bar) = panels(1, 2)
    for i, name in enumerate(names):
        entries = found.of(name)
        # (seeds, T - 1): mean |A_t - A_(t-1)| over edges and candidates
        steps = _common([np.abs(np.diff(weights(entry), axis=0)).mean((1, 2)) for entry in entries])
        of_A.plot(range(2, 2 + steps.shape[1]), steps.mean(0), label=name, **_style(i))
        changes = _common([_by_epoch(entry, "changes") for entry in entries])
        of_A_bar.plot(range(1, 1 + changes.shape[1]), changes.mean(0), label=name, **_style(i))
    of_A.set(xlabel="epoch", ylabel="mean change of an entry", title="A (DARTS: softmax of A)")
    of_A_bar.set(xlabel="epoch", ylabel="entries switched in an epoch", title="A_bar")
    of_A.legend(frameon=False)
    for axis in (of_A, of_A_bar):
        _whole_epochs(axis)
    return figure


def edges(entry: RunEntry) -> Figure:
    """A panel an edge of the first group: candidates against epochs; of DARTS the softmax of A, of
    NASP A_bar."""
    group = next(iter(entry.metrics[0]["A"]))
    values = (
        weights(entry, group) if _family(entry.name) == "darts" else selected_by_epoch(entry, group)
    )
    # a square of panels, about
    columns = math.ceil(math.sqrt(values.shape[1]))
    figure, axes = panels(math.ceil(values.shape[1] / columns), columns, SMALL)
    for axis in axes[values.shape[1] :]:
        axis.set_axis_off()
    for e, axis in enumerate(axes[: values.shape[1]]):
        _image(axis, values[:, e].T, (values.min(), values.max()))
        axis.set_title(f"edge {e}", fontsize=7)
    what = "A_bar"
    if _family(entry.name) == "darts":
        what = f"softmax of A, {values.min():.3f} to {values.max():.3f}"
    figure.suptitle(f"{entry.name}, group {group}: {what}; candidates against epochs", fontsize=9)
    return figure


def _image(axis: Any, values: Array, limits: tuple[float, float]) -> None:
    """(K, T) as shades, an epoch a column."""
    low, high = limits
    edge = (0.5, values.shape[1] + 0.5, values.shape[0] - 0.5, -0.5)
    axis.imshow(
        values,
        aspect="auto",
        cmap="Blues",
        vmin=low,
        vmax=high,
        interpolation="nearest",
        extent=edge,
    )
    axis.tick_params(labelsize=6)
    axis.grid(False)
    _whole_epochs(axis)


def _by_epoch(entry: RunEntry, name: str) -> Array:
    """A figure of a run by epoch; NaN where it has none."""
    return np.array([row.get(name, math.nan) for row in entry.metrics], float)


def _whole_epochs(axis: Any) -> None:
    from matplotlib.ticker import MaxNLocator

    axis.xaxis.set_major_locator(MaxNLocator("auto", integer=True))


def weights(entry: RunEntry, group: str | None = None) -> Array:
    """A by epoch; DARTS' as the weights it mixes by. All groups below each other, padded, unless
    one is named."""
    found = []
    for name in [group] if group else entry.metrics[0]["A"]:
        A = _stack(row["A"][name] for row in entry.metrics)
        found.append(_softmax(A) if _family(entry.name) == "darts" else A)
    if group is None:
        return np.concatenate([A.reshape(len(A), 1, -1) for A in found], -1)
    return found[0]


def selected_by_epoch(entry: RunEntry, group: str) -> Array:
    """A_bar by epoch: the entries noted in the row, else the largest of each edge."""
    A = _stack(row["A"][group] for row in entry.metrics)
    if not all("selected" in row for row in entry.metrics):
        return np.asarray(A.max(-1, keepdims=True) == A, float)
    # rows hold the selected pairs only: they are few
    A_bar = np.zeros_like(A)
    for t, row in enumerate(entry.metrics):
        for e, k in row["selected"].get(group, ()):
            A_bar[t, e, k] = 1.0
    return A_bar


def _over_time(axis: Any, found: Comparison, names: Sequence[str]) -> None:
    figure = "valid_perplexity" if found.of_text else "valid_accuracy"
    for i, name in enumerate(names):
        entries = found.of(name)
        minutes = _common(
            # minutes at the end of each epoch, of every seed
            [np.cumsum([sum(row["seconds"].values()) for row in e.metrics]) / 60 for e in entries]
        )
        reached = _common([_by_epoch(entry, figure) for entry in entries])
        x, y, spread = minutes.mean(0), reached.mean(0), reached.std(0)
        axis.plot(x, y, label=name, **_style(i))
        # a standard deviation either way
        if len(entries) > 1:
            axis.fill_between(
                x, y - spread, y + spread, color=COLOURS[i % len(COLOURS)], alpha=0.12, linewidth=0
            )
    axis.set(xlabel="search time (minutes)", ylabel=figure.replace("valid_", "validation "))
    # not over the lines
    beside = {"loc": "upper left", "bbox_to_anchor": (1, 1)} if len(names) > 4 else {}
    axis.legend(frameon=False, fontsize=7, **beside)


def _style(i: int) -> dict[str, Any]:
    """Colours and marks first, then other lines: more methods than colours stay apart."""
    n = len(COLOURS)
    return {
        "color": COLOURS[i % n],
        "marker": MARKERS[i % n],
        "linestyle": LINES[i // n % len(LINES)],
        "markersize": 3,
    }


def _methods_to_draw(found: Comparison) -> list[str]:
    """The methods whose A is drawn: DARTS and NASP, by runs that tell it."""
    names = [name for name in found.names if _family(name) in ("darts", "nasp") and found.of(name)]
    return [name for name in names if all(entry.metrics[0].get("A") for entry in found.of(name))]


def _family(name: str) -> str:
    return name.split("-")[0]


def _common(series: Sequence[Array]) -> Array:
    """Seeds below each other, cut to the epochs that all of them have: some stop early."""
    length = min(map(len, series))
    return np.stack([one[:length] for one in series])


def _stack(matrices: Iterable[list[list[float]]]) -> Array:
    return np.array(list(matrices), float)


def _softmax(A: Array) -> Array:
    powers = np.exp(A - A.max(-1, keepdims=True))
    return np.asarray(powers / powers.sum(-1, keepdims=True))
