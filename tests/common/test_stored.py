"""Files of run folders and models in which anything may stand: read, or refused in one line."""

from __future__ import annotations

import dataclasses
import json
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from faults import crash, tampered
from proxnas.common import stored
from proxnas.common.errors import InputError
from proxnas.domains.images.model import check_shape, load_model, save_model
from proxnas.report.comparison import read_plan
from proxnas.report.live import Snapshot
from proxnas.report.reading import read_run
from proxnas.runs.folder import Run
from proxnas.runs.options import storable
from proxnas.workflows.compare import CompareConfig
from support.commands import SMALL, call, contents, one_line, stripes_file
from support.models import SIZE, made
from support.run_folders import make_run, write_json

HUGE = 10**400
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.floats()
    | st.integers()
    | st.sampled_from([HUGE, -HUGE, 2**63, -(2**63)])
    | st.text(),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4)
    ),
    max_leaves=8,
)
KEYS = st.sampled_from([*stored.RESULT, *stored.ROW, "valid_accuracy", "train_loss", "other"])

# numbers


@pytest.mark.parametrize("digits", [19, 400, 5000, 100_000])
def test_whole_numbers_of_any_length_can_be_computed_with(digits: int) -> None:
    value = stored.parse_json("9" * digits)
    assert (
        type(value) is float
        and not stored.is_whole(value)
        and stored.is_figure(value) == (digits < 100)
    )
    assert stored.parse_json("-" + "9" * digits) == -value


@pytest.mark.parametrize("value", [HUGE, -HUGE, 2**1024, float("inf"), float("nan"), 1e101])
def test_numbers_past_every_measurement_are_no_figures(value: float) -> None:
    assert (
        stored.is_measurement(value) and not stored.is_figure(value) and not stored.is_amount(value)
    )


def test_numbers_of_ours_stay_as_they_are() -> None:
    values = [0, -1, 2**31, 10**17, 0.1, 1e-300, True, None, "9" * 50]
    assert [type(value) for value in stored.parse_json(json.dumps(values))] == [
        type(value) for value in values
    ]
    assert stored.parse_json(json.dumps(values)) == values


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # a busy machine is no fault
@given(st.dictionaries(KEYS, JSON, max_size=5))
def test_what_is_checked_is_what_a_report_keeps(values: dict[str, Any]) -> None:
    for fields in (stored.RESULT, stored.ROW):
        kept = stored.sound(values, fields)
        assert stored.check(kept, fields) == kept
        if kept != values:
            with pytest.raises(ValueError, match=r"is .*, which it cannot be"):
                stored.check(values, fields)


@settings(deadline=None, max_examples=25)
@given(
    st.dictionaries(KEYS, JSON, max_size=6), st.dictionaries(KEYS, JSON, max_size=6), st.booleans()
)
def test_a_run_of_any_values_is_shown(
    result: dict[str, Any], row: dict[str, Any], finished: bool
) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as place:
        run = make_run(Path(place) / "runs" / "run", epochs=2)
        whole = json.loads((run / "metrics.jsonl").read_text().splitlines()[0])
        (run / "metrics.jsonl").write_text(
            json.dumps(whole) + "\n" + json.dumps(whole | row) + "\n"
        )
        known = json.loads((run / "result.json").read_text())
        write_json(run / "result.json", known | result)
        if not finished:
            (run / "result.json").unlink()
        assert call("runs", run) == call("runs", run.parent, "--json") == call("report", run) == 0
        json.loads(Snapshot(run).read()[0])


# files


def test_what_is_too_large_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "x").write_bytes(b" " * 101)
    with pytest.raises(OSError, match="more than 100 bytes"):
        stored.read_bytes(tmp_path / "x", 100)
    assert len(stored.read_bytes(tmp_path / "x", 101)) == 101


def test_a_linked_run_is_shown_by_its_name_here(tmp_path: Path, capsys: Any) -> None:
    run = make_run(tmp_path / "runs" / "fit")
    make_run(tmp_path / "elsewhere" / "other")
    (run / "search").symlink_to(tmp_path / "elsewhere" / "other")
    assert call("report", run) == 0 == call("runs", tmp_path / "runs")
    names = [each["name"] for each in json.loads(Snapshot(run).read()[0])["runs"]]
    assert names == ["fit", "fit/search"]


