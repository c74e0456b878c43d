"""What we add to Algorithm 2: exploration, the look ahead, pooled scores, waiting for evidence,
scoring on a part.
The price of a limit is tested with the limits."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from proxnas.common.types import Batch, Matrices
from proxnas.core.choice import Choice
from proxnas.core.groups import NONE, SKIP, Group
from proxnas.core.supernet import Supernet
from proxnas.methods import proximal
from proxnas.methods.additions import Evidence, Pooling
from proxnas.methods.additions.evidence import LEAST, NOTHING_LEARNT
from proxnas.methods.base import Setup
from proxnas.methods.proximal import Proximal
from proxnas.searching.job import Search
from support.searches import Repeat, same, spy_on_paths, stored

MakeSearch = Callable[..., Search]


# ----------------------------------------------------------------- exploration


def nasp(make_search: MakeSearch, *flags: str) -> Proximal:
    method = make_search("--space", "nasbench201", *flags).method
    assert isinstance(method, Proximal)
    return method


def taken(method: Proximal, steps: int) -> list[Matrices]:
    """What each step trains."""
    used, paths = spy_on_paths(method.net), []
    for _ in range(steps):
        method.step()
        paths.append(used[-1])
    return paths


def test_exploring_steps_take_other_paths_than_the_cell_that_is_returned(
    make_search: MakeSearch,
) -> None:
    method = nasp(make_search, "--explore", "1", "--arch-learning-rate", "1e-12")
    paths = taken(method, 4)
    cell = method.architecture()[1]["cell"]
    assert torch.equal(cell, method.select(method.A)["cell"])
    assert len({tuple(path["cell"].flatten().tolist()) for path in paths}) == 4
    assert torch.equal(
        method.select(method.A)["cell"], nasp(make_search, "--explore", "0").A_bar["cell"]
    )


def test_exploration_ends_with_the_search(make_search: MakeSearch) -> None:
    method = nasp(make_search, "--explore", "1", "--epochs", "1")
    assert method.additions.noise(method.A) is not None
    method.w_optimizer.t = len(method.train)
    assert method.additions.noise(method.A) is None


def test_without_exploration_every_step_runs_the_cell_itself(make_search: MakeSearch) -> None:
    method = nasp(make_search, "--explore", "0")
    for path in taken(method, 3):
        assert path.keys() == method.A_bar.keys()
    assert torch.equal(path["cell"], method.A_bar["cell"])


@pytest.mark.parametrize(("every", "wanted"), [("1", [0, 2, 4]), ("3", [0, 3])])
def test_it_looks_ahead_every_so_many_steps(
    every: str, wanted: list[int], make_search: MakeSearch
) -> None:
    method = nasp(make_search, "--look-ahead", "2", "--arch-every", every)
    looks, look = [], method.net.potentials

    def counted(train: Batch, valid: Batch) -> Matrices:
        looks.append(method.w_optimizer.t)
        return look(train, valid)

    method.net.potentials = counted  # type: ignore[method-assign]
    taken(method, 5)
    assert looks == wanted


@pytest.mark.parametrize(("steps", "pause"), [(4, 100), (400, 100), (1562, 390)])
def test_it_looks_ahead_four_times_an_epoch_at_most(
    steps: int, pause: int, make_search: MakeSearch
) -> None:
    _, times = nasp(make_search, "--look-ahead", "100").occasional(steps, epochs=50)
    assert times == 1 / pause


def test_what_is_promised_counts_as_much_as_the_horizon_says(make_search: MakeSearch) -> None:
    once, twice = (nasp(make_search, "--look-ahead", "1", "--horizon", h) for h in ("1", "2"))
    batches = once.train.next(), once.valid.next()
    promises = []
    for method in (once, twice):
        method._run(method.A_bar)
        assert method.additions.look_ahead is not None
        promises.append(method.additions.look_ahead.promised(*batches)["cell"])
    one, two = promises
    assert one.count_nonzero() > 0
    torch.testing.assert_close(two, 2 * one)
    look_ahead = once.additions.look_ahead
    assert look_ahead is not None
    rate, momentum = once.w_optimizer.learning_rate, once.w_optimizer.options.momentum
    torch.testing.assert_close(one, rate / (1 - momentum) * look_ahead.potentials["cell"])


def test_what_is_promised_does_not_fall_with_the_rate(make_search: MakeSearch) -> None:
    w = nasp(make_search).w_optimizer
    pace = w.pace(1)
    w.t = (w.options.epochs - 1) * w.steps_per_epoch
    assert w.learning_rate < w.options.learning_rate and w.pace(1) == pace
    w.options.guard.go_back(1)  # but a search that had to go back cannot promise the same
    assert w.pace(1) == pace / 2


# ------------------------------------------------- what our default adds to it


def made(setup: Setup, **changes: Any) -> Proximal:
    options = dataclasses.replace(setup.options, **changes)
    return proximal.Nasp(dataclasses.replace(setup, options=options))


@pytest.mark.usefixtures("double")
def test_the_look_ahead_lowers_the_gradient_by_what_training_wins(make_search: MakeSearch) -> None:
    """dA - xi < u_train, u_valid >: a candidate whose training helps rises. Linear candidates, u =
    g^T x by hand."""
    torch.set_default_dtype(torch.float32)
    asked = make_search("--space", "nasbench201").setup
    torch.set_default_dtype(torch.float64)
    module = Choice({name: nn.Linear(4, 3, bias=False) for name in "abc"}, share="row")
    train, valid = (Batch(torch.randn(6, 4), torch.arange(6) % 3) for _ in range(2))
    setup = dataclasses.replace(
        asked, net=Supernet(module), train=Repeat(train), valid=Repeat(valid)
    )
    plain_steps = {"explore": 0.0, "evidence": 0.0, "horizon": 1.5}
    without, ahead = (made(setup, look_ahead=steps, **plain_steps) for steps in (0, 1))
    assert torch.equal(without.A_bar["row"], ahead.A_bar["row"])
    plain, credited = (m.gradient(m.A_bar, train)["row"] for m in (without, ahead))
    difference = (credited - plain)[0]
    selected = int(ahead.A_bar["row"].argmax())
    slopes = []
    for batch in (train, valid):
        output = (batch.x @ module.candidates[selected].weight.T).detach().requires_grad_()
        (g,) = torch.autograd.grad(nn.functional.cross_entropy(output, batch.y), output)
        slopes.append(
            g.T @ batch.x
        )  # the same for all candidates: they read the same and write to the same
    wins = (slopes[0] * slopes[1]).sum()
    xi = 1.5 * setup.weights.learning_rate / (1 - setup.weights.momentum)
    torch.testing.assert_close(difference, -xi * wins * torch.ones(3))


def test_exploration_falls_to_nothing_in_proportion_to_the_steps_left(
    make_search: MakeSearch,
) -> None:
    method = make_search("--space", "nasbench201", "--explore", "0.4", "--epochs", "20").method
    assert isinstance(method, Proximal)

    def spread(at: int) -> float:
        """Standard deviation of the noise around a step, relative to that of Gumbel noise."""
        found = []
        for t in range(at - 5, at + 5):
            method.w_optimizer.t = t
            noise = method.additions.noise(method.A)
            assert noise is not None
            found.append(noise["cell"].flatten())
        return float(torch.cat(found).std()) / (math.pi / math.sqrt(6))

    assert method.w_optimizer.steps == 100
    assert [spread(at) for at in (5, 50, 90)] == pytest.approx([0.38, 0.2, 0.04], rel=0.15)
    method.w_optimizer.t = 100
    assert method.additions.noise(method.A) is None


def test_with_noise_the_largest_entry_is_selected_also_where_all_are_negative(
    make_search: MakeSearch,
) -> None:
    method = make_search("--space", "nasbench201", "--explore", "0.5", "--epochs", "50").method
    assert isinstance(method, Proximal)
    method.A["cell"].zero_()
    negative = 0
    for t in range(200):
        method.w_optimizer.t = t
        noise = method.additions.noise(method.A)
        assert noise is not None
        chosen = method.discretize(method.A, method.A_bar, noise)["cell"]
        assert torch.equal(chosen.argmax(-1), noise["cell"].argmax(-1))
        negative += int((noise["cell"].abs().argmax(-1) != noise["cell"].argmax(-1)).sum())
    assert negative > 50  # where the largest in magnitude is another


def test_exploration_and_scoring_draw_from_streams_of_their_own(
    make_search: MakeSearch, monkeypatch: pytest.MonkeyPatch
) -> None:
    method = make_search("--space", "nasbench201", "--score-nodes", "0.5").method
    assert isinstance(method, Proximal)
    explored: list[int] = []

    def drawn(shape: torch.Size, generator: torch.Generator) -> Tensor:
        explored.append(generator.initial_seed())
        return torch.zeros(shape, dtype=torch.float64)

    monkeypatch.setattr("proxnas.methods.additions.exploration.gumbel", drawn)
    scored = []
    for t in range(50):
        method.w_optimizer.t = t
        method.additions.noise(method.A)
        generator = method.additions.share().generator
        assert generator is not None
        scored.append(generator.initial_seed())
    assert len(set(explored)) == len(set(scored)) == 50 and not set(explored) & set(scored)


# ------------------------------------------------------- objects that are handed in


def handed(method: Proximal) -> set[str]:
    """The names of the additions that a method was built with."""
    fields = dataclasses.fields(method.additions)
    return {field.name for field in fields if getattr(method.additions, field.name) is not None}


@pytest.mark.parametrize(
    ("flags", "wanted"),
    [
        ("--explore 0.1", {"exploration"}),
        ("--look-ahead 2", {"look_ahead"}),
        ("--pooling 0.5", {"pooling"}),
        ("--score-batch 0.5", {"partial_scoring"}),
        ("--score-nodes 0.5", {"partial_scoring"}),
        ("--max-params 100M", {"price"}),
        ("--order 2", {"second_order"}),
    ],
)
def test_an_option_hands_in_its_addition_and_no_other(
    flags: str, wanted: set[str], make_search: MakeSearch
) -> None:
    assert handed(nasp(make_search, "--preset", "paper", *flags.split())) == wanted


def test_by_default_nasp_explores_looks_ahead_and_pools(make_search: MakeSearch) -> None:
    assert handed(nasp(make_search)) == {"exploration", "look_ahead", "pooling"}


STATE = {"A", "A_bar", "costs", "evidence", "looked", "potentials", "price", "w"}
"""What a checkpoint holds of a proximal method, whatever was added to it."""


@pytest.mark.parametrize(
    "flags", ["--preset paper", "--look-ahead 2 --max-params 75k --final-cells 1"]
)
def test_a_checkpoint_has_the_same_keys_with_and_without_additions(
    flags: str, make_search: MakeSearch
) -> None:
    one, other = (nasp(make_search, *flags.split()) for _ in range(2))
    one.step()
    state = stored(one.state_dict())
    assert state.keys() == STATE
    other.load_state_dict(state)
    assert same(stored(other.state_dict()), state)


# --------------------------------------------------------------------- pooling


CELL = Group(("a", "b"), nodes=((0,), (1, 2)))


def test_pooled_scores_are_in_part_the_mean_of_all_edges() -> None:
    scores = torch.tensor([[1.0, 3.0], [5.0, 5.0], [0.0, 8.0]], dtype=torch.float64)
    # beyond their edge's mean: -1, 1; 0, 0; -4, 4; in the mean -5/3, 5/3
    expected = [[2 - 4 / 3, 2 + 4 / 3], [5 - 5 / 6, 5 + 5 / 6], [4 - 17 / 6, 4 + 17 / 6]]
    mixed = Pooling(0.5, {"cell": CELL}).mix({"cell": scores})["cell"]
    torch.testing.assert_close(mixed, torch.tensor(expected, dtype=torch.float64))
    torch.testing.assert_close(mixed.mean(1), scores.mean(1))
    torch.testing.assert_close(Pooling(0.0, {"cell": CELL}).mix({"cell": scores})["cell"], scores)
    gaps = Pooling(1.0, {"cell": CELL}).mix({"cell": scores})["cell"].diff(dim=1)
    torch.testing.assert_close(gaps, torch.full((3, 1), 10 / 3, dtype=torch.float64))


@pytest.mark.parametrize(
    "group",
    [
        Group(("a", "b"), nodes=((0,), (1,), (2,)), max_inputs=1),
        Group((NONE, SKIP), nodes=((0,), (1, 2)), wired=True),
    ],
    ids=["chain", "connections"],
)
def test_blocks_and_connections_keep_scores_of_their_own(group: Group) -> None:
    scores = {"group": torch.rand(3, 2), "cell": torch.rand(3, 2)}
    mixed = Pooling(0.5, {"group": group, "cell": CELL}).mix(scores)
    assert torch.equal(mixed["group"], scores["group"])
    assert not torch.equal(mixed["cell"], scores["cell"])


def test_gradients_and_promises_are_pooled(make_search: MakeSearch) -> None:
    found = []
    for words in ((), ("--pooling", "0.7")):
        method = nasp(make_search, "--preset", "paper", "--look-ahead", "1", *words)
        method.net.use(method.A_bar)
        found.append(method.gradient_of_loss(method.train.next(), method.valid.next()))
    plain, pooled = found
    assert same(pooled, Pooling(0.7, method.net.groups).mix(plain)) and not same(pooled, plain)


# -------------------------------------------------------------------- evidence


class Labelled:
    """A stream of images of noise: `known` of the label is in them, 0: nothing."""

    def __init__(self, known: float, seed: int = 0) -> None:
        self.known, self.random = known, torch.Generator().manual_seed(seed)

    def next(self) -> Batch:
        y = torch.randint(3, (16,), generator=self.random)
        x = torch.randn(16, 3, generator=self.random) + self.known * nn.functional.one_hot(y, 3)
        return Batch(x, y)

    def __len__(self) -> int:
        return 50

    def state_dict(self) -> dict[str, Any]:
        return {"random": self.random.get_state()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.random.set_state(state["random"])


def answering() -> Supernet:
    """Answers what it sees, or the contrary."""
    return Supernet(nn.Sequential(Choice({"a": nn.Identity(), "b": nn.Identity()}, share="row")))


def waits(evidence: Evidence, stream: Labelled, most: int) -> int | None:
    """Batches until it is there."""
    evidence.net.use({"row": torch.tensor([[1.0, 0.0]])})
    return next((i for i in range(1, most) if evidence.is_there(stream.next())), None)


def test_evidence_is_there_as_soon_as_answers_fit_labels() -> None:
    assert waits(Evidence(answering(), 5.0, 50), Labelled(3.0), 100) == LEAST
    later = waits(Evidence(answering(), 5.0, 50), Labelled(0.3), 500)
    assert later is not None and later > LEAST
    assert waits(Evidence(answering(), 5.0, 50), Labelled(-3.0), 300) is None  # wrong, not right


@pytest.mark.parametrize("seed", range(5))
def test_chance_is_no_evidence(seed: int) -> None:
    assert waits(Evidence(answering(), 5.0, 50), Labelled(0.0, seed), 500) is None


def test_evidence_once_there_stays_and_is_kept() -> None:
    evidence = Evidence(answering(), 5.0, 50)
    waits(evidence, Labelled(3.0), 100)
    assert evidence.is_there(Labelled(-9.0).next())
    again = Evidence(answering(), 5.0, 50)
    again.load_state_dict(stored(evidence.state_dict()))
    assert again.found and again.leads == evidence.leads


def test_no_more_than_an_epoch_of_images_is_counted() -> None:
    for batches, window in ((3, 10), (40, 40), (4000, 100)):
        assert Evidence(answering(), 5.0, batches).window == window


def searched(make_search: MakeSearch, known: float, **changes: Any) -> Proximal:
    """After sixty steps, of a search of more than a hundred, in images that tell so much."""
    asked = make_search("--space", "nasbench201", "--epochs", "3").setup
    torch.manual_seed(0)
    module = Choice({name: nn.Linear(3, 3) for name in "abc"}, share="row")
    streams = {"train": Labelled(known, 1), "valid": Labelled(known, 2)}
    method = made(dataclasses.replace(asked, net=Supernet(module), **streams), **changes)
    begun = {name: a.clone() for name, a in method.A.items()}
    for _ in range(60):
        method.step()
    assert method.additions.evidence is not None
    assert same(begun, method.A) is not method.additions.evidence.found
    return method


def test_A_rests_where_labels_tell_nothing(make_search: MakeSearch) -> None:
    method = searched(make_search, 0.0)
    assert method.doubts() == [NOTHING_LEARNT]
    assert float(method.additions.evidence.certainty()) < 5  # type: ignore[union-attr]


def test_A_moves_where_labels_tell_something(make_search: MakeSearch) -> None:
    method = searched(make_search, 3.0)
    assert method.doubts() == [] and method.additions.evidence.found  # type: ignore[union-attr]


def test_first_steps_with_evidence_are_as_long_as_without_waiting(make_search: MakeSearch) -> None:
    """What was not scored tells nothing of how steep the loss is."""
    method = searched(make_search, 0.0)
    method.additions.evidence.found = True  # type: ignore[union-attr]
    before = method.A["row"].clone()
    method.step()
    moved = (method.A["row"] - before).square().mean().sqrt()
    assert float(moved) == pytest.approx(method.options.arch_learning_rate, rel=0.01)


@pytest.mark.parametrize(("epochs", "asked"), [("19", False), ("20", True)])
def test_short_searches_do_not_wait(epochs: str, asked: bool, make_search: MakeSearch) -> None:
    method = nasp(make_search, "--epochs", epochs)
    assert (method.additions.evidence is not None) is asked
    assert method.doubts() == ([NOTHING_LEARNT] if asked else [])
    assert nasp(make_search, "--epochs", epochs, "--evidence", "0").additions.evidence is None
