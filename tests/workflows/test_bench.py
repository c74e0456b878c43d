"""`proxnas bench` and `--dry-run`: the figures are there and consistent. Speed itself is never
asserted in a test."""

import json

import pytest
import torch

from proxnas.cli.main import main
from proxnas.core.size.complexity import parameters
from proxnas.methods import METHODS
from proxnas.workflows import bench
from proxnas.workflows.bench_options import BenchConfig
from support.methods import SAMPLING

TINY = [
    "--cells",
    "1",
    "--channels",
    "2",
    "--batch-size",
    "2",
    "--image-size",
    "8",
    "--rounds",
    "1",
    "--threads",
    "1",
]


@pytest.fixture
def memory_here(monkeypatch):
    """Memory is measured in this process, a new one takes seconds, and in one step."""
    monkeypatch.setattr(bench, "in_own_process", lambda measure, *arguments: measure(*arguments))
    monkeypatch.setattr(bench, "MEMORY_STEPS", 1)


@pytest.fixture
def search():
    config = BenchConfig(space="darts7", cells=3, channels=2, batch_size=2, image_size=8)
    return bench.build_bench_search(config, "nasp")


def test_json_has_the_documented_keys(memory_here, tmp_path, capsys):
    target = tmp_path / "bench.json"
    assert main(["bench", "--space", "nasbench201", *TINY, "--json", str(target)]) == 0
    figures = json.loads(target.read_text())
    assert set(figures["methods"]) == {"nasp", "darts-1st", "darts-2nd"} == set(figures["ratio"])
    for row in figures["methods"].values():
        assert set(row) == {"arch", "forward", "backward", "other", "total", "peak_bytes"}
        assert row["total"] == pytest.approx(
            row["arch"] + row["forward"] + row["backward"] + row["other"], rel=1e-6
        )
    assert set(figures["limit"]) == {"arch", "weight", "total", "peak_bytes"}
    nasp = figures["methods"]["nasp"]["total"]
    assert figures["ratio"]["nasp"] == 1
    assert figures["ratio_to_limit"] == pytest.approx(nasp / figures["limit"]["total"])
    second = figures["methods"]["darts-2nd"]["total"]
    assert figures["opponent"] == pytest.approx(second / (5 * figures["supernet_pass"]))
    assert "darts-2nd" in capsys.readouterr().out


def test_all_methods_are_timed(monkeypatch):
    monkeypatch.setattr(bench, "in_own_process", lambda measure, *arguments: 0)
    config = BenchConfig(
        methods="all",
        space="nasbench201",
        cells=1,
        channels=2,
        batch_size=2,
        image_size=8,
        rounds=1,
    )
    methods = bench.bench(config, lambda text: None)["methods"]
    assert set(methods) == set(METHODS)
    assert all(part["total"] > 0 for part in methods.values())
    none_here = {name for name, part in methods.items() if part["arch"] == 0}
    assert none_here == set(
        SAMPLING
    )  # the others update A, a controller or a prior, or judge cells on shared weights


def test_occasional_work_is_added_by_its_share(monkeypatch):
    config = BenchConfig(space="nasbench201", cells=1, channels=2, batch_size=50, image_size=8)
    search = bench.build_bench_search(config, "enas")
    asked = []
    monkeypatch.setattr(
        search.method, "occasional", lambda *sizes: asked.append(sizes) or ((lambda: None), 1e9)
    )
    seconds = bench.step_timer(search)()
    assert asked == [(500, 50)]  # 25,000 images in batches of 50
    assert seconds["arch"] > 10 * seconds["forward"] and seconds["total"] > seconds["arch"]


@pytest.mark.parametrize("method", ["asap", "bayesnas"])
def test_methods_are_timed_behind_their_warm_up(method):
    config = BenchConfig(space="nasbench201", cells=1, channels=2, batch_size=2, image_size=8)
    search = bench.build_bench_search(config, method)
    moved = {
        "asap": lambda: search.method.learner.A["cell"].clone(),
        "bayesnas": lambda: search.method.candidates["cell"].switch.clone(),
    }[method]
    before = moved()
    search.method.step()
    assert not torch.equal(moved(), before)


