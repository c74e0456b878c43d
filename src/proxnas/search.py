"""One search: build it from its configuration, step, log, checkpoint, stop when converged."""

from __future__ import annotations

import json
import math
import time
from pathlib import Path
from typing import Any, Protocol

import torch

from proxnas import methods, spaces
from proxnas.clock import Clock
from proxnas.complexity import multiply_adds, parameters
from proxnas.config import SearchConfig
from proxnas.data.augment import Augment
from proxnas.data.images import Images, search_parts, stable_seed
from proxnas.data.stream import ImageBatches, Stream
from proxnas.environment import describe, pick_device, set_threads
from proxnas.errors import InputError
from proxnas.genotype import Genotype
from proxnas.interrupt import Interrupted, Request, stop_requests
from proxnas.methods.base import Metrics, Setup, Validation, correct
from proxnas.methods.optimizers import ArchitectureOptions, WeightOptions
from proxnas.networks.cnn import Size, channels_last
from proxnas.run import Run, write_atomically
from proxnas.spaces.base import Space
from proxnas.supernet import Supernet
from proxnas.table import look_up
from proxnas.types import State

PRECISIONS = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


class Progress(Protocol):
    """Whoever shows how far the search is."""

    def begin(self, epoch: int, epochs: int, steps: int) -> None: ...

    def step(self, changes: int) -> None: ...

    def epoch(self, row: dict[str, Any]) -> None: ...


class Totals:
    """Sums over the steps of an epoch; loss and answers stay on the device until its end."""

    def __init__(self, device: torch.device) -> None:
        self.sums = torch.zeros(2, device=device)  # loss times images, right answers
        self.count = self.changes = self.steps = 0

    def add(self, metrics: Metrics) -> None:
        self.sums += torch.stack([metrics.loss * metrics.images, metrics.correct.to(self.sums.dtype)])
        self.count += metrics.images
        self.changes += metrics.changes
        self.steps += 1

    def means(self) -> tuple[float, float]:
        """(loss, accuracy), read by the host here and only here."""
        loss, right = (self.sums / self.count).tolist()
        return loss, right

    def state_dict(self) -> State:
        return vars(self).copy()

    def load_state_dict(self, state: State) -> None:
        vars(self).update(state | {"sums": state["sums"].to(self.sums.device)})


class Search:
    """A method over a supernet and two streams, with everything that a checkpoint must hold."""

    def __init__(
        self, config: SearchConfig, images: Images, space: Space | None = None, exact_clock: bool = False
    ) -> None:
        self.config, self.images = config, images
        self.device = pick_device(config.device)
        set_threads(config.threads)
        self.space: Space = space or spaces.find(config.space)
        torch.manual_seed(stable_seed(config.seed, "weights"))
        self.net = self._supernet()
        for_w, for_A = search_parts(images, config.seed)
        self.valid_part = ImageBatches(images, for_A, device=self.device)
        part = ImageBatches(images, for_w, Augment(cutout=config.cutout), device=self.device)
        self.train = Stream(part, config.batch_size, config.seed, "w")
        self.valid = Stream(self.valid_part, config.batch_size, config.seed, "A")
        self.clock = Clock(self.device, exact_clock)
        self.method = methods.make(config.method, self._setup())
        self.totals = Totals(self.device)
        self.epochs_done = self.quiet_epochs = 0

    def _supernet(self) -> Supernet:
        channels, _, _ = self.images.shape
        size = Size(self.config.cells, self.config.channels, channels, self.images.num_classes)
        module = self.space.search_network(size).to(self.device)
        channels_last(module)
        return Supernet(module, self.space.groups, precision=PRECISIONS[self.config.precision])

    def _setup(self) -> Setup:
        c = self.config
        architecture = ArchitectureOptions(
            learning_rate=c.arch_learning_rate,
            betas=(c.arch_beta1, c.arch_beta2),
            weight_decay=c.arch_decay,
            noise=c.arch_noise,
            value=c.value,
            ties=c.ties,
            eta=c.eta,
            eta_cells=c.eta_cells,
            order=c.order,
            warmup=c.warmup,
            every=c.arch_every,
            score_batch=c.score_batch,
            score_nodes=c.score_nodes,
            random_cells=c.random_cells,
        )
        weights = WeightOptions(
            learning_rate=c.learning_rate,
            learning_rate_min=c.learning_rate_min,
            momentum=c.momentum,
            weight_decay=c.weight_decay,
            clip=c.clip,
            epochs=c.epochs,
            drift=c.unselected == "drift",
        )
        seed = stable_seed(c.seed, "architecture")
        return Setup(self.net, self.train, self.valid, architecture, weights, self.clock, self.evaluate, seed)

    def genotype(self) -> Genotype:
        """The cell as it stands."""
        return self.space.genotype(self.method.architecture()[1])

    def final_network(self, genotype: Genotype) -> torch.nn.Module:
        """The network that would be trained, without memory behind it: for counting."""
        c = self.config
        with torch.device("meta"):
            size = Size(c.final_cells, c.final_channels, self.images.shape[0], self.images.num_classes)
            return self.space.network(genotype, size)

    @torch.no_grad()
    def evaluate(self) -> Validation:
        """The network in use on the half for A, normalised by the batch."""
        sums = torch.zeros(2, device=self.device)
        for batch in self.valid_part.evaluation_batches(max(self.config.batch_size, 64)):
            loss, output = self.net.loss(batch)
            sums += torch.stack([loss * len(batch.y), correct(output, batch.y).to(sums.dtype)])
        loss, accuracy = (sums / len(self.valid_part)).tolist()
        return Validation(loss, accuracy)

    def state_dict(self) -> State:
        return {
            "weights": self.net.module.state_dict(),
            "method": self.method.state_dict(),
            "train": self.train.state_dict(),
            "valid": self.valid.state_dict(),
            "totals": self.totals.state_dict(),
            "epochs_done": self.epochs_done,
            "quiet_epochs": self.quiet_epochs,
            "random": torch.get_rng_state(),
        }

    def load_state_dict(self, state: State) -> None:
        self.net.module.load_state_dict(state["weights"])
        self.method.load_state_dict(state["method"])
        self.train.load_state_dict(state["train"])
        self.valid.load_state_dict(state["valid"])
        self.totals.load_state_dict(state["totals"])
        self.epochs_done, self.quiet_epochs = state["epochs_done"], state["quiet_epochs"]
        torch.set_rng_state(state["random"])


