"""`fit` on images in the space `resnet`: one run by the clock, in which the search is the training.

    data -> simple models -> sizes by a timing -> one pass -> test -> model, ONNX, card, leaderboard

All of it stands in RUN itself. What was decided before the first step is in recipe.json, so that a
run that goes on, or is finished early, takes up the same network.
"""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from proxnas.common.errors import InputError
from proxnas.workflows.fit_options import FitConfig

if TYPE_CHECKING:
    from proxnas.domains.images.baselines import Baseline
    from proxnas.domains.images.data.images import Images
    from proxnas.domains.images.evaluate import Evaluation
    from proxnas.domains.images.one_pass import OnePass
    from proxnas.domains.images.recipe import Plan
    from proxnas.runs.folder import Run

AUTO, SPACE = "auto", "resnet"
RECIPE = "recipe.json"
LEAST_SECONDS, MOST_SECONDS, SECONDS_AN_IMAGE = 60.0, 600.0, 0.02
"""Without --minutes: a minute, or so much an image, at most ten."""
EXPORT_SECONDS = 6.0
"""Export, check, card and report, once their libraries are loaded; on a busy machine more."""
SHORTEST = 1.0
"""Seconds of training at least, whatever the rest took."""
SEARCHED_STEPS = 2000
"""Fewer steps are for the plain network: kinds that are tried out would take too much of them."""
JUDGED_IMAGES = 200
"""Fewer validation images cannot tell kinds apart."""
OF_CELLS = ("eta", "search_epochs", "epochs", "cells", "search_config", "train_config")
"""Flags of a search that is followed by a training."""

Say = Callable[[str], None]


def is_one_pass(config: FitConfig) -> bool:
    """Whether the fit is one run by the clock; else it is a search, then a training: in the spaces
    of cells, by other methods, and where flags are given that only such a fit has."""
    if config.space not in (AUTO, SPACE):
        return False
    usual = config.method == "nasp" and config.protocol == "auto" and config.processes == 1
    return usual and not config.limit() and not any(getattr(config, name) for name in OF_CELLS)


def usual_seconds(images: int) -> float:
    """Time for so many images, if nobody gave one."""
    return min(MOST_SECONDS, max(LEAST_SECONDS, SECONDS_AN_IMAGE * images))


def fit_minutes(
    config: FitConfig,
    folder: Path,
    say: Say,
    clock: Callable[[], float] = time.monotonic,
    begun: float | None = None,
) -> dict[str, Any]:
    """The whole of it, from where the folder stands. Returns what result.json holds.

    `begun`: since when, by the clock, the time counts; None: since now.
    """
    from rich.console import Console

    from proxnas.common.environment import describe, pick_device
    from proxnas.domains.images.data.images import load
    from proxnas.runs.folder import open_run
    from proxnas.runs.lengthening import store
    from proxnas.runs.loop import run_epochs
    from proxnas.runs.progress import shown
    from proxnas.runs.same_data import check_data

    start = (clock(), time.process_time()) if begun is None else (begun, 0.0)
    images = load(config.data, config.load_options())  # before the folder is touched
    with open_run(folder, config.resume or config.finish, config.force) as run:
        if config.finish and not (run / "checkpoint.pt").exists() and not run.finished:
            raise InputError(f"{folder}: holds no run to finish: leave --finish out to begin one")
        store(config, "fit", run)
        if run.finished:
            return run.result(("exported", "model_card", "search", "train"))
        run.write_json("environment.json", describe(pick_device(config.device)))
        simple = simple_models(run, images)
        plan = make_plan(config, run, images, start, clock, say)
        if plan.image_size and plan.image_size != config.image_size:
            sized = dataclasses.replace(config, image_size=plan.image_size)
            images = load(sized.data, sized.load_options())
        job = build_pass(plan, images, clock)
        check_data(run, job.fingerprint)
        if config.finish:
            finish(job, run)
        title = f"{SPACE} seed {config.seed}"
        with shown(Console(highlight=False), title, config.quiet) as bar:
            rows = run_epochs(job, run, bar)
        seconds = sum(sum(row["seconds"].values()) for row in rows)
        result = deliver_pass(config, job, run, simple, seconds, say)
        result["minutes"] = config.minutes or None
        run.write_json("result.json", result)
        return result


