"""The scripts in benchmarks/: they resume, and their tables say what was measured. The measuring
itself is bench's."""

from __future__ import annotations

import importlib.util
import itertools
import json
import math
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
import torch

from proxnas.cells.genotype import Genotype
from proxnas.cells.table import look_up
from proxnas.cli.search import parse_search
from proxnas.core.size.complexity import parameters
from proxnas.domains import spaces
from proxnas.domains.images.data.images import load
from proxnas.domains.images.networks.cnn import Size
from proxnas.workflows.bench_options import BenchConfig
from support.places import ROOT

FOLDER = ROOT / "benchmarks"


def script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"benchmarks_{name}", FOLDER / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[module.__name__] = module  # where dataclasses look for their module
    spec.loader.exec_module(module)
    return module


def figures(config: BenchConfig) -> dict[str, Any]:
    part = {
        "arch": 1.0,
        "forward": 0.25,
        "backward": 0.5,
        "other": 0.05,
        "total": 1.8,
        "peak_bytes": 3 * 2**20,
    }
    names = config.all_methods()
    return {
        "methods": dict.fromkeys(names, part),
        "ratio": dict.fromkeys(names, 1.0),
        "limit": {"arch": 0.9, "weight": 0.7, "total": 1.6, "peak_bytes": 2 * 2**20},
        "ratio_to_limit": 1.125,
        "opponent": 0.9,
    }


def test_speed_measures_once_and_writes_tables_and_figure(tmp_path, monkeypatch, capsys) -> None:
    speed, asked = script("speed"), []

    def bench(config: BenchConfig, say: Any) -> dict[str, Any]:
        asked.append(config)
        return figures(config)

    monkeypatch.setattr(speed, "bench", bench)
    monkeypatch.setattr(sys, "argv", ["speed.py", str(tmp_path)])
    speed.main()
    expected = len(speed.SPACES) + sum(map(len, speed.GROWTH.values())) + len(speed.OPTIONS)
    assert len(asked) == expected == len(list(tmp_path.glob("*.json")))
    assert {config.candidates for config in asked} >= set(speed.GROWTH["candidates"])
    table = (tmp_path / "tables.md").read_text()
    assert "| darts8 | nasp | 1.000 | 0.250 | 0.500 | 0.050 | 1.800 | 1.00 | 3 |" in table
    assert "| candidates | 16 | 1.000 | 0.750 | 0.900 + 0.700 | 3 |" in table
    assert (tmp_path / "growth.svg").stat().st_size > 1000
    speed.main()  # everything is there already
    assert len(asked) == expected
    assert table in capsys.readouterr().out


