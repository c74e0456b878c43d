"""From-scratch training of an image classifier: build it, step, log, keep the best weights, test
once."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from proxnas.cells.designs import Architecture, Design
from proxnas.common.clock import Clock
from proxnas.common.config_file import FINGERPRINT
from proxnas.common.environment import pick_device, set_deterministic, set_threads
from proxnas.common.errors import OptionError
from proxnas.common.launch import here
from proxnas.common.seeds import stable_seed
from proxnas.common.types import Batch, State
from proxnas.core.sharing import shared_relu
from proxnas.core.size.complexity import multiply_adds, parameters
from proxnas.domains.images import networks
from proxnas.domains.images.data.augment import AS_SUITS, Augment
from proxnas.domains.images.data.images import Images, Part
from proxnas.domains.images.data.stream import ImageBatches, Stream
from proxnas.domains.images.evaluate import TOP, Evaluation, evaluate
from proxnas.domains.images.model import Model, check_shape
from proxnas.domains.images.networks.cnn import Size, channels_last, forward_auxiliary
from proxnas.domains.images.networks.parts import set_drop_path
from proxnas.domains.images.options import ImageTrainOptions
from proxnas.domains.images.parts import train_parts
from proxnas.domains.images.targets import require_classes
from proxnas.methods.base import correct
from proxnas.runs.fingerprint import Fingerprint
from proxnas.runs.folder import Run
from proxnas.runs.job import PRECISIONS, Totals, check_finite
from proxnas.runs.metrics import Metrics, Row
from proxnas.training.job import Tested
from proxnas.training.optimizer import Average, Optimizer, rising

CHOICE = {"auto": None, "yes": True, "no": False}
KNOWN = ("params", "flops", "valid_accuracy", "test_accuracy", "test_top5", "test_images")
"""Figures that a model file tells."""


class ImageTraining:
    """A network, its optimizer and its data, with everything that a checkpoint must hold."""

    def __init__(
        self, config: ImageTrainOptions, images: Images, architecture: Architecture
    ) -> None:
        require_classes(images.target, images.name)
        self.config, self.images, self.architecture = config, images, architecture
        self.device = pick_device(config.device)
        set_threads(config.threads)
        set_deterministic(config.deterministic)
        self.precision = PRECISIONS[config.precision]
        # the initial weights depend on the seed alone, whatever was computed before
        torch.manual_seed(stable_seed(config.seed, "weights"))
        self.size = _size(config, images)
        self.network = networks.build_network(architecture, self.size).to(self.device)
        check_shape(images.shape, self.size, self.network)
        channels_last(self.network)
        # of `forward`, which leaves the auxiliary tower out
        self.flops = multiply_adds(self.network, images.shape)
        train, valid = train_parts(images, config.valid_share)
        self.valid = self.batches(valid) if valid else None
        self.train = Stream(
            self.batches(train, augmentation(config)), config.batch_size, config.seed, "train"
        )
        self._check_parts()
        self.optimizer = Optimizer(self.network, config, len(self.train))
        self.guard = self.optimizer.guard
        self.average = Average(self.network, rising(config.ema)) if config.ema else None
        self.clock = Clock(self.device)
        self.totals = Totals(self.device)
        self.epochs_done = 0
        self.best: State = {}

    def _check_parts(self) -> None:
        """An OptionError if parts of a batch are so small that they have no batch statistics."""
        own = self.train.mine.stop - self.train.mine.start
        if self.config.accumulate > own // 2:  # batch statistics of one image are none
            raise OptionError(
                "accumulate",
                self.config.accumulate,
                f"each of {here().size} processes has {own} images of a batch: give at most"
                f" {own // 2}",
            )

    @property
    def data(self) -> Images:
        return self.images

    @property
    def fingerprint(self) -> Fingerprint:
        """Of the data."""
        return self.images.fingerprint

    def batches(self, part: Part, augment: Augment = AS_SUITS) -> ImageBatches:
        """A part of the images on the device."""
        return ImageBatches(self.images, part, augment=augment, device=self.device)

    def __len__(self) -> int:
        return len(self.train)

    def done(self) -> bool:
        return self.epochs_done >= self.config.epochs

    def step(self) -> Metrics:
        """One update by one batch, computed in `accumulate` parts."""
        # seeded by the step, so that dropped paths need no state in the checkpoint; other images,
        # other paths
        who = f"/{here().rank}" if here().rank else ""
        torch.manual_seed(stable_seed(self.config.seed, f"step{who}", self.optimizer.t))
        self.network.train()
        steps = len(self) * self.config.epochs
        # it rises from 0 with the steps, as in DARTS
        set_drop_path(self.network, self.config.drop_path * self.optimizer.t / steps)
        batch = self.train.next()
        split = [tensor.tensor_split(self.config.accumulate) for tensor in batch]
        results = []
        for x, y in zip(*split, strict=True):
            # weighted by their sizes, the parts add up to the gradient of the mean over the whole
            # batch
            results.append(self._piece(Batch(x, y), len(y) / len(batch.y)))
        # tensors still: the host does not wait for the device
        loss, right = (sum(values[1:], values[0]) for values in zip(*results, strict=True))
        with self.clock("update"):
            self.optimizer.step(loss, len(batch.y))
            if self.average:
                self.average.update(self.network)
        return Metrics(loss, right, len(batch.y), 0)

    def _piece(self, batch: Batch, share: float) -> tuple[Tensor, Tensor]:
        """(share of the loss, right answers); the gradient is added up."""
        with self.clock("forward"):
            lower = self.precision != torch.float32
            half = torch.autocast(self.device.type, self.precision, enabled=lower)
            with half, shared_relu():
                logits, auxiliary = forward_auxiliary(self.network, batch.x)
            # L = l(logits) + auxiliary * l(auxiliary logits); only the first term is reported
            loss = self._loss(logits, batch.y) * share
            total = loss
            if auxiliary is not None:
                total = loss + self.config.auxiliary * share * self._loss(auxiliary, batch.y)
        with self.clock("backward"):
            self.optimizer.backward(total)
        return loss.detach(), correct(logits, batch.y)

    def _loss(self, logits: Tensor, y: Tensor) -> Tensor:
        smooth = self.config.label_smoothing
        return nn.functional.cross_entropy(logits.float(), y, label_smoothing=smooth)

    @property
    def kept(self) -> nn.Module:
        """What is evaluated and kept: the average of the weights if there is one."""
        return self.average.network if self.average else self.network

    def validate(self) -> Evaluation | None:
        if self.valid:
            return evaluate(self.kept, self.valid, self.size.classes, self.precision)
        return None

    def row(self, start: float) -> Row:
        train_loss, train_accuracy = self.totals.means()
        check_finite(train_loss)
        figures = {"train_loss": train_loss, "train_accuracy": train_accuracy}
        with self.clock("evaluate"):
            found = self.validate()
        if found is not None:
            check_finite(found.loss)
            figures |= {"valid_loss": found.loss, "valid_accuracy": found.accuracy}
        self._keep(figures)
        seconds = self.clock.take_since(start, "forward", "backward", "update", "evaluate")
        return Row(self.epochs_done + 1, self.optimizer.t, figures, seconds)

    def _keep(self, figures: Mapping[str, float]) -> None:
        """Remember the weights if they are the best yet; without a validation part the last ones
        are."""
        epoch = self.epochs_done + 1
        # compared as lists: accuracy first, of equals the lower loss
        rank = [figures["valid_accuracy"], -figures["valid_loss"]] if self.valid else [epoch]
        if not self.best or rank > self.best["rank"]:
            kept = {}
            for name, weight in self.kept.state_dict().items():
                if "auxiliary" not in name.split("."):  # it is for training only
                    kept[name] = weight.clone()
            self.best = {
                "rank": rank,
                "epoch": epoch,
                "accuracy": figures.get("valid_accuracy"),
                "weights": kept,
            }

    def best_network(self) -> nn.Module:
        """The network to keep: best weights, no auxiliary tower."""
        size = dataclasses.replace(self.size, auxiliary=False)
        network = networks.build_network(self.architecture, size).to(self.device)
        network.load_state_dict(self.best["weights"])
        return channels_last(network).eval()

    def test(self) -> Tested:
        """The best weights on the test images, in full precision, as the model will be used."""
        network = self.best_network()
        part = self.batches((self.images.x_test, self.images.y_test))
        tested = evaluate(network, part, self.size.classes, torch.float32)
        figures: dict[str, float | int | None] = {
            "valid_accuracy": self.best["accuracy"],
            "test_accuracy": tested.accuracy,
            "test_loss": tested.loss,
            "test_images": tested.images,
            "majority_accuracy": tested.majority,
        }
        if self.size.classes > TOP:
            figures["test_top5"] = tested.top5
        params = parameters(network)
        model = self._model(network, {"params": params, "flops": self.flops} | figures)
        doubts = (*self.images.warnings, *tested.doubts(self.optimizer.t))
        return Tested(model, params, self.flops, figures, doubts)

    def _model(self, network: nn.Module, figures: Mapping[str, Any]) -> Model:
        images = self.images
        known: dict[str, Any] = {"data": images.name, "protocol": self.config.protocol}
        known |= {FINGERPRINT: dict(images.fingerprint)}
        known |= {name: figures[name] for name in KNOWN if name in figures}
        return Model(
            network=network,
            genotype=self.architecture,
            size=dataclasses.replace(self.size, auxiliary=False),
            classes=images.classes,
            mean=images.mean,
            std=images.std,
            shape=images.shape,
            pixels=str(images.x_train.dtype),
            info=known | {"epochs": self.epochs_done, "seed": self.config.seed},
        )

    def describe(self) -> dict[str, Any]:
        design = self.architecture
        return {
            **({"network": design.name} if isinstance(design, Design) else {}),
            "images": list(self.images.shape),
            "classes": self.size.classes,
            "cells": self.size.cells,
            "channels": self.size.channels,
            "flops": self.flops,
            "train_images": len(self.train.part),
            "valid_images": len(self.valid) if self.valid else 0,
        }

    def keep(self, run: Run) -> None:
        """Nothing: class names are found in the data."""

    def write(self, run: Run) -> None:
        """Nothing besides the checkpoint: the genotype is there from the start."""

    def state_dict(self) -> State:
        return {
            "weights": self.network.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "average": self.average.state_dict() if self.average else None,
            "train": self.train.state_dict(),
            "totals": self.totals.state_dict(),
            "epochs_done": self.epochs_done,
            "best": self.best,
        }

    def load_state_dict(self, state: State) -> None:
        self.network.load_state_dict(state["weights"])
        self.optimizer.load_state_dict(state["optimizer"])
        if self.average:
            self.average.load_state_dict(state["average"])
        self.train.load_state_dict(state["train"])
        self.totals.load_state_dict(state["totals"])
        self.epochs_done, self.best = state["epochs_done"], state["best"]


def _size(config: ImageTrainOptions, images: Images) -> Size:
    return Size(
        cells=config.cells,
        channels=config.channels,
        image_channels=images.shape[0],
        classes=images.num_classes,
        stem=config.stem,
        auxiliary=config.auxiliary > 0,
    )


def augmentation(config: ImageTrainOptions) -> Augment:
    """What is done to training images."""
    return Augment(
        shift=CHOICE[config.shift],
        flip=CHOICE[config.flip],
        cutout=config.cutout,
        rotation=config.rotation,
        colour=config.colour,
        resized_crop=config.resized_crop,
    )
