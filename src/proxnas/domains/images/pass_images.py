"""The images of a pass by the clock: which are trained on, and which choose.

A part is held out for validation while there is something to choose. After that its images are
trained on too, and what they said last stays what is known of the network.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import NamedTuple

import torch
from torch import Tensor

from proxnas.common.seeds import stable_seed
from proxnas.common.types import Batch, State
from proxnas.domains.images.data.augment import Augment, Pasted, cut_and_paste
from proxnas.domains.images.data.images import Images, Part
from proxnas.domains.images.data.stream import ImageBatches, Stream
from proxnas.domains.images.parts import train_parts
from proxnas.domains.images.recipe import Plan, class_weights

TOGETHER = 0.85
"""Share of the time after which the held-out images are trained on too. Training images have had
their whole size for a while then: before, what the held-out ones say of the network is poor."""
UNMIXED = 0.9
"""Share of the time after which images are whole, as those are that the network is for."""


class Verdict(NamedTuple):
    """What validation images say of a network."""

    loss: float
    accuracy: float


class PassImages:
    """Batches of the training part, then of all images; the validation part beside them."""

    def __init__(self, plan: Plan, images: Images, device: torch.device) -> None:
        self.plan, self.target = plan, images.target
        train, valid = train_parts(images, plan.valid_share)
        self.valid = ImageBatches(images, valid, device=device) if valid else None
        augment = Augment(
            flip=plan.flip,
            alternate=True,
            reach=plan.reach,
            rotation=plan.rotation,
            colour=plan.colour,
            hue=0.0,
        )

        # both streams have batches of one size: no larger than the training part
        def stream(part: Part, name: str) -> Stream:
            batches = ImageBatches(images, part, augment, device=device)
            return Stream(batches, min(plan.batch_size, len(train[1])), plan.seed, name)

        self.train = stream(train, "train")
        own = images.x_valid is not None  # a part of the data themselves stays what it is
        whole = (images.x_train, images.y_train)
        self.everything = None if own or not valid else stream(whole, "everything")
        self.weights: Tensor | None = None
        """Of the classes in the loss."""
        if plan.weighted:
            found = class_weights(train[1], images.num_classes)
            self.weights = torch.tensor(found, dtype=torch.float32, device=device)
        self.pasted: Pasted | None = None
        """What was done to the last batch."""
        self.last: Verdict | None = None
        """What the validation images said before they were trained on."""

    def next(self, share: float, judge: Callable[[ImageBatches], Verdict]) -> Batch:
        """The next batch; validation images are judged a last time before they are in one."""
        # no image is judged after it was trained on: its answer would be known by heart
        stream = self.train
        if self.everything is not None and share >= TOGETHER:
            if self.last is None and self.valid:
                self.last = judge(self.valid)
            stream = self.everything
        return self._mixed(stream.next(), stream, share)

    def _mixed(self, batch: Batch, stream: Stream, share: float) -> Batch:
        """Some of the batches have parts of other images in them."""
        self.pasted = None
        # seeded by the number of the batch: a run that goes on mixes as if it had not stopped
        seed = stable_seed(self.plan.seed, f"{stream.name}/mixed", stream.delivered)
        random = torch.Generator().manual_seed(seed)
        if share >= UNMIXED or float(torch.rand((), generator=random)) >= self.plan.mixed:
            return batch
        self.pasted = cut_and_paste(batch.x, random)
        return Batch(self.pasted.x, batch.y)

    def loss(self, outputs: Tensor, y: Tensor) -> Tensor:
        """Of the answers to the last batch: of both images in one by their shares."""
        # CutMix: L = kept * l(outputs, y) + (1 - kept) * l(outputs, y of the other image)
        asked = self.weights, self.plan.label_smoothing
        own = self.target.loss(outputs, y, *asked)
        if self.pasted is None:
            return own
        other = self.target.loss(outputs, y[self.pasted.others.to(y.device)], *asked)
        return self.pasted.kept * own + (1 - self.pasted.kept) * other

    def validation(self, judge: Callable[[ImageBatches], Verdict]) -> Verdict | None:
        """How good the network is on images that it was not trained on; None: there are none."""
        return self.last or (judge(self.valid) if self.valid else None)

    def choosing(self, batch_size: int, most: int, turn: int) -> list[Batch]:
        """Batches that choose, others each turn: validation images, where there are some."""
        part = self.valid or self.train.part
        found = list(islice(part.evaluation_batches(batch_size), 64))
        # the window moves on by `most` batches each turn, round and round
        first = turn * most % len(found)
        return (found[first:] + found[:first])[:most]

    def state_dict(self) -> State:
        return {
            "train": self.train.state_dict(),
            "everything": self.everything.state_dict() if self.everything else None,
            "last": list(self.last) if self.last else None,
        }

    def load_state_dict(self, state: State) -> None:
        self.train.load_state_dict(state["train"])
        if self.everything:
            self.everything.load_state_dict(state["everything"])
        self.last = Verdict(*state["last"]) if state["last"] else None