@pytest.fixture
def quality(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(FOLDER)  # as when it is run
    return script("quality")


def test_quality_reduces_to_equal_classes(tmp_path: Path, quality: ModuleType) -> None:
    folder = tmp_path / "cifar-10-batches-bin"
    folder.mkdir()
    generator = np.random.default_rng(0)
    for name in (*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin"):
        records = generator.integers(0, 256, (40, 3073), dtype=np.uint8)
        records[:, 0] = np.arange(40) % 10
        (folder / name).write_bytes(records.tobytes())
    (folder / "batches.meta.txt").write_text("\n".join("abcdefghij"))
    all_images = load(str(quality.reduced(str(folder), tmp_path / "all.npz")))
    assert all_images.shape == (3, 16, 16)
    assert np.bincount(all_images.y_train).tolist() == [20] * 10
    some = load(str(quality.reduced(str(folder), tmp_path / "some.npz", 80)))
    assert np.bincount(some.y_train).tolist() == [8] * 10


def test_shuffled_labels_are_those_of_other_images(tmp_path: Path, quality: ModuleType) -> None:
    x, y = np.arange(200, dtype=np.uint8).reshape(50, 2, 2, 1), np.arange(50) % 10
    np.savez(tmp_path / "data.npz", x_train=x, y_train=y, x_test=x[:5], y_test=y[:5])
    paths = [tmp_path / f"{seed}.npz" for seed in (0, 1)]
    shuffled = [
        np.load(quality.with_shuffled_labels(tmp_path / "data.npz", seed, path))
        for seed, path in enumerate(paths)
    ]
    for arrays in shuffled:
        assert (arrays["x_train"] == x).all() and (arrays["y_test"] == y[:5]).all()
        assert np.bincount(arrays["y_train"]).tolist() == [5] * 10
        assert (arrays["y_train"] == y).mean() < 0.4
    assert (shuffled[0]["y_train"] != shuffled[1]["y_train"]).any()


def quality_row(seed: int, value: float, **others: Any) -> dict[str, Any]:
    row = {"configuration": "nasp", "seed": seed, "judge": value, "params": 1000, "skips": 1}
    return row | {"equals": 92.0, "beaten": 0.9, "seconds": 80.0} | others


def test_quality_sums_up_by_configuration(quality: ModuleType) -> None:
    rows = [quality_row(0, 93.0), quality_row(1, 94.0, equals=None, beaten=None, skips=2)]
    assert (
        quality.summary(rows)[-1]
        == "| nasp | 0,1 | 93.50 | 0.71 | 93.00 | 92.00 | 90% | 1.5 | 1,000 | 80 |"
    )
    cells = {"cell": {"nodes": [[["a", 0]], [["b", 0], ["a", 1]], [["a", 0]]]}}
    rows = [quality_row(0, 93.0, genotype={"cells": cells})]
    assert quality.operations(rows)[-1] == "| nasp | cell | a 75%, b 25% |"


@pytest.mark.parametrize("space", ["nasbench201", "darts7", "darts8"])
def test_random_cells_of_a_size_have_it(space: str, quality: ModuleType) -> None:
    judges = sys.modules["quality_judges"]
    examples = [*judges.random_genotypes(space, 1, seed=1), judges.largest(space, 0)]
    for size in [judges.size_of(cell, space) for cell in examples]:
        cells = judges.of_size(space, size, 3)
        assert len(cells) == 3
        assert all(abs(judges.size_of(cell, space) / size - 1) <= 0.1 for cell in cells)
        assert all("none" not in str(cell) or space == "nasbench201" for cell in cells)


@pytest.mark.parametrize("space", ["nasbench201", "darts7", "darts8"])
def test_no_cell_is_larger_than_the_largest(space: str, quality: ModuleType) -> None:
    judges = sys.modules["quality_judges"]
    most = judges.size_of(judges.largest(space, 0), space)
    assert most == judges.size_of(judges.largest_and_flat(space, 1), space)
    cells = judges.random_genotypes(space, 5, seed=0)
    assert all(judges.size_of(cell, space) <= most for cell in cells)
    if space != "nasbench201":
        for flat in (judges.largest_and_flat(space, 0), judges.random_flat(space, 0)):
            nodes = [node for cell in flat.cells.values() for node in cell.nodes]
            assert {edge.input for node in nodes for edge in node} == {0, 1}
        assert judges.largest(space, 0) != judges.largest(space, 1)
    assert judges.random_flat(space, 0) != judges.random_flat(space, 1)


def test_a_climb_follows_its_score_and_is_judged_on_the_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.syspath_prepend(FOLDER)
    climbs = script("quality_climb")

    def pooling(cell: Genotype) -> dict[str, float]:
        return {"pooling": float(str(cell).count("avg_pool_3x3")), "depth": -climbs.depth(cell)}

    start = climbs.random_genotypes("darts7", 1, 0)[0]
    way = climbs.climb(start, "darts7", pooling, seed=0)
    assert way[0] == (0, start) and way[-1][0] <= climbs.EVALUATIONS
    ends = [pooling(cell) for _, cell in way]
    assert ends[-1]["pooling"] > ends[0]["pooling"] and ends[-1]["depth"] > ends[0]["depth"]
    row = climbs.row_of(way, lambda cells: [pooling(c)["pooling"] for c in cells], "darts7")
    assert row["values"][0] == ends[0]["pooling"] and row["values"][-1] == ends[-1]["pooling"]
    kind = {"space": "darts7", "score": "pooling", "starts": "random", "shuffled": False}
    line = climbs.summary([kind | row | {"seed": 0, "seconds": 9.0}])[-1]
    assert line.startswith(f"| darts7 | pooling | random | true | 0 | {row['values'][0]:.2f} |")


def test_darts_cells_are_judged_by_a_file(tmp_path: Path, quality: ModuleType) -> None:
    source = "judge = lambda cells: [sum(op == 'max_pool_3x3' for op, _ in r) for _, r in cells]"
    (tmp_path / "judge.py").write_text(source)
    cells = sys.modules["quality_judges"].random_genotypes("darts7", 5, seed=0)
    counts = [str(cell).count("max_pool_3x3") for cell in cells]
    assert quality.judge_of(str(tmp_path))(cells) == counts


def test_seconds_of_interrupted_attempts_are_added(tmp_path: Path, quality: ModuleType) -> None:
    work = [sys.executable, "-c", "sum(range(10**6))"]
    first = quality.processor_seconds(work, tmp_path / "time")
    assert quality.processor_seconds(work, tmp_path / "time") > first > 0
    with pytest.raises(subprocess.CalledProcessError):
        quality.processor_seconds([sys.executable, "-c", "exit(3)"], tmp_path / "time")


def test_signals_are_ranked_with_the_size_held_fixed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(FOLDER)
    signals = script("quality_signals")
    generator = np.random.default_rng(0)
    size, rest = generator.normal(size=(2, 4000))
    only_size, both = size**3, size + rest
    assert signals.correlation(only_size, size) == pytest.approx(1)
    assert signals.partial(both, rest, size) == pytest.approx(1, abs=0.1)
    assert signals.partial(size + 0.1 * generator.normal(size=4000), both, size) < 0.1
    asked = []

    def double(genotype: Genotype, space: str, data: Any) -> dict[str, float]:
        asked.append(genotype)
        return {"parameters": float(len(asked)), "other": -float(len(asked))}

    monkeypatch.setattr(signals, "KINDS", {"counts": double})
    for _ in range(2):  # the second time all rows are known
        arguments = ("darts7", 5, ["counts"], None, lambda cells: range(len(cells)), tmp_path)
        rows = list(signals.measure(*arguments))
        assert len(asked) == 5
    lines = signals.summary(rows)
    assert lines[-2].startswith("| parameters | counts | 5 | +1.00 | +0.00 |")
    assert lines[-1].startswith("| other | counts | 5 | -1.00 | +0.00 |")


def test_signals_of_a_cell_follow_their_definitions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(FOLDER)
    signals = script("quality_signals")
    chain = "|nor_conv_3x3~0|+|none~0|skip_connect~1|+|none~0|none~1|avg_pool_3x3~2|"
    assert signals.depth(Genotype.from_string(chain)) == 2  # 1, 2 and 3 far from the input
    a, b = torch.tensor([1.0, 0.0]), torch.tensor([0.0, 1.0])
    assert signals.agreement([[a], [a], [a]]) == pytest.approx(1)
    assert signals.agreement([[a], [b]]) == pytest.approx(0)


def test_budgets_sum_up(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.syspath_prepend(FOLDER)  # as when it is run
    budgets = script("budgets")
    rows = [
        {"share": 0.5, "limit": 1000, "seed": seed, "params": params}
        for seed, params in ((0, 900), (1, 1002))
    ]
    assert budgets.limits_text(rows)[-1] == "| 1,000 | 50% | 2 | 1 | 0.951 | 0.900 |"
    cells = {"found-0": 0.8, "found-1": 0.7, "random-9-0": 0.6, "random-9-1": 0.7}
    rows = [
        {"limit": 9, "cell": cell, "params": 8, "test_accuracy": test}
        for cell, test in cells.items()
    ]
    mean, half = budgets.interval([([0.8, 0.7], [0.6, 0.7]), ([0.4, 0.5], [0.1, 0.2])])
    assert (mean, half) == (pytest.approx(0.2), pytest.approx(2.78 * math.sqrt(0.005 / 2)))
    assert (
        budgets.training_text(rows)[-1]
        == "found - random, pooled: +0.1000 +- 0.3041 (95%, 4 cells)"
    )
    for path in budgets.random_cells(90_000, 2, tmp_path):
        genotype = Genotype.from_json(path.read_text())
        size = parameters(
            spaces.find("darts7").network(genotype, Size(budgets.CELLS, budgets.CHANNELS, 3, 10))
        )
        assert budgets.USED * 90_000 <= size <= 90_000


@pytest.mark.slow
def test_time_split_accounts_for_the_whole_step(monkeypatch, capsys) -> None:
    flags = ["digits", "--space", "nasbench201", "--channels", "2", "--threads", "1"]
    monkeypatch.setattr(sys, "argv", ["time_split.py", *flags])
    script("time_split").main()
    shares = [
        float(line.split()[-1][:-1])
        for line in capsys.readouterr().out.splitlines()
        if line.endswith("%")
    ]
    assert sum(shares) == pytest.approx(100, abs=0.5)


def test_found_cells_are_summed_up_against_random_ones() -> None:
    cells = [("found-0", 0.7), ("found-1", 0.8), ("random-0", 0.6), ("random-1", 0.7)]
    rows = [
        {"space": "darts7", "cell": cell, "params": 1000, "test_accuracy": test}
        for cell, test in cells
    ]
    assert (
        script("found_cells").summary(rows)[-1]
        == "| darts7 | 0.7000, 0.8000 | 0.7500 | 1,000 | 0.6500 | 0.0707 | 0.7000 | +0.1000 +-"
        " 0.3041 |"
    )


def test_recurrent_cells_are_summed_up_by_text_and_cell() -> None:
    figures = {"params": 1000, "valid_perplexity": 90.0, "test_perplexity": 80.0, "seconds": 2.0}
    rows = [{"text": "ptb", "cell": "found", "seed": seed} | figures for seed in (0, 1)]
    assert (
        script("recurrent").summary(rows)[-1]
        == "| ptb | found | 0, 1 | 1,000 | 90.0, 90.0 | 80.0, 80.0 | 2 |"
    )


def test_every_configuration_of_the_quality_study_is_a_search(quality: ModuleType) -> None:
    spaces = itertools.cycle(quality.SPACES.values())  # parsing takes long
    for sizes, flags in zip(spaces, quality.CONFIGURATIONS.values(), strict=False):
        length = [*quality.BATCH, *quality.EPOCHS]
        parse_search(["digits", *sizes, *length, *quality.ALONE, *flags])
    assert quality.VARIANTS.keys() == script("variants").VARIANTS.keys()


def test_a_refined_search_has_two_rows_and_is_not_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quality: ModuleType
) -> None:
    commands: list[list[str]] = []

    def search(command: list[str], stored: Path) -> float:
        commands.append(command)
        return 40.0

    monkeypatch.setattr(quality, "processor_seconds", search)
    monkeypatch.setattr(quality, "EQUALS", 3)
    cells = [
        json.loads(
            Genotype.from_string(f"|{op}~0|+|none~0|none~1|+|none~0|none~1|none~2|").to_json()
        )
        for op in ("skip_connect", "nor_conv_3x3")
    ]
    name = "nasp refined with shuffled labels"
    run = tmp_path / "nasbench201-nasp-refined-with-shuffled-labels-7"
    run.mkdir()
    (run / "metrics.jsonl").write_text('{"changes": 3}\n{"changes": 4}\n')
    refined = {"from": cells[0], "seconds": 20.0}
    result = {"genotype": cells[1], "valid_loss": 1.5, "seconds": 50.0, "refined": refined}
    (run / "result.json").write_text(json.dumps(result))
    np.savez(tmp_path / "data.npz", y_train=np.arange(10))
    study = quality.Study(
        "nasbench201",
        lambda cells: [float(len(cell.to_string())) for cell in cells],
        tmp_path / "data.npz",
        tmp_path,
        quality.CONFIGURATIONS,
        [*quality.BATCH, *quality.EPOCHS],
    )
    for _ in range(2):
        rows = study.rows(name, 7)
        assert [(row["configuration"], row["seconds"]) for row in rows] == [
            (name, 40.0),
            (f"{name}, before", 24.0),
        ]
        assert [row["skips"] for row in rows] == [0, 1]
        assert [row["changes"] for row in rows] == [7, 7]
    assert len(commands) == 1 and len((tmp_path / "rows.jsonl").read_text().splitlines()) == 2
    assert commands[0][commands[0].index("search") + 1] == str(run.with_suffix(".npz"))
    assert "--refine 24" in " ".join(commands[0])
    control = study.rows("largest cell", 0)[0]
    assert control["skips"] == 0 and len(commands) == 1


def test_minutes_of_the_study_are_those_of_the_processor(
    tmp_path: Path, quality: ModuleType
) -> None:
    names = ["gdas in 2 minutes", "nasp relative scores in 2 minutes"]
    length = [*quality.BATCH, "--minutes", "2"]
    study = quality.Study(
        "darts7", None, tmp_path, tmp_path, {name: ["--x"] for name in names}, length
    )
    variants = ("processor time", "relative scores+processor time")
    for name, variant in zip(names, variants, strict=True):
        command = study.command(name, 0, tmp_path, tmp_path)
        assert Path(command[1]).name == "variants.py" and command[2] == variant
        assert command[command.index("--minutes") + 1] == "2"


def test_all_clocks_can_tell_processor_time() -> None:
    """In a process of its own: they are the whole process's."""
    told = "import variants, time; variants.by_processor_time(); time.sleep(0.5);"
    told += "print(max(time.monotonic(), time.perf_counter()) - time.process_time() < 0.1)"
    command = [sys.executable, "-c", told]
    known = subprocess.run(command, cwd=FOLDER, check=True, capture_output=True, text=True)
    assert known.stdout.strip() == "True"


@pytest.mark.slow
@pytest.mark.parametrize("name", script("variants").VARIANTS)
def test_a_variant_changes_what_a_search_does(name: str, stripes: Path, tmp_path: Path) -> None:
    flags = [
        "--space",
        "nasbench201",
        "--channels",
        "2",
        "--batch-size",
        "8",
        "--epochs",
        "2",
        "--threads",
        "1",
    ]
    flags += ["--warmup", "1"] * (name == "uniform warmup") + ["--quiet"]
    losses = []
    for start in (["-m", "proxnas"], [str(FOLDER / "variants.py"), name]):
        run = tmp_path / str(len(losses))
        command = [sys.executable, *start, "search", str(stripes), *flags, "--run", str(run)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
        losses.append([(row["train_loss"], row["A"]) for row in rows])
    assert losses[0] != losses[1]


def test_sampling_pairs_methods_with_random_by_seed(tmp_path, monkeypatch, capsys) -> None:
    sampling, asked = script("sampling"), []

    def run(method: str, seed: int, table: str, evaluations: int, images: Any) -> dict[str, Any]:
        asked.append((method, seed))
        test = {"random": 90.0, "evolution": 92.0}[method] + (seed - 100) * (
            1 if method == "random" else 1.5
        )
        return {
            "method": method,
            "seed": seed,
            "evaluations": evaluations,
            "test": test,
            "valid": 80.0,
            "seconds": 1.0,
        }

    monkeypatch.setattr(sampling, "run", run)
    flags = [
        "table.csv",
        "--seeds",
        "100,101,102",
        "--methods",
        "random,evolution",
        "--out",
        str(tmp_path / "rows"),
    ]
    monkeypatch.setattr(sys, "argv", ["sampling.py", *flags])
    sampling.main()
    lines = capsys.readouterr().out.splitlines()
    assert (
        lines[2] == "| `random` | 100-102 | 80.00 | 91.000 | 1.000 | 90.00 | 92.00 |  |  |  | 1.0 |"
    )
    # differences 2, 2.5, 3: all of one sign, 2 of 2^3 signs; t = 2.5 / (0.5 / sqrt(3)) with two
    # degrees of freedom
    assert (
        lines[3]
        == "| `evolution` | 100-102 | 80.00 | 93.500 | 1.500 | 92.00 | 95.00 | +2.500 | 0.250 |"
        " 0.013 | 1.0 |"
    )
    sampling.main()  # everything is there already
    assert len(asked) == 6


def test_busy_runs_each_once_in_turns_and_compares_with_the_better(
    tmp_path, monkeypatch, capsys
) -> None:
    busy, asked = script("busy"), []

    def search(threads: str, epochs: int) -> dict[str, Any]:
        asked.append(threads)
        whole = {"auto": 11.0, "1": 10.0}.get(threads, 20.0)
        return {"whole": whole, "within": whole - 4, "choices": []}

    monkeypatch.setattr(busy, "search", search)
    monkeypatch.setattr(busy, "cores", lambda: 8)
    monkeypatch.setattr(sys, "argv", ["busy.py", str(tmp_path), "--busy", "0,1", "--rounds", "2"])
    for _ in range(2):
        busy.main()
        assert asked == [*("auto", "1", "8") * 2, *("1", "8", "auto") * 2]
    assert capsys.readouterr().out.endswith("| 1 | 11.0 s | 10.0 s | 20.0 s | 1.10 | 1.17 |\n")


def test_busy_processes_compute_and_end() -> None:
    busy = script("busy")
    with busy.busy(1):
        pass
    with pytest.raises(ValueError), busy.busy(2):
        raise ValueError


def test_the_picture_shows_every_cell_in_its_turn(tmp_path) -> None:
    picture = script("picture")
    rows = [
        {"epoch": epoch, "valid_accuracy": epoch / 10, "params": 1234, "genotype": cell(op)}
        for epoch, op in enumerate(["skip_connect", "nor_conv_3x3", "nor_conv_3x3"], start=1)
    ]
    (tmp_path / "metrics.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    frames = picture.frames(tmp_path)
    assert [frame.words.split(":")[0] for frame in frames] == ["after epoch 1", "after epoch 3"]
    root = ElementTree.fromstring(picture.animated(frames))
    seen = [group.get("class") for group in root.findall("{http://www.w3.org/2000/svg}g")]
    assert seen == ["frame f0", "frame f1"]


def cell(op: str) -> dict[str, Any]:
    """A NAS-Bench-201 cell with one operation everywhere, as metrics.jsonl has it."""
    nodes = (f"|{'|'.join(f'{op}~{i}' for i in range(node))}|" for node in range(1, 4))
    stored: dict[str, Any] = json.loads(Genotype.from_string("+".join(nodes)).to_json())
    return stored


def test_the_chain_table_ranks_what_was_found(tmp_path: Path) -> None:
    chain = script("chain_table")
    everything = chain.all_genotypes()
    assert len({chain.arch(genotype) for genotype in everything}) == 3**5
    rows = [
        {"arch": chain.arch(genotype), "seed": seed, "test": i / 300}
        for i, genotype in enumerate(everything)
        for seed in (0, 1)
    ]
    chain.write_table(rows, chain.digits(), tmp_path / "table.csv")
    table = chain.read_table(tmp_path / "table.csv")
    assert chain.ranks(table, 0)[chain.arch(everything[-1])] == 1
    assert look_up(tmp_path / "table.csv", everything[3])["test"] == 1.0
    limit = sorted(row["params"] for row in table)[40]
    within = chain.ranks(table, limit)
    assert 41 <= len(within) < 243 and min(within.values()) == 1
    found = [
        {
            "method": "nasp",
            "seed": 0,
            "limit": 0,
            "arch": chain.arch(everything[-2]),
            "seconds": 1.0,
        }
    ]
    lines = chain.report(table, found)
    assert "| one random network | | 122 of 243 |  |  | 40.33 | |" in lines
    assert lines[-1] == "| `nasp` | 1 | 2.0 |  | 2 | 80.33 | 1.0 |"
    again = found[0] | {"seed": 1, "arch": chain.arch(everything[-4])}
    assert chain.report(table, [*found, again])[-1] == "| `nasp` | 2 | 3.0 | 1 | 4 | 80.00 | 1.0 |"


def test_a_search_in_the_small_chain_finds_a_network_of_the_table() -> None:
    chain = script("chain_table")
    chain.SEARCH[chain.SEARCH.index("10")] = "1"
    found = chain.arch(chain.search("random", 0, 0, chain.digits()))
    assert found in {chain.arch(genotype) for genotype in chain.all_genotypes()}


def test_chains_beside_random_ones_and_a_cell(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(FOLDER))
    chains = script("found_chains")
    images = chains.load("digits")
    limit = 60_000
    drawn = [chains.draw("resnet", number, limit, images) for number in range(2)]
    sizes = [chains.parameters(chains.network_of(each, "resnet", images)) for each in drawn]
    assert drawn[0] != drawn[1] and max(sizes) <= limit
    cell = chains.parameters(chains.cell_network(50_000, images))
    assert abs(cell - 50_000) < 10_000
    figures = {"params": 9, "seconds": 2.0, "latency_ms": 0.5, "space": "resnet"}
    tests = {"found-0": 0.5, "found-1": 0.7, "random-0": 0.4, "random-1": 0.4, "cell": 0.3}
    rows = [figures | {"network": name, "test": test} for name, test in tests.items()]
    lines = chains.summary(rows)
    assert lines[2] == "| resnet | 2 found | 9 | 60.00 | 14.14 | 2 | 0.500 |"
    assert lines[4] == "| resnet | 1 cell | 9 | 30.00 |  | 2 | 0.500 |"
    assert lines[-1].startswith("resnet: found less random +20.00 +- ")


def test_style_counts_what_lines_are() -> None:
    source = '"""Doc.\n\nMore."""\n\nimport os\n\n# why\nx = 1  # one\n"""About x."""\n'
    kinds = script("style").lines_by_kind(source)
    assert kinds == {"docstring": 4, "blank": 2, "import": 1, "comment": 1, "code": 1}


def test_two_versions_are_compared_but_for_the_clock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    losses = {"one": (0.5, 0.5), "other": (0.5, 0.25)}
    for version, seconds in (("before", 1.0), ("after", 2.0)):
        for name, (before, after) in losses.items():
            folder = tmp_path / version / name / "search"
            folder.mkdir(parents=True)
            loss = before if version == "before" else after
            row = {"epoch": 1, "train_loss": loss, "seconds": {"arch": seconds}}
            (folder / "metrics.jsonl").write_text(json.dumps(row) + "\n")
    words = [str(tmp_path / "after"), "--against", str(tmp_path / "before"), "--only", "one,other"]
    monkeypatch.setattr(sys, "argv", ["unchanged.py", *words])
    script("unchanged").main()
    one, other = capsys.readouterr().out.splitlines()
    assert one.endswith("1 files the same") and other.endswith("differ: search/metrics.jsonl")