@pytest.mark.parametrize(
    "name", ["config.json", "result.json", "metrics.jsonl", "genotype.json", "space.json"]
)
def test_reports_of_runs_with_one_value_changed(name: str, tmp_path: Path) -> None:
    runs = {
        "search": make_run(tmp_path / "search"),
        "stopped": make_run(tmp_path / "stopped", finished=False),
    }
    draw, found = random.Random(name), []
    quick = ("runs", "runs --json", "watch", "report", "show")
    for kind, reader in tampered.readers(tmp_path, tmp_path):
        if reader.file == name and reader.name.removesuffix(" of a stopped run") in quick:
            found += [
                tampered.trial(runs[kind], tmp_path / "trial", reader, draw) for _ in range(8)
            ]
    assert len(found) >= 30 and set(found) == {""}


@pytest.mark.slow
def test_every_command_with_one_value_changed(tmp_path: Path) -> None:
    count, found = tampered.fuzz(tmp_path, crash.stripes(tmp_path), trials=2)
    assert count > 100 and found == []


# models


def test_a_small_model_with_a_wide_shape_is_refused(tmp_path: Path) -> None:
    model = made()
    save_model(tmp_path / "m", model)
    for shape in ((3, 65536, 65536), (3, 40, 65536), (3, 4000, 4000), (3, 65536, 50)):
        save_model(tmp_path / "wide", dataclasses.replace(model, shape=shape))
        assert (tmp_path / "wide").stat().st_size < 50_000
        with pytest.raises(
            InputError, match=r"wide: images of \d+ x \d+ pixels are too large for a network of"
        ):
            load_model(tmp_path / "wide")
    for side in (8, 32, 224, 600):
        check_shape((3, side, side), SIZE, model.network)


@pytest.mark.parametrize("name", ["mean", "std", "shape", "size", "classes"])
def test_huge_numbers_in_the_metadata_of_a_model(tmp_path: Path, name: str) -> None:
    save_model(tmp_path / "m", made())
    from safetensors import safe_open

    with safe_open(tmp_path / "m", framework="pt") as file:
        metadata = file.metadata()
    value = json.loads(metadata[name])
    value = [HUGE, *value[1:]] if isinstance(value, list) else value | {"channels": HUGE}
    save_file(load_file(tmp_path / "m"), tmp_path / "m", metadata | {name: json.dumps(value)})
    with pytest.raises(InputError, match=name):
        load_model(tmp_path / "m")


# plans


@pytest.mark.parametrize(
    "plan",
    [
        {"methods": ["../../../a/evil"], "seeds": [0]},
        {"methods": ["/evil"], "seeds": [0]},
        {"methods": [".."], "seeds": [0]},
        {"methods": ["a\x00b"], "seeds": [0]},
        {"methods": ["nasp"], "seeds": ["../0"]},
        {"methods": ["nasp"], "seeds": [-1]},
        {"methods": ["nasp"], "seeds": [HUGE]},
        {"methods": "nasp", "seeds": [0]},
        {"methods": [["nasp"]], "seeds": [0]},
        {"methods": ["nasp"]},
        ["nasp"],
        None,
    ],
)
def test_a_plan_of_other_form_is_refused(tmp_path: Path, plan: Any) -> None:
    write_json(tmp_path / "plan.json", plan)
    with pytest.raises(InputError, match=r"plan\.json: cannot be read \(.*\): restore it"):
        read_plan(tmp_path)


def test_a_plan_of_ours_is_read(tmp_path: Path) -> None:
    for methods in (
        ["nasp", "darts-2nd", "lazy-pa-2nd"],
        ["eta-0.1", "max_latency-800µs", "max_params-1e3"],
    ):
        write_json(tmp_path / "plan.json", {"methods": methods, "seeds": [0, 100]})
        assert list(read_plan(tmp_path).runs()) == [
            (name, seed) for seed in (0, 100) for name in methods
        ]


