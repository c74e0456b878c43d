"""From-scratch training of a recurrent language model, as AWD-LSTM and DARTS train theirs.

SGD at a large, constant rate with clipped gradients; from the epoch on in which validation stops
improving, the mean of all weights since is what is evaluated and kept (NT-ASGD: non-monotonically
triggered averaged SGD).
"""

# T tokens of a window, B columns of a batch

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from proxnas.cells.genotype import Genotype
from proxnas.common.clock import Clock
from proxnas.common.environment import pick_device, set_deterministic, set_threads
from proxnas.common.launch import here
from proxnas.common.seeds import stable_seed
from proxnas.common.types import Batch, State
from proxnas.core.size.complexity import parameters
from proxnas.domains.text.data.text import Text
from proxnas.domains.text.data.text_stream import TextStream
from proxnas.domains.text.language import (
    Dropouts,
    Hidden,
    LanguageModel,
    LanguageSize,
    Spoken,
    speak,
)
from proxnas.domains.text.model import TextModel, language_network, multiply_adds
from proxnas.domains.text.options import TextTrainOptions
from proxnas.domains.text.perplexity import Reading, perplexity, read_through
from proxnas.runs.consensus import mean_gradients
from proxnas.runs.divergence import Guard, step_if_sound
from proxnas.runs.fingerprint import Fingerprint
from proxnas.runs.folder import Run
from proxnas.runs.job import Totals, check_finite
from proxnas.runs.messages import of_all_columns
from proxnas.runs.metrics import Metrics, Row
from proxnas.training.job import Tested
from proxnas.training.optimizer import Average, mean


