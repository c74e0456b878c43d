"""--refine: the neighbours of what a search found, trained by themselves after it."""

from __future__ import annotations

import json
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from proxnas.cells.genotype import Genotype
from proxnas.cli.main import main
from proxnas.cli.search import parse_search
from proxnas.domains import load_for_search, spaces
from proxnas.methods.cells import Cells
from proxnas.methods.local import Local
from proxnas.report.listing import list_runs
from proxnas.runs.deadline import Deadline
from proxnas.runs.folder import Run
from proxnas.runs.progress import Silent
from proxnas.searching import refine as refining
from proxnas.searching import short_rounds
from proxnas.searching.job import Search
from proxnas.searching.muon_steps import RATE, MuonSteps
from proxnas.searching.refine import clearly_better, how_many
from proxnas.searching.short_rounds import by_loss, short_trainings
from proxnas.searching.start import selecting
from proxnas.workflows.jobs import fitted_to_minutes, length_in_time

SMALL = (
    "--space",
    "nasbench201",
    "--channels",
    "2",
    "--final-cells",
    "1",
    "--epochs",
    "2",
    "--batch-size",
    "8",
)
CALL = (*SMALL, "--refine", "3", "--seed", "0", "--threads", "1", "--quiet")
STEPS = 10
"""Of the search; of the refinement there are twice as many."""


@pytest.fixture(autouse=True)
def few_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refining, "STEPS", 4)
    monkeypatch.setattr(refining, "FINAL_STEPS", 4)
    monkeypatch.setattr(refining, "LEAD", 0.0)


@pytest.fixture
def refined(stripes: Path, tmp_path: Path) -> Path:
    """A search that was refined, in its folder."""
    assert main(["search", str(stripes), *CALL, "--run", str(tmp_path / "alone")]) == 0
    return tmp_path / "alone"


def result(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "result.json").read_text())
    return found


def operations(genotype: dict[str, Any]) -> list[str]:
    return Genotype.from_object(genotype).without_values().to_string().split("|")


def test_the_best_of_the_found_cell_and_its_neighbours_is_returned(refined: Path) -> None:
    whole, last = result(refined), result(refined / "refined")
    assert (whole["method"], last["method"]) == ("nasp", "local")
    assert (
        whole["genotype"] == last["genotype"] == json.loads((refined / "genotype.json").read_text())
    )
    judged = known(refined / "refined")
    assert (
        len(judged) == 4 and max(score for _, score in judged) != -last["valid_loss"] / 2
    )  # the training losses count, too
    assert (
        whole["params"] == last["params"]
        and whole["refined"]["valid_accuracy"] == last["valid_accuracy"]
    )
    assert whole["seconds"] > whole["refined"]["seconds"] == last["seconds"]
    rows = [json.loads(line) for line in (refined / "metrics.jsonl").read_text().splitlines()]
    before, after = operations(whole["refined"]["from"]), operations(whole["genotype"])
    assert whole["refined"]["from"] == rows[-1]["genotype"]
    assert (
        whole["refined"]["changed"] and sum(a != b for a, b in zip(before, after, strict=True)) == 1
    )


def test_the_figures_are_those_of_the_returned_cell_by_the_weights_of_the_search(
    refined: Path, stripes: Path
) -> None:
    whole, before = result(refined), Run(refined).metrics()[-1]
    config = parse_search([str(stripes), *CALL])
    search, state = (
        Search(config, load_for_search(config.space, config.data, config)),
        Run(refined).load_checkpoint(),
    )
    assert state is not None and whole["refined"]["changed"]
    search.load_state_dict(state)
    for genotype, figures in ((whole["refined"]["from"], before), (whole["genotype"], whole)):
        cell = selecting(Genotype.from_object(genotype), search.space)
        assert cell is not None
        search.net.use(cell)
        assert tuple(search.evaluate()) == (figures["valid_loss"], figures["valid_accuracy"])
    assert whole["valid_loss"] != before["valid_loss"]