def build_pass(plan: Plan, images: Images, clock: Callable[[], float]) -> OnePass:
    """The job; time counts from now on."""
    from proxnas.domains.images.one_pass import OnePass

    job = OnePass(plan, images, clock=clock)
    job.pace.begin()
    return job


def finish(job: OnePass, run: Run) -> None:
    """The stopped run is at its end where it stands."""
    state = run.load_checkpoint()
    assert state is not None, "asked for before"
    job.load_state_dict(state)
    job.pace.finish()


def simple_models(run: Run, images: Images) -> list[Baseline]:
    """Those that the network is held against, made once a run."""
    from proxnas.domains.images.baselines import Baseline, baselines
    from proxnas.domains.images.parts import train_parts
    from proxnas.domains.images.recipe import Plan

    if (run / "baselines.json").exists():
        return [Baseline(**row) for row in run.read_json("baselines.json")]
    train, valid = train_parts(images, Plan.valid_share)
    found = baselines(train, valid, (images.x_test, images.y_test))
    run.write_json("baselines.json", [dataclasses.asdict(row) for row in found])
    return found


def make_plan(
    config: FitConfig,
    run: Run,
    images: Images,
    start: tuple[float, float],
    clock: Callable[[], float],
    say: Say,
) -> Plan:
    """The plan of the folder, or a new one. `start`: the clock and the processor time at which it
    all began."""
    from proxnas.domains.images import recipe
    from proxnas.domains.images.networks.cnn import Size
    from proxnas.domains.images.parts import train_parts

    call: dict[str, Any] = {"device": config.device, "threads": config.threads}
    if (run / RECIPE).exists():
        return recipe.Plan(**run.read_json(RECIPE), **call)
    load_exporters()
    train, valid = train_parts(images, recipe.Plan.valid_share)
    total = 60 * config.minutes or usual_seconds(len(train[1]))
    count, channels = len(train[1]), images.shape[0]
    batch_size = config.batch_size or recipe.batch_size_for(count)
    tests = len(images.y_test) + (len(valid[1]) if valid else 0)

    def probe(width: int, side: int) -> float:
        size = Size(1, width, channels, images.num_classes)
        return recipe.step_seconds(size, side, batch_size, clock)

    side = min(images.shape[1:])
    one_step = probe(recipe.WIDTHS[1], min(side, recipe.SIDES[-1]))
    tested = one_step / 3 / batch_size * tests * (side / min(side, recipe.SIDES[-1])) ** 2
    used = clock() - start[0]
    busy = max(1.0, used / max(time.process_time() - start[1], 1e-3))
    left = max(SHORTEST, total - used - busy * EXPORT_SECONDS - tested)
    width, side_chosen, steps = recipe.choose_sizes(
        count, side, left, probe, may_shrink=not config.image_size
    )
    per_epoch = max(1, count // batch_size)
    judged = len(valid[1]) if valid else 0
    plan = recipe.Plan(
        seconds=max(SHORTEST, left - (clock() - start[0] - used)),
        batch_size=batch_size,
        channels=config.channels or width,
        image_size=config.image_size or (side_chosen if side_chosen != side else 0),
        epochs=max(1, round(steps / per_epoch)),
        search=steps >= SEARCHED_STEPS and judged >= JUDGED_IMAGES,
        flip={"auto": recipe.mirrored(images), "yes": True, "no": False}[config.flip],
        weighted=recipe.unequal(train[1], images.num_classes),
        seed=config.seed,
        **call,
    )
    run.write_json(RECIPE, plan.to_json())
    say(
        f"{total / 60:.3g} minutes: {plan.seconds:.0f} s of training, about {plan.epochs} epochs of"
        f" {count:,} images, {plan.channels} channels, batches of {plan.batch_size}"
        + ("" if plan.search else "; too few steps to search, the plain network is trained")
    )
    return plan


def plan_minutes(config: FitConfig, figures: dict[str, Any]) -> dict[str, Any]:
    """The figures of a dry run: sizes as `figures` of a search in the space have them, epochs and
    seconds as they will be."""
    from proxnas.domains.images import recipe
    from proxnas.domains.images.data.images import load
    from proxnas.domains.images.networks.cnn import Size
    from proxnas.domains.images.parts import train_parts

    images = load(config.data, config.load_options())
    count = len(train_parts(images, recipe.Plan.valid_share)[0][1])
    seconds = 60 * config.minutes or usual_seconds(count)
    batch_size = config.batch_size or recipe.batch_size_for(count)

    def probe(width: int, side: int) -> float:
        size = Size(1, width, images.shape[0], images.num_classes)
        return recipe.step_seconds(size, side, batch_size)

    side = min(images.shape[1:])
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
    from proxnas.domains.exporting import onnx_available

    if onnx_available():
        import onnxruntime  # noqa: F401
        import onnxscript  # noqa: F401


def deliver_pass(
    config: FitConfig, job: OnePass, run: Run, simple: list[Baseline], seconds: float, say: Say
) -> dict[str, Any]:
    """Tests the network once, writes its files; returns the result."""
    import numpy as np

    from proxnas.core.size.complexity import parameters
    from proxnas.domains.images.data.stream import ImageBatches
    from proxnas.domains.images.deliver import IMAGES, onnx_latency
    from proxnas.domains.images.model import save_model
    from proxnas.domains.trained import load_model
    from proxnas.runs.folder import write_atomically
    from proxnas.training.model_file import FILE

    images, network = job.images, job.network()
    test = ImageBatches(images, (images.x_test, images.y_test), device=job.device)
    tested = job.evaluation(network, test)
    valid = job.evaluation(network, job.valid) if job.valid else None
    write_atomically(run / "genotype.json", job.genotype().to_json())
    result: dict[str, Any] = {
        "method": config.method,
        "space": SPACE,
        "data": config.data,
        "seed": config.seed,
        "genotype": json.loads(job.genotype().to_json()),
        "params": parameters(network),
        "flops": job.flops,
        "valid_accuracy": valid.accuracy if valid else None,
        "test_accuracy": tested.accuracy,
        "test_loss": tested.loss,
        "test_images": tested.images,
        "majority_accuracy": tested.majority,
        "epochs": job.epochs_done,
        "steps": len(job.pace.shares),
        "seconds": seconds,
        "converged": None,
        "budget": None,
        "search": _searched(job, parameters(network)),
        "train": {"epochs": job.epochs_done, "seconds": seconds},
    }
    save_model(run / FILE, model_of(job, network, result))
    found = {name: result[name] for name in ("method", "space", "data", "seed", "params", "flops")}
    model = load_model(run.folder)
    files = model.deliver(run.folder, np.asarray(images.x_test[:IMAGES]), found, say).files
    latency = onnx_latency(files["onnx"], images.shape).seconds if "onnx" in files else None
    result["leaderboard"] = leaderboard(job, simple, test, result, latency)
    result |= {
        "onnx": files["onnx"].name if "onnx" in files else None,
        "exported": files.get("onnx", files.get("torch", run.folder)).name,
        "model_card": files["card"].name,
    }
    if warnings := _warnings(job, tested, result["leaderboard"]):
        result["warning"] = "; ".join(warnings)
    return result


def model_of(job: OnePass, network: Any, result: Mapping[str, Any]) -> Any:
    """The model as it is kept."""
    from proxnas.common.config_file import FINGERPRINT
    from proxnas.domains.images.model import Model

    images = job.images
    wanted = (
        *("params", "flops", "valid_accuracy", "test_accuracy", "test_images", "epochs"),
        "seed",
    )
    known = {"data": images.name, "protocol": "minutes", FINGERPRINT: dict(images.fingerprint)}
    return Model(
        network=network,
        genotype=job.genotype(),
        size=job.size,
        classes=images.classes,
        mean=images.mean,
        std=images.std,
        shape=images.shape,
        pixels=str(images.x_train.dtype),
        info=known | {name: result[name] for name in wanted},
    )


def leaderboard(
    job: OnePass,
    simple: list[Baseline],
    test: Any,
    result: Mapping[str, Any],
    latency: float | None,
) -> list[dict[str, Any]]:
    """Simple models, the plain network where another was found, and what is delivered."""
    rows: list[dict[str, Any]] = []
    for model in simple:
        figures = dataclasses.asdict(model)
        rows.append(figures | {"kind": "baseline", "latency_ms": None, "delivered": False})
    if job.choice:
        rows.append(_plain_row(job, test))
    rows.append(
        {
            "name": "found network" if job.choice else "plain network",
            "valid_accuracy": result["valid_accuracy"],
            "test_accuracy": result["test_accuracy"],
            "params": result["params"],
            "seconds": result["seconds"],
            "kind": "network",
            "latency_ms": None if latency is None else 1000 * latency,
            "delivered": True,
        }
    )
    return rows


def _plain_row(job: OnePass, test: Any) -> dict[str, Any]:
    """The plain network as it was when A came to rest."""
    from proxnas.core.size.complexity import parameters
    from proxnas.domains.images.spaces.resnet import ResNet, middle

    network = ResNet().network(ResNet().genotype(middle()), job.size).to(job.device).eval()
    network.load_state_dict(job.choice["weights"])
    valid = job.evaluation(network, job.valid).accuracy if job.valid else None
    return {
        "name": "plain network, when the search ended",
        "valid_accuracy": valid,
        "test_accuracy": job.evaluation(network, test).accuracy,
        "params": parameters(network),
        "seconds": job.choice["seconds"],
        "kind": "network",
        "latency_ms": None,
        "delivered": False,
    }


def _searched(job: OnePass, params: int) -> dict[str, Any]:
    """What became of the search, and the line that says it."""
    from proxnas.core.size.complexity import parameters
    from proxnas.domains.images.spaces.resnet import ResNet, middle

    seconds = job.choice.get("seconds", 0.0)
    won = sum(swap[-1] for swap in job.tried)
    if not job.config.search:
        said = "no search: there are too few steps, or validation images, for it to pay"
    elif not job.choice:
        said = f"the search won nothing: of {len(job.tried)} swaps tried none was clear of noise"
        said += "" if not won else " in the end"
    else:
        plain = parameters(ResNet().network(ResNet().genotype(middle()), job.size))
        gain, error = job.choice["gain"], job.choice["error"]
        said = (
            f"the search made {won} of {len(job.tried)} swaps tried: validation loss lower by"
            f" {gain:.3f} (+- {error:.3f}) at the choice, {params:,} parameters where the plain"
            f" network has {plain:,}"
        )
    return {"epochs": 0, "seconds": seconds, "tried": len(job.tried), "won": won, "said": said}


def _warnings(job: OnePass, tested: Evaluation, rows: list[dict[str, Any]]) -> list[str]:
    found = list(job.images.warnings)
    if not tested.beats_majority():
        found.append(
            f"test accuracy {tested.accuracy:.4f} is not better than always answering the most"
            f" frequent class, right for {tested.majority:.4f} of the {tested.images} test images:"
            f" the network has learnt nothing that shows ({len(job.pace.shares)} steps); give it"
            " more --minutes or more images"
        )
    delivered = rows[-1]["valid_accuracy"]
    for row in rows:
        figure = row["valid_accuracy"]
        if row["kind"] == "baseline" and None not in (figure, delivered) and figure > delivered:
            found.append(
                f"{row['name']} is better on the validation images"
                f" ({figure:.4f} against {delivered:.4f}): give more --minutes"
            )
    return found
