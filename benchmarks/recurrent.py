"""Is the found recurrent cell good? A search on a part of PTB, and its cell trained beside DARTS V2
and an LSTM.

    python benchmarks/recurrent.py PTB_FOLDER [--transfer WIKITEXT_FOLDER] [--seeds 0,1] [--folder
        recurrent]

Reduced: the first 200,000 training tokens, the 5,000 most frequent words, 64 units in the search
and 128 in the network that is trained, the quick protocol with fewer epochs, one thread. Every seed
has a search and trainings of its own; the first seed's found cell is then trained on the other
text. Resumable. Rows go into FOLDER/rows.jsonl, the summary is printed.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

TEXT = ["--train-tokens", "200000", "--max-words", "5000"]
SEARCH = ["--space", "rnn", "--protocol", "quick", "--epochs", "5"]
TRAIN = ["--protocol", "quick", "--units", "128", "--batch-size", "32", "--epochs", "6"]
RIVALS = {"DARTS V2": "zoo:RNN_DARTS_V2", "LSTM": "zoo:LSTM"}
KEYS = ("params", "valid_perplexity", "test_perplexity", "seconds")


def proxnas(*words: str) -> None:
    """One command in a process of its own; goes on where it was stopped."""
    command = [
        sys.executable,
        "-m",
        "proxnas",
        *words,
        *TEXT,
        "--threads",
        "1",
        "--quiet",
        "--resume",
    ]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def trained(name: str, cell: str, data: str, seed: int, folder: Path) -> dict[str, Any]:
    """The row of one training."""
    text = Path(data).name
    run = folder / f"{text}-{name.replace(' ', '-')}-{seed}"
    proxnas("train", cell, data, *TRAIN, "--seed", str(seed), "--run", str(run))
    result = json.loads((run / "result.json").read_text())
    return {"text": text, "cell": name, "seed": seed} | {key: result[key] for key in KEYS}


def rows_of(data: str, other: str, seeds: list[int], folder: Path) -> list[dict[str, Any]]:
    """Searches, trainings of all cells, and the transfer of the first found cell."""
    rows = []
    for seed in seeds:
        run = folder / f"search-{seed}"
        proxnas("search", data, *SEARCH, "--seed", str(seed), "--run", str(run))
        rows += [
            trained(name, cell, data, seed, folder)
            for name, cell in {"found": str(run), **RIVALS}.items()
        ]
    if other:
        rows.append(trained("found", str(folder / f"search-{seeds[0]}"), other, seeds[0], folder))
    return rows


def summary(rows: list[dict[str, Any]]) -> list[str]:
    """A Markdown row a text and cell."""
    lines = [
        "| text | cell | seeds | params | valid perplexity | test perplexity | seconds |",
        "|---|---|---|---|---|---|---|",
    ]
    for text, name in dict.fromkeys((row["text"], row["cell"]) for row in rows):
        mine = [row for row in rows if (row["text"], row["cell"]) == (text, name)]
        seeds = ", ".join(str(row["seed"]) for row in mine)
        figures = [
            ", ".join(f"{row[key]:.1f}" for row in mine)
            for key in ("valid_perplexity", "test_perplexity")
        ]
        seconds = statistics.mean(row["seconds"] for row in mine)
        lines.append(
            f"| {text} | {name} | {seeds} | {mine[0]['params']:,} | {figures[0]} | {figures[1]} |"
            f" {seconds:.0f} |"
        )
    return lines


def main() -> None:
    """Runs what is missing and prints the summary."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data")
    parser.add_argument("--transfer", default="")
    parser.add_argument("--seeds", default="0,1")
    parser.add_argument("--folder", default="recurrent")
    options = parser.parse_args()
    folder = Path(options.folder)
    folder.mkdir(parents=True, exist_ok=True)
    rows = rows_of(
        options.data, options.transfer, [int(seed) for seed in options.seeds.split(",")], folder
    )
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    print("\n".join(summary(rows)))


if __name__ == "__main__":
    main()
