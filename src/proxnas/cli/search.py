"""`proxnas search`: one search, or several with --seeds."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from proxnas import methods
from proxnas.common.errors import AboutOptions, flag_of
from proxnas.common.help import help_lines, wrapped
from proxnas.common.launch import check_flags
from proxnas.common.options import changed, flat_hints
from proxnas.common.quantities import shown_budget
from proxnas.common.say import say
from proxnas.common.words import (
    command_line,
    config_file,
    given_values,
    with_help,
    words_without_flags,
)
from proxnas.domains.spaces import SPACES
from proxnas.runs.deadline import deadline_of
from proxnas.runs.lengthening import parse_resumed
from proxnas.runs.options import storable, stored
from proxnas.runs.processes import run_together, to_start
from proxnas.searching.defaults import below_flags, check_asked, default_values, resolve
from proxnas.searching.options import SearchOptions
from proxnas.searching.owners import foreign, parts_for
from proxnas.workflows.folders import data_word, run_folder
from proxnas.workflows.jobs import fitted_to_minutes, run_search
from proxnas.workflows.seeds import by_table, check_workers, search_seeds

PROG = "proxnas search"
PRINT_CONFIG = "--print-config"


def parse_search(argv: list[str]) -> SearchOptions:
    """The options of a command line; an InputError for flags that would do nothing in it."""
    return with_help(argv, PROG, _resolve, _print_help)


def _print_help(options: SearchOptions) -> None:
    """Common options first, of the methods' those of the chosen one, with the values that this
    command line would have."""
    lines = [
        f"usage: {PROG} DATA [OPTIONS]",
        "",
        "Search a cell on DATA. The values below are those of this command line; every method and",
        "--space rnn have options of their own: --method gdas --help.",
        *help_lines(options),
        "",
        f"spaces: {', '.join(SPACES)}",
        *wrapped(f"methods: {', '.join(methods.names())}"),
        f"{PRINT_CONFIG} writes what would be used, for --config.",
    ]
    say("\n".join(lines))


def _resolve(argv: list[str]) -> SearchOptions:
    hints = SearchOptions.all_hints()
    file = config_file(argv, hints)
    chosen = chosen_by(argv, hints)
    # the values below the flags depend on a few of the flags themselves: those are read first
    below = below_flags(chosen, file)
    # before tyro, which would only say that it does not know the flag
    _check_foreign(argv, below.values["space"], below.values["method"])
    options = command_line(SearchOptions, PROG, argv, default=below.options())
    check_asked(options, default_values(chosen, file))
    return options


def chosen_by(argv: list[str], hints: Mapping[str, Any]) -> dict[str, Any]:
    """What the words ask for that chooses the defaults of the rest, which nobody has judged yet."""
    names = ("space", "method", "preset", "protocol", "evaluate")
    found: dict[str, Any] = {}
    for name in names:
        if given := given_values(argv, flag_of(name)):
            found[name] = given[-1]
    without_value = {flag_of(name) for name, hint in hints.items() if hint is bool}
    words = words_without_flags(argv, without_value)
    return found | ({"data": words[0]} if words else {})


def _check_foreign(argv: list[str], space: str, method: str) -> None:
    """An InputError for a flag of another method or domain, which says whose it is."""
    known = flat_hints(SearchOptions, parts_for(space, method))
    for name in SearchOptions.all_hints():
        if name not in known:
            given = given_values(argv, flag_of(name))
            if given or flag_of(name) in argv:
                raise foreign(name, given[-1] if given else True, space, method)


def main(argv: list[str]) -> None:
    """Parses the flags and runs the search."""
    shows = PRINT_CONFIG in argv
    argv = [word for word in argv if word != PRINT_CONFIG]
    config = parse_search(argv)
    if shows:
        say(json.dumps(storable(config), indent=2))
        return
    # the first process only starts the others, which get the same words
    if number := to_start(config.job.processes):
        run_together(["search", *argv], number)
        return
    _check_together(config)
    if config.job.dry_run:
        _dry_run(config)
        return
    check_workers(config)
    _run_search(argv, config)


def _run_search(argv: list[str], config: SearchOptions) -> None:
    """The search that is asked for, new or from where its folder stands."""
    folder = run_folder(
        config, default_folder(config), resolve, "data", "space", "method", "seed", "seeds"
    )
    begun = (folder / "config.json").exists()
    new = config.job.force or not begun
    deadline = deadline_of(config.job.minutes)
    # who names epochs gets them, as far as the time goes
    if new and config.job.minutes and not _says_epochs(argv):
        config = fitted_to_minutes(config, deadline)
    if config.job.resume and begun:
        config = _resume_options(argv, folder)
        _check_together(changed(config, minutes=0.0))  # the epochs were chosen then
        deadline = deadline_of(config.job.minutes)
    from proxnas.searching.running import build_search

    # built before the folder is touched: bad input must neither make a run nor harm an earlier one,
    # and is told first
    built = build_search(config) if new or not config.job.resume else None
    if config.job.seeds:
        result = search_seeds(config, folder, deadline)
    else:
        result = run_search(config, folder, built, deadline)
    _print_result(result, folder)


def _says_epochs(argv: list[str]) -> bool:
    """Whether a flag or the --config file says how many epochs; the file of a run does, as they
    were chosen then."""
    file = config_file(argv, SearchOptions.all_hints())
    return bool(given_values(argv, "--epochs")) or "epochs" in file


def _resume_options(argv: list[str], folder: Path) -> SearchOptions:
    """The options that the run in the folder was begun with, and those of this call."""
    known = stored(folder, "search", SearchOptions)
    named = {name: given_values(argv, flag_of(name)) for name in ("space", "method")}
    # another space or method is refused by `parse_resumed`, which says so better
    if all(not given or given[-1] == getattr(known, name) for name, given in named.items()):
        _check_foreign(argv, known.what.space, known.what.method)
    return parse_resumed(argv, known, folder, PROG)


def _check_together(config: SearchOptions) -> None:
    """An InputError for what several processes cannot do: what each would measure or draw
    differently, or alone."""
    check_flags(
        dry_run=config.dry_run,
        seeds=config.seeds,
        minutes=config.minutes,
        workers=config.workers if config.workers > 1 else 0,
        ray=config.ray,
        evaluate="table" if by_table(config) else "",
        method=config.method if config.method_options.traits.draws_answers else "",
        max_latency=config.max_latency,
        cost="latency" if getattr(config.method_options, "cost", "") == "latency" else "",
    )


def default_folder(config: SearchOptions) -> str:
    """runs/search-<data>-<space>-<method>-<seed>."""
    seeds = "-".join(str(seed) for seed in config.all_seeds())
    return f"runs/search-{data_word(config.data)}-{config.space}-{config.method}-{seeds}"


def _print_result(result: dict[str, Any], folder: Path) -> None:
    from proxnas.report.terminal import print_cell, print_summary, print_warning

    print_cell(result)
    more: dict[str, object] = {}
    if result.get("budget"):
        more["limit"] = shown_budget(result["budget"])
    if "table" in result:
        more["table"] = "  ".join(f"{name} {value}" for name, value in result["table"].items())
    if "refined" in result:
        better = "none like the found cell is clearly better"
        if result["refined"]["changed"]:
            better = "one like the found cell is better"
        more["refined"] = f"{better} after a short training"
    if "mean" in result:
        more[f"over seeds {', '.join(map(str, result['seeds']))}"] = (
            f"{result['mean']:.4f} +- {result['std']:.4f}"
        )
    print_summary(result, folder, more)
    print_warning(result)


def _dry_run(config: SearchOptions) -> None:
    from proxnas.workflows.plan import plan, plan_text

    if config.seeds:
        raise AboutOptions("{dry_run}: one search at a time, leave {seeds} out")
    figures = plan(config)
    say(json.dumps(figures, indent=2) if config.json else plan_text(figures))
