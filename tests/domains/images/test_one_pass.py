"""The search that is the training: its plan, its swaps, and that it goes on to the bit."""

from __future__ import annotations

import copy
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from proxnas.core.groups import Row
from proxnas.core.supernet import Supernet
from proxnas.core.swaps import Swap, batch_statistics, losses, propose, swapped
from proxnas.domains.images import baselines as module
from proxnas.domains.images import one_pass, recipe
from proxnas.domains.images.baselines import baselines
from proxnas.domains.images.data.images import Images
from proxnas.domains.images.limits import budget_for, network_size, within, worth
from proxnas.domains.images.networks.cnn import Size
from proxnas.domains.images.one_pass import OnePass
from proxnas.domains.images.pass_images import TOGETHER, PassImages, Verdict
from proxnas.domains.images.spaces.resnet import GROUPS, middle, resnet
from proxnas.runs.loop import run_epochs
from proxnas.runs.progress import Silent
from support.commands import stripes
from support.passes import PLAN, SHARES, images

CPU = torch.device("cpu")


def finished(job: OnePass) -> OnePass:
    run_epochs(job, None, Silent())
    return job


def same(a: OnePass, b: OnePass) -> bool:
    pairs = zip(a.net.module.state_dict().values(), b.net.module.state_dict().values(), strict=True)
    return all(torch.equal(x, y) for x, y in pairs)


def test_a_run_that_follows_another_equals_it() -> None:
    one, other = (finished(OnePass(PLAN, images(), follow=SHARES)) for _ in range(2))
    assert same(one, other) and one.tried == other.tried
    assert len(one.pace.shares) == len(SHARES)
    late = finished(OnePass(PLAN, images(), follow=[s**2 for s in SHARES]))
    assert not same(one, late)  # the clock decides


def test_stopped_after_any_step_it_goes_on_to_the_bit() -> None:
    whole = finished(OnePass(PLAN, images(), follow=SHARES))
    for stop in (3, 9, 14):
        first = OnePass(PLAN, images(), follow=SHARES)
        for _ in range(stop):
            first.totals.add(first.step())
        state = copy.deepcopy(first.state_dict())
        second = OnePass(PLAN, images(), follow=SHARES)
        second.load_state_dict(state)
        assert same(finished(second), whole)
        assert second.tried == whole.tried


@pytest.mark.parametrize("of", ["params", "flops"])
@pytest.mark.parametrize("share", [0.15, 0.5])
def test_the_network_within_a_limit_is_the_one_that_is_worth_most(of: str, share: float) -> None:
    """Against all of them, one by one; sizes counted on built networks."""
    size, shape = Size(1, 8, 1, 2), (1, 8, 8)
    plain = network_size(of, middle(), size, shape, CPU)
    budget = budget_for(of, share * plain, "limit", size, shape, CPU)
    torch.manual_seed(0)
    worth = {name: -torch.rand(group.shape).double() for name, group in GROUPS.items()}
    chosen = within(budget, worth, middle(), size, shape, CPU)
    assert network_size(of, chosen, size, shape, CPU) <= share * plain
    rows = [(name, e) for name, group in GROUPS.items() for e in range(group.shape[0])]
    sums = np.zeros((2, 1))  # worth and size of all beginnings
    for name, e in rows:
        each = np.stack([worth[name][e].numpy(), budget.sizes.entries[name][e].numpy()])
        sums = (sums[:, :, None] + each[:, None, :]).reshape(2, -1)
    best = sums[0][sums[1] + budget.sizes.fixed <= share * plain].max()
    assert sum(float((worth[name] * chosen[name]).sum()) for name in GROUPS) == pytest.approx(best)


def test_what_a_kind_is_worth_is_what_its_swap_changes() -> None:
    job = OnePass(PLAN, images(), follow=SHARES)
    batches = job._judging(2)
    found = worth(job.net, job.A_bar, batches)
    with batch_statistics(job.net.module):
        before = losses(job.net, job.A_bar, batches).mean()
        after = losses(job.net, swapped(job.A_bar, Row("body", 1), 3), batches).mean()
    assert float(found["body"][1, 3]) == pytest.approx(float(before - after), rel=1e-5)
    assert all((found[name][job.A_bar[name] == 1] == 0).all() for name in GROUPS)


