"""What is worth knowing of a run at a glance: label and value as text, for terminal, page and lists
alike."""

from __future__ import annotations

import math
import shlex
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from proxnas.report.reading import Record, StoredRow

LABELS = {
    "method": "method",
    "beyond_the_paper": "beyond the paper",
    "space": "space",
    "data": "data",
    "seed": "seed",
    "test_accuracy": "test accuracy",
    "test_top5": "test accuracy, top 5",
    "test_perplexity": "test perplexity",
    "test_r2": "test R2",
    "test_mae": "test mean absolute error",
    "test_map": "test mean average precision",
    "test_f1": "test F1",
    "test_subset_accuracy": "test images with all labels right",
    "valid_r2": "validation R2",
    "valid_map": "validation mean average precision",
    "valid_accuracy": "validation accuracy",
    "valid_perplexity": "validation perplexity",
    "supernet_accuracy": "accuracy of the supernet",
    "supernet_perplexity": "perplexity of the supernet",
    "calibration_error": "calibration error",
    "test_images": "test images",
    "majority_accuracy": "accuracy of the most frequent class",
    "test_tokens": "test tokens",
    "best_epoch": "best epoch",
    "averaged_from": "weights averaged from epoch",
    "words": "words",
    "params": "parameters",
    "flops": "multiply-adds",
    "search_epochs": "epochs of the search",
    "epochs": "epochs",
    "seconds": "time",
}
"""Key of a result -> what it is called."""


METRICS = ("accuracy", "r2", "map")
"""What the main figure of a network may be."""
FIGURES: dict[str, Callable[[float], str]] = {
    "valid": lambda value: f"{value:.4f}",
    "test": lambda value: f"{value:.4f}",
    "params": lambda value: f"{value:,.0f}",
    "seconds": lambda value: duration(value),
    "latency_ms": lambda value: f"{value:.2f}",
}
"""Columns of a leaderboard -> how they are written."""


def figures(config: Mapping[str, Any], row: StoredRow, result: Mapping[str, Any]) -> dict[str, Any]:
    """The values for LABELS that are known: the result's, else those of the last epoch, else the
    configuration's."""
    asked = {name: config[name] for name in ("method", "space", "data", "seed") if name in config}
    now = {
        name: row[name] for name in LABELS if name in row and name != "seconds"
    }  # those of one epoch, by part
    if row:
        now["epochs"] = row["epoch"]
    # later ones win: what was asked for, what the last epoch says, what came out
    known = {**asked, **now, **{name: result[name] for name in LABELS if name in result}}
    return {name: known[name] for name in LABELS if known.get(name) is not None}


def seconds_of(row: StoredRow) -> float:
    """All seconds of an epoch."""
    parts = row.get("seconds")
    return sum(map(number, parts.values())) if isinstance(parts, dict) else 0.0


def number(value: Any) -> float:
    """A finite number; 0 for everything else."""
    return float(value) if type(value) in (int, float) and math.isfinite(value) else 0.0


def facts(record: Record) -> dict[str, str]:
    """Label -> value of all that is known of a run."""
    last = record.rows[-1] if record.rows else {}
    known = figures(record.config, last, record.result)
    # of a run without a result yet, all epochs so far
    known.setdefault("seconds", sum(map(seconds_of, record.rows)))
    return label_values(known) | int8_facts(record.result) | _search_said(record.result)


def int8_facts(result: Mapping[str, Any]) -> dict[str, str]:
    """Accuracy and latency of the int8 version; or why there is none."""
    found = result.get("int8")
    if not isinstance(found, Mapping):
        return {}
    if "file" not in found:
        return {"int8 version": f"none: {found.get('skipped', '')}"}
    score, exact = (number(_entry(found, name)) for name in ("test", "float"))
    figures = f"test {score:.4f} (float: {exact:.4f} on the same images)"
    return {"int8 version": f"{figures}, {number(found.get('latency_ms')):.2f} ms an image"}


def _search_said(result: Mapping[str, Any]) -> dict[str, str]:
    """What became of the search of a fit by the clock."""
    search = result.get("search")
    if leaderboard(result) and isinstance(search, dict) and search.get("said"):
        return {"search": str(search["said"])}
    return {}


def leaderboard(result: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Its rows that can be such; none if there is no leaderboard."""
    rows = result.get("leaderboard")
    return [row for row in rows if _is_row(row)] if isinstance(rows, list) else []


def _is_row(row: Any) -> bool:
    if not isinstance(row, dict) or not isinstance(row.get("name"), str):
        return False
    figures = [_entry(row, name) for name in FIGURES]
    sound = all(value is None or type(value) in (int, float) for value in figures)
    return sound and isinstance(row.get("delivered"), bool)


def leaderboard_texts(row: Mapping[str, Any]) -> list[str]:
    """Validation, test, parameters, time and latency as people write them."""
    known = {name: _entry(row, name) for name in FIGURES}
    return ["" if known[name] is None else FIGURES[name](number(known[name])) for name in FIGURES]


def _entry(row: Mapping[str, Any], name: str) -> Any:
    """Of a column; `valid` and `test` are of whatever figure the row has."""
    names = (
        [f"{name}_{metric}" for metric in METRICS] if name in ("valid", "test", "float") else [name]
    )
    return next((row[each] for each in names if each in row), None)


def label_values(known: Mapping[str, Any]) -> dict[str, str]:
    """Label -> value as people write it."""
    found = {LABELS[name]: value_text(name, value) for name, value in known.items()}
    if "flops" in known and any("perplexity" in name for name in known):
        found[LABELS["flops"]] += " a token"
    return found


def value_text(name: str, value: Any) -> str:
    """A value as people write it."""
    if type(value) in (int, float) and not math.isfinite(value):
        return "not finite"
    if name == "seconds":
        return duration(number(value))
    if type(value) is int and name != "seed":
        return f"{value:,}"
    if type(value) is float:
        return f"{value:.2f}" if "perplexity" in name else f"{value:.4f}"
    return str(value)


def duration(seconds: float) -> str:
    """12.3 s, 4 min 05 s or 2 h 03 min."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    # rounded before it is cut up: never 60 s
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min {rest:02d} s"


def reproduce(record: Record) -> str:
    """The command that runs it again, whatever the defaults have become; empty if it is not
    known."""
    if not record.config or record.command not in ("search", "train", "fit"):
        return ""
    where = Path(record.folder)
    words = ["proxnas", record.command]
    if record.command == "train":  # CELL may be named from within the folder
        lstm = str(record.config.get("cell", "")).startswith("zoo:")
        words += [
            str(record.config["cell"]) if lstm else str(where / "genotype.json"),
            str(record.config.get("data")),
        ]
    elif "data" in record.config:
        words.append(str(record.config["data"]))
    # flags of a search depend on its space, so that must be known before the file is read
    if "space" in record.config and record.command == "search":
        words += ["--space", str(record.config["space"])]
    # config.json has every value as it was used
    return shlex.join([*words, "--config", str(where / "config.json"), "--run", f"{where}-again"])


def command_of(record: Record) -> str:
    """The command line that the run was last called with."""
    words = record.environment.get("command")
    if not isinstance(words, list) or not words:
        return ""
    return shlex.join(["proxnas", *map(str, words[1:])])