class TextTraining:
    """A language model and its text, with everything that a checkpoint must hold; a Job of the
    loop."""

    def __init__(self, config: TextTrainOptions, text: Text, architecture: Genotype | None) -> None:
        """`architecture` None: the LSTM."""
        self.config, self.text, self.architecture = config, text, architecture
        self.device = pick_device(config.device)
        set_threads(config.threads)
        set_deterministic(config.deterministic)
        self.size = LanguageSize(text.num_words, config.units)
        self.network = self._fresh()
        self.train = TextStream(
            text.train, config.batch_size, config.bptt, config.seed, "train", self.device
        )
        self.optimizer = torch.optim.SGD(
            self.network.parameters(), weight_decay=config.weight_decay
        )
        self.clock = Clock(self.device)
        self.totals = Totals(self.device)
        self.columns = config.batch_size // here().size
        self.hidden: Hidden = self.network.initial(self.columns)
        self.guard = Guard()
        self.average: Average | None = None
        self.steps = self.epochs_done = self.averaged_from = 0
        self.history: list[float] = []
        self.best: State = {}

    @property
    def data(self) -> Text:
        return self.text

    @property
    def flops(self) -> int:
        return multiply_adds(self.network)

    @property
    def fingerprint(self) -> Fingerprint:
        """Of the text."""
        return self.text.fingerprint

    def _fresh(self) -> LanguageModel:
        c = self.config
        torch.manual_seed(stable_seed(c.seed, "weights"))
        network = language_network(self.architecture, self.size, Dropouts.of(c))
        return network.to(self.device)

    def __len__(self) -> int:
        return len(self.train)

    def done(self) -> bool:
        c = self.config
        # epochs since the best one, or since averaging began
        idle = self.epochs_done - max(self.best.get("epoch", 0), self.averaged_from)
        return self.epochs_done >= c.epochs or 0 < c.patience <= idle

    def step(self) -> Metrics:
        """One update by one window."""
        batch = self.train.next()
        # the text begins anew: nothing comes before it
        if self.train.starts:
            self.hidden = self.network.initial(self.columns)
        spoken, loss, norm = self._gradient(batch)
        with self.clock("update"):
            for group in self.optimizer.param_groups:
                # the loss is a mean over a window of random length: so every token weighs alike
                group["lr"] = self.rate * len(batch.x) / self.config.bptt
            step_if_sound(self.optimizer, self.guard.judge(loss, norm))
            if self.average:
                self.average.update(self.network)
        self.hidden = spoken.hidden
        self.steps += 1
        return Metrics(spoken.cross_entropy, spoken.right, batch.x.numel(), 0)

    @property
    def rate(self) -> float:
        """The learning rate, lower after each return to a checkpoint."""
        return self.config.learning_rate * self.guard.factor

    def _gradient(self, batch: Batch) -> tuple[Spoken, Tensor, Tensor]:
        """What was made of the window, the loss on the columns of all processes, its clipped
        gradient left at the weights, and the norm of that."""
        c = self.config
        # seeded by the step, so that dropout needs no state in the checkpoint
        generator = torch.Generator().manual_seed(stable_seed(c.seed, "masks", self.steps))
        with self.clock("forward"):
            masks = self.network.masks(c.batch_size, generator, self.train.mine)
            spoken = speak(self.network, *batch, self.hidden, masks, c.activation, c.slowness)
        with self.clock("backward"):
            self.optimizer.zero_grad()
            spoken.loss.backward()
            weights = list(self.network.parameters())
            loss = mean_gradients(weights, [], spoken.loss, batch.y.numel())
            norm = nn.utils.clip_grad_norm_(weights, c.clip or math.inf, foreach=True)
        return spoken, loss, norm

    @property
    def kept(self) -> LanguageModel:
        """What is evaluated and kept: the mean of the weights, once there is one."""
        if self.average and self.average.t:
            assert isinstance(self.average.network, LanguageModel)
            return self.average.network
        return self.network

    def validate(self) -> Reading:
        """What is kept, on the validation text."""
        c = self.config
        with self.clock("evaluate"):
            found = read_through(self.kept, self.text.valid, c.valid_batch_size, c.bptt)
        check_finite(found.loss)
        return found

    def row(self, start: float) -> Row:
        train_loss, _ = self.totals.means()
        found = self.validate()
        figures = {
            "train_loss": train_loss,
            "train_perplexity": perplexity(train_loss),
            "valid_loss": found.loss,
            "valid_perplexity": found.perplexity,
        }
        # as they were in this epoch: `_note` may begin to average
        rate, averaged = self.rate, self.average is not None
        # remember the weights if they are the best yet
        if not self.best or found.loss < self.best["loss"]:
            weights = {name: w.clone() for name, w in self.kept.state_dict().items()}
            self.best = {"loss": found.loss, "epoch": self.epochs_done + 1, "weights": weights}
        self._note(found.loss)
        self.train.begin_pass()
        seconds = self.clock.take_since(start, "forward", "backward", "update", "evaluate")
        epoch = self.epochs_done + 1
        return Row(epoch, self.steps, figures, seconds, learning_rate=rate, averaged=averaged)

    def _note(self, loss: float) -> None:
        """Averaging begins when validation is worse than the best of all epochs but the last
        few."""
        after = self.config.average_after
        if (
            after
            and not self.average
            and self.history[:-after]
            and loss > min(self.history[:-after])
        ):
            self.average, self.averaged_from = Average(self.network, mean), self.epochs_done + 1
        self.history = [*self.history, loss]

    def best_network(self) -> LanguageModel:
        """The network to keep."""
        network = self._fresh()
        network.load_state_dict(self.best["weights"])
        return network.eval()

    def test(self) -> Tested:
        """The best weights on the test text."""
        c, network = self.config, self.best_network()
        found = read_through(network, self.text.test, c.test_batch_size, c.bptt)
        figures: dict[str, float | int | None] = {
            "words": self.text.num_words,
            "valid_loss": self.best["loss"],
            "valid_perplexity": perplexity(self.best["loss"]),
            "averaged_from": self.averaged_from or None,
            "test_loss": found.loss,
            "test_perplexity": found.perplexity,
            "test_tokens": found.tokens,
        }
        params, flops = parameters(network), multiply_adds(network)
        model = self._model(network, {"params": params, "flops": flops} | figures)
        return Tested(model, params, flops, figures, self.text.warnings)

    def _model(self, network: LanguageModel, figures: Mapping[str, Any]) -> TextModel:
        c = self.config
        info: dict[str, Any] = {"data": self.text.name, "protocol": c.protocol}
        info |= {name: figures[name] for name in KNOWN}
        info |= {"epochs": self.epochs_done, "seed": c.seed}
        info |= {name: getattr(c, name) for name in READING}
        return TextModel(
            network, self.architecture, self.size, self.text.vocabulary, c.text_options(), info
        )

    def describe(self) -> dict[str, Any]:
        return {
            "words": self.text.num_words,
            "train_tokens": len(self.text.train),
            "units": self.config.units,
            "flops": self.flops,
        }

    def keep(self, run: Run) -> None:
        run.keep_vocabulary(self.text.vocabulary)

    def write(self, run: Run) -> None:
        """Nothing besides the checkpoint: genotype and vocabulary are there from the start."""

    def state_dict(self) -> State:
        return {
            "weights": self.network.state_dict(),
            "average": self.average.state_dict() if self.average else None,
            "train": self.train.state_dict(),
            "totals": self.totals.state_dict(),
            "hidden": of_all_columns(self.hidden),
            "best": self.best,
            **{name: getattr(self, name) for name in NUMBERS},
        }

    def load_state_dict(self, state: State) -> None:
        self.network.load_state_dict(state["weights"])
        self.average = Average(self.network, mean) if state["average"] else None
        if self.average:
            self.average.load_state_dict(state["average"])
        self.train.load_state_dict(state["train"])
        self.totals.load_state_dict(state["totals"])
        self.hidden = tuple(tensor[self.train.mine].to(self.device) for tensor in state["hidden"])
        self.best = state["best"]
        for name in NUMBERS:
            setattr(self, name, state[name])


KNOWN = ("params", "flops", "valid_perplexity", "test_perplexity", "test_tokens")
"""Figures that a model file tells."""
READING = ("bptt", "valid_batch_size", "test_batch_size")
"""How it was read when it was tested: a later test reads alike, and says the same."""
NUMBERS = ("steps", "epochs_done", "averaged_from", "history")
"""Fields of a training that a checkpoint holds as they are."""
