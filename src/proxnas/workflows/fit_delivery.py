"""What a run by the clock leaves behind: the tested network, its files and its figures."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from proxnas.domains.images.fit_files import write_files
from proxnas.domains.images.fitting import FitConfig
from proxnas.report.examined import FILE as TEST
from proxnas.workflows.fit_board import leaderboard, warnings_of, what_search_won
from proxnas.workflows.fit_plan import SPACE, Say

if TYPE_CHECKING:
    from proxnas.domains.images.baselines import Baseline
    from proxnas.domains.images.evaluate import Evaluation, Judged
    from proxnas.domains.images.one_pass import OnePass
    from proxnas.domains.images.pass_images import Verdict
    from proxnas.runs.folder import Run


def deliver_pass(
    config: FitConfig, job: OnePass, run: Run, simple: list[Baseline], seconds: float, say: Say
) -> dict[str, Any]:
    """Tests the network once, writes its files; returns the result."""
    from proxnas.domains.images.data.stream import ImageBatches
    from proxnas.domains.images.examine import examine
    from proxnas.runs.folder import write_atomically

    # before anything is told of the network: a run that was stopped early may be too large
    job.keep_limit()
    images, network = job.images, job.network()
    test = ImageBatches(images, (images.x_test, images.y_test), device=job.device)
    tested = job.evaluation(network, test, keep=True)
    valid = job.validation()
    write_atomically(run / "genotype.json", job.genotype().to_json())
    result = _figures(config, job, network, tested, valid, seconds)
    if examined := examine(tested, images):
        run.write_json(TEST, examined)
        result["calibration_error"] = examined["calibration"]["error"]
    files, doubts = _write_model(job, run, network, result, say)
    latency = files.pop("latency_ms", None)
    result["leaderboard"] = leaderboard(job, simple, test, result, latency)
    result |= files
    if warnings := warnings_of(job, tested, result["leaderboard"]) + doubts:
        result["warning"] = "; ".join(warnings)
    named: dict[str, Any] = images.target.named(result)
    return named


def _figures(
    config: FitConfig,
    job: OnePass,
    network: Any,
    tested: Evaluation | Judged,
    valid: Verdict | None,
    seconds: float,
) -> dict[str, Any]:
    """What result.json holds of the pass and of the test; all of it under the names that classes
    have."""
    from proxnas.core.size.complexity import parameters

    return {
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
        **tested.more(),
        "epochs": job.epochs_done,
        "steps": len(job.pace.shares),
        "mirrored": job.config.flip,
        "seconds": seconds,
        "converged": None,
        "budget": job.budget.to_json() if job.budget else None,
        "search": what_search_won(job, parameters(network)),
        "train": {"epochs": job.epochs_done, "seconds": seconds},
    }


def _write_model(
    job: OnePass, run: Run, network: Any, result: Mapping[str, Any], say: Say
) -> tuple[dict[str, Any], list[str]]:
    """The model and the files made of it; what result.json says of them, and warnings."""
    from proxnas.domains.images.model import save_model
    from proxnas.domains.trained import load_model
    from proxnas.training.model_file import FILE

    save_model(run / FILE, model_of(job, network, result))
    found = {name: result[name] for name in ("method", "space", "data", "seed", "params", "flops")}
    found["said"] = result["search"]["said"]
    # what is exported is what was written: read back as anybody will read it
    model = load_model(run.folder)
    return write_files(model, run.folder, job.images, found, say)


def model_of(job: OnePass, network: Any, result: Mapping[str, Any]) -> Any:
    """The model as it is kept."""
    from proxnas.common.config_file import FINGERPRINT
    from proxnas.domains.images.model import Model

    images = job.images
    # what the file of the model tells of it; the target decides which of them there are
    wanted = (
        *("params", "flops", "valid_accuracy", "test_accuracy", "test_images", "epochs"),
        *("seed", "test_mae", "test_f1", "calibration_error"),
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
        info=images.target.named(known | {name: result[name] for name in wanted if name in result}),
        target=images.target,
    )
