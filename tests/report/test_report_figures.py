"""report/figures.py and cell_figure.py: what is drawn is what the run folder holds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from matplotlib.collections import LineCollection
from PIL import Image

from proxnas.cells.genotype import Genotype
from proxnas.cli.main import main
from proxnas.report.cell_figure import cell_figure
from proxnas.report.figures import changes, curves, params, slug, stability, time_split
from proxnas.report.layout import Box, Label, drawings
from proxnas.report.reading import Record, read_run
from proxnas.report.style import matplotlib_label
from support.run_folders import OPS, make_rows, make_run, make_training, write_rows

NB201 = "|nor_conv_3x3~0|+|none~0|avg_pool_3x3~1|+|skip_connect~0|nor_conv_3x3~1|none~2|"


@pytest.fixture
def record(tmp_path: Path) -> Record:
    return read_run(make_run(tmp_path / "a", epochs=3, ops=4))


def values(axis: Any) -> dict[str, list[float]]:
    return {line.get_label(): list(line.get_ydata()) for line in axis.lines}


def test_curves(record: Record) -> None:
    figure = curves(record)
    assert figure is not None
    accuracy, loss = figure.axes
    assert (accuracy.get_ylabel(), loss.get_ylabel(), loss.get_xlabel()) == (
        "accuracy",
        "loss",
        "epoch",
    )
    for axis, key in ((accuracy, "accuracy"), (loss, "loss")):
        wanted = {"training": f"train_{key}", "validation": f"valid_{key}"}
        assert values(axis) == {
            name: [row[column] for row in record.rows] for name, column in wanted.items()
        }


def test_single_curves(record: Record) -> None:
    for make, key in ((changes, "changes"), (params, "params")):
        figure = make(record)
        assert figure is not None
        assert list(values(figure.axes[0]).values()) == [[row[key] for row in record.rows]]


def test_the_split_of_time_adds_up(record: Record) -> None:
    figure = time_split(record)
    assert figure is not None
    tops = [bar.get_y() + bar.get_height() for bar in figure.axes[0].patches]
    assert max(tops) == sum(record.rows[0]["seconds"].values()) == 7.25
    assert len(figure.axes[0].patches) == 5 * 3


def test_stability_has_a_panel_an_edge_and_marks_what_is_selected(record: Record) -> None:
    (title, figure), (other, _) = stability(record)
    assert (title, other) == ("normal cell", "reduction cell")
    shown = [axis for axis in figure.axes if axis.images]
    assert len(shown) == 14
    for e, axis in enumerate(shown):
        picture = axis.images[0].get_array()
        for t, row in enumerate(record.rows):
            assert picture[:, t].tolist() == pytest.approx(row["A"]["normal"][e], rel=1e-4)
        (marks,) = [found for found in axis.collections if isinstance(found, LineCollection)]
        marked = sorted((round(x[:, 0].mean()), int(x[0, 1])) for x in marks.get_segments())
        assert marked == [
            (row["epoch"], k)
            for row in record.rows
            for edge, k in row["selected"]["normal"]
            if edge == e
        ]
    assert [label.get_text() for label in shown[0].get_yticklabels()] == list(OPS[:4])
    assert shown[0].get_title() == matplotlib_label("c_{k-2} → 2")


def test_runs_without_these_figures(tmp_path: Path) -> None:
    record = read_run(make_training(tmp_path / "a"))
    assert changes(record) is None and params(record) is None and list(stability(record)) == []
    write_rows(tmp_path / "a", [{"epoch": 1}])
    record = read_run(tmp_path / "a")
    assert curves(record) is None and time_split(record) is None


def test_a_drawn_cell_has_every_label_where_the_svg_has_it() -> None:
    for genotype in (
        Genotype.from_object(make_rows(1)[0]["genotype"]),
        Genotype.from_string(NB201),
    ):
        (axis,) = cell_figure(genotype).axes
        cells = drawings(genotype)
        labels = [shape for cell in cells for shape in cell.shapes if isinstance(shape, Label)]
        boxes = [shape for cell in cells for shape in cell.shapes if isinstance(shape, Box)]
        texts = sorted(text.get_text() for text in axis.texts)
        assert texts == sorted(
            [*(matplotlib_label(label.text) for label in labels), *(cell.title for cell in cells)]
        )
        assert sum(type(patch).__name__ == "FancyBboxPatch" for patch in axis.patches) == len(boxes)


def test_show_draws_png_and_pdf(tmp_path: Path, capsys: Any) -> None:
    png, pdf = tmp_path / "a.png", tmp_path / "a.pdf"
    assert main(["show", NB201, "--png", str(png), "--pdf", str(pdf)]) == 0
    assert f"drawn in {png}\n" in capsys.readouterr().out
    with Image.open(png) as image:
        image.load()
        assert image.size[0] > 800 and len(image.convert("RGB").getcolors(1_000_000)) > 50
    assert pdf.read_bytes().startswith(b"%PDF")
    first = pdf.read_bytes()
    assert main(["show", NB201, "--pdf", str(pdf)]) == 0 and pdf.read_bytes() == first


def test_show_refuses_another_ending(tmp_path: Path, capsys: Any) -> None:
    assert main(["show", NB201, "--png", str(tmp_path / "a.jpg")]) == 2
    assert "give a name that ends in .png" in capsys.readouterr().err


def test_names_become_safe() -> None:
    assert [slug(name) for name in ("a/b", "../../x", "<b>", "..", "normal cell")] == [
        "a-b",
        "x",
        "b",
        "run",
        "normal-cell",
    ]
    assert matplotlib_label("a_{1} costs $5_{x}") == r"a$_{\text{1}}$ costs \$5$_{\text{x}}$"