def search(this: Search, run: Run, progress: Progress) -> dict[str, Any]:
    """Runs a search to its end, from where its folder stands; returns what result.json holds."""
    state = run.load_checkpoint()
    if state is not None:
        this.load_state_dict(state)
    rows = run.cut_metrics(this.epochs_done)
    run.write_json("environment.json", describe(this.device))
    with stop_requests() as request:
        while not _done(this):
            rows.append(_epoch(this, run, progress, request))
    return _finish(this, run, rows)


def _done(this: Search) -> bool:
    return this.epochs_done >= this.config.epochs or _converged(this)


def _converged(this: Search) -> bool:
    return 0 < this.config.patience <= this.quiet_epochs


def _epoch(this: Search, run: Run, progress: Progress, request: Request) -> dict[str, Any]:
    """The rest of an epoch; its row of metrics is written before its checkpoint, which decides whether it counts."""
    progress.begin(this.epochs_done + 1, this.config.epochs, len(this.train))
    start = saved = time.perf_counter()
    while this.totals.steps < len(this.train):
        metrics = this.method.step()
        this.totals.add(metrics)
        progress.step(metrics.changes)
        late = time.perf_counter() - saved > 60 * this.config.checkpoint_minutes
        if request.signum is not None or late:
            run.save_checkpoint(this.state_dict())
            saved = time.perf_counter()
        if request.signum is not None:
            raise Interrupted(request.signum)
    row = _row(this, start)
    this.quiet_epochs = 0 if this.totals.changes or this.epochs_done < this.config.warmup else this.quiet_epochs + 1
    this.epochs_done += 1
    this.totals = Totals(this.device)
    run.append_metrics(row)
    write_atomically(run / "genotype.json", this.genotype().to_json())
    run.save_checkpoint(this.state_dict())
    progress.epoch(row)
    return row


def _row(this: Search, start: float) -> dict[str, Any]:
    train_loss, train_accuracy = this.totals.means()
    with this.clock("evaluate"):
        valid_loss, valid_accuracy = this.method.validation()
    if not math.isfinite(train_loss + valid_loss):
        raise InputError(
            f"the loss is not finite in epoch {this.epochs_done + 1}: lower --learning-rate "
            f"(now {this.config.learning_rate}); the checkpoint before it is kept"
        )
    seconds = dict.fromkeys(("arch", "forward", "backward", "evaluate"), 0.0) | this.clock.take()
    A, _ = this.method.architecture()
    return {
        "epoch": this.epochs_done + 1,
        "step": (this.epochs_done + 1) * len(this.train),
        "train_loss": train_loss,
        "train_accuracy": train_accuracy,
        "valid_loss": valid_loss,
        "valid_accuracy": valid_accuracy,
        "changes": this.totals.changes,
        "params": parameters(this.final_network(this.genotype())),
        "A": {name: matrix.tolist() for name, matrix in A.items()},
        "seconds": seconds | {"other": max(0.0, time.perf_counter() - start - sum(seconds.values()))},
    }


def _finish(this: Search, run: Run, rows: list[dict[str, Any]]) -> dict[str, Any]:
    genotype = this.genotype()
    network = this.final_network(genotype)
    result = {
        "method": this.config.method,
        "space": this.config.space,
        "data": this.config.data,
        "seed": this.config.seed,
        "genotype": json.loads(genotype.to_json()),
        "params": parameters(network),
        "flops": multiply_adds(network, this.images.shape),
        "valid_accuracy": rows[-1]["valid_accuracy"],
        "valid_loss": rows[-1]["valid_loss"],
        "epochs": this.epochs_done,
        "seconds": sum(sum(row["seconds"].values()) for row in rows),
        "converged": _converged(this),
        "budget": None,
    }
    if this.config.table:
        result["table"] = look_up(Path(this.config.table), genotype)
    run.write_json("result.json", result)
    return result