def test_a_pass_within_a_limit_goes_on_to_the_bit() -> None:
    plan = replace(PLAN, limit_of="params", limit=3000.0, limit_asked="limit")
    whole = finished(OnePass(plan, images(), follow=SHARES))
    assert sum(w.numel() for w in whole.network().parameters()) <= 3000
    assert whole.choice and not whole.tried
    for stop in (3, 9):
        first = OnePass(plan, images(), follow=SHARES)
        for _ in range(stop):
            first.totals.add(first.step())
        second = OnePass(plan, images(), follow=SHARES)
        second.load_state_dict(copy.deepcopy(first.state_dict()))
        assert same(finished(second), whole) and second.genotype() == whole.genotype()


def test_images_that_are_seen_often_are_changed_more() -> None:
    assert recipe.reach_for(5) < recipe.reach_for(100)
    assert recipe.rotation_for(5, 1000, flip=False) == recipe.rotation_for(100, 1000, flip=True)
    assert recipe.rotation_for(100, 1000, flip=False) > 0 == recipe.rotation_for(5, 1000, False)
    assert recipe.rotation_for(100, 5000, flip=False) == 0  # enough of them
    photos, grey = images(x_train=photographed()), images()
    assert recipe.colour_for(100, photos) > 0 == recipe.colour_for(5, photos)
    assert recipe.colour_for(100, grey) == 0
    many = images(x_train=np.tile(photographed(), (7, 1, 1, 1)), y_train=np.arange(1400) % 4)
    assert recipe.mixed_for(100, many) > 0 == recipe.mixed_for(5, many)
    drawings = replace(many, x_train=np.zeros((1400, *many.x_train.shape[1:]), np.uint8))
    assert recipe.mixed_for(30, many) > 0 == recipe.mixed_for(30, drawings)
    assert recipe.mixed_for(100, drawings) > 0
    assert recipe.mixed_for(100, photos) == recipe.mixed_for(100, grey) == 0  # too few
    floats = images(x_train=photographed().astype(np.float32))
    assert recipe.colour_for(100, floats) == 0  # nobody knows what black is


def photographed() -> np.ndarray:
    return np.random.RandomState(0).randint(0, 255, (200, 8, 8, 3)).astype(np.uint8)


def test_colours_vary_as_planned_and_hue_does_not() -> None:
    photos = images(x_train=photographed())
    augment = OnePass(replace(PLAN, colour=0.3), photos, follow=SHARES).data.train.part.augment
    assert (augment.colour, augment.hue) == (0.3, 0.0)


def test_the_loss_of_two_images_in_one_is_by_their_shares_and_at_the_end_they_are_whole() -> None:
    data = PassImages(replace(PLAN, mixed=1.0), images(), CPU)
    never = PassImages(PLAN, images(), CPU)
    whole, batch = never.next(0.1, judge_nothing), data.next(0.1, judge_nothing)
    assert data.pasted is not None and not torch.equal(whole.x, batch.x)
    outputs, kept = torch.randn(len(batch.y), 4), data.pasted.kept
    losses = [
        torch.nn.functional.cross_entropy(outputs, y, label_smoothing=PLAN.label_smoothing)
        for y in (batch.y, batch.y[data.pasted.others])
    ]
    expected = kept * losses[0] + (1 - kept) * losses[1]
    torch.testing.assert_close(data.loss(outputs, batch.y), expected)
    torch.testing.assert_close(never.loss(outputs, batch.y), losses[0])
    assert torch.equal(data.next(0.95, judge_nothing).y, never.next(0.95, judge_nothing).y)
    assert data.pasted is None


def test_some_batches_are_mixed_and_the_same_ones_again() -> None:
    def which() -> list[bool]:
        data = PassImages(replace(PLAN, mixed=0.5), images(), CPU)
        found = []
        for _ in range(30):
            data.next(0.1, judge_nothing)
            found.append(data.pasted is not None)
        return found

    assert which() == which() and 5 < sum(which()) < 25


def judge_nothing(part: Any) -> Verdict:
    return Verdict(0.0, 0.0)


def test_by_the_clock_it_ends_and_the_network_is_the_one_that_was_trained() -> None:
    job = finished(OnePass(PLAN, images()))
    # the clock is asked before a step and after it: a busy machine may use up the time between
    assert job.pace.used() >= PLAN.seconds and job.pace.shares[-1] <= 1
    assert job.epochs_done >= 1 and job.done()
    x = torch.randn(4, 1, 8, 8)
    job.net.use(job.A_bar)
    job.net.module.eval()
    assert torch.equal(job.network()(x), job.net(x))


