"""What `train`, `test` and `fit` do when they are asked for a language model."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

from proxnas.common.errors import InputError
from proxnas.common.launch import check_flags
from proxnas.common.say import say
from proxnas.domains.text.data.corpus import is_text
from proxnas.domains.text.options import TextTestConfig, TextTrainConfig
from proxnas.domains.text.settings import PROG, parse_text_train, values_of, words_of
from proxnas.runs.deadline import deadline_of
from proxnas.runs.processes import check_untimed, run_together, to_start
from proxnas.searching.settings import epochs_given, given_values, parse, parse_resumed
from proxnas.training.options import TestConfig
from proxnas.workflows.fit_options import FitConfig, TextFitConfig
from proxnas.workflows.folders import data_word, run_folder, slug
from proxnas.workflows.jobs import run_text_training, text_training_fitted_to_minutes
from proxnas.workflows.train_settings import need, stored


def train(argv: list[str]) -> None:
    """Parses the flags and trains."""
    config = parse_text_train(argv)
    if number := to_start(config.processes):
        run_together(["train", *argv], number)
        return
    folder = run_folder(config, default_folder(config), parse_text_train, "cell", "data", "seed")
    check_flags(dry_run=config.dry_run, minutes=config.minutes)
    if config.dry_run:
        _dry_run(config, folder)
        return
    exists = (folder / "config.json").exists()
    if config.resume and exists:
        config = parse_resumed(argv, stored(folder, "train", TextTrainConfig), folder, PROG)
    need(config, "cell", "data")
    print_result(_trained(argv, config, folder, config.force or not exists), folder)


def _trained(argv: list[str], config: TextTrainConfig, folder: Path, new: bool) -> dict[str, Any]:
    from proxnas.domains.text.train import build_text_training

    deadline = deadline_of(config.minutes)
    if new and config.minutes and not epochs_given(argv, TextTrainConfig):
        config = text_training_fitted_to_minutes(config, folder, deadline)
    # built before the folder is touched: bad input must neither make a run nor harm an earlier one,
    # and is told first
    built = build_text_training(config, folder) if new or not config.resume else None
    return run_text_training(config, folder, built, deadline)


def default_folder(config: TextTrainConfig) -> str:
    """runs/train-<data>-<cell>-<seed>."""
    cell = slug(Path(config.cell).stem.removeprefix("search-").removeprefix("fit-")) or "cell"
    return f"runs/train-{data_word(config.data)}-{cell}-{config.seed}"


def print_result(result: dict[str, Any], folder: Path) -> None:
    """The figures of a training for people."""
    from proxnas.report.terminal import print_summary

    print_summary(result, folder)


def _dry_run(config: TextTrainConfig, folder: Path) -> None:
    from proxnas.core.size.complexity import parameters
    from proxnas.domains.text.model import multiply_adds
    from proxnas.domains.text.train import build_text_training
    from proxnas.workflows.plan import epochs_text, measure

    need(config, "cell", "data")
    this = build_text_training(config, folder)
    seconds, peak = measure(this, this.validation)
    params = parameters(this.network)
    f = {
        "protocol": config.protocol,
        "words": this.text.num_words,
        "train_tokens": len(this.text.train),
        "units": config.units,
        "params": params,
        "params_smallest": params,  # one cell is given: as in a space of one network
        "params_largest": params,
        "flops": multiply_adds(this.network),
        "epochs": config.epochs,
        "steps_per_epoch": len(this),
        "seconds_per_epoch": seconds,
        "peak_bytes": peak,
    }
    lines = [
        f"{f['protocol']}: {f['train_tokens']:,} tokens to train on, {f['words']:,} words",
        (
            f"network: {f['units']} units, {f['params']:,} parameters, {f['flops']:,} multiply-adds"
            " a token"
        ),
        epochs_text(f),
    ]
    say(json.dumps(f, indent=2) if config.json else "\n".join(lines))


def print_plan(figures: dict[str, Any], as_json: bool) -> None:
    """The plan of a fit, on images or text."""
    from proxnas.workflows.plan import plan_text

    train = (
        f"training: {figures['train_epochs']} epochs, about"
        f" {figures['train_seconds_per_epoch']:.1f} s each; all together about"
        f" {figures['minutes']:.1f} min"
    )
    say(json.dumps(figures, indent=2) if as_json else f"{plan_text(figures)}\n{train}")


def about_text_model(argv: list[str]) -> bool:
    """Whether `test` is asked about a language model."""
    words = words_of(argv, TestConfig, TextTestConfig)
    if not words or not Path(words[0]).exists():
        return False
    from proxnas.domains.text.model import is_text_model

    try:
        return is_text_model(words[0])
    except InputError:  # no model at all: that will be said
        return False


def test(argv: list[str]) -> None:
    """Tests the model, prints the figures, and writes them into a file if asked."""
    config = parse(TextTestConfig, "proxnas test", argv)
    need(config, "model", "data")
    from proxnas.common.environment import pick_device, set_threads
    from proxnas.domains.text.model import load_text_model, text_for
    from proxnas.domains.text.train import text_figures
    from proxnas.runs.folder import write_atomically

    set_threads(config.threads)
    model = load_text_model(config.model, pick_device(config.device))
    text = text_for(model, config.data, config.other_text)
    tested = f"the {config.part} part of {text.name}"
    figures = {"model": config.model, "data": config.data, "tested": tested} | text_figures(
        model, text, config.part
    )
    f = figures
    say(
        f"{f['part']} perplexity {f['perplexity']:.2f}  loss {f['loss']:.4f}  accuracy"
        f" {f['accuracy']:.4f}  ({f['tokens']:,} tokens of {tested}, {f['unknown']:.1%} <unk>)"
    )
    if config.json:
        write_atomically(Path(config.json), json.dumps(figures, indent=2) + "\n")


def about_fitting_text(argv: list[str]) -> bool:
    """Whether `fit` is asked for a language model: by its data, its space, or the run that it is to
    go on with."""
    words = words_of(argv, FitConfig, TextFitConfig)
    return (
        "rnn" in given_values(argv, "--space")
        or bool(words and is_text(words[0]))
        or "tokens" in values_of(argv, "--run")
    )


def fit(argv: list[str]) -> None:
    """Parses the flags and does it all."""
    from proxnas.report.terminal import print_cell, print_fit, print_warning
    from proxnas.workflows.fit_text import fit_text, plan_fit_text

    prog = "proxnas fit"
    config = parse(TextFitConfig, prog, argv)
    plain = f"runs/fit-{data_word(config.data)}-{config.space}-{config.method}-{config.seed}"
    of_flags = partial(parse, TextFitConfig, prog)
    folder = run_folder(config, plain, of_flags, "data", "space", "method", "seed")
    if config.resume and (folder / "config.json").exists():
        config = parse_resumed(argv, stored(folder, "fit", TextFitConfig), folder, prog)
    need(config, "data")
    check_untimed(config.processes, config.minutes)
    if config.dry_run:
        print_plan(plan_fit_text(config), config.json)
        return
    result = fit_text(config, folder, (lambda text: None) if config.quiet else say)
    print_cell(result)
    print_fit(result, folder)
    say(
        f"exported logits differ by at most {result['export_difference']:.1e}; it"
        f" writes:\n{result['sample']}"
    )
    print_warning(result)
