"""What a search or a training would build, before it is run: sizes, time and memory, measured on a
few steps."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

from proxnas.common.memory import peak_memory
from proxnas.common.options import changed
from proxnas.common.quantities import shown_budget
from proxnas.core.size.complexity import parameters
from proxnas.core.space import NoSums
from proxnas.domains import load_for_search, of_options
from proxnas.runs.job import Job
from proxnas.runs.threads import threads_for
from proxnas.searching.job import Search
from proxnas.searching.options import SearchOptions
from proxnas.searching.refine import how_many
from proxnas.searching.sizing import sizes
from proxnas.training.job import Training
from proxnas.workflows.bench import occasional_seconds

STEPS = 3
REFINED = "and {} short trainings after it (--refine)"


def plan(config: SearchOptions) -> dict[str, Any]:
    """The figures of `--dry-run`."""
    data = load_for_search(config.space, config.data, config)
    # steps behind the warm-up are what most of a search is made of
    past_warmup = config.method_options.traits.past_warmup
    return plan_search(Search(changed(config, **past_warmup), data))


def plan_search(search: Search) -> dict[str, Any]:
    """The same for a search that is built; it makes some steps."""
    config = search.config
    seconds, peak = measure(search, search.figures)
    seen = config.epochs * len(search.train) * config.batch_size
    return {
        "space": config.space,
        "method": config.method,
        **search.task.describe(),
        "search_network_params": parameters(search.net.module),
        **_ends(search),
        "budget": search.budget.to_json() if search.budget else None,
        "epochs": config.epochs,
        "steps_per_epoch": len(search.train),
        "seconds_per_epoch": seconds,
        "peak_bytes": peak,
        "refine": how_many(config, seen=seen) if config.refine else 0,
    }


def _ends(search: Search) -> dict[str, int]:
    """The sizes of the smallest and the largest final network; nothing where they are not known."""
    try:
        found = {of: sizes(of, search.task, search.space) for of in ("params", "flops")}
    except NoSums:
        return {}
    ends = {}
    for of, size in found.items():
        ends[f"{of}_smallest"] = round(size.smallest)
        ends[f"{of}_largest"] = round(size.largest)
    return ends


def measure(job: Job, evaluate: Callable[[], object]) -> tuple[float, int]:
    """Seconds of an epoch behind any warm-up, its evaluation included, and the peak memory of a
    step."""
    seconds: list[float] = []
    threads = threads_for(job.config.threads, job.device)
    with peak_memory(job.device) as peak:
        # steps in which threads are still tried out are made, but do not count
        while len(seconds) < STEPS:
            with threads.step(1, len(seconds) + 1):
                start = time.perf_counter()
                job.totals.add(job.step())
                job.totals.means()  # waits for an accelerator
            if threads.settled:  # as the steps of a run will be
                seconds.append(time.perf_counter() - start)
    start = time.perf_counter()
    evaluate()
    evaluation = time.perf_counter() - start
    # the first step also sets things up, so the median, not the mean
    step = statistics.median(seconds)
    if isinstance(job, Search):
        # what is done only now and then, such as after an epoch, falls to the steps by shares
        step += occasional_seconds(job, len(job), job.config.epochs)
    return step * len(job) + evaluation, peak.bytes


def epochs_text(f: dict[str, Any]) -> str:
    """Time and memory for people."""
    return (
        f"an epoch: {f['steps_per_epoch']} steps, about {f['seconds_per_epoch']:.1f} s;"
        f" {f['epochs']} epochs: about {f['epochs'] * f['seconds_per_epoch'] / 60:.1f} min; peak"
        f" memory {f['peak_bytes'] / 2**20:.0f} MiB"
    )


def _ends_text(f: dict[str, Any]) -> str:
    if "params_smallest" not in f:
        return ""
    return (
        f", {f['params_smallest']:,} to {f['params_largest']:,} parameters,"
        f" {f['flops_smallest']:,} to {f['flops_largest']:,} multiply-adds"
    )


def plan_text(figures: dict[str, Any]) -> str:
    """The figures for people."""
    f = figures
    if "images" in f:
        data = f"images {'x'.join(map(str, f['images']))}, {f['classes']} classes"
        searched, final = (
            f"{f[p + 'cells']} cells, {f[p + 'channels']} channels" for p in ("", "final_")
        )
    else:
        data = (
            f"{f['train_tokens']:,} and {f['valid_tokens']:,} tokens ({f['tokens']}),"
            f" {f['words']:,} different"
        )
        searched, final = (f"{f[p + 'units']} units" for p in ("", "final_"))
    return "\n".join(
        [
            f"{f['method']} on {f['space']}: {data}",
            f"search network: {searched}, {f['search_network_params']:,} parameters",
            f"final network:  {final}{_ends_text(f)}",
            *([f"limit {shown_budget(f['budget'])}"] if f["budget"] else []),
            epochs_text(f),
            *([REFINED.format(f["refine"] + 1)] if f["refine"] else []),
        ]
    )


def plan_training(this: Training) -> dict[str, Any]:
    """The figures of `--dry-run`."""
    params = parameters(this.network)
    seconds, peak = measure_training(this)
    return {
        "protocol": this.config.protocol,
        **this.describe(),
        "params": params,
        "params_smallest": params,  # one cell is given: as in a space of one network
        "params_largest": params,
        "epochs": this.config.epochs,
        "steps_per_epoch": len(this),
        "seconds_per_epoch": seconds,
        "peak_bytes": peak,
    }


def measure_training(this: Training) -> tuple[float, int]:
    """Seconds of an epoch, its evaluation included, and the peak memory of a step."""
    return measure(this, this.validate)


def training_text(this: Training, figures: dict[str, Any]) -> str:
    """The figures for people."""
    return "\n".join([*of_options(this.config).plan_lines(figures), epochs_text(figures)])
