"""How a chain is trained in minutes: sizes by the data and by the time, chosen before it begins.

What counts is how many steps there are. So the network is as wide, and its images as large, as
leaves LEAST_STEPS steps in the time, by a timing of a few.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

from proxnas.common.cores import Asked
from proxnas.common.seeds import Array
from proxnas.domains.images.data.images import Images
from proxnas.domains.images.limits import network_size
from proxnas.domains.images.networks.chain import chain_network
from proxnas.domains.images.networks.cnn import Size, channels_last
from proxnas.domains.images.spaces.resnet import middle, resnet
from proxnas.domains.search_options import Precision
from proxnas.runs.job import PRECISIONS
from proxnas.training.convolutions import MuonAndSgd, Rates

CPU = torch.device("cpu")
LEAST_STEPS = 1100
WIDTHS = (16, 24, 32)
"""Channels of the first stage."""
MANY = 2500
WIDE, WIDEST, MANY_STEPS = 48, (64, 96), 2500
"""More widths for so many images or more, the widest where there are so many steps: of 10,000
images three minutes are best spent on 48 channels, ten on 64; of 5,000 in grey four on 64
(docs/laboratory.md)."""
SIDES = (64, 48, 32)
"""Pixels that larger images are brought to, the largest that leaves time for steps."""
PROGRESS = (0.5, 0.625, 0.75, 0.875, 1.0)
"""Sides of training images by the time used, as shares of the whole side."""
SMALLEST_PROGRESS = 24
"""Images of a smaller side are not made smaller still."""
COST = 1.6
"""Time of a step grows with this power of the width, as measured from 16 to 32."""
UNEQUAL = 1.5
"""Times that the largest class is larger than the smallest, from which on classes are weighted."""
FEW_EPOCHS = 25
"""So many see images that are shifted by less: there is no time to learn them by heart."""
MANY_EPOCHS = 75
"""So many and more see what is learnt by heart, drawings too (docs/laboratory.md)."""
FEW_IMAGES = 2500
"""So many writings or drawings, seen often, are turned too; of more it wins nothing, and a step
takes a quarter longer."""
ROTATION = 10.0
COLOUR = 0.3
MIXED = 0.5
LEAST_MIXED = 1000
"""Fewer images have no rectangles of others: of 400 it won no accuracy in 600 steps."""
PROBE_STEPS = 3
QUICKER = 0.85
"""Share of the time of a step in full precision that one in bf16 takes at most where it is used."""
LARGER = 3.0
"""Times that the plain network may be larger than the limit on what becomes of it."""


@dataclass(frozen=True)
class Plan:
    """Everything that is decided before the first step; kept, so that a run can go on with it."""

    seconds: float
    """Time of the training, by the clock, on a machine as busy as at the start."""
    batch_size: int
    channels: int
    image_size: int
    """Side that images are brought to; 0: as they are."""
    epochs: int
    """About so many are expected."""
    search: bool
    """Whether blocks may change their kind."""
    flip: bool
    flip_test: bool
    """Whether answers are means over an image and its mirror image."""
    reach: float
    """Share of a side that images are shifted by at most."""
    rotation: float
    """Degrees that images are turned by at most."""
    weighted: bool
    """Whether rare classes count more."""
    seed: int = 0
    device: str = "auto"
    threads: Asked = "auto"
    cells: int = 1
    label_smoothing: float = 0.1
    valid_share: float = 0.1
    learning_rate: float = Rates.convolutions
    checkpoint_minutes: float = 1.0
    delivery: float = 0.0
    """Seconds of computing that follow: test, export, report."""
    busy: float = 1.0
    """Times that everything took longer at the start than it computed."""
    limit_of: str = ""
    """What the delivered network may have only so much of: params, flops or latency."""
    limit: float = 0.0
    latency_by: str = "auto"
    """What times networks, for a limit of seconds."""
    limit_asked: str = ""
    """The option and its value, as they were written."""
    colour: float = 0.0
    """Share that brightness, contrast and saturation vary by at most; hue, which may be what tells
    classes apart, does not."""
    mixed: float = 0.0
    """Share of the batches in which images have a rectangle of others."""
    precision: Precision = "fp32"
    """Of the operations of a step; weights and tests are fp32."""

    def to_json(self) -> dict[str, Any]:
        """What is kept of it: not what the next call may do otherwise."""
        values = dataclasses.asdict(self)
        return {name: values[name] for name in values if name not in ("device", "threads")}


def batch_size_for(images: int) -> int:
    """Batches of 128; of fewer images smaller ones, which make more steps of an epoch."""
    size = 128
    # about 20 steps an epoch at least, as far as batches of 32 can make them
    while size > 32 and images < 20 * size:
        size //= 2
    return max(2, min(size, images))


def reach_for(epochs: float) -> float:
    """How far images are shifted, as a share of a side."""
    return 1 / 16 if epochs <= FEW_EPOCHS else 1 / 8


def rotation_for(epochs: float, images: int, flip: bool) -> float:
    """How far images are turned: writing and drawings, where there are few of them that are seen
    often."""
    return 0.0 if flip or epochs <= FEW_EPOCHS or images > FEW_IMAGES else ROTATION


def colour_for(epochs: float, images: Images) -> float:
    """How far colours vary: those of photos that are seen often."""
    may_vary = images.x_train.dtype == np.uint8 and coloured(images)
    return COLOUR if may_vary and epochs > FEW_EPOCHS else 0.0


def mixed_for(epochs: float, images: Images) -> float:
    """How often images have a part of others: those of classes that are seen often, writing and
    drawings, which are told apart by small parts, very often. Numbers are not mixed by areas."""
    may_mix = len(images.y_train) >= LEAST_MIXED and images.target.kind == "classes"
    often = FEW_EPOCHS if coloured(images) else MANY_EPOCHS
    return MIXED if may_mix and epochs > often else 0.0


def coloured(images: Images) -> bool:
    """Whether some of the training images have colours."""
    if images.shape[0] != 3:
        return False
    # ptp over the channels of a pixel, (N, H, W): 0 in grey images that are stored as RGB
    some = np.asarray(images.x_train[:64]).astype(np.float32)
    return bool(np.ptp(some, axis=3).mean() > 0.02 * max(1.0, float(some.max())))


def class_weights(y: Array, classes: int) -> Array:
    """Weights of the classes in the loss: the root of what would make them equal, mean 1."""
    # w_k = sqrt(N / (K n_k)), divided by their mean; clip: a class may have no image in this part
    counts = np.bincount(y, minlength=classes).clip(min=1)
    weights: Array = np.sqrt(len(y) / (classes * counts))
    weights /= weights.mean()
    return weights


def unequal(y: Array, classes: int) -> bool:
    """Whether some classes have many more images than others; other targets are not weighted."""
    if y.ndim > 1:
        return False
    counts = np.bincount(y, minlength=classes)
    return bool(counts.max() > UNEQUAL * counts.min())


def sides(side: int, share: float) -> int:
    """The side of training images when that share of the time is used: a multiple of 4."""
    if side < SMALLEST_PROGRESS:
        return side
    # each of the sides has the same share of the time
    part = PROGRESS[min(int(share * len(PROGRESS)), len(PROGRESS) - 1)]
    return side if part == 1 else max(4, 4 * round(part * side / 4))


def progress_cost(side: int) -> float:
    """The mean cost of a step, if that at the whole side is 1."""
    # a step costs as many pixels as it has: (side / whole side)^2, in the middle of each share
    shares = [(i + 0.5) / len(PROGRESS) for i in range(len(PROGRESS))]
    return sum((sides(side, share) / side) ** 2 for share in shares) / len(shares)


def step_seconds(
    size: Size,
    side: int,
    batch_size: int,
    clock: Callable[[], float] = time.monotonic,
    device: torch.device = CPU,
    precision: Precision = "fp32",
) -> float:
    """A step of the plain network on images of that side: the quickest of some, after one that
    prepares."""
    network = channels_last(chain_network(resnet().genotype(middle()), size).to(device))
    optimizer = MuonAndSgd(network, Rates())
    x = torch.randn(batch_size, size.image_channels, side, side, device=device)
    x = x.contiguous(memory_format=torch.channels_last)
    y = torch.zeros(batch_size, dtype=torch.int64, device=device)
    half = torch.autocast(device.type, PRECISIONS[precision], enabled=precision != "fp32")
    found = []
    for _ in range(PROBE_STEPS):
        start = clock()
        with half:
            logits = network(x)
        loss = nn.functional.cross_entropy(logits.float(), y)
        loss.backward()
        # at rate 0: only the time is wanted
        optimizer.step(loss.detach(), 0.0)
        loss.item()  # a GPU has ended its work only then
        found.append(clock() - start)
    return min(found[1:])


def has_bf16(device: torch.device) -> bool:
    """Whether there may be instructions for it: elsewhere it is emulated, many times slower."""
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported())
    kind = torch.backends.cpu.get_cpu_capability()
    if device.type != "cpu" or not kind.startswith(("AVX512", "SVE")):
        return False
    ask: Callable[[], dict[str, bool]] = getattr(torch.cpu, "get_capabilities", dict)
    known = ask()  # nothing in older versions of torch
    # where torch does not tell, AVX-512 or SVE must do: the timing that follows decides anyway
    of_intel = [known[name] for name in ("avx512_bf16", "amx_bf16") if name in known]
    return any(of_intel) if of_intel else True


def quicker_precision(device: torch.device, seconds: Callable[[Precision], float]) -> Precision:
    """bf16 where the steps that `seconds` times are clearly quicker in it: there is time for more
    of them, which wins more than the digits lose."""
    if has_bf16(device) and seconds("bf16") <= QUICKER * seconds("fp32"):
        return "bf16"
    return "fp32"


def width_within(
    width: int, of: str, limit: float, images: Images, latency_by: str = "auto"
) -> int:
    """At most that width, and so wide only that the plain network is at most LARGER times as large
    as the limit: blocks that are much cheaper than 3x3 convolutions lose more than channels do."""
    # from the widest on: the first that is small enough
    for narrower in (width, *(w for w in sorted(WIDTHS, reverse=True) if w < width)):
        size = Size(1, narrower, images.shape[0], images.num_classes)
        plain = network_size(of, middle(), size, images.shape, CPU, latency_by)
        if plain <= LARGER * limit:
            return narrower
    return WIDTHS[0]


def tested_seconds(
    images: int, batch_size: int, side: int, channels: int, probe: Callable[[int, int], float]
) -> float:
    """Time to test so many images: a third of a step each, at their whole side."""
    # timed on small images and scaled: seconds of a step ~ width^COST * side^2
    small = min(side, SIDES[-1])
    wider: float = (channels / WIDTHS[1]) ** COST
    step = probe(WIDTHS[1], small) * wider * (side / small) ** 2
    # forward is about a third of a step, backward the rest
    return step / 3 / batch_size * images


def choose_sizes(
    images: int, side: int, seconds: float, probe: Callable[[int, int], float], may_shrink: bool
) -> tuple[int, int, int]:
    """(channels, side, steps to expect): the largest side, then the widest network, that leave
    LEAST_STEPS steps in the time. `probe(channels, side)` gives the seconds of a step."""
    smaller = [s for s in SIDES if s < side] if may_shrink else []
    # images above the largest side are never trained on as they are, unless their side is asked for
    tried = [side, *smaller] if side <= SIDES[0] or not smaller else smaller
    width = WIDTHS[1]
    # seconds a pixel of a side squared, measured once, at the smallest side and the middle width
    base = probe(width, tried[-1]) / tried[-1] ** 2

    def steps(channels: int, at: int) -> int:
        step = base * at**2 * (channels / width) ** COST * progress_cost(at)
        return int(seconds / max(step, 1e-9))

    at = next((s for s in tried if steps(width, s) >= LEAST_STEPS), tried[-1])
    widths = (*WIDTHS, WIDE, *WIDEST) if images >= MANY else WIDTHS
    channels = widths[0]
    for wider in widths:
        if steps(wider, at) >= (MANY_STEPS if wider in WIDEST else LEAST_STEPS):
            channels = wider
    return channels, at, steps(channels, at)