def test_kinds_are_tried_out_at_first_only() -> None:
    job = OnePass(PLAN, images())
    plain = middle()

    def differs(share: float) -> bool:
        job.pace.shares.append(share)
        return any((job.path(share)[name] != plain[name]).any() for name in plain)

    assert any(differs(0.01) for _ in range(20))
    assert not any(differs(one_pass.TRYING) for _ in range(20))


def test_it_learns() -> None:
    job = finished(OnePass(PLAN, images(), follow=[i / 120 for i in range(120)]))
    assert job.data.valid is not None
    assert job.evaluation(job.network(), job.data.valid).accuracy > 0.9


def test_held_out_images_are_trained_on_once_everything_is_chosen() -> None:
    """They are asked a last time before; a valid part of the data themselves is never trained
    on."""
    job = OnePass(PLAN, images(), follow=SHARES)
    held, seen = len(job.data.valid or ()), len(job.data.train.part)
    assert job.data.everything and len(job.data.everything.part) == held + seen
    while SHARES[len(job.pace.shares)] < TOGETHER:
        job.step()
        assert job.data.last is None and job.data.everything.delivered == 0
    before = job.validation()
    job.step()
    assert job.data.last == before and job.data.everything.delivered == 1
    job.totals.add(job.step())
    assert job.validation() == before and "valid_loss" not in job.row(0.0).figures
    arrays = stripes(200)
    own = images(x_valid=arrays["x_train"][:40], y_valid=arrays["y_train"][:40])
    assert OnePass(PLAN, own).data.everything is None


def net() -> Supernet:
    torch.manual_seed(0)
    return Supernet(resnet().choice_network(Size(1, 4, 1, 4)), GROUPS)


def batches(count: int, part: Images) -> list[object]:
    from proxnas.domains.images.data.stream import ImageBatches

    return list(ImageBatches(part, (part.x_train, part.y_train)).evaluation_batches(40, count))


def test_a_swap_is_judged_by_the_difference_on_the_same_images() -> None:
    this, judge = net(), batches(3, images())
    A_bar = middle()
    swap = propose(this, A_bar, judge[:1], judge[1:])
    assert swap is not None
    with batch_statistics(this.module):
        before = losses(this, A_bar, judge[1:])
        after = losses(this, swapped(A_bar, swap.row, swap.new), judge[1:])
    difference = before - after
    assert swap.gain == pytest.approx(float(difference.mean()), abs=1e-9)
    assert swap.error == pytest.approx(float(difference.std()) / math.sqrt(len(difference)))
    assert swap.old != swap.new and A_bar[swap.row.group][swap.row.edge, swap.old] == 1


def test_a_swap_wins_only_beyond_its_noise() -> None:
    row = Row("body", 0)
    assert Swap(row, 0, 1, gain=0.03, error=0.01).wins
    assert not Swap(row, 0, 1, gain=0.015, error=0.01).wins
    assert not Swap(row, 0, 1, gain=-0.5, error=0.01).wins


def test_judging_leaves_the_running_statistics_alone() -> None:
    this, judge = net(), batches(2, images())
    before = {n: x.clone() for n, x in this.module.state_dict().items() if "running" in n}
    propose(this, middle(), judge[:1], judge[1:])
    after = this.module.state_dict()
    assert before and all(torch.equal(x, after[n]) for n, x in before.items())


@pytest.mark.parametrize(
    ("images", "expected"), [(60_000, 128), (2560, 128), (1500, 64), (700, 32), (90, 32), (7, 7)]
)
def test_batches_of_few_images_are_small(images: int, expected: int) -> None:
    assert recipe.batch_size_for(images) == expected


def test_the_widest_network_and_the_largest_images_that_leave_steps() -> None:
    def probe(channels: int, side: int) -> float:
        return 0.1 * (side / 32) ** 2 * (channels / 24) ** recipe.COST

    def chosen(seconds: float, side: int = 32, images: int = 1000) -> tuple[int, int]:
        return recipe.choose_sizes(images, side, seconds, probe, may_shrink=True)[:2]

    enough = recipe.LEAST_STEPS * 0.1 * recipe.progress_cost(32)
    assert chosen(1.01 * enough) == (24, 32)
    assert chosen(0.5 * enough) == (16, 32)
    assert chosen(100 * enough) == (32, 32)
    assert chosen(100 * enough, images=recipe.MANY) == (96, 32)
    wide = enough * 2**recipe.COST  # as many steps of 48 channels
    assert chosen(1.01 * wide, images=recipe.MANY) == (48, 32)
    wide *= (64 / 48) ** recipe.COST * recipe.MANY_STEPS / recipe.LEAST_STEPS
    assert chosen(0.99 * wide, images=recipe.MANY) == (48, 32)
    assert chosen(1.01 * wide, images=recipe.MANY) == (64, 32)
    assert chosen(100 * enough, side=200) == (32, 64)
    assert chosen(1.5 * enough, side=200) == (24, 32)
    fixed = recipe.choose_sizes(1000, 200, enough, probe, may_shrink=False)
    assert fixed[1] == 200