def test_a_cell_as_good_as_its_neighbours_stays(
    stripes: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(
        short_rounds, "by_loss", lambda setup, proposals: replace(setup, score=lambda measured: 0.5)
    )
    assert main(["search", str(stripes), *CALL, "--run", str(tmp_path)]) == 0
    whole = result(tmp_path)
    assert not whole["refined"]["changed"] and whole["genotype"] == whole["refined"]["from"]
    assert (
        "none like the found cell is clearly better after a short training"
        in capsys.readouterr().out
    )


@pytest.mark.parametrize("step", [STEPS - 1, STEPS + 1, STEPS + 7])
def test_stopped_in_either_part_it_goes_on(
    refined: Path, stripes: Path, tmp_path: Path, step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps, run = iter(range(1, 1000)), tmp_path / "stopped"

    def stop(self: Silent, changes: int) -> None:
        if next(steps) == step:
            signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr(Silent, "step", stop)
    call = ["search", str(stripes), *CALL, "--run", str(run)]
    assert main(call) == 143
    assert not (run / "result.json").exists()  # nobody takes it for finished
    assert main([*call, "--resume"]) == 0
    ours, theirs = result(run), result(refined)
    for part in (ours, theirs, ours["refined"], theirs["refined"]):
        part.pop("seconds")
    assert ours == theirs
    done = (run / "result.json").stat().st_mtime_ns
    assert main([*call, "--resume"]) == 0 and (run / "result.json").stat().st_mtime_ns == done


def test_what_is_not_clearly_better_does_not_replace_what_was_found(
    refined: Path, stripes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(refining, "LEAD", 0.9)
    assert main(["search", str(stripes), *CALL, "--run", str(tmp_path / "cautious")]) == 0
    bold, cautious = result(refined), result(tmp_path / "cautious")
    assert bold["refined"]["changed"] and not cautious["refined"]["changed"]
    assert cautious["genotype"] == cautious["refined"]["from"] == bold["refined"]["from"]


def test_force_forgets_both_parts(refined: Path, stripes: Path) -> None:
    plain = [word for word in CALL if word not in ("--refine", "3")]
    assert main(["search", str(stripes), *plain, "--run", str(refined), "--force"]) == 0
    assert "refined" not in result(refined)
    assert not [
        path
        for path in (refined / "refined").iterdir()
        if path.suffix in (".json", ".pt", ".jsonl")
    ]


def test_the_plan_names_it(stripes: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["search", str(stripes), *CALL, "--dry-run"]) == 0
    assert "and 4 short trainings after it (--refine)" in capsys.readouterr().out


def test_several_seeds_are_refined_each(stripes: Path, tmp_path: Path) -> None:
    assert (
        main(["search", str(stripes), *CALL, "--seeds", "0,1", "--run", str(tmp_path / "run")]) == 0
    )
    assert all("changed" in result(tmp_path / "run" / f"seed-{seed}")["refined"] for seed in (0, 1))
    assert len(list_runs(tmp_path / "run")) == 5


def test_the_short_trainings_are_deep_and_leave_out_what_is_the_search_s_own() -> None:
    flags = [
        "--space",
        "nasbench201",
        "--eta",
        "2",
        "--warmup",
        "1",
        "--max-params",
        "500k",
        "--refine",
        "24",
    ]
    config = parse_search(["digits", *flags, "--preset", "paper", "--batch-size", "64"])
    short = short_trainings(config, config.refine, refining.STEPS, images=25_000)
    assert (short.method, short.evaluations, short.batch_size) == ("local", 25, 32)
    assert (short.cells, config.cells, short.channels) == (3, 1, 8)
    assert short.epochs * (25_000 // 32) >= 25 * refining.STEPS
    assert short.max_params == "500k" and short.learning_rate == RATE
    assert (short.preset, short.refine) == ("default", 0)
    assert not hasattr(short, "eta") and not hasattr(short, "warmup")


@pytest.mark.parametrize(
    ("flags", "seen", "wanted"),
    [
        ([], (25 + 5) * 4 * 16, 24),  # at the cost of the search itself
        ([], (25 + 5) * 4 * 16 - 1, 0),
        (["--batch-size", "64"], (25 + 5) * 4 * 16, 0),
        (["--eta", "0.1"], 10**9, 0),  # a short training would undo what R(A) did
        (["--preset", "paper"], 10**9, 0),
        (["--method", "darts-1st"], 10**9, 0),
        (["--space", "darts7"], 10**9, 0),  # there the wiring is asked for, before the search
        (["--space", "enas5"], 10**9, 0),
        (["--refine", "3"], 0, 3),
        (["--refine", "0"], 10**9, 0),
    ],
)
def test_by_itself_it_takes_no_longer_than_the_search(
    flags: list[str], seen: int, wanted: int
) -> None:
    config = parse_search(["digits", "--space", "nasbench201", "--batch-size", "32", *flags])
    assert how_many(config, seen) == wanted


def test_a_short_search_is_not_refined_by_itself(stripes: Path, tmp_path: Path) -> None:
    call = [
        "search",
        str(stripes),
        *SMALL,
        "--quiet",
        "--threads",
        "1",
        "--run",
        str(tmp_path / "run"),
    ]
    assert main(call) == 0
    assert "refined" not in result(tmp_path / "run") and not (tmp_path / "run" / "refined").exists()
    written = (tmp_path / "run" / "result.json").stat().st_mtime_ns
    assert (
        main([*call, "--resume"]) == 0
        and (tmp_path / "run" / "result.json").stat().st_mtime_ns == written
    )


def known(folder: Path) -> list[tuple[Any, float]]:
    cells: list[tuple[Any, float]] = torch.load(folder / "checkpoint.pt", weights_only=True)[
        "state"
    ]["method"]["strategy"]["known"]
    return cells


def test_a_long_one_is_and_the_best_neighbours_are_trained_again(
    stripes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(refining, "STEPS", 1)
    monkeypatch.setattr(refining, "FINAL_STEPS", 2)
    call = [
        "search",
        str(stripes),
        *SMALL,
        "--epochs",
        "4",
        "--quiet",
        "--threads",
        "1",
        "--run",
        str(tmp_path),
    ]
    assert main(call) == 0
    first, last, whole = (
        known(tmp_path / "neighbours"),
        known(tmp_path / "refined"),
        result(tmp_path),
    )
    assert len(first) >= 25 and first[0][0] == last[0][0]  # what the search found is in both rounds
    neighbours = sorted(first[1:], key=lambda pair: -pair[1])[:4]
    assert [cell for cell, _ in last[1:5]] == [cell for cell, _ in neighbours]
    seconds = [result(tmp_path / part)["seconds"] for part in ("neighbours", "refined")]
    assert whole["refined"]["seconds"] == pytest.approx(sum(seconds))
    assert whole["genotype"] == result(tmp_path / "refined")["genotype"]
    assert main([*call, "--force", "--refine", "0"]) == 0
    assert not (tmp_path / "neighbours" / "result.json").exists() and "refined" not in result(
        tmp_path
    )


def test_a_time_limit_is_for_the_search_and_all(stripes: Path) -> None:
    config = parse_search([str(stripes), *SMALL, "--minutes", "5"])
    assert config.refine == -1 and fitted_to_minutes(config, Deadline(300.0)).refine == 0


@pytest.mark.parametrize(
    ("refine", "few", "epochs", "refined"),
    [
        ("-1", 40, 5, -1),  # half of the time is for the refinement
        ("-1", 41, 10, 0),  # there would be none after half of the time: all is for the search
        ("3", 10**9, 5, 3),
        ("0", 0, 10, 0),
    ],
)
def test_a_refinement_has_half_of_the_time(
    stripes: Path, monkeypatch: pytest.MonkeyPatch, refine: str, few: int, epochs: int, refined: int
) -> None:
    config = parse_search([str(stripes), *SMALL, "--epochs", "100", "--refine", refine])
    search = Search(config, load_for_search(config.space, config.data, config))
    a_step = config.batch_size * len(search.train)

    def how_many(config: Any, seen: int) -> int:
        by_itself = 24 if seen >= few * a_step // 8 else 0
        return config.course.refine if config.course.refine >= 0 else by_itself

    monkeypatch.setattr(refining, "how_many", how_many)
    monkeypatch.setattr("proxnas.workflows.plan.measure", lambda *_: (6.0, 0))
    found, seconds = length_in_time(search, 60.0)
    assert found == {"epochs": epochs, "refine": refined} and seconds == 6.0


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (
            ["--method", "random"],
            "--refine 3: random trains cells by themselves already: leave it out",
        ),
        (
            ["--space", "rnn"],
            "--refine 3: is for cells of images, not for --space rnn: leave it out",
        ),
        (["--refine", "-2"], "--refine -2: give a number from -1"),
    ],
)
def test_where_it_makes_no_sense_it_is_refused(
    flags: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["search", "--refine", "3", *flags]) == 2
    assert words in capsys.readouterr().err


def test_factors_of_operations_make_no_other_cell() -> None:
    """`--value a_k` keeps them in what the search returns; a short training has none."""
    plain = Genotype.of_choices({"x": "a", "y": "b"})
    searched = Genotype.of_choices({"x": "a", "y": "b"}, {"x": 0.75})
    other = Genotype.of_choices({"x": "b", "y": "b"})
    found = {"genotype": json.loads(searched.to_json()), "seconds": 1.0}
    for best, changed in ((plain, False), (other, True)):
        result = refining._together(
            found, {"genotype": json.loads(best.to_json()), "seconds": 1.0, "clear": True}
        )
        assert result["refined"]["changed"] == changed
        assert result["genotype"] == json.loads((other if changed else searched).to_json())


def test_under_a_limit_each_cell_is_trained_once(stripes: Path, tmp_path: Path) -> None:
    """Also those of which the limit makes the same: else the best would be its own second."""
    flags = [
        *SMALL,
        "--refine",
        "12",
        "--seed",
        "2",
        "--threads",
        "1",
        "--quiet",
        "--final-channels",
        "4",
    ]
    assert (
        main(["search", str(stripes), *flags, "--max-params", "5500", "--run", str(tmp_path)]) == 0
    )
    config = parse_search([str(stripes), *flags, "--max-params", "5500"])
    search = Search(config, load_for_search(config.space, config.data, config))
    assert search.budget is not None
    for name in ("neighbours", "refined"):
        cells = [cell for cell, _ in known(tmp_path / name)]
        assert len(set(map(str, cells))) == len(cells)
        assert all(
            search.budget.meets(Cells(search.net.groups).A_bar(cell)) for cell in cells
        )  # none stands for another


@pytest.mark.parametrize(
    ("losses", "better"),
    [([2.0, 1.97], True), ([2.0, 1.99], False), ([1.9, 2.0], False), ([2.0], False), ([], False)],
)
def test_clearly_better_is_a_share_below_the_first(losses: list[float], better: bool) -> None:
    scores: Any = {(("cell", i),): -loss for i, loss in enumerate(losses)}
    assert clearly_better(scores, 0.01) == better


def test_a_short_training_is_scored_by_both_losses(stripes: Path, tmp_path: Path) -> None:
    """That of validation and the mean training loss of its last fifth, which a resumed training
    knows, too."""
    config = parse_search([str(stripes), *SMALL, "--method", "local", "--evaluations", "1"])
    data = load_for_search(config.space, config.data, config)
    search = Search(config, data, adjust=lambda setup: by_loss(setup, None))
    sampling = search.method
    losses, steps = [], sampling.evaluator.steps_per_cell
    for step in range(steps):
        if step == steps - 1:
            resumed = Search(config, data, adjust=lambda setup: by_loss(setup, None))
            resumed.load_state_dict(search.state_dict())
            sampling = resumed.method
        losses.append(float(sampling.step().loss))
    late = max(1, steps // 5)
    wanted = -(sampling.measured.loss + sum(losses[-late:]) / late) / 2
    assert late > 1 and sampling.best_score == pytest.approx(wanted)
    assert list(sampling.strategy.known.values()) == [sampling.best_score]


def test_short_trainings_turn_convolutions_and_let_the_rest_descend() -> None:
    """Muon for what has something to orthogonalise; Nesterov descent, by its own formula, for
    what has not; both restart and resume as one."""
    generator = torch.Generator().manual_seed(0)
    shapes = [(4, 3, 1, 1), (4, 1, 3, 3), (5, 4), (5,)]
    weights = [torch.randn(shape, generator=generator) for shape in shapes]
    before = [w.clone() for w in weights]
    optimizer = MuonSteps(weights)
    for step in range(2):
        for w in weights:
            w.grad = torch.ones_like(w) * (step + 1)
        optimizer.step()
    # B = 1, then 2 + 0.85; steps of G + 0.85 B
    moved = RATE * ((1 + 0.85) + (2 + 0.85 * (2 + 0.85)))
    for w, old in list(zip(weights, before, strict=True))[1:]:
        assert torch.allclose(old - w, torch.full_like(w, moved), atol=1e-5)
    assert all(float(w.grad.mean()) == 2.0 for w in weights if w.grad is not None)
    turned = weights[0].flatten(1)
    assert not torch.allclose(before[0] - weights[0], torch.full_like(weights[0], moved))
    assert abs(float(turned.norm()) - 2.0) < 0.2  # of four rows, but for the last step
    assert len(optimizer.state) == 4


def test_only_what_is_proposed_is_tried() -> None:
    """However many are asked for: no random cell may take the place of what was found."""
    cells = Cells(spaces.find("darts7").groups)
    generator = torch.Generator().manual_seed(3)
    start, *others = (cells.draw(generator) for _ in range(4))
    local = Local(cells, start, generator, lambda *_: others)
    asked = []
    for _ in range(9):
        asked.append(local.ask())
        local.tell(asked[-1], -float(len(set(asked))))
    assert asked[0] == start and set(asked) == {start, *others}
