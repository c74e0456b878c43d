"""--wiring: what nodes of a cell read, and whether short trainings find out before a search."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest
import torch

from proxnas.cells.genotype import Genotype
from proxnas.cli.main import main
from proxnas.cli.search import parse_search
from proxnas.common.errors import InputError
from proxnas.domains import load_for_search, spaces
from proxnas.methods.cells import Cell, Cells
from proxnas.runs.folder import Run
from proxnas.searching import wiring
from proxnas.searching.job import Search
from proxnas.searching.short_rounds import scores_of

SMALL = ("--cells", "1", "--final-cells", "1", "--channels", "2", "--batch-size", "8")
CALL = (*SMALL, "--epochs", "4", "--seed", "1", "--threads", "1", "--quiet")


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wiring, "PAIRS", 3)
    monkeypatch.setattr(wiring, "STEPS", 2)


def result(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "result.json").read_text())
    return found


def judge_by(monkeypatch: pytest.MonkeyPatch, losses: list[float]) -> None:
    """Short trainings end at these losses, in the order in which they were made."""
    plain = wiring.scores_of

    def scores_of(place: Path) -> dict[Cell, float]:
        found = plain(place)
        assert len(found) == len(losses)
        return {cell: -loss for cell, loss in zip(found, losses, strict=True)}

    monkeypatch.setattr(wiring, "scores_of", scores_of)


def reads_inputs_only(cell: Genotype) -> bool:
    nodes = [node for part in cell.cells.values() for node in part.nodes]
    # gdas may keep two candidates on one edge
    return all(edge.input < 2 for node in nodes for edge in node)


@pytest.mark.parametrize(
    ("losses", "better", "chosen"),
    [
        # the cell that the round begins with, then as drawn and on inputs, pair by pair
        ([9.0, 1.0, 0.9, 2.0, 1.85, 3.0, 2.88], 3, "inputs"),
        ([9.0, 1.0, 0.9, 2.0, 2.1, 3.0, 2.9], 2, "free"),
        ([0.1, 1.0, 1.1, 2.0, 2.1, 3.0, 3.1], 0, "free"),
        ([9.0, 1.0, 1.0, 2.0, 1.9, 3.0, 3.05], 1, "free"),
    ],
)
def test_short_trainings_of_random_cells_decide(
    stripes: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    losses: list[float],
    better: int,
    chosen: str,
) -> None:
    judge_by(monkeypatch, losses)
    assert main(["search", str(stripes), *CALL, "--run", str(tmp_path)]) == 0
    told = result(tmp_path)["wiring"]
    assert (told["chosen"], told["better"], told["of"]) == (chosen, better, 3)
    rows = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    # edges of the cell that is searched: two a node, or all
    assert {len(row["A"]["normal"]) for row in rows} == {8 if chosen == "inputs" else 14}
    if chosen == "inputs":
        assert reads_inputs_only(Genotype.from_object(result(tmp_path)["genotype"]))
    of_rows = sum(sum(row["seconds"].values()) for row in rows)
    assert result(tmp_path)["seconds"] == pytest.approx(of_rows + told["seconds"])


def test_pairs_differ_in_wiring_alone() -> None:
    space = spaces.find("darts8")
    cells = Cells(space.groups)
    found = wiring.pairs(cells, 3)
    assert len(set(found)) == 3 and wiring.pairs(cells, 3) == found
    for pair in found:
        free, inputs = (space.genotype(cells.A_bar(cell)) for cell in pair)
        assert reads_inputs_only(inputs) and not reads_inputs_only(free)
        for name, was in free.cells.items():
            for old, new in zip(was.nodes, inputs.cells[name].nodes, strict=True):
                assert [edge.op for edge in old] == [edge.op for edge in new]
    nasbench201 = Cells(spaces.find("nasbench201").groups)
    cell = nasbench201.draw(torch.Generator().manual_seed(0))
    assert nasbench201.on_inputs(cell) == cell  # every edge is kept: there is nothing to choose


@pytest.mark.parametrize("where", ["wirings", "."])
def test_a_search_that_is_stopped_goes_on(
    stripes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    """While pairs are compared, and after: with the same outcome to the bit."""
    monkeypatch.setattr(wiring, "CHANCE", 1.0)  # so that another network is built than by default
    words = ["search", str(stripes), *CALL]
    assert main([*words, "--run", str(tmp_path / "whole")]) == 0
    plain, stopped = Run.save_checkpoint, []

    def save(self: Run, state: Any) -> None:
        plain(self, state)
        if self.folder == tmp_path / "stopped" / where and not stopped:
            stopped.append(True)
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(Run, "save_checkpoint", save)
    assert main([*words, "--run", str(tmp_path / "stopped")]) == 130
    assert not (tmp_path / "stopped" / "result.json").exists()
    assert main([*words, "--run", str(tmp_path / "stopped"), "--resume"]) == 0
    whole, again = result(tmp_path / "whole"), result(tmp_path / "stopped")
    for found in (whole, again):
        found.pop("seconds"), found["wiring"].pop("seconds")
    assert whole == again and whole["wiring"]["chosen"] == "inputs"
    known: list[dict[Cell, float]] = [
        scores_of(tmp_path / name / "wirings") for name in ("whole", "stopped")
    ]
    assert known[0] == known[1]


def test_a_found_cell_is_refined_in_the_wiring_that_was_chosen(
    stripes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wiring, "CHANCE", 1.0)
    words = ["search", str(stripes), *CALL, "--refine", "2", "--run", str(tmp_path)]
    assert main(words) == 0
    found = result(tmp_path)
    assert reads_inputs_only(Genotype.from_object(found["genotype"]))
    assert found["wiring"]["chosen"] == "inputs" and "refined" in found


def test_it_is_no_longer_than_the_search(
    stripes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = parse_search(["digits", "--batch-size", "64", "--epochs", "2"])
    images = 2 * wiring.PAIRS * wiring.STEPS * 32 // 2
    assert wiring.is_short(config, images) and not wiring.is_short(config, images - 1)
    timed = parse_search(["digits", "--epochs", "2", "--max-latency", "1ms", "--batch-size", "64"])
    assert not wiring.is_short(timed, images)
    monkeypatch.setattr(wiring, "STEPS", 10_000)
    assert main(["search", str(stripes), *CALL, "--run", str(tmp_path)]) == 0
    assert "wiring" not in result(tmp_path) and not (tmp_path / "wirings").exists()


def test_without_time_for_all_pairs_nodes_choose_as_ever(
    stripes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wiring, "scores_of", lambda place: {})
    assert main(["search", str(stripes), *CALL, "--run", str(tmp_path)]) == 0
    assert result(tmp_path)["wiring"] | {"seconds": 0} == {
        "chosen": "free",
        "better": 0,
        "of": 0,
        "chance": None,
        "seconds": 0,
    }


@pytest.mark.parametrize("space", ["darts7", "darts8", "nasp12"])
@pytest.mark.parametrize("method", ["nasp", "darts-1st", "gdas", "random", "evolution"])
def test_every_method_searches_cells_that_read_their_inputs(
    stripes: Path, tmp_path: Path, space: str, method: str
) -> None:
    words = ["--space", space, "--method", method, "--wiring", "inputs", "--epochs", "1"]
    assert main(["search", str(stripes), *CALL, *words, "--run", str(tmp_path)]) == 0
    assert reads_inputs_only(Genotype.from_object(result(tmp_path)["genotype"]))


def test_sizes_and_limits_are_those_of_the_cells_that_are_left(stripes: Path) -> None:
    config = parse_search([str(stripes), *CALL, "--wiring", "inputs", "--max-params", "4500"])
    search = Search(config, load_for_search(config.space, config.data, config))
    assert search.budget is not None
    assert {name: group.shape[0] for name, group in search.net.groups.items()} == {
        "normal": 8,
        "reduce": 8,
    }
    assert search.budget.meets(search.returned())


def test_defaults() -> None:
    assert parse_search(["digits"]).wiring == "auto"
    assert parse_search(["digits", "--preset", "paper"]).wiring == "free"
    assert parse_search(["digits", "--method", "darts-1st"]).wiring == "free"
    assert parse_search(["digits", "--space", "nasbench201"]).wiring == "free"
    assert "wiring" in parse_search(["digits"]).beyond()
    assert "wiring" not in parse_search(["digits", "--wiring", "free"]).beyond()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--space", "nasbench201", "--wiring", "inputs"], "is not for space nasbench201"),
        (["--method", "random", "--wiring", "auto"], "random trains cells by themselves"),
    ],
)
def test_where_it_makes_no_sense_it_is_refused(words: list[str], said: str) -> None:
    with pytest.raises(InputError) as error:
        parse_search(["digits", *words])
    assert said in str(error.value)
