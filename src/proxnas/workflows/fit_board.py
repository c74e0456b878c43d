"""The leaderboard of a run by the clock: simple models, the plain network, what is delivered; and
what is said of them and of the data."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from proxnas.domains.images.baselines import Baseline
    from proxnas.domains.images.data.images import Images
    from proxnas.domains.images.evaluate import Evaluation, Judged
    from proxnas.domains.images.one_pass import OnePass
    from proxnas.runs.folder import Run


def simple_models(run: Run, images: Images) -> list[Baseline]:
    """Those that the network is held against, made once a run."""
    from proxnas.domains.images.baselines import Baseline, baselines
    from proxnas.domains.images.parts import train_parts
    from proxnas.domains.images.recipe import Plan

    if (run / "baselines.json").exists():
        return [Baseline(**row) for row in run.read_json("baselines.json")]
    # the same part is held out for the network, so that figures can be held against each other
    train, valid = train_parts(images, Plan.valid_share)
    found = baselines(train, valid, (images.x_test, images.y_test), images.target)
    run.write_json("baselines.json", [dataclasses.asdict(row) for row in found])
    return found


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
        del figures["mirrored_accuracy"]  # for the plan
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
            "latency_ms": latency,
            "delivered": True,
        }
    )
    return rows


def _plain_row(job: OnePass, test: Any) -> dict[str, Any]:
    """The plain network as it was when A came to rest."""
    from proxnas.core.size.complexity import parameters
    from proxnas.domains.images.spaces.resnet import middle, resnet

    # tested now, with the weights that it had then: it was not trained to the end
    network = resnet().network(resnet().genotype(middle()), job.size).to(job.device).eval()
    network.load_state_dict(job.choice["weights"])
    return {
        "name": "plain network, when the search ended",
        "valid_accuracy": job.choice["valid_accuracy"],
        "test_accuracy": job.evaluation(network, test).accuracy,
        "params": parameters(network),
        "seconds": job.choice["seconds"],
        "kind": "network",
        "latency_ms": None,
        "delivered": False,
    }


def what_search_won(job: OnePass, params: int) -> dict[str, Any]:
    """What became of the search, and the line that says it."""
    from proxnas.core.size.complexity import parameters
    from proxnas.domains.images.spaces.resnet import middle, resnet

    seconds = job.choice.get("seconds", 0.0)
    # the last entry of a row says whether the swap was made
    won = sum(swap[-1] for swap in job.tried)
    if not job.config.search:
        said = (
            "nothing was searched for: without a limit the plain network is better for the time"
            " (space resnet: try other kinds of blocks)"
        )
    elif not job.choice:
        said = f"the search won nothing: of {len(job.tried)} swaps tried none was clear of noise"
        # swaps that were made may have been undone by later ones
        said += "" if not won else " in the end"
    else:
        plain = parameters(resnet().network(resnet().genotype(middle()), job.size))
        # of the validation loss, plain less found: positive is better
        gain, error = job.choice["gain"], job.choice["error"]
        # A was projected onto the limit: that is no win, and may have cost something
        if job.budget and not won:
            said = f"within the limit: validation loss changed by {-gain:+.3f}"
        else:
            said = f"the search made {won} of {len(job.tried)} swaps tried: validation loss"
            said += f" lower by {gain:.3f}"
        said += f" (+- {error:.3f}) at the choice"
        said += f", {params:,} parameters where the plain network has {plain:,}"
    return {"epochs": 0, "seconds": seconds, "tried": len(job.tried), "won": won, "said": said}


def warnings_of(job: OnePass, tested: Evaluation | Judged, rows: list[dict[str, Any]]) -> list[str]:
    """Of the data, of a test that tells little, and of simple models that are better."""
    found = list(job.images.warnings)
    found += tested.doubts(len(job.pace.shares))
    return found + better_baselines(rows)


def better_baselines(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """A line if simple models are better than what is delivered, which is the last row."""
    delivered = rows[-1]["test_accuracy"]
    better = [
        f"{row['name']} {row['test_accuracy']:.4f}"
        for row in rows
        if row["kind"] == "baseline" and row["test_accuracy"] > delivered
    ]
    if not better:
        return []
    names = better[0] if len(better) == 1 else f"{', '.join(better[:-1])} and {better[-1]}"
    return [
        f"better on the test images than the {delivered:.4f} of what is delivered: {names}: give"
        " more --minutes"
    ]


def say_sheet(images: Images, say: Callable[[str], None]) -> dict[str, Any]:
    """Says what the data hold, and returns it for result.json."""
    from proxnas.domains.images.data.sheet import data_sheet, sheet_lines

    sheet = data_sheet(images)
    say("\n".join(f"data: {line}" for line in sheet_lines(sheet)))
    return sheet


def with_sheet(result: dict[str, Any], sheet: dict[str, Any]) -> dict[str, Any]:
    """The result with the sheet, and with what that makes doubtful."""
    from proxnas.domains.images.data.sheet import sheet_warnings

    said = [result["warning"]] if result.get("warning") else []
    said += sheet_warnings(sheet)
    return result | {"data_sheet": sheet} | ({"warning": "; ".join(said)} if said else {})