@pytest.mark.parametrize("name", ["../../../a/evil", "random"])
def test_a_comparison_runs_nothing_that_its_configuration_does_not_name(
    tmp_path: Path, name: str, capsys: Any
) -> None:
    data, folder = stripes_file(tmp_path), tmp_path / "deep" / "er" / "run"
    config = CompareConfig(data=str(data), methods="nasp", seeds="0", space="nasbench201")
    folder.mkdir(parents=True)
    write_json(
        folder / "config.json",
        {"proxnas": stored_version(), "command": "compare"} | storable(config),
    )
    write_json(folder / "plan.json", {"methods": [name], "seeds": [0]})
    assert call("compare", data, "--run", folder, "--resume") == 2
    assert "plan.json" in one_line(capsys.readouterr().err)
    assert not list(tmp_path.rglob("*evil*")) and not (folder / "search").exists()


def stored_version() -> str:
    from proxnas import __version__

    return __version__


# going on


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    place = tmp_path_factory.mktemp("finished")
    data = stripes_file(place)
    assert call("search", data, *SMALL, "--refine", "0", "--run", place / "run") == 0
    return data, place / "run"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"proxnas": "9.9.9"}, "written by proxnas 9.9.9, which may do otherwise than this one"),
        ({"proxnas": "0.0.9"}, "written by proxnas 0.0.9"),
        ({"proxnas": "\x1b[31m"}, "written by proxnas \\x1b[31m"),
        ({"proxnas": None}, "written by proxnas None"),
        ({"command": "train"}, "holds a run of `proxnas train`, not of search"),
        ({"command": None}, "holds a run of `proxnas None`"),
        ({"epochs": ...}, "epochs is missing"),
        ({"seed": ...}, "seed is missing"),
        ({"eta": ...}, "eta is missing"),
        ({"epochs": HUGE}, "epochs is Infinity: give a whole number"),
        ({"learning_rate": HUGE}, "learning_rate is Infinity: give a number"),
        ({"surprise": 1}, "unknown key 'surprise'"),
    ],
)
def test_another_configuration_is_not_gone_on_with(
    finished: tuple[Path, Path], tmp_path: Path, change: dict[str, Any], said: str, capsys: Any
) -> None:
    import shutil

    data, run = finished[0], tmp_path / "run"
    shutil.copytree(finished[1], run)
    config = json.loads((run / "config.json").read_text()) | change
    write_json(
        run / "config.json", {name: value for name, value in config.items() if value is not ...}
    )
    before = contents(run)
    assert call("search", data, "--run", run, "--resume") == 2
    assert said in one_line(capsys.readouterr().err)
    assert contents(run) == before


def test_a_patch_of_the_same_release_goes_on(finished: tuple[Path, Path], tmp_path: Path) -> None:
    import shutil

    data, run = finished[0], tmp_path / "run"
    shutil.copytree(finished[1], run)
    config = json.loads((run / "config.json").read_text())
    write_json(
        run / "config.json", config | {"proxnas": stored_version().rpartition(".")[0] + ".99"}
    )
    assert call("search", data, "--run", run, "--resume") == 0


@pytest.mark.parametrize(
    "change",
    [
        {"seconds": HUGE},
        {"params": -1},
        {"budget": 5},
        {"budget": {"of": 1}},
        {"table": []},
        {"refined": {}},
        {"epochs": ...},
    ],
)
def test_a_result_of_other_form_is_refused(
    finished: tuple[Path, Path], tmp_path: Path, change: dict[str, Any], capsys: Any
) -> None:
    import shutil

    data, run = finished[0], tmp_path / "run"
    shutil.copytree(finished[1], run)
    result = json.loads((run / "result.json").read_text()) | change
    write_json(
        run / "result.json", {name: value for name, value in result.items() if value is not ...}
    )
    assert call("search", data, "--run", run, "--resume") == 2
    assert f"result.json: cannot be read ({next(iter(change))} is" in one_line(
        capsys.readouterr().err
    )
    assert Run(run).finished and read_run(run).status == "finished"
