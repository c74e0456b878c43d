"""What `fit` decides before the first step of a run by the clock: how much time there is for steps,
and how large the network and its images are."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from proxnas.common.errors import AboutOptions, OptionError
from proxnas.domains.images.fitting import FitConfig
from proxnas.workflows.fit_timing import step_timer

if TYPE_CHECKING:
    import torch

    from proxnas.common.seeds import Array
    from proxnas.domains.images.baselines import Baseline
    from proxnas.domains.images.data.images import Images
    from proxnas.domains.images.recipe import Plan
    from proxnas.methods.limit_options import Limit
    from proxnas.runs.folder import Run

SPACE = "resnet"
RECIPE = "recipe.json"
LEAST_SECONDS, MOST_SECONDS, SECONDS_AN_IMAGE = 60.0, 600.0, 0.02
"""Without --minutes: a minute, or so much an image, at most ten."""
EXPORT_SECONDS = 3.0
"""Export, int8 version, checks, card and report, once their libraries are loaded; on a busy machine
more."""
SHORTEST = 1.0
"""Seconds of training at least, whatever the rest took."""

Say = Callable[[str], None]


def usual_seconds(images: int) -> float:
    """Time for so many images, if nobody gave one."""
    return min(MOST_SECONDS, max(LEAST_SECONDS, SECONDS_AN_IMAGE * images))


def mirrors(
    config: FitConfig, images: Images, simple: Sequence[Baseline] = (), judged: int = 0
) -> bool:
    """Whether training images are mirrored: as asked for, as is known of the data, as simple models
    say of so many validation images, else as colours do."""
    from proxnas.domains.images.mirroring import keep_their_class
    from proxnas.domains.images.recipe import coloured

    # what is asked for, what a reader knows (Tiny ImageNet, CIFAR), what is measured, what is
    # likely
    if config.flip != "auto":
        return config.flip == "yes"
    told = None if config.flip_test else keep_their_class(simple, judged)
    return images.flip or (coloured(images) if told is None else told)


def check_asked(config: FitConfig, images: Images) -> None:
    """An error for what cannot be done with these images, before there is a run."""
    from proxnas.common.environment import pick_device
    from proxnas.core.size.stopwatch import choose

    if config.flip_test and not mirrors(config, images):
        raise AboutOptions(
            "{flip_test}: is for images that are mirrored in training: give {flip} yes too, or"
            " leave it out"
        )
    device = pick_device(config.device)
    if config.latency_by not in ("auto", "onnx", "torch"):
        raise OptionError(
            "latency_by",
            config.latency_by,
            "one pass by the clock times networks by onnx or torch: give {epochs} too, or leave it"
            " out",
        )
    choose(config.latency_by, device)  # what is not installed is said now
    check_limit(config, images, device)


def check_limit(config: FitConfig, images: Images, device: torch.device) -> None:
    """An error for a limit that the data have no use for, or that no network is within."""
    from proxnas.domains.images import recipe
    from proxnas.domains.images.limits import budget_for
    from proxnas.domains.images.networks.cnn import Size

    limit = config.limit()
    if not limit:
        return
    if not images.target.searchable:
        raise AboutOptions(f"{limit.asked()}: is for classes, not for {images.target.kind}")
    # the narrowest that a plan may choose: what is too large there is too large everywhere
    width = config.channels or recipe.WIDTHS[0]
    size = Size(1, width, images.shape[0], images.num_classes)
    network = (size, images.shape, device, config.latency_by)
    budget_for(limit.of, limit.value, limit.asked(), *network)


class Amount(NamedTuple):
    """How many images there are, and how many are in a batch."""

    y: Array
    """Of the training part."""
    judged: int
    """In the validation part."""
    tested: int
    """Answered at the end: by the test, and by the last look at the validation part."""
    batch_size: int

    @property
    def train(self) -> int:
        return len(self.y)


class Chosen(NamedTuple):
    """What there is time for."""

    channels: int
    side: int
    """Of the images."""
    steps: int
    testing: float
    """Seconds of the test of such a network, if nobody else uses the machine."""


def make_plan(
    config: FitConfig,
    run: Run,
    images: Images,
    simple: Sequence[Baseline],
    start: tuple[float, float],
    clock: Callable[[], float],
    say: Say,
) -> Plan:
    """The plan of the folder, or a new one. `start`: the clock and the processor time at which it
    all began."""
    from proxnas.domains.images.recipe import Plan

    call: dict[str, Any] = {"device": config.device, "threads": config.threads}
    if (run / RECIPE).exists():
        return Plan(**run.read_json(RECIPE), **call)
    load_exporters()
    total = 60 * config.minutes or usual_seconds(len(images.y_train))
    amount = count_images(config, images)
    flip = mirrors(config, images, simple, amount.judged)
    probe, precision = step_timer(config, images, amount.batch_size, clock)
    used = clock() - start[0]
    # how many times longer all of it took than it computed: what follows will be as late
    busy = max(1.0, used / max(time.process_time() - start[1], 1e-3))
    chosen = choose_for_time(config, images, amount, total - used, busy, probe)
    # the timing itself was as late as everything else: of its seconds only a share was computing
    delivery = EXPORT_SECONDS + chosen.testing / busy
    seconds = max(SHORTEST, total - (clock() - start[0]) - busy * delivery)
    values = decide(config, images, amount, chosen, flip)
    values |= {"seconds": seconds, "delivery": delivery, "busy": busy, "precision": precision}
    plan = Plan(**values, **call)
    run.write_json(RECIPE, plan.to_json())
    say(plan_line(plan, total, amount.train))
    return plan


def count_images(config: FitConfig, images: Images) -> Amount:
    """The amounts of images, by which much is decided."""
    from proxnas.domains.images import recipe
    from proxnas.domains.images.parts import train_parts

    (_, y), valid = train_parts(images, recipe.Plan.valid_share)
    judged = len(valid[1]) if valid else 0
    batch_size = config.batch_size or recipe.batch_size_for(len(y))
    return Amount(y, judged, len(images.y_test) + judged, batch_size)


def choose_for_time(
    config: FitConfig,
    images: Images,
    amount: Amount,
    seconds: float,
    busy: float,
    probe: Callable[[int, int], float],
) -> Chosen:
    """The sizes that so many seconds are enough for, delivery included, as far as nobody has asked
    for others."""
    from proxnas.domains.images import recipe

    side, limit = min(images.shape[1:]), config.limit()

    def testing(side: int, width: int) -> float:
        return recipe.tested_seconds(amount.tested, amount.batch_size, side, width, probe)

    # which network will be tested is not known yet: that of middle width on whole images stands in
    left = max(SHORTEST, seconds - busy * EXPORT_SECONDS - testing(side, recipe.WIDTHS[1]))
    may_shrink = not config.image_size
    width, side, steps = recipe.choose_sizes(amount.train, side, left, probe, may_shrink)
    if limit and not config.channels:
        width = recipe.width_within(width, limit.of, limit.value, images, config.latency_by)
    width, side = config.channels or width, config.image_size or side
    # a test with mirror images answers each image twice
    return Chosen(width, side, steps, testing(side, width) * (2 if config.flip_test else 1))


def decide(
    config: FitConfig, images: Images, amount: Amount, chosen: Chosen, flip: bool
) -> dict[str, Any]:
    """The values of a plan but for its times: sizes, whether it searches, augmentation, limit."""
    from proxnas.domains.images import recipe

    limit = config.limit()
    # a limit is kept by the search; without one it wins nothing (docs/laboratory.md), and is made
    # where it is asked for
    search = limit is not None or config.space == SPACE
    whole = chosen.side == min(images.shape[1:])
    # passes over the images, which may be fewer than one
    epochs = chosen.steps / max(1, amount.train // amount.batch_size)
    return {
        "batch_size": amount.batch_size,
        "channels": chosen.channels,
        "image_size": config.image_size if whole else chosen.side,
        "epochs": max(1, round(epochs)),
        "search": search and images.target.searchable,
        "flip": flip,
        "flip_test": config.flip_test,
        "reach": recipe.reach_for(epochs),
        "rotation": recipe.rotation_for(epochs, amount.train, flip),
        "colour": recipe.colour_for(epochs, images),
        "mixed": recipe.mixed_for(epochs, images),
        "weighted": recipe.unequal(amount.y, images.num_classes),
        "seed": config.seed,
        **limit_values(limit),
        "latency_by": config.latency_by,
    }


def limit_values(limit: Limit | None) -> dict[str, Any]:
    """A limit as a plan holds it."""
    if limit is None:
        return {"limit_of": "", "limit": 0.0, "limit_asked": ""}
    return {"limit_of": limit.of, "limit": limit.value, "limit_asked": limit.asked()}


def plan_line(plan: Plan, total: float, images: int) -> str:
    """The plan for people; `total`: seconds of everything."""
    searched = ", other kinds of blocks tried out" if plan.search else ""
    return (
        f"{total / 60:.3g} minutes: {plan.seconds:.0f} s of training, about {plan.epochs} passes"
        f" over {images:,} images, {plan.channels} channels, batches of {plan.batch_size}{searched}"
    )


def plan_minutes(config: FitConfig, figures: dict[str, Any]) -> dict[str, Any]:
    """The figures of a dry run: sizes as `figures` of a search in the space have them, epochs and
    seconds as they will be."""
    from proxnas.domains.images import recipe
    from proxnas.domains.images.data.images import load

    images = load(config.data, config.load_options())
    amount = count_images(config, images)
    seconds = 60 * config.minutes or usual_seconds(len(images.y_train))
    probe, _ = step_timer(config, images, amount.batch_size, time.monotonic)
    side, may_shrink = min(images.shape[1:]), not config.image_size
    _, _, steps = recipe.choose_sizes(amount.train, side, seconds, probe, may_shrink)
    epochs = max(1, round(steps * amount.batch_size / amount.train))
    each = seconds / epochs
    return figures | {
        "epochs": epochs,
        "train_epochs": epochs,
        "seconds_per_epoch": each,
        "train_seconds_per_epoch": each,
        "minutes": seconds / 60,
    }


def load_exporters() -> None:
    """Libraries that are slow to load are loaded while there is time."""
    from proxnas.common.onnx_runtime import onnx_available

    if onnx_available():
        import onnx  # noqa: F401
        import onnxruntime.quantization  # noqa: F401