def test_a_recurrent_space_also_reports_the_cell_alone(memory_here, tmp_path, capsys):
    target = tmp_path / "bench.json"
    tiny = [
        "--units",
        "4",
        "--batch-size",
        "2",
        "--bptt",
        "3",
        "--words",
        "5",
        "--rounds",
        "1",
        "--threads",
        "1",
    ]
    assert main(["bench", "--space", "rnn", *tiny, "--json", str(target)]) == 0
    figures = json.loads(target.read_text())
    assert set(figures["methods"]) == {"nasp", "darts-1st", "darts-2nd"} == set(figures["ratio"])
    assert figures["cell_ratio"] == pytest.approx(
        figures["cell"]["darts-2nd"] / figures["cell"]["nasp"]
    )
    assert figures["opponent"] > 0 and figures["ratio_to_limit"] > 0
    assert "without the decoder" in " ".join(capsys.readouterr().out.split())


def test_the_sizes_of_a_recurrent_bench_are_fixed():
    config = BenchConfig(space="rnn")
    assert (config.batch_size, config.units, config.bptt, config.words) == (64, 300, 35, 10_000)
    assert BenchConfig().batch_size == 16
    every = BenchConfig(methods="all").all_methods()
    assert set(every) - set(BenchConfig(space="rnn", methods="all").all_methods()) == {"bayesnas"}
    config = BenchConfig(space="rnn", units=4, batch_size=2, bptt=3, words=5)
    search = bench.build_bench_search(config, "nasp")
    assert [len(search.train.next().x) for _ in range(8)] == [3] * 8


def test_memory_is_measured_in_a_process_of_its_own():
    config = BenchConfig(
        space="nasbench201", cells=1, channels=2, batch_size=2, image_size=8, threads=1
    )
    assert bench.in_own_process(bench.peak_of_steps, config, "nasp") > 0


@pytest.mark.parametrize(
    ("flag", "value"), [("--candidates", "17"), ("--rounds", "0"), ("--methods", "nsap")]
)
def test_bad_flags(flag, value, capsys):
    assert main(["bench", flag, value]) == 2
    assert flag in capsys.readouterr().err


def test_a_missing_folder_is_found_before_measuring(capsys):
    assert main(["bench", "--json", "no/such/folder/x.json"]) == 2
    assert "no/such/folder" in capsys.readouterr().err


def test_candidates_make_the_space():
    config = BenchConfig(candidates=4, cells=3, channels=2, batch_size=2, image_size=8)
    groups = bench.build_bench_search(config, "nasp").space.groups
    names = ("skip_connect", "sep_conv_3x3", "dil_conv_3x3", "max_pool_3x3")
    assert groups["normal"].candidates == groups["reduce"].candidates == names


def test_growth_is_measured_at_one_and_the_same_network():
    found = []
    for number in (4, 16):
        config = BenchConfig(candidates=number, cells=3, channels=2, batch_size=2, image_size=8)
        search = bench.build_bench_search(config, "nasp")
        search.method.step()
        found.append(search.genotype().cells)
    assert found[0] == found[1]


def test_the_floor_runs_exactly_the_candidates_that_are_not_selected(search):
    search.net.use(search.returned())
    pairs = bench.recorded_sources(search.net, search.valid.next().x)
    selected = sum(len(choice.active()) for choice in search.net.choices.values())
    everything = sum(len(choice.names) for choice in search.net.choices.values())
    assert len(pairs) == everything - selected


def test_the_bare_network_is_the_selected_one(search):
    search.net.use(search.returned())
    choices = search.net.choices.values()
    outside = parameters(search.net.module) - sum(parameters(choice) for choice in choices)
    selected = sum(parameters(choice.candidates[k]) for choice in choices for k in choice.active())
    assert parameters(bench.bare_network(search)) == outside + selected


def test_dry_run_prints_the_plan_and_writes_nothing(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    flags = [
        "search",
        "digits",
        "--dry-run",
        "--space",
        "nasbench201",
        "--channels",
        "2",
        "--threads",
        "1",
    ]
    assert main([*flags, "--json"]) == 0
    figures = json.loads(capsys.readouterr().out)
    assert 0 < figures["params_smallest"] < figures["params_largest"]
    assert figures["seconds_per_epoch"] > 0
    assert figures["peak_bytes"] >= 0
    assert main(flags) == 0
    assert f"{figures['params_largest']:,}" in capsys.readouterr().out
    assert not list(tmp_path.iterdir())
