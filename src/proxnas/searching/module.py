"""`proxnas.search`: a search in any module that holds Choices.

The module is copied and named (domains/modules/space.py), checked (core/check.py), and searched by
the same class, loop and methods as cells are.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import torch
from rich.console import Console
from torch import nn

from proxnas import methods
from proxnas.cells.kinds import CUSTOM
from proxnas.common.cores import Asked
from proxnas.common.errors import InputError, unknown
from proxnas.common.metrics_row import MetricsRow
from proxnas.common.options import flat_hints, flatten
from proxnas.common.types import Matrices
from proxnas.core.choice import MisusedChoice
from proxnas.domains.modules.objective import Criterion, Metric
from proxnas.domains.modules.space import CustomSpace
from proxnas.domains.modules.task import CustomData, CustomTask
from proxnas.methods.base import Restoring, Setup
from proxnas.methods.optimizers import Factory
from proxnas.methods.options import MethodOptions
from proxnas.runs.folder import Run, open_run
from proxnas.runs.guest import as_guest
from proxnas.runs.lengthening import check_stored, lengthen
from proxnas.runs.loggers import Progress
from proxnas.runs.loop import run_epochs
from proxnas.runs.progress import shown
from proxnas.runs.same_data import check_data
from proxnas.searching.defaults import check_asked
from proxnas.searching.found import Found
from proxnas.searching.job import Search
from proxnas.searching.options import SearchOptions
from proxnas.searching.outcome import summary
from proxnas.searching.owners import parts_for

Start = Mapping[str, str | Mapping[str, float]]
"""Choice -> the candidate to begin with, or candidate -> entry of A."""
LOWEST = 0.04
"""Learning rate at the end of a cosine, as a share of the first."""


def search(
    module: nn.Module,
    train: Any,
    valid: Any,
    method: str | MethodOptions = "nasp",
    *,
    loss: Criterion | None = None,
    metric: Metric | None = None,
    epochs: int = 25,
    batch_size: int = 32,
    optimizer: Factory | None = None,
    learning_rate: float | None = None,
    schedule: Literal["cosine", "constant"] = "cosine",
    clip: float = 5.0,
    patience: int = 0,
    start: Start | None = None,
    max_params: int | str | None = None,
    max_flops: int | str | None = None,
    max_latency: str | None = None,
    precision: Literal["fp32", "bf16", "fp16"] = "fp32",
    device: str | torch.device | None = None,
    threads: Asked | None = None,
    seed: int = 0,
    progress: bool = False,
    run: str | os.PathLike[str] | None = None,
    resume: bool = False,
    force: bool = False,
) -> Found:
    """Search the best candidates of the Choices in a module; it is copied, and left as it is.

    Args:
        module: any nn.Module that holds Choices, also nested, or called several times.
        train: trains the weights: a DataLoader, a Dataset, a list of batches, or a pair of tensors
            or arrays. A batch is (inputs, target); inputs is a tensor, a tuple of arguments or a
            dict of keywords.
        valid: judges the candidates: data like `train`, but other examples.
        method: an object such as `NASP(eta=0.1)`, or the name of a method.
        loss: (output, target) -> the mean loss of a batch; without it cross-entropy.
        metric: (output, target) -> a mean over a batch, to be reported; without it and without
            `loss` accuracy.
        epochs: passes over `train`.
        batch_size: of a Dataset or tensors; other data have batches of their own.
        optimizer: weights -> optimizer, such as `lambda w: torch.optim.AdamW(w, 1e-3)`; without it
            SGD with momentum.
        learning_rate: of SGD (0.025).
        schedule: of the learning rate, also of that of `optimizer`.
        clip: largest norm of the gradient of the weights.
        patience: stop when the selection has not changed for so many epochs; 0: never.
        start: what A begins with: `found.A` or `found.genotype` of another search, or a part of
            such a dict.
        max_params: the most parameters that the found module may have: 500_000 or "500k".
        max_flops: in its place the most multiply-adds for one example: 20_000_000 or "20M".
        max_latency: in their place the longest time for a batch of `valid` on this device: "2ms".
        precision: of the operations; weights stay as they are.
        device: where to; without it where the module is.
        threads: of the CPU: a number, or "auto", which times steps with 1, 2, 4, ... and takes the
            quickest; without it auto, unless torch was told to take one thread. torch's own number
            is as before afterwards.
        seed: of A, the order of a Dataset, and all that is random in training.
        progress: show how far it is.
        run: a folder for config.json, metrics.jsonl, checkpoints, result.json and
            model.safetensors.
        resume: go on where the folder stands; of a finished run it returns the outcome.
        force: overwrite an earlier run in the folder.
    """
    data = CustomData(train, valid, loss, metric)
    place = str(device or next(module.parameters(), torch.empty(0)).device)
    with as_guest(place), _told_as_input():
        own = _options_of(method)
        values: dict[str, Any] = {
            "method": methods.name_of(own),
            "data": type(module).__name__,
            "space": CUSTOM,
            "epochs": epochs,
            "batch_size": batch_size,
            "patience": patience,
            "clip": clip,
            "precision": precision,
            "device": place,
            "threads": _threads(threads),
            "seed": seed,
            "resume": resume,
            "force": force,
        }
        values |= _rates(optimizer, learning_rate, schedule)
        values |= _limits(max_params=max_params, max_flops=max_flops, max_latency=max_latency)
        config = _configure(own, values)
        _check_method(config, start, loss)
        this = _build(module, data, config, optimizer, start)
        with shown(Console(highlight=False), config.method, not progress) as bar:
            if run is None:
                return _outcome(this, run_epochs(this, None, bar))
            with open_run(Path(run), resume, force) as folder:
                return _run_in(folder, config, this, bar)


def _configure(own: MethodOptions, values: dict[str, Any]) -> SearchOptions:
    """The options of the search, those of its method as they were given; an InputError for what
    would do nothing."""
    known = flat_hints(SearchOptions, parts_for(CUSTOM, values["method"]))
    usual = {name: value for name, value in own.defaults.items() if name in known}
    plain = SearchOptions.from_values(usual | values)
    config = replace(plain, method_options=own)
    # `plain` has the method's defaults: what differs from it was asked for
    check_asked(config, flatten(plain) | {"patience": 0})
    return config


def _run_in(folder: Run, config: SearchOptions, this: Search, bar: Progress) -> Found:
    """The search in a folder that is open; what is refused leaves a finished run as it was."""
    # as asked for: the search itself may have chosen a number of threads
    more = check_stored(config, "search", folder)
    check_data(folder, this.fingerprint)
    lengthen(folder, more)
    folder.write_json("space.json", this.describe_space())
    return _keep(_outcome(this, run_epochs(this, folder, bar)), folder)


def _build(
    module: nn.Module,
    data: CustomData,
    config: SearchOptions,
    optimizer: Factory | None,
    start: Start | None,
) -> Search:
    space = CustomSpace(copy.deepcopy(module))
    if not space.groups:
        raise InputError(
            "the module holds no Choice: there is nothing to search: put proxnas.Choice({'name':"
            " module, ...}) where candidates are to compete"
        )
    begin = None if start is None else _start(start, space)

    def adjust(setup: Setup[Any]) -> Setup[Any]:
        weights = setup.weights.of(optimizer) if optimizer else setup.weights
        return replace(setup, weights=weights, start=begin, keep_weights=True)

    return Search(config, data, space, adjust=adjust)


def _rates(optimizer: Factory | None, learning_rate: float | None, schedule: str) -> dict[str, Any]:
    """The learning rates of w; those of an optimizer of the user's are its own, only their course
    is ours."""
    if schedule not in ("cosine", "constant"):
        raise unknown("schedule", str(schedule), ("cosine", "constant"))
    if optimizer is not None and learning_rate is not None:
        raise InputError(
            f"learning_rate {learning_rate}: the optimizer has a rate of its own: leave one of"
            " them out"
        )
    # of an optimizer of the user's it is replaced by its own (`WeightOptions.of`)
    rate = 0.025 if learning_rate is None else learning_rate
    return {
        "learning_rate": rate,
        "learning_rate_min": rate * (LOWEST if schedule == "cosine" else 1.0),
    }


def _limits(**asked: int | str | None) -> dict[str, Any]:
    """As the flags have them."""
    return {name: str(limit) for name, limit in asked.items() if limit is not None}


def _options_of(method: str | MethodOptions) -> MethodOptions:
    """What is asked of the method; by its name alone nothing."""
    if isinstance(method, MethodOptions):
        return method
    return methods.options_of(str(method))()


def _threads(asked: Asked | None) -> Asked:
    """As asked; else the quickest number, unless torch was told to take one."""
    if asked is not None:
        return asked
    return "auto" if torch.get_num_threads() > 1 else 1


def _check_method(config: SearchOptions, start: Start | None, loss: Criterion | None) -> None:
    traits, method = config.method_options.traits, config.what.method
    if start is not None and not traits.starts_from_A:
        able = [n for n in methods.names() if methods.options_of(n).traits.starts_from_A]
        raise InputError(f"start: is for {', '.join(able)}, not for {method}: leave it out")
    if loss is not None and traits.draws_answers:
        raise InputError(
            f"method {method}: is for classification by cross-entropy: leave loss out, or take"
            " another"
        )


def _start(start: Start, space: CustomSpace) -> Matrices:
    """Entries of A that are given, NaN elsewhere; a candidate's name alone sets its entry to 1."""
    found = {}
    for name, given in start.items():
        if name not in space.groups:
            raise unknown("Choice in start", name, space.groups)
        candidates = space.groups[name].candidates
        # (1, K): a Choice is one row
        found[name] = torch.full((1, len(candidates)), torch.nan, dtype=torch.float64)
        for candidate, value in ({given: 1.0} if isinstance(given, str) else given).items():
            if candidate not in candidates:
                raise unknown(f"candidate of {name!r} in start", candidate, candidates)
            found[name][0, candidates.index(candidate)] = value
    return found


def _outcome(this: Search, rows: list[MetricsRow]) -> Found:
    """The outcome of a search that is done."""
    assert isinstance(this.task, CustomTask) and isinstance(this.space, CustomSpace)
    (A, _), A_bar = this.method.architecture(), this.returned()
    selection = this.space.genotype(A_bar)
    this.net.use(A_bar)  # plain factors: what a method left behind may not be copied
    if isinstance(this.method, Restoring):
        this.method.restore()
    # its weights are those of the search, its batch statistics measured anew
    model = this.space.network(selection)
    this.task.recalibrate(model)
    result = summary(this, rows).to_json()
    strengths = {
        name: dict(zip(group.candidates, A[name][0].tolist(), strict=True))
        for name, group in this.net.groups.items()
    }
    return Found(
        selection.choices(), strengths, result, rows, this.net.module, model.eval(), selection
    )


def _keep(found: Found, folder: Run) -> Found:
    found.save(folder / "model.safetensors")
    folder.write_json("result.json", found.result)
    return found


@contextmanager
def _told_as_input() -> Iterator[None]:
    """A misuse is bad input."""
    try:
        yield
    except MisusedChoice as error:
        raise InputError(str(error)) from error
