"""Methods that evaluate whole cells, with the table of NAS-Bench-201 as the evaluator.

    python benchmarks/sampling.py TABLE [--seeds 100,...,109] [--evaluations 1000] [--methods ...]
        [--out rows.jsonl]

A search sees the validation column only; reported is the test accuracy of the cell that it returns,
and paired tests against random search over the seeds (Wilcoxon's signed ranks and Student's t, both
two-sided). A look-up costs nothing, so everything runs in one process; a search that is in OUT
already is not repeated. Seeds 0-4 are for choosing, 100 and up for reporting.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from pathlib import Path
from typing import Any

from scipy import stats

from proxnas import methods
from proxnas.cells.table import look_up
from proxnas.cli.search import parse_search
from proxnas.domains.images.data.images import Images, load
from proxnas.searching.job import Search

TEST = "cifar10_test"


def sampling_methods() -> list[str]:
    """Methods that evaluate whole cells, one after the other."""
    return [n for n in methods.names() if methods.options_of(n).traits.samples_cells]


def run(method: str, seed: int, table: str, evaluations: int, images: Images) -> dict[str, Any]:
    """One search by the table; the test column is read when it is over."""
    start = time.perf_counter()
    flags = ["--space", "nasbench201", "--channels", "1", "--device", "cpu", "--threads", "1"]
    flags += ["--evaluate", "table", "--table", table, "--evaluations", str(evaluations)]
    search = Search(
        parse_search(["digits", "--method", method, "--seed", str(seed), *flags]), images
    )
    for _ in range(evaluations):
        search.step()
    cell = search.genotype()
    return {
        "method": method,
        "seed": seed,
        "evaluations": evaluations,
        "arch": cell.to_string(),
        "valid": 100 * search.validation().accuracy,
        "test": look_up(Path(table), cell)[TEST],
        "seconds": time.perf_counter() - start,
    }


def summary(rows: list[dict[str, Any]]) -> list[str]:
    """Markdown: mean and standard deviation over seeds, and what the paired tests say against
    random search."""
    heads = ["method", "seeds", "valid mean", "test mean", "std", "worst", "best"]
    heads += ["minus random", "Wilcoxon p", "t-test p", "seconds"]
    by: dict[str, dict[int, dict[str, Any]]] = {}
    for row in rows:
        by.setdefault(row["method"], {})[row["seed"]] = row
    lines = [heads, ["---"] * len(heads)]
    for method, mine in by.items():
        test, valid, seconds = (
            [row[key] for row in mine.values()] for key in ("test", "valid", "seconds")
        )
        shared = sorted(mine.keys() & by.get("random", {}).keys()) if method != "random" else []
        figures = [statistics.fmean(test), statistics.stdev(test) if len(test) > 1 else 0.0]
        lines.append(
            [f"`{method}`", f"{min(mine)}-{max(mine)}", f"{statistics.fmean(valid):.2f}"]
            + [f"{figure:.3f}" for figure in figures]
            + [f"{min(test):.2f}", f"{max(test):.2f}"]
            + paired([(mine[seed]["test"], by["random"][seed]["test"]) for seed in shared])
            + [f"{statistics.fmean(seconds):.1f}"]
        )
    return ["| " + " | ".join(line) + " |" for line in lines]


def paired(pairs: list[tuple[float, float]]) -> list[str]:
    """Mean difference, and both p-values; blank where there is nothing to compare."""
    differences = [a - b for a, b in pairs]
    if len(differences) < 2 or not any(differences):
        return ["", "", ""]
    ours, theirs = zip(*pairs, strict=True)
    p = stats.wilcoxon(differences).pvalue, stats.ttest_rel(ours, theirs).pvalue
    return [f"{statistics.fmean(differences):+.3f}", f"{p[0]:.3f}", f"{p[1]:.3f}"]


def main() -> None:
    """Runs what is missing and prints the summary."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("table")
    parser.add_argument("--seeds", default=",".join(str(seed) for seed in range(100, 110)))
    parser.add_argument("--methods", default=",".join(sampling_methods()))
    parser.add_argument("--evaluations", type=int, default=1000)
    parser.add_argument("--out", default="sampling.jsonl")
    options = parser.parse_args()
    out, images = Path(options.out), load("digits")
    known = [json.loads(line) for line in out.read_text().splitlines()] if out.exists() else []
    rows = []
    for method in options.methods.split(","):
        for seed in map(int, options.seeds.split(",")):
            key = (method, seed, options.evaluations)
            row = next(
                (row for row in known if (row["method"], row["seed"], row["evaluations"]) == key),
                None,
            )
            if row is None:
                row = run(method, seed, options.table, options.evaluations, images)
                with out.open("a") as file:
                    file.write(json.dumps(row) + "\n")
            rows.append(row)
    print("\n".join(summary(rows)))


if __name__ == "__main__":
    main()
