"""Searching language models: the training text for w, the validation text for A, as DARTS does.

The hidden state goes from window to window with the stream: a window holds a reference to it, so
that each pass over one window starts from the same state and sees the same dropout masks, and the
last of them says where the next window starts. Both are in the checkpoint.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from proxnas.cells.genotype import Genotype
from proxnas.common.clock import Clock
from proxnas.common.launch import here
from proxnas.common.seeds import stable_seed
from proxnas.common.types import Batch, Matrices, State
from proxnas.core.size.complexity import multiply_adds_of
from proxnas.core.size.latency import warm_runs
from proxnas.core.size.materialised import materialised
from proxnas.core.supernet import Supernet
from proxnas.domains.text.data.text import Text
from proxnas.domains.text.data.text_stream import TextStream, windows
from proxnas.domains.text.language import (
    Dropouts,
    Hidden,
    LanguageModel,
    LanguageSize,
    Spoken,
    speak,
)
from proxnas.domains.text.recurrence import ACTIVATIONS
from proxnas.domains.text.space import NAME, RecurrentSpace
from proxnas.runs.folder import Run
from proxnas.runs.messages import of_all_columns
from proxnas.runs.metrics import Validation

WORST = math.log(1e30)  # perplexities are finite numbers in JSON


class Carry:
    """The hidden state before a window, and after the last pass over it."""

    def __init__(self) -> None:
        self.before: Hidden | None = None
        self.after: Hidden | None = None

    def advance(self, forget: bool) -> None:
        """To the next window."""
        self.before = None if forget else self.after


class Window(Batch):
    """A batch of text that knows what came before it; without a seed nothing is dropped."""

    carry: Carry
    seed: int | None

    @classmethod
    def of(cls, batch: Batch, carry: Carry, seed: int | None = None) -> Window:
        window = cls(*batch)
        window.carry, window.seed = carry, seed
        return window


class CarriedStream:
    """A stream of windows with the hidden state carried over, and forgotten where the text starts
    again."""

    def __init__(self, stream: TextStream) -> None:
        self.stream, self.carry, self.delivered = stream, Carry(), 0

    def __len__(self) -> int:
        return len(self.stream)

    def next(self) -> Window:
        batch = self.stream.next()
        self.carry.advance(self.stream.starts)
        self.delivered += 1
        seed = stable_seed(self.stream.seed, f"{self.stream.name}/dropout", self.delivered)
        return Window.of(batch, self.carry, seed)

    def state_dict(self) -> State:
        # of all processes: any number of them can go on with it
        hidden = None if self.carry.after is None else of_all_columns(self.carry.after)
        return {"stream": self.stream.state_dict(), "delivered": self.delivered, "hidden": hidden}

    def load_state_dict(self, state: State) -> None:
        self.stream.load_state_dict(state["stream"])
        self.delivered = state["delivered"]
        hidden = state["hidden"]
        device, mine = self.stream.columns.device, self.stream.mine
        self.carry.after = None if hidden is None else tuple(h[mine].to(device) for h in hidden)


@dataclass(frozen=True)
class NextWord:
    """Cross-entropy of the next word, with AR and TAR; steps as large as windows are long."""

    bptt: int
    activation: float
    slowness: float

    def loss(self, net: Supernet, batch: Batch, weights: bool) -> tuple[Tensor, Spoken]:
        assert isinstance(batch, Window) and isinstance(net.module, LanguageModel)
        model, masks = net.module, None
        if batch.seed is not None:
            # masks of the whole batch, of which each process takes its columns
            B = batch.x.shape[1] * here().size
            masks = model.masks(B, torch.Generator().manual_seed(batch.seed), here().part(B))
        with frozen(model, not weights):
            spoken = speak(model, *batch, batch.carry.before, masks, self.activation, self.slowness)
        # each pass over the window writes it: the last one counts
        batch.carry.after = spoken.hidden
        return spoken.loss, spoken

    def measure(self, loss: Tensor, output: Spoken, batch: Batch) -> tuple[Tensor, Tensor]:
        return output.cross_entropy, output.right / batch.y.shape[1]  # len(y) counts time steps

    def examples(self, batch: Batch) -> int:
        return batch.y.numel()

    def share(self, batch: Batch) -> float:
        return len(batch.x) / self.bptt


@contextmanager
def frozen(module: nn.Module, really: bool) -> Iterator[None]:
    """Operations within prepare no gradients of weights, which the decoder would compute along with
    the loss."""
    weights = [w for w in module.parameters() if w.requires_grad] if really else []
    for w in weights:
        w.requires_grad_(False)
    try:
        yield
    finally:
        for w in weights:
            w.requires_grad_(True)


class TextSearch(Protocol):
    """What a search of language models is told, as far as data and networks go."""

    tokens: str
    units: int
    final_units: int
    bptt: int
    lengths: str
    norm: str
    drop_output: float
    drop_hidden: float
    drop_input: float
    drop_embedding: float
    drop_words: float
    activation: float
    slowness: float
    batch_size: int
    seed: int


class TextTask:
    """Language models of recurrent cells."""

    def __init__(
        self, config: TextSearch, text: Text, space: RecurrentSpace, device: torch.device
    ) -> None:
        self.config, self.text, self.space, self.device = c, _, _, _ = config, text, space, device
        dropouts = Dropouts.of(c)
        module = space.search_network(self._size(c.units), dropouts, c.norm == "batch").to(device)
        objective = NextWord(c.bptt, c.activation, c.slowness)
        self.net = Supernet(module, space.groups, objective=objective)
        self.train = self._stream(text.train, "w", random_lengths=c.lengths == "random")
        self.valid = self._stream(text.valid, "A", random_lengths=False)

    def _size(self, units: int) -> LanguageSize:
        return LanguageSize(self.text.num_words, units)

    def _stream(self, tokens: Any, name: str, random_lengths: bool) -> CarriedStream:
        c = self.config
        return CarriedStream(
            TextStream(tokens, c.batch_size, c.bptt, c.seed, name, self.device, random_lengths)
        )

    @torch.no_grad()
    def evaluate(self, batches: int | None = None) -> Validation:
        """The network in use on the text for A, normalised by the batch, nothing dropped; by each
        of several processes as a whole: batch norm goes by all columns."""
        sums, steps, carry = torch.zeros(2, device=self.device), 0, Carry()
        parts = windows(self.text.valid, self.config.batch_size, self.config.bptt, self.device)
        for batch in islice(parts, batches):
            window = Window.of(batch, carry)
            loss, right = self.net.objective.measure(*self.net.loss(window), window)
            # the last window may be shorter: means are weighted by time steps
            sums += torch.stack([loss * len(batch.y), right])
            steps += len(batch.y)
            carry.advance(forget=False)
        return Validation(*(sums / steps).tolist())

    def final_network(self, genotype: Genotype) -> nn.Module:
        with torch.device("meta"):
            return self.space.network(genotype, self._size(self.config.final_units))

    def bare_network(self, genotype: Genotype) -> nn.Module:
        searched = self.config.norm == "batch"
        return self.space.network(genotype, self._size(self.config.units), searched).to(self.device)

    def loss(self, network: nn.Module, batch: Batch, of_weights: bool = True) -> Tensor:
        assert isinstance(network, LanguageModel)
        hidden = tuple(h.requires_grad_(not of_weights) for h in network.initial(batch.x.shape[1]))
        network.requires_grad_(of_weights)
        return speak(network, *batch, hidden).loss

    def multiply_adds(self, network: nn.Module) -> int:
        return multiply_adds_of(network, torch.zeros(1, 1, dtype=torch.long, device="meta"))

    def score(self, measured: Validation) -> float:
        """As the reward of ENAS' language model."""
        return 80 * math.exp(-measured.loss)

    @torch.inference_mode()
    def seconds(self, network: nn.Module) -> float:
        real = materialised(network, self.device).eval()
        # one word of one text, (T, B) = (1, 1)
        word = torch.zeros(1, 1, dtype=torch.long, device=self.device)
        return statistics.median(warm_runs(lambda: real(word), Clock(self.device, exact=True)))

    def entries(self, of: str) -> Matrices:
        """A node has one weight whatever it reads and whichever activation follows: only seconds
        can differ, and they are those of whole networks with one activation in all nodes."""
        group = self.net.groups[NAME]
        if of == "latency":
            seconds = [self._seconds_with(k) for k in range(len(group.candidates))]
        else:
            seconds = [0.0]
        # what an activation adds to a node: the quickest one adds nothing
        each = (torch.tensor(seconds, dtype=torch.float64) - min(seconds)) / len(group.nodes)
        return {NAME: each.expand(group.shape).clone()}

    def _seconds_with(self, k: int) -> float:
        group = self.net.groups[NAME]
        A_bar = torch.zeros(group.shape, dtype=torch.float64)
        # every node reads its first predecessor: what it reads does not change the time
        A_bar[[rows[0] for rows in group.nodes], k] = 1.0
        return self.total_seconds({NAME: A_bar})

    def total_seconds(self, A_bar: Matrices) -> float:
        return self.seconds(self.final_network(self.space.genotype(A_bar)))

    def candidate_costs(self, of: str) -> dict[str, Tensor]:
        """Activations have neither weights nor products: only seconds differ, of a batch of the
        search."""
        group = self.net.groups[NAME]
        h = torch.rand(self.config.batch_size, self.config.units, device=self.device)
        clock = Clock(self.device, exact=True)
        if of == "latency":
            runs = [warm_runs(partial(ACTIVATIONS[name], h), clock) for name in group.candidates]
        else:
            runs = []
        seconds = [statistics.median(each) for each in runs] or [0.0] * len(group.candidates)
        return {NAME: torch.tensor(seconds, dtype=torch.float64)}

    def figures(self, part: str, measured: Validation) -> dict[str, float]:
        return {
            f"{part}_loss": measured.loss,
            f"{part}_perplexity": math.exp(min(measured.loss, WORST)),
        }

    def keep(self, run: Run) -> None:
        run.keep_vocabulary(self.text.vocabulary)

    def describe(self) -> dict[str, Any]:
        c, text = self.config, self.text
        return {
            "tokens": c.tokens,
            "words": text.num_words,
            "train_tokens": len(text.train),
            "valid_tokens": len(text.valid),
            "units": c.units,
            "final_units": c.final_units,
        }
