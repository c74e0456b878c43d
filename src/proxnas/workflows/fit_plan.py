"""What `fit` decides before the first step of a run by the clock: how much time there is for steps,
and how large the network and its images are."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from proxnas.common.errors import AboutOptions, OptionError
from proxnas.domains.images.fitting import FitConfig
from proxnas.domains.search_options import Precision

if TYPE_CHECKING:
    from proxnas.domains.images.baselines import Baseline
    from proxnas.domains.images.data.images import Images
    from proxnas.domains.images.recipe import Plan
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
SEARCHED_STEPS = 2000
"""Fewer steps are for the plain network: kinds that are tried out would take too much of them."""
JUDGED_IMAGES = 200
"""Fewer validation images cannot tell kinds apart."""

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

    if config.flip != "auto":
        return config.flip == "yes"
    told = None if config.flip_test else keep_their_class(simple, judged)
    return images.flip or (coloured(images) if told is None else told)


def check_asked(config: FitConfig, images: Images) -> None:
    """An error for what cannot be done with these images, before there is a run."""
    from proxnas.common.environment import pick_device
    from proxnas.core.size.stopwatch import choose
    from proxnas.domains.images import recipe
    from proxnas.domains.images.limits import budget_for
    from proxnas.domains.images.networks.cnn import Size

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
    limit = config.limit()
    if not limit:
        return
    if not images.target.searchable:
        raise AboutOptions(f"{limit.asked()}: is for classes, not for {images.target.kind}")
    width = config.channels or recipe.WIDTHS[0]
    size = Size(1, width, images.shape[0], images.num_classes)
    network = (size, images.shape, device, config.latency_by)
    budget_for(limit.of, limit.value, limit.asked(), *network)


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
    from proxnas.domains.images import recipe
    from proxnas.domains.images.parts import train_parts

    call: dict[str, Any] = {"device": config.device, "threads": config.threads}
    limit = config.limit()
    if (run / RECIPE).exists():
        return recipe.Plan(**run.read_json(RECIPE), **call)
    load_exporters()
    train, valid = train_parts(images, recipe.Plan.valid_share)
    total = 60 * config.minutes or usual_seconds(len(images.y_train))
    count = len(train[1])
    batch_size = config.batch_size or recipe.batch_size_for(count)
    judged = len(valid[1]) if valid else 0
    tests = len(images.y_test) + judged
    flip = mirrors(config, images, simple, judged)

    side = min(images.shape[1:])
    probe, precision = step_timer(config, images, batch_size, clock)
    used = clock() - start[0]
    busy = max(1.0, used / max(time.process_time() - start[1], 1e-3))
    testing = recipe.tested_seconds(tests, batch_size, side, recipe.WIDTHS[1], probe)
    left = max(SHORTEST, total - used - busy * EXPORT_SECONDS - testing)
    width, side_chosen, steps = recipe.choose_sizes(
        count, side, left, probe, may_shrink=not config.image_size
    )
    if limit and not config.channels:
        width = recipe.width_within(width, limit.of, limit.value, images, config.latency_by)
    width = config.channels or width
    side = config.image_size or side_chosen
    testing = recipe.tested_seconds(tests, batch_size, side, width, probe)
    testing *= 2 if config.flip_test else 1
    delivery = EXPORT_SECONDS + testing / busy
    per_epoch = max(1, count // batch_size)
    plan = recipe.Plan(
        seconds=max(SHORTEST, total - (clock() - start[0]) - busy * delivery),
        delivery=delivery,
        busy=busy,
        batch_size=batch_size,
        channels=width,
        image_size=side if side != min(images.shape[1:]) else config.image_size,
        epochs=max(1, round(steps / per_epoch)),
        search=bool(limit)
        or (images.target.searchable and steps >= SEARCHED_STEPS and judged >= JUDGED_IMAGES),
        flip=flip,
        flip_test=config.flip_test,
        reach=recipe.reach_for(steps / per_epoch),
        rotation=recipe.rotation_for(steps / per_epoch, count, flip),
        colour=recipe.colour_for(steps / per_epoch, images),
        mixed=recipe.mixed_for(steps / per_epoch, images),
        weighted=recipe.unequal(train[1], images.num_classes),
        seed=config.seed,
        limit_of=limit.of if limit else "",
        limit=limit.value if limit else 0.0,
        limit_asked=limit.asked() if limit else "",
        latency_by=config.latency_by,
        precision=precision,
        **call,
    )
    run.write_json(RECIPE, plan.to_json())
    say(
        f"{total / 60:.3g} minutes: {plan.seconds:.0f} s of training, about {plan.epochs} epochs of"
        f" {count:,} images, {plan.channels} channels, batches of {plan.batch_size}"
        + ("" if plan.search else "; too few steps to search, the plain network is trained")
    )
    return plan


def step_timer(
    config: FitConfig, images: Images, batch_size: int, clock: Callable[[], float]
) -> tuple[Callable[[int, int], float], Precision]:
    """Seconds of a step of the plain network by its width and the side of images, with as many
    threads as steps will take: as asked for, else one or all, whichever is quicker; and the
    precision that is quicker."""
    import torch

    from proxnas.common.cores import available
    from proxnas.common.environment import pick_device, set_threads
    from proxnas.domains.images import recipe
    from proxnas.domains.images.networks.cnn import Size
    from proxnas.training.kept_memory import keep_freed_memory

    keep_freed_memory()
    device, side = pick_device(config.device), min(images.shape[1:])

    def timed(width: int, side: int, precision: Precision = "fp32") -> float:
        size = Size(1, width, images.shape[0], images.num_classes)
        return recipe.step_seconds(size, side, batch_size, clock, device, precision)

    def timed_by(threads: int) -> float:
        torch.set_num_threads(threads)
        return timed(recipe.WIDTHS[0], side)

    set_threads(config.threads)
    if config.threads == "auto" and available() > 1 and device.type == "cpu":
        torch.set_num_threads(min((1, available()), key=timed_by))
    small = min(side, recipe.SIDES[-1])
    precision = recipe.quicker_precision(device, partial(timed, recipe.WIDTHS[1], small))
    return cache(partial(timed, precision=precision)), precision


def plan_minutes(config: FitConfig, figures: dict[str, Any]) -> dict[str, Any]:
    """The figures of a dry run: sizes as `figures` of a search in the space have them, epochs and
    seconds as they will be."""
    from proxnas.domains.images import recipe
    from proxnas.domains.images.data.images import load
    from proxnas.domains.images.parts import train_parts

    images = load(config.data, config.load_options())
    count = len(train_parts(images, recipe.Plan.valid_share)[0][1])
    seconds = 60 * config.minutes or usual_seconds(len(images.y_train))
    batch_size = config.batch_size or recipe.batch_size_for(count)
    side = min(images.shape[1:])
    probe, _ = step_timer(config, images, batch_size, time.monotonic)
    _, _, steps = recipe.choose_sizes(count, side, seconds, probe, not config.image_size)
    epochs = max(1, round(steps * batch_size / count))
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
