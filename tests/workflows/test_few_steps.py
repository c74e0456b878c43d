"""Batches and epochs of short trainings."""

from __future__ import annotations

import math

import torch
from hypothesis import given
from hypothesis import strategies as some

from proxnas.domains.images.evaluate import Evaluation
from proxnas.training.few_steps import (
    LEAST_STEPS,
    SMALLEST_BATCH,
    batch_for,
    epochs_for,
    windows_for,
)

whole = some.integers(2, 100_000)


@given(whole, some.integers(1, 600), some.sampled_from((32, 64, 96, 128)))
def test_a_batch_is_the_largest_that_makes_steps(images: int, epochs: int, usual: int) -> None:
    size = batch_for(images, epochs, usual)
    assert 2 <= size <= min(usual, images)
    if size < min(
        usual, images
    ):  # halved, because twice as many images would have made too few steps
        assert epochs * (images // (2 * size)) < LEAST_STEPS
    if size > 2 * SMALLEST_BATCH and size < images:
        assert epochs * (images // size) >= LEAST_STEPS
    assert size >= min(SMALLEST_BATCH, images)


def test_large_data_and_long_trainings_keep_their_batches() -> None:
    assert batch_for(45_000, 600, 96) == 96
    assert batch_for(288, 24, 64) == 16 and epochs_for(288, 16, 24, most=4) == 24
    assert batch_for(60, 24, 64) == 16 and epochs_for(60, 16, 24, most=4) == 96


@given(some.integers(4, 5000), some.integers(1, 300), some.integers(1, 100))
def test_windows_fit_the_text(tokens: int, batch_size: int, bptt: int) -> None:
    columns, length = windows_for(tokens, batch_size, bptt, (False, False))
    assert 1 <= columns <= batch_size and 1 <= length <= min(bptt, tokens // columns - 1)
    if length < bptt:  # there were fewer columns first
        assert columns <= 2
    assert windows_for(tokens, batch_size, bptt, (True, True)) == (batch_size, bptt)


def test_better_than_the_majority_is_more_than_chance_makes() -> None:
    """60 of 100 are of one class: an error of sqrt(0.6 * 0.4 / 100) = 0.049, twice that is
    0.098."""
    assert math.isclose(2 * math.sqrt(0.6 * 0.4 / 100), 0.098, abs_tol=1e-4)
    for right, better in ((60, False), (69, False), (70, True), (100, True)):
        confusion = torch.tensor([[60, 0], [0, 40]])
        wrong = 100 - right
        first, second = max(0, wrong - 40), min(40, wrong)
        confusion += torch.tensor([[-first, first], [second, -second]])
        tested = Evaluation(0.0, 0.0, confusion)
        assert tested.accuracy == right / 100 and tested.majority == 0.6
        assert tested.beats_majority() is better


def test_too_few_test_images_are_said_to_be_too_few() -> None:
    right = Evaluation(0.0, 0.0, torch.tensor([[1, 0], [0, 1]]))
    assert "of the 2 test images: so few images do not tell" in right.doubts(9)[0]
    assert "(1 step)" in right.doubts(1)[0] and "; " not in right.doubts(1)[0]
    wrong = Evaluation(0.0, 0.0, torch.tensor([[0, 1], [1, 0]]))
    assert "has learnt nothing that shows (9 steps)" in wrong.doubts(9)[0]
