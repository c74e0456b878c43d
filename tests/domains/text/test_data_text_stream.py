from __future__ import annotations

import numpy as np
import pytest
import torch

from proxnas.common.errors import InputError
from proxnas.domains.text.data.text_stream import TextStream, columns, windows

TOKENS = np.arange(1000)


def test_columns_are_pieces_of_the_text_side_by_side() -> None:
    assert columns(np.arange(11), 3).tolist() == [[0, 3, 6], [1, 4, 7], [2, 5, 8]]


@pytest.mark.parametrize("random_lengths", [True, False])
def test_a_pass_is_the_whole_text_in_order(random_lengths: bool) -> None:
    stream = TextStream(TOKENS, 4, 12, seed=0, random_lengths=random_lengths)
    for number in range(3):
        got = [(stream.next(), stream.starts, stream.ended) for _ in range(1)]
        got += [(stream.next(), stream.starts, stream.ended) for _ in range(len(stream) - 1)]
        assert torch.equal(torch.cat([batch.x for batch, _, _ in got]), columns(TOKENS, 4)[:-1])
        assert torch.equal(torch.cat([batch.y for batch, _, _ in got]), columns(TOKENS, 4)[1:])
        assert [starts for _, starts, _ in got] == [True] + [False] * (len(got) - 1)
        assert [ended for _, _, ended in got] == [False] * (len(got) - 1) + [True]
        assert stream.passes == number
        lengths = [len(batch.x) for batch, _, _ in got]
        assert random_lengths or lengths[:-1] == [12] * (len(got) - 1)


def lengths(bptt: int, **options: int) -> list[int]:
    stream = TextStream(np.zeros(200_000, dtype=np.int64), 1, bptt, **{"seed": 0, **options})
    return [len(stream.next().x) for _ in range(len(stream) - 1)]  # the last one is what was left


def test_lengths_follow_the_published_rule() -> None:
    drawn = np.array(lengths(35))
    assert drawn.min() >= 5 and drawn.max() <= 55
    assert (drawn < 26).mean() == pytest.approx(0.05 + 0.95 * 0.036, abs=0.02)  # int() rounds down
    usual = drawn[drawn >= 26]
    assert usual.mean() == pytest.approx(35, abs=0.5) and usual.std() == pytest.approx(4.6, abs=0.5)
    assert max(lengths(3)) <= 23 and min(lengths(3)) == 3


def test_seeds_names_and_passes_differ() -> None:
    stream = TextStream(TOKENS, 1, 20, seed=0)
    first = [len(stream.next().x) for _ in range(20)]
    while not stream.ended:
        stream.next()
    second = [len(stream.next().x) for _ in range(20)]
    drawn = [first, second]
    for seed, name in ((1, ""), (0, "A")):
        other = TextStream(TOKENS, 1, 20, seed=seed, name=name)
        drawn.append([len(other.next().x) for _ in range(20)])
    assert len({tuple(lengths) for lengths in drawn}) == 4


def test_resumes_anywhere() -> None:
    stream = TextStream(TOKENS, 4, 12, seed=3)
    states, batches, flags = [], [], []
    for _ in range(60):
        states.append(stream.state_dict())
        batches.append(stream.next().x)
        flags.append((stream.starts, stream.ended, len(stream)))
    assert stream.passes >= 2
    for number, state in enumerate(states):
        other = TextStream(TOKENS, 4, 12, seed=3)
        other.load_state_dict(state)
        assert torch.equal(other.next().x, batches[number])
        assert (other.starts, other.ended, len(other)) == flags[number]


def test_windows_are_the_text_once() -> None:
    got = list(windows(TOKENS, 3, 50))
    assert torch.equal(torch.cat([batch.x for batch in got]), columns(TOKENS, 3)[:-1])
    assert torch.equal(torch.cat([batch.y for batch in got]), columns(TOKENS, 3)[1:])
    assert [len(batch.x) for batch in windows(np.arange(5), 10, 50)] == [
        1
    ]  # two columns, for want of tokens


@pytest.mark.parametrize(
    ("tokens", "batch_size", "bptt", "expected"),
    [
        (
            100,
            64,
            35,
            "batch_size 64: the text has 100 tokens, and each column needs two: give 1 to 50",
        ),
        (100, 0, 35, "batch_size 0"),
        (100, 4, 35, "bptt 35: 100 tokens in 4 columns leave 24 to predict in each: give 1 to 24"),
        (100, 4, 0, "bptt 0"),
    ],
)
def test_bad_sizes(tokens: int, batch_size: int, bptt: int, expected: str) -> None:
    with pytest.raises(InputError) as caught:
        TextStream(np.zeros(tokens, dtype=np.int64), batch_size, bptt, seed=0)
    assert expected in str(caught.value)


def test_windows_need_a_length() -> None:
    with pytest.raises(InputError, match="bptt 0"):
        next(windows(TOKENS, 2, 0))