def test_images_grow_with_the_time() -> None:
    found = [recipe.sides(32, share) for share in (0.0, 0.3, 0.5, 0.7, 0.99, 1.0)]
    assert found == sorted(found) and found[0] == 16 and found[-1] == 32
    assert {recipe.sides(8, share) for share in (0.0, 0.5, 1.0)} == {8}


def test_rare_classes_weigh_more_and_the_mean_is_one() -> None:
    y = np.array([0] * 90 + [1] * 10)
    weights = recipe.class_weights(y, 2)
    assert weights[1] / weights[0] == pytest.approx(3)
    assert weights.mean() == pytest.approx(1)
    assert recipe.unequal(y, 2) and not recipe.unequal(np.array([0, 1, 0, 1]), 2)


def test_photos_are_told_by_their_colours() -> None:
    colour = photographed()
    grey = np.repeat(colour[..., :1], 3, axis=3)
    assert recipe.coloured(images(x_train=colour))
    assert not recipe.coloured(images(x_train=grey))
    assert not recipe.coloured(images())


def test_simple_models_know_stripes() -> None:
    part = images()
    rows = baselines(
        (part.x_train, part.y_train), (part.x_test, part.y_test), (part.x_test, part.y_test)
    )
    most, nearest, linear = rows
    assert most.test_accuracy == pytest.approx(0.25)
    assert nearest.test_accuracy > 0.9 and linear.test_accuracy > 0.9
    assert linear.params == 4 * 65


def test_simple_models_are_of_so_many_images_as_there_is_time_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    part, fitted = images(), []

    def count(x: Any, y: Any) -> Any:
        fitted.append(len(y))
        return lambda rows: np.zeros(len(rows)), 0

    monkeypatch.setattr(module, "MODELS", {"classes": {"counted": count}})
    monkeypatch.setattr(module, "LEAST_TRAINING", 3)
    known = part.x_train, part.y_train
    for work in (1e9, 7 * part.x_test.size, 0):
        monkeypatch.setattr(module, "MOST_WORK", work)
        baselines(known, None, (part.x_test, part.y_test))
    assert fitted == [len(part.y_train), 7, 3]


def test_epochs_that_are_expected_are_those_that_are_counted() -> None:
    """Few images: an epoch of the job is several passes over them."""
    job = OnePass(replace(PLAN, epochs=60), images())
    passes = len(job) // len(job.data.train)
    assert passes > 1 and job.config.epochs == round(60 / passes)


@pytest.mark.parametrize(
    ("processor", "seconds", "chosen"),
    [
        ("AVX512", 0.5, "bf16"),
        ("AVX512", 0.95, "fp32"),
        ("AVX2", 0.5, "fp32"),
        ("AVX512, emulated", 0.5, "fp32"),
    ],
)
def test_bf16_is_taken_where_it_is_quicker(
    monkeypatch: pytest.MonkeyPatch, processor: str, seconds: float, chosen: str
) -> None:
    has = {"avx512_bf16": processor == "AVX512", "amx_bf16": False}
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: processor)
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: has, raising=False)
    timed = {"fp32": 1.0, "bf16": seconds}
    assert recipe.quicker_precision(CPU, lambda precision: timed[precision]) == chosen


def test_steps_in_bf16_leave_weights_and_answers_in_full() -> None:
    job, inside = OnePass(replace(PLAN, precision="bf16"), images(), follow=SHARES), set()
    convolutions = [m for m in job.net.module.modules() if isinstance(m, torch.nn.Conv2d)]
    for convolution in convolutions:
        convolution.register_forward_hook(lambda _, __, output: inside.add(output.dtype))
    for _ in range(4):
        job.step()
    assert inside == {torch.bfloat16}
    inside.clear()
    found = job.validation()
    assert found is not None and math.isfinite(found.loss)
    assert {p.dtype for p in job.net.module.parameters()} == {torch.float32}
    assert not inside  # answers are those of the network that is delivered, cut out, in full
    full = OnePass(PLAN, images(), follow=SHARES)
    for _ in range(4):
        full.step()
    assert not same(job, full)
