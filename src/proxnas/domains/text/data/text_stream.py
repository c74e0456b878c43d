"""Windows of a text without end, in order, so that a hidden state can be carried over; resumable
from two integers."""

# N tokens of a text, B columns of a batch, L = N // B rows, T tokens of a window; x and y are (T,
# B), y one token later

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from proxnas.common.errors import OptionError
from proxnas.common.launch import here
from proxnas.common.seeds import stable_seed
from proxnas.common.types import Batch, State
from proxnas.domains.text.data.vocabulary import Array

SHORTEST, LONGER = 5, 20
"""Random lengths lie between SHORTEST and bptt + LONGER."""
HALVED, SPREAD = 0.05, 5.0
"""With this chance a length is drawn around bptt / 2 instead of bptt, with this standard
deviation."""


class TextStream:
    """Passes over a text in windows of random lengths; `starts` says that the hidden state must be
    forgotten.

    The lengths of pass p are drawn by (seed, name, p) before it begins, so p and the number of
    windows delivered of it are the whole state, and the number of windows of a pass is known. Of
    several processes each has its columns.
    """

    def __init__(
        self,
        tokens: Array,
        batch_size: int,
        bptt: int,
        seed: int,
        name: str = "",
        device: torch.device | str = "cpu",
        random_lengths: bool = True,
    ) -> None:
        """`name` keeps streams of the same seed independent; without random lengths windows are as
        long as bptt."""
        self.columns = columns(tokens, batch_size, device)
        rows = len(self.columns) - 1  # the last token is only predicted
        if not 1 <= bptt <= rows:
            raise OptionError(
                "bptt",
                bptt,
                f"{len(tokens)} tokens in {batch_size} columns leave {rows} to predict in each:"
                f" give 1 to {rows}, or a smaller {{batch_size}}",
            )
        if batch_size % here().size:
            raise OptionError(
                "batch_size",
                batch_size,
                f"its columns are divided among {here().size} processes: give a multiple of that",
            )
        self.mine = here().part(batch_size)
        self.batch_size, self.bptt, self.seed, self.name = batch_size, bptt, seed, name
        self.random_lengths = random_lengths
        # passes finished before this one; windows delivered of this one
        self.passes = self.delivered = 0
        self._bounds = self._draw()

    def __len__(self) -> int:
        """Windows of this pass: that of the last window, until the next one is asked for or
        `begin_pass` is called."""
        return len(self._bounds) - 1

    @property
    def starts(self) -> bool:
        """Whether the last window was the first of its pass."""
        return self.delivered == 1

    @property
    def ended(self) -> bool:
        """Whether the last window was the last of its pass."""
        return self.delivered == len(self)

    def begin_pass(self) -> None:
        """Go on to the next pass, if this one has ended."""
        if self.ended:
            self.passes, self.delivered = self.passes + 1, 0
            self._bounds = self._draw()

    def next(self) -> Batch:
        self.begin_pass()
        # x are the tokens start .. stop - 1 of each column, y the same one later
        start, stop = self._bounds[self.delivered : self.delivered + 2]
        self.delivered += 1
        return Batch(
            self.columns[start:stop, self.mine], self.columns[start + 1 : stop + 1, self.mine]
        )

    def state_dict(self) -> State:
        return {"passes": self.passes, "delivered": self.delivered}

    def load_state_dict(self, state: State) -> None:
        self.passes, self.delivered = int(state["passes"]), int(state["delivered"])
        self._bounds = self._draw()

    def _draw(self) -> list[int]:
        """Where the windows of this pass begin, and where the last one ends."""
        rows = len(self.columns) - 1
        if not self.random_lengths:
            # the last window has what is left
            return [*range(0, rows, self.bptt), rows]
        # RandomState: its numbers are frozen for all versions of numpy
        random = np.random.RandomState(
            stable_seed(self.seed, f"{self.name}/lengths", self.passes) % 2**32
        )
        bounds = [0]
        while bounds[-1] < rows:
            centre = self.bptt / 2 if random.random_sample() < HALVED else float(self.bptt)
            length = min(
                max(int(random.normal(centre, SPREAD)), min(SHORTEST, self.bptt)),
                self.bptt + LONGER,
            )
            bounds.append(min(bounds[-1] + length, rows))
        return bounds


def columns(tokens: Array, batch_size: int, device: torch.device | str = "cpu") -> Tensor:
    """The text cut into B equal pieces that stand side by side, (L, B); the N % B tokens left over
    are dropped."""
    rows = len(tokens) // max(batch_size, 1)
    if batch_size < 1 or rows < 2:
        raise OptionError(
            "batch_size",
            batch_size,
            f"the text has {len(tokens)} tokens, and each column needs two: give 1 to"
            f" {max(1, len(tokens) // 2)}",
        )
    # (B, L) -> (L, B): a window is rows of it, and column b goes on in the next window
    pieces = torch.from_numpy(tokens[: rows * batch_size].reshape(batch_size, rows))
    return pieces.t().contiguous().to(device)


def windows(
    tokens: Array, batch_size: int, bptt: int, device: torch.device | str = "cpu"
) -> Iterator[Batch]:
    """The text once, in order, for evaluation; a text too short for so many columns gets fewer."""
    if bptt < 1:
        raise OptionError("bptt", bptt, "give at least 1")
    table = columns(tokens, min(batch_size, max(1, len(tokens) // 2)), device)
    for start in range(0, len(table) - 1, bptt):
        stop = min(start + bptt, len(table) - 1)
        yield Batch(table[start:stop], table[start + 1 : stop + 1])
