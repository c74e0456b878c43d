"""Search and training in one: a chain whose blocks may change their kind while the learning rate is
high, after which the same weights are trained to the end.

One discrete network is trained at every moment. In the first part of the time now and then a block
of another kind runs in place of the present one, so that all kinds have learnt something; then
swaps are proposed (core/swaps.py); then A rests. What is delivered is cut out of the network of
Choices, exactly.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from proxnas.cells.genotype import Genotype
from proxnas.common.clock import Clock
from proxnas.common.environment import pick_device, set_threads
from proxnas.common.seeds import stable_seed
from proxnas.common.types import Batch, Matrices, State
from proxnas.core.selection import changed
from proxnas.core.size.budget import Budget
from proxnas.core.size.complexity import multiply_adds
from proxnas.core.supernet import Supernet
from proxnas.domains.images.data.augment import shrunk
from proxnas.domains.images.data.images import Images
from proxnas.domains.images.data.stream import ImageBatches
from proxnas.domains.images.evaluate import Evaluation, Judged, evaluation_of
from proxnas.domains.images.limits import budget_for, within, worth
from proxnas.domains.images.model import check_shape
from proxnas.domains.images.networks.chain import Chain
from proxnas.domains.images.networks.cnn import Size, channels_last
from proxnas.domains.images.pass_images import PassImages, Verdict
from proxnas.domains.images.pass_swaps import compare, exchange_some, try_swap
from proxnas.domains.images.recipe import Plan, sides
from proxnas.domains.images.spaces.resnet import GROUPS, cut_out, middle, resnet
from proxnas.runs.fingerprint import Fingerprint
from proxnas.runs.folder import Run, write_atomically
from proxnas.runs.job import PRECISIONS, Totals, check_finite
from proxnas.runs.metrics import Metrics, Row
from proxnas.training.convolutions import MuonAndSgd, Rates
from proxnas.training.kept_memory import keep_freed_memory
from proxnas.training.pace import Pace, rate_factor

TRYING = 0.15
"""Share of the time in which other kinds are tried out."""
OFTEN = 0.3
"""Chance of a block to be of another kind meanwhile."""
PROPOSING = 0.3
"""Share of the time after which A rests."""
PROPOSALS = 8
"""Swaps that are proposed between the two, evenly spread."""
BATCH, SCORED, JUDGED = 128, 1, 6
"""Images of a batch that a swap is judged on; batches for the gradient, and for the decision."""
LEAST_EPOCH = 25
"""Steps of an epoch at least: each ends with an evaluation and a line of metrics."""
TRAINED_FOR_ONE = 40
"""Images that are trained on, at least, for each that is evaluated: 1% of the time goes there."""


class OnePass:
    """A job for the loop: everything that a checkpoint must hold."""

    def __init__(
        self,
        plan: Plan,
        images: Images,
        follow: Sequence[float] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.images = images
        self.device = pick_device(plan.device)
        set_threads(plan.threads)
        keep_freed_memory()
        # the initial weights depend on the seed alone, whatever was computed before
        torch.manual_seed(stable_seed(plan.seed, "weights"))
        self.size = Size(
            *(plan.cells, plan.channels, images.shape[0], images.num_classes), mirror=plan.flip_test
        )
        # with the normalisation of a final network: what is cut out of it is delivered as it is
        module = channels_last(resnet().choice_network(self.size).to(self.device))
        check_shape(images.shape, self.size, module)
        self.net = Supernet(module, GROUPS, precision=PRECISIONS[plan.precision])
        self.A_bar = middle()
        self.budget = self._limit(plan)
        self.optimizer = MuonAndSgd(module, Rates(convolutions=plan.learning_rate))
        self.guard = self.optimizer.guard
        self.data = PassImages(plan, images, self.device)
        # an epoch of the loop may be several passes over the images, of which the plan counts each
        passes = self._whole_epoch() // len(self.data.train)
        self.config = replace(plan, epochs=max(1, round(plan.epochs / passes)))
        self.pace = Pace(plan.seconds, follow, clock, plan.delivery, plan.busy)
        self.clock, self.totals, self.epochs_done = Clock(self.device), Totals(self.device), 0
        self.proposals = 0
        self.tried: list[list[Any]] = []
        """Swaps that were tried: group, row, old, new, gain, its error, whether it won."""
        self.choice: State = {}
        """When A came to rest: figures of both networks, and the weights of the plain one."""

    def _limit(self, plan: Plan) -> Budget | None:
        """What the delivered network may have only so much of."""
        if not plan.limit_of:
            return None
        return budget_for(
            of=plan.limit_of,
            limit=plan.limit,
            asked=plan.limit_asked,
            size=self.size,
            shape=self.images.shape,
            device=self.device,
            by=plan.latency_by,
        )

    @property
    def fingerprint(self) -> Fingerprint:
        """Of the data."""
        return self.images.fingerprint

    @property
    def flops(self) -> int:
        return multiply_adds(self.network(), self.images.shape)

    def __len__(self) -> int:
        """Steps of an epoch; when the time is over, those that are done."""
        whole = self._whole_epoch()
        return min(whole, max(1, self.totals.steps)) if self.pace.over() else whole

    def _whole_epoch(self) -> int:
        """One pass over the training images, or several where they are few."""
        train, valid = self.data.train, self.data.valid
        steps, judged = len(train), len(valid) if valid else 0
        least = max(LEAST_EPOCH, TRAINED_FOR_ONE * judged // train.order.batch_size)
        # whole passes only, rounded up
        return steps * -(-least // steps)

    def done(self) -> bool:
        return self.pace.over() and not self.totals.steps

    def step(self) -> Metrics:
        """One update of the weights of the network in use; perhaps a swap after it."""
        # the share of the time used decides everything: sides, kinds, learning rate, which images
        share = self.pace.next()
        self.net.module.train()
        self.net.use(self.path(share))
        batch = self.data.next(share, self._judge)
        x = shrunk(batch.x, sides(min(self.images.shape[1:]), share))
        with self.clock("forward"):
            # (B, K), in fp32 whatever the precision of the operations
            logits = self.net(x).float()
            loss = self.data.loss(logits, batch.y)
        with self.clock("backward"):
            loss.backward()
        with self.clock("update"):
            self.optimizer.step(loss.detach(), rate_factor(share))
        changes = self._search(share) if self.config.search else 0
        right = self.images.target.right(logits, batch.y)
        return Metrics(loss.detach(), right, len(batch.y), changes)

    def _judge(self, part: ImageBatches) -> Verdict:
        """The network of A_bar on a part."""
        with self.clock("evaluate"):
            # a copy is cut out: the network of Choices keeps its path and its mode
            found = self.evaluation(self.network(), part)
        check_finite(found.loss)
        return Verdict(found.loss, found.accuracy)

    def validation(self) -> Verdict | None:
        """How good it is on images that were not trained on; None: there are none."""
        return self.data.validation(self._judge)

    def path(self, share: float) -> Matrices:
        """What runs in this step: A_bar, some of its blocks exchanged while kinds are tried out."""
        if not self.config.search or share >= TRYING:
            return self.A_bar
        # by the number of the step: a run that goes on takes the same paths
        seed = stable_seed(self.config.seed, "path", len(self.pace.shares))
        random = torch.Generator().manual_seed(seed)
        return exchange_some(self.A_bar, OFTEN, random)

    def _search(self, share: float) -> int:
        """Proposes a swap if it is time; when all are made, A rests. Returns entries changed."""
        # evenly spread between TRYING and PROPOSING; at the end of these A rests
        due = TRYING + (PROPOSING - TRYING) * self.proposals / PROPOSALS
        if share < due or self.proposals > PROPOSALS:
            return 0
        before = self.A_bar
        with self.clock("arch"):
            self.keep_limit()
            if self.proposals < PROPOSALS:
                self._propose()
            else:
                self._rest()
        self.proposals += 1
        return changed(before, self.A_bar)

    def _propose(self) -> None:
        batches = self._judging(SCORED + JUDGED)
        # a few images: the batch that proposes has to decide too
        score, judge = batches[:SCORED], batches[SCORED:] or batches
        self.A_bar, told = try_swap(self.net, self.A_bar, score, judge, self.budget)
        self.tried += told

    def keep_limit(self) -> None:
        """A run that was stopped early may be too large still."""
        if self.budget and not self.budget.meets(self.A_bar):
            self._project(self.budget)

    def _project(self, budget: Budget) -> None:
        """The plain network is too large: what is within the limit, and loses least; A rests."""
        found = worth(self.net, self.A_bar, self._judging(SCORED + JUDGED))
        network = (self.size, self.images.shape, self.device, self.config.latency_by)
        self.A_bar = within(budget, found, self.A_bar, *network)
        # none is left to propose: A comes to rest
        self.proposals = PROPOSALS

    def _rest(self) -> None:
        """Both networks on the same images, as they are now."""
        # nothing to compare where the plain network stayed
        if changed(self.A_bar, middle()):
            gain, error = compare(self.net, self.A_bar, self._judging(SCORED + JUDGED))
            network = cut_out(self.net.module, middle(), self.size).to(self.device).eval()
            valid = self.data.valid
            self.choice = {
                "valid_accuracy": self.evaluation(network, valid).accuracy if valid else None,
                "gain": gain,
                "error": error,
                "seconds": self.pace.used(),
                "weights": network.state_dict(),
            }

    def _judging(self, most: int) -> list[Batch]:
        return self.data.choosing(BATCH, most, self.proposals)

    def genotype(self) -> Genotype:
        return resnet().genotype(self.A_bar)

    def network(self) -> Chain:
        """The network of A_bar, cut out."""
        network = cut_out(self.net.module, self.A_bar, self.size).to(self.device)
        channels_last(network)
        return network.eval()

    def evaluation(
        self, network: nn.Module, part: ImageBatches, keep: bool = False
    ) -> Evaluation | Judged:
        """`keep`: with the answer to each image."""
        target, outputs = self.images.target, self.size.classes
        return evaluation_of(target, network, part, outputs, torch.float32, keep)

    def row(self, start: float) -> Row:
        train_loss, train_accuracy = self.totals.means()
        check_finite(train_loss)
        figures = {"train_loss": train_loss, "train_accuracy": train_accuracy}
        # once the validation images are trained on, no epoch has figures of them
        if self.data.last is None and (found := self.validation()):
            figures |= {"valid_loss": found.loss, "valid_accuracy": found.accuracy}
        return Row(
            self.epochs_done + 1,
            len(self.pace.shares),
            self.images.target.named(figures),
            self.clock.take_since(start, "arch", "forward", "backward", "update", "evaluate"),
            changes=self.totals.changes,
            genotype=json.loads(self.genotype().to_json()),
        )

    def write(self, run: Run) -> None:
        write_atomically(run / "genotype.json", self.genotype().to_json())

    def state_dict(self) -> State:
        return {
            "weights": self.net.module.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "A_bar": self.A_bar,
            "data": self.data.state_dict(),
            "pace": self.pace.state_dict(),
            "totals": self.totals.state_dict(),
            "epochs_done": self.epochs_done,
            "proposals": self.proposals,
            "tried": self.tried,
            "choice": self.choice,
            "budget": self.budget.state_dict() if self.budget else None,
        }

    def load_state_dict(self, state: State) -> None:
        self.net.module.load_state_dict(state["weights"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.A_bar = state["A_bar"]
        self.data.load_state_dict(state["data"])
        self.pace.load_state_dict(state["pace"])
        self.totals.load_state_dict(state["totals"])
        self.epochs_done, self.proposals = state["epochs_done"], state["proposals"]
        self.tried, self.choice = state["tried"], state["choice"]
        if self.budget:
            self.budget.load_state_dict(state["budget"])
