"""What docs/methods.md says of every method and what every run must write, for all that the
registries hold."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from proxnas.cli.main import main
from proxnas.core.groups import Group
from proxnas.core.selection import one_hot, random_selection
from proxnas.domains import spaces
from proxnas.domains.images.networks.cnn import Size
from proxnas.methods import METHODS, find, options_of
from proxnas.methods.base import Occasional
from proxnas.searching.job import Search
from support.methods import SAMPLING
from support.places import ROOT
from support.short_searches import QUICK

MakeSearch = Callable[..., Search]
DOCS = ROOT / "docs" / "methods.md"


def table_one() -> dict[str, dict[str, str]]:
    """Method -> heading -> cell of the first table of docs/methods.md."""
    lines = [
        line.strip("| ")
        for line in DOCS.read_text(encoding="utf-8").splitlines()
        if line.startswith("|")
    ]
    headings = [word.strip() for word in lines[0].split("|")]
    rows: dict[str, dict[str, str]] = {}
    for line in lines[2:]:
        cells = [word.strip() for word in line.split("|")]
        name = cells[0].strip("`")
        if name in METHODS and name not in rows:
            rows[name] = dict(zip(headings, cells, strict=True))
    return rows


def test_the_table_of_the_docs_has_every_method() -> None:
    assert set(table_one()) == set(METHODS)


class Runs:
    """Counts which candidates of which Choices run, with and without a graph."""

    def __init__(self, search: Search) -> None:
        self.counts: Counter[tuple[str, int]] = Counter()
        for name, choice in search.net.choices.items():
            for k, candidate in enumerate(choice.candidates):
                candidate.register_forward_hook(self._hook(name, k))

    def _hook(self, name: str, k: int) -> Callable[..., None]:
        def note(*_: Any) -> None:
            self.counts[name, k] += 1

        return note


def places(search: Search) -> tuple[int, int, int]:
    """(edges, candidates on all of them, edges that a discrete cell keeps) of the whole network."""
    generator = torch.Generator().manual_seed(0)
    A_bar = {name: random_selection(group, generator) for name, group in search.net.groups.items()}
    kept = sum(
        bool(A_bar[c.row.group][c.row.edge].any()) for c in search.net.choices.values() if c.row
    )
    return len(search.net.choices), sum(len(c.names) for c in search.net.choices.values()), kept


EVERY_STEP = {"nasp": ("--look-ahead", "0", "--explore", "0")}
"""What is the same in every step: not the look ahead, and no noise on the path."""


class Step:
    """One step of a search: what ran, and through which candidates w was trained."""

    def __init__(self, search: Search) -> None:
        self.search, self.runs = search, Runs(search)
        self.used: list[dict[Any, tuple[int, ...]]] = []
        plain = type(search.net).loss

        def loss(batch: Any, weights: bool = True) -> Any:
            if torch.is_grad_enabled():
                self.used.append(dict(search.net.route.active))
            return plain(search.net, batch, weights)

        search.net.loss = loss  # type: ignore[method-assign]
        search.method.step()


STEPS: dict[str, Step] = {}
"""A network of darts7 takes a while to build, and every question is about the same step."""


@pytest.fixture
def step(request: pytest.FixtureRequest, make_search: MakeSearch) -> Step:
    """Of the method that the test is about."""
    method = request.getfixturevalue("method")
    if method not in STEPS:
        flags = (QUICK | EVERY_STEP).get(method, ())
        STEPS[method] = Step(make_search("--method", method, "--space", "darts7", *flags))
    return STEPS[method]


@pytest.mark.parametrize("method", sorted(set(METHODS) - {"darts-2nd", "pa", "lazy-pa"}))
def test_a_step_runs_the_candidates_that_the_table_says(method: str, step: Step) -> None:
    """`all`: every candidate of every edge; `edges`: one on every edge; `cell`: those of a discrete
    cell."""
    edges, everything, cell = places(step.search)
    said = table_one()[method]["runs in a step"]
    terms = {
        name: int(number or 1) for number, name in re.findall(r"(\d*) ?(all|edges|cell)", said)
    }
    expected = sum(
        number * {"all": everything, "edges": edges, "cell": cell}[name]
        for name, number in terms.items()
    )
    ran = sum(step.runs.counts.values())
    if method == "nasp":  # pooling is run once for the edges of one source
        assert cell < ran <= expected
    elif method == "asng":  # two slots of a node may choose the same
        assert 0.7 * expected < ran <= expected
    else:
        assert ran == expected


@pytest.mark.parametrize("method", sorted(set(METHODS) - {"darts-2nd"}))
def test_discrete_and_complete_are_as_the_table_says(method: str, step: Step) -> None:
    """Discrete: w is trained through one candidate an edge. Complete: through the very cell that is
    returned."""
    number = -1 if method in ("nasp", "pa", "lazy-pa", "darts-1st") else 0
    in_training = {tuple(row): active for row, active in step.used[number].items()}
    said = table_one()[method]
    discrete = all(len(active) <= 1 for active in in_training.values())
    if method != "asng":  # two of its slots may choose one edge
        assert said["discrete"].startswith("yes" if discrete else "no")
    _, A_bar = step.search.method.architecture()
    returned = {
        (name, e): tuple(k for k, a in enumerate(row) if a)
        for name, matrix in A_bar.items()
        for e, row in enumerate(matrix.tolist())
    }
    # sampling methods return the best of several such cells
    if said["complete"].startswith("yes") and method not in SAMPLING:
        assert in_training == returned
    if said["complete"].startswith("no"):
        assert in_training != returned


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    random = np.random.RandomState(0)
    path = tmp_path_factory.mktemp("data") / "noise.npz"
    np.savez(
        path, x_train=random.randint(0, 256, (30, 8, 8)).astype(np.uint8), y_train=np.arange(30) % 2
    )
    return path


SMALL = ["--space=nasbench201", "--cells=1", "--channels=2", "--batch-size=4", "--threads=1"]
SMALL += ["--final-cells=1", "--final-channels=2"]


@pytest.mark.parametrize("method", METHODS)
def test_every_method_writes_the_common_keys(method: str, data: Path, tmp_path: Path) -> None:
    flags = [*SMALL, "--epochs", "2", *QUICK.get(method, ()), "--quiet", "--run", str(tmp_path)]
    assert main(["search", str(data), "--method", method, *flags]) == 0
    keys = ["epoch", "step", "train_loss", "train_accuracy", "valid_loss", "valid_accuracy"]
    keys += ["changes", "params", "A", "selected", "genotype", "rollbacks", "seconds", "schema"]
    rows = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    keys += ["supernet_loss", "supernet_accuracy"] if hasattr(find(method), "use_mixture") else []
    assert len(rows) == 2 and all(set(row) == set(keys) for row in rows)
    assert all(
        np.shape(row["A"]["cell"]) == (6, 5) and np.isfinite(row["A"]["cell"]).all() for row in rows
    )
    assert {"arch", "forward", "backward", "other", "evaluate"} == set(rows[0]["seconds"])
    assert json.loads((tmp_path / "result.json").read_text())["method"] == method


@pytest.mark.parametrize("method", METHODS)
def test_the_defaults_of_a_method_are_flags_that_it_takes(
    method: str, make_search: MakeSearch
) -> None:
    config = make_search("--method", method, "--space", "nasbench201").config
    own = options_of(method)
    assert {name: getattr(config, name) for name in own.defaults} == own.defaults
    assert config.method_options == own()


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ("--method nasp --tau-start 5", "--tau-start 5: is for snas, gdas, asap"),
        ("--method gdas --resource 1", "--resource 1: is for snas"),
        ("--method snas --fixed-reduction", "--fixed-reduction True: is for gdas"),
        ("--method snas --unsampled-gradient sum", "--unsampled-gradient sum: is for gdas"),
        ("--method gdas --controller-steps 3", "--controller-steps 3: is for enas"),
        ("--method gdas --tau-end 0", "--tau-end 0.0: give a number above 0"),
        ("--method gdas --warmup 1", "--warmup 1: is for nasp"),
    ],
)
def test_flags_of_other_methods_are_refused(
    flags: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["search", "digits", *flags.split()]) == 2
    assert f"proxnas: error: {said}" in capsys.readouterr().err


def test_a_config_file_may_hold_flags_of_the_method_that_is_given(
    tmp_path: Path, data: Path
) -> None:
    (tmp_path / "c.json").write_text('{"tau_start": 5.0, "method": "nasp"}')
    run = ["--run", str(tmp_path / "run"), "--quiet", "--config", str(tmp_path / "c.json")]
    flags = [*SMALL, "--epochs", "1", *run]
    assert main(["search", str(data), "--method", "gdas", *flags]) == 0
    assert json.loads((tmp_path / "run" / "config.json").read_text())["tau_start"] == 5.0


@pytest.mark.parametrize("method", ["enas", "random-ws", "bayesnas"])
def test_occasional_work_can_be_measured(method: str, make_search: MakeSearch) -> None:
    search = make_search("--method", method, "--space", "nasbench201")
    assert isinstance(search.method, Occasional)
    work, times = search.method.occasional(390, 50)
    before = search.valid.delivered
    work()
    assert search.valid.delivered > before
    expected = {"enas": 30 / 390, "random-ws": 100 * 10 / (390 * 50), "bayesnas": 20 / 390}
    assert times == pytest.approx(expected[method])


def test_the_cell_of_enas5_has_two_free_inputs_a_node() -> None:
    space = spaces.find("enas5")
    group = space.groups["normal"]
    assert group.shape == (40, 5) and group.max_inputs == 1 and len(group.nodes) == 10
    A_bar = {name: torch.zeros(group.shape) for name in space.groups}
    for matrix in A_bar.values():
        for rows in group.nodes:
            matrix[rows[-1], 0] = (
                1.0  # both sides of every node: the last state, by the same operation
            )
    genotype = space.genotype(A_bar)
    nodes = [[(edge.op, edge.input) for edge in node] for node in genotype.cells["normal"].nodes]
    assert nodes == [[("sep_conv_3x3", n + 1)] * 2 for n in range(5)]
    net = space.search_network(Size(3, 2, 3, 2))
    weights = [
        w for side in net.cells[0].sides[:2] for w in side.choices[1].candidates[0].parameters()
    ]  # type: ignore[index,union-attr]
    assert len({id(w) for w in weights}) == len(weights)  # each side has weights of its own


def test_entries_of_a_derived_cell_are_one_even_where_a_skip_connection_turned() -> None:
    group = Group(("skip_connect", "a"), nodes=((0, 1),), max_inputs=2, max_skip=1)
    p = torch.tensor([[0.9, 0.1], [0.8, 0.2]])
    assert torch.equal(one_hot(p, group), torch.tensor([[1.0, 0.0], [0.0, 1.0]]))
