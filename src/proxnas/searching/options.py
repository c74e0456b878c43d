"""What commands are told: frozen dataclasses, checked at birth, each error naming its flag.

No torch here: `--help` must be quick.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from proxnas.cells.genotype import CUSTOM
from proxnas.common.errors import unknown
from proxnas.domains.images.options import ImageFlags
from proxnas.domains.spaces import SPACES
from proxnas.domains.text.search_options import TextFlags, check_domain
from proxnas.methods import METHODS
from proxnas.runs.logging_options import LogFlags
from proxnas.runs.options import JobConfig, flag, require
from proxnas.runs.worker_options import ManyFlags, check_many, whole_numbers
from proxnas.searching.limit_options import BudgetFlags
from proxnas.searching.sampling_options import SamplingFlags, check_sampling
from proxnas.searching.uses import check_method

if TYPE_CHECKING:
    from proxnas.domains.text.data.text import TextOptions


@dataclass(frozen=True)
class SearchConfig(
    ImageFlags, TextFlags, SamplingFlags, BudgetFlags, ManyFlags, LogFlags, JobConfig
):
    """Search a cell on DATA: digits, a file or folder of images, or hf:NAME; with --space rnn a
    text."""

    data: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="DATA")] = "digits"
    """digits, an .npz file, a CIFAR folder, a folder of class folders of images, a .parquet file,
    or hf:NAME. For --space rnn: pydocs, a folder with train.txt, valid.txt and test.txt, a .txt
    file, or hf:NAME."""
    space: str = "darts7"
    """darts7, darts8, nasp12, nasp12-full, nasbench201, resnet, enas5 or rnn."""
    method: str = "nasp"
    """nasp, pa, lazy-pa, darts-1st, darts-2nd, random, random-ws, snas, gdas, enas, asap, asng,
    bayesnas, evolution, local, reinforce or pnas."""
    preset: Literal["default", "paper", "official"] = "default"
    """Where paper and public code differ: ours, the paper's text, or the public code's
    behaviour."""
    protocol: Literal["auto", "quick", "cifar", "ptb"] = "auto"
    """Sizes: quick (small data, a laptop), cifar or ptb (the paper's); auto: for a folder cifar (of
    text: ptb), else quick."""

    epochs: int = 25
    """Passes over the half of the data that trains w."""
    batch_size: int = 32
    """Images of a step; of all --processes together."""
    cells: int = 5
    """Cells of the search network (nasbench201, resnet: a stage)."""
    channels: int = 16
    """Channels of its first cell."""
    cutout: int = 0
    """Side of the square cut out of the images that train w and move A; 0: none."""
    final_cells: int = 8
    """Cells of the final network that params and flops refer to."""
    final_channels: int = 16

    learning_rate: float = 0.025
    """SGD of w, on a cosine down to --learning-rate-min."""
    learning_rate_min: float = 0.001
    momentum: float = 0.9
    weight_decay: float = 3e-4
    clip: float = 5.0
    """Largest norm of the gradient of w."""
    unselected: Literal["still", "drift"] = "still"
    """Weights of unselected candidates stay, or drift by momentum and decay (public code)."""

    arch_optimizer: Literal["adam", "scaled", "sgd"] = "adam"
    """Steps of A; scaled: descent with one common scale for all entries."""
    arch_learning_rate: float = 3e-4
    arch_beta1: float = 0.5
    arch_beta2: float = 0.999
    arch_decay: float = 0.0
    arch_noise: float = 1e-3
    """Standard deviation of the noise in the initial A."""
    value: Literal["one", "a_k"] = "one"
    """Value of a selected entry of A_bar."""
    ties: Literal["last", "first"] = "last"
    """Equal entries of A: the last selected (else random by seed), or the first index that is not
    none."""
    order: Literal[1, 2] = 1
    """Gradient of nasp, pa, lazy-pa: at w, or DARTS' second order."""
    eta: float = 0.0
    """Weight of the size regulariser R(A): larger finds smaller networks."""
    eta_cells: Literal["all", "normal"] = "all"
    """Cells that R counts."""
    eta_at: Literal["A_bar", "A"] = "A_bar"
    """Where R is taken: at the discrete architecture, or at A."""
    explore: float = 0.0
    """Scale of the Gumbel noise on A when a step selects, falling to 0 over the search (nasp, pa,
    lazy-pa)."""
    look_ahead: int = 0
    """Least steps between looks ahead at what training promises, four an epoch at most; 0: none
    (nasp, pa, lazy-pa)."""
    horizon: float = 1.0
    """How many steps of its training --look-ahead credits a candidate with."""
    max_skip: int = -1
    """Most skip connections a cell may have; -1: any number."""
    warmup: float = 0.0
    """Epochs at the start in which only w is trained, 0.5 is half of one; -1 (bayesnas' default):
    one, but at most half of the search."""
    patience: int = 10
    """Stop when no step changed A_bar for so many epochs; 0: never."""
    arch_every: int = 1
    """Update A in every so many-th step only."""
    score_batch: float = 1.0
    """Share of the batch that unselected candidates are scored on (nasp, pa, lazy-pa)."""
    score_nodes: float = 1.0
    """Chance of a node to be scored in a step (nasp, pa, lazy-pa)."""
    precision: Literal["fp32", "bf16", "fp16"] = "fp32"
    """Of the operations; weights stay fp32. For GPUs: most CPUs are slower in bf16."""
    tau_start: float = 1.0
    """Temperature in the first step (snas, gdas, asap)."""
    tau_end: float = 0.1
    """Temperature towards the last step."""
    resource: float = 0.0
    """Weight of the expected cost in the loss of snas; its authors' example: 0.0015."""
    fixed_reduction: bool = False
    """gdas with its fixed reduction cell: only the normal cell is searched."""
    unsampled_gradient: Literal["zero", "sum"] = "zero"
    """gdas: gradient of unsampled entries, as its formula, or as its public nasbench201 code."""
    controller_steps: int = 30
    """Updates of enas' controller after each epoch, 10 cells each."""

    table: str = ""
    """Table of trained nasbench201 cells: the found cell's row goes into the result; see
    --evaluate."""
    seeds: str = ""
    """Several searches, for example 0,1,2,3; with --pick the best by validation is kept."""
    pick: bool = False
    """Keep the best of --seeds, its cost counted in full."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.space not in (*SPACES, CUSTOM):
            raise unknown("--space", self.space, SPACES)
        if self.method not in METHODS:
            raise unknown("--method", self.method, METHODS)
        for name, low in AT_LEAST.items():
            value = getattr(self, name)
            require(low <= value < math.inf, flag(name), value, f"give a number of at least {low}")
        for name, high in AT_MOST.items():
            require(
                getattr(self, name) <= high,
                flag(name),
                getattr(self, name),
                f"give a number of at most {high}",
            )
        for name in BELOW_ONE:
            require(
                0 <= getattr(self, name) < 1,
                flag(name),
                getattr(self, name),
                "give a number from 0 to below 1",
            )
        for name in SHARES:
            require(
                0 < getattr(self, name) <= 1,
                flag(name),
                getattr(self, name),
                "give a number above 0, at most 1",
            )
        for name in ("tau_start", "tau_end"):
            require(
                0 < getattr(self, name) < math.inf,
                flag(name),
                getattr(self, name),
                "give a number above 0",
            )
        require(
            0 < self.arch_learning_rate < math.inf,
            "--arch-learning-rate",
            self.arch_learning_rate,
            "give a number above 0, or A never moves",
        )
        require(
            0 <= self.warmup < math.inf or self.warmup == ONE_OR_HALF,
            "--warmup",
            self.warmup,
            f"give a number of at least 0, or {ONE_OR_HALF}",
        )
        check_method(self)
        check_domain(self)
        self.check_budget()
        idle = self.fixed_reduction and self.limit() is not None
        require(
            not idle,
            "--fixed-reduction",
            True,
            "has a cell of its own size: leave it out, or the limit",
        )
        check_many(self)
        check_sampling(self)
        require(
            not self.table or self.space == "nasbench201",
            "--table",
            self.table,
            "needs --space nasbench201",
        )
        self.load_options()
        seeds = self.all_seeds()
        require(
            not self.pick or len(seeds) > 1,
            "--pick",
            self.pick,
            "give --seeds with at least two seeds",
        )
        require(
            self.learning_rate_min <= self.learning_rate,
            "--learning-rate-min",
            self.learning_rate_min,
            "give at most --learning-rate",
        )

    def warmup_epochs(self) -> float:
        """--warmup, or what stands for -1."""
        return min(1.0, self.epochs / 2) if self.warmup == ONE_OR_HALF else self.warmup

    def text_options(self) -> TextOptions:
        """How text becomes tokens."""
        from proxnas.domains.text.data.text import TextOptions

        return TextOptions(self.tokens, self.max_words, self.min_count, self.train_tokens)

    def all_seeds(self) -> list[int]:
        """The seeds to run: those of --seeds, else the one of --seed."""
        return whole_numbers("--seeds", self.seeds) if self.seeds else [self.seed]


ONE_OR_HALF = -1
"""--warmup of one epoch, but of at most half of the search: as published where there are two, and
short searches are not all warm-up."""
AT_LEAST: dict[str, float] = {
    "epochs": 1,
    "batch_size": 2,  # batch statistics of one image are none
    "cells": 1,
    "channels": 1,
    "cutout": 0,
    "final_cells": 1,
    "final_channels": 1,
    "learning_rate": 0,
    "learning_rate_min": 0,
    "weight_decay": 0,
    "clip": 0,
    "arch_decay": 0,
    "arch_noise": 0,
    "eta": 0,
    "explore": 0,
    "look_ahead": 0,
    "horizon": 0,
    "max_skip": -1,
    "arch_every": 1,
    "patience": 0,
    "resource": 0,
    "controller_steps": 1,
    "checkpoint_minutes": 0,
}
AT_MOST: dict[str, float] = {
    "epochs": 1_000_000,
    "batch_size": 1_000_000,
    "cells": 200,
    "channels": 4096,
    "final_cells": 200,
    "final_channels": 4096,
}
"""Beyond these a slip of the finger would fill the memory before anybody can say so."""
SHARES = ("score_batch", "score_nodes")
BELOW_ONE = ("momentum", "arch_beta1", "arch_beta2")
