"""Run folders and models in which one value was changed: whatever reads them answers, or refuses in
one line.

Values are changed at any place of the JSON of real files: another type, numbers beyond all bounds,
names that lead elsewhere, nothing at all. Every command that reads such files is called on them; it
may end with 0 or 2.
"""

from __future__ import annotations

import io
import json
import random
import shutil
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unicodedata import category

HUGE, INFINITE, DEEP = "@huge@", "@infinite@", "@deep@"
WRITTEN = {HUGE: "9" * 5000, INFINITE: "1e999", DEEP: "[" * 3000 + "]" * 3000}
"""What json cannot write, put into its text afterwards."""
JUNK: tuple[Any, ...] = (
    *(
        None,
        True,
        False,
        -1,
        0,
        1,
        1.5,
        -0.5,
        1e308,
        10**18,
        10**19,
        10**400,
        HUGE,
        INFINITE,
        DEEP,
        float("nan"),
    ),
    *(
        "",
        "x",
        "\x1b]0;title\x07\x1b[31m",
        "../../../elsewhere/evil",
        "/evil",
        "nasp",
        "\ud800",
        "[bold]",
        "9" * 50,
    ),
    *([], [[]], [1.5], [[1.0], [1.0, 2.0]], {}, {"x": {}}, {"other": -1}, [None], [["none", 0]]),
)
LEFT_OUT = object()


def places(value: Any) -> list[tuple[str | int, ...]]:
    """The paths to all values inside a value, and to itself."""
    items = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    return [(), *((key, *path) for key, item in items for path in places(item))]


def changed(value: Any, path: tuple[str | int, ...], new: Any) -> Any:
    """The value with another one at the end of the path, or without it."""
    if not path:
        return None if new is LEFT_OUT else new
    copy: Any = dict(value) if isinstance(value, dict) else list(value)
    if len(path) == 1 and new is LEFT_OUT:
        del copy[path[0]]
    else:
        copy[path[0]] = changed(copy[path[0]], path[1:], new)
    return copy


def tampered(text: str, draw: random.Random) -> str:
    """JSON, or lines of it, with one value changed; values near the top are as likely as those deep
    inside."""
    lines = text.splitlines() if "\n{" in text and not text.startswith("{\n") else [text]
    at = draw.randrange(len(lines))
    value = json.loads(lines[at])
    depths: dict[int, list[tuple[str | int, ...]]] = {}
    for path in places(value):
        depths.setdefault(len(path), []).append(path)
    path = draw.choice(depths[draw.choice([depth for depth in depths if depth] or [0])])
    new = json.dumps(changed(value, path, draw.choice((*JUNK, LEFT_OUT))))
    for sign, written in WRITTEN.items():
        new = new.replace(json.dumps(sign), written)
    lines[at] = new
    return "\n".join(lines) + "\n"


def tamper_model(path: Path, draw: random.Random) -> None:
    """Changes one value in the JSON of a model's metadata."""
    content = path.read_bytes()
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])
    metadata = header["__metadata__"]
    name = draw.choice([name for name in metadata if name != "proxnas"])
    metadata[name] = tampered(metadata[name], draw)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(len(text).to_bytes(8, "little") + text + content[8 + length :])


@dataclass(frozen=True)
class Reader:
    """A command on a folder, and the file in it that is changed."""

    name: str
    file: str
    call: Callable[[Path], int]

    def __str__(self) -> str:
        return f"{self.name} with another {self.file}"


def trial(folder: Path, place: Path, reader: Reader, draw: random.Random) -> str:
    """What is wrong with the answer to a copy of the folder with one value changed; empty:
    nothing."""
    copy = place / "copy"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(folder, copy, symlinks=True)
    path, before = copy / reader.file, sorted(map(str, place.rglob("*")))
    if path.suffix == ".safetensors":
        tamper_model(path, draw)
    else:
        path.write_text(tampered(path.read_text(), draw), encoding="utf-8", errors="replace")
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        try:
            code = reader.call(copy)
        except SystemExit as stop:  # tyro's own box for a bad flag
            code = int(stop.code or 0)
    shown = out.getvalue() + err.getvalue()
    outside = [
        name
        for name in set(map(str, place.rglob("*"))) - set(before)
        if not name.startswith(f"{copy}/")
    ]
    if code not in (0, 2):
        return f"{reader}: exit {code}: {err.getvalue()[-1500:]}"
    if outside:
        return f"{reader}: wrote {outside[0]}"
    if any(category(sign) in ("Cc", "Cs") and sign != "\n" for sign in shown):
        return f"{reader}: printed control characters: {shown!r:.300}"
    return ""


def readers(data: Path, table: Path) -> Iterator[tuple[str, Reader]]:
    """(search, stopped, train or compare: whose folder it reads, the reader)."""
    from proxnas.cli.main import main
    from proxnas.report.live import Snapshot

    def command(*words: str) -> Callable[[Path], int]:
        return lambda folder: main(
            [word.format(run=folder, data=data, table=table) for word in words]
        )

    def watch(folder: Path) -> int:
        json.loads(Snapshot(folder).read()[0])
        return 0

    seen = {
        "runs": command("runs", "{run}"),
        "runs --json": command("runs", "{run}", "--json"),
        "watch": watch,
        "report": command("report", "{run}"),
    }
    for file in (
        "config.json",
        "result.json",
        "metrics.jsonl",
        "environment.json",
        "genotype.json",
        "space.json",
    ):
        for name, call in seen.items():
            yield "search", Reader(name, file, call)
            if file != "result.json":
                yield "stopped", Reader(f"{name} of a stopped run", file, call)
        yield (
            "search",
            Reader("report --figures", file, command("report", "{run}", "--figures={run}/figures")),
        )
    resume = command("search", "{data}", "--run={run}", "--resume", "--quiet")
    for file in ("config.json", "result.json", "metrics.jsonl", "genotype.json", "space.json"):
        yield "search", Reader("search --resume", file, resume)
    for file in ("config.json", "metrics.jsonl", "genotype.json", "space.json"):
        yield "stopped", Reader("search --resume of a stopped run", file, resume)
    for file in ("genotype.json", "config.json", "result.json"):
        yield "search", Reader("show", file, command("show", "{run}"))
        yield "search", Reader("query", file, command("query", "{run}", "--table={table}"))
        yield (
            "search",
            Reader(
                "train RUN", file, command("train", "{run}", "{data}", "--dry-run", "--threads=1")
            ),
        )
    for file in ("config.json", "result.json", "metrics.jsonl", "genotype.json"):
        yield "train", Reader("train --resume", file, command("train", "--run={run}", "--resume"))
    for file in ("model.safetensors", "result.json", "config.json"):
        yield "train", Reader("test", file, command("test", "{run}", "{data}", "--threads=1"))
        yield (
            "train",
            Reader("predict", file, command("predict", "{run}", "{run}/image.png", "--threads=1")),
        )
        card = command("export", "{run}", "{data}", "--card={run}/card.md", "--threads=1")
        yield "train", Reader("export", file, card)
    for file in (
        "plan.json",
        "config.json",
        "result.json",
        "search/nasp-0/result.json",
        "search/nasp-0/metrics.jsonl",
        "search/nasp-0/config.json",
    ):
        yield (
            "compare",
            Reader("compare", file, command("compare", "{data}", "--run={run}", "--quiet")),
        )


def make_runs(data: Path, place: Path) -> dict[str, Path]:
    """Small finished runs of each kind."""
    from PIL import Image

    from proxnas.cli.main import main

    sizes = ["--epochs=2", "--batch-size=16", "--threads=1", "--quiet"]
    small = [
        "--space=nasbench201",
        "--cells=1",
        "--channels=4",
        "--final-cells=1",
        "--final-channels=4",
        "--refine=0",
    ]
    more = place / "search.json"
    more.write_text(
        json.dumps(
            {"cells": 1, "channels": 4, "batch_size": 16, "final_cells": 1, "final_channels": 4}
        )
    )
    calls = {
        "search": ["search", str(data), *small, *sizes],
        "train": [
            "train",
            "zoo:darts_v2",
            str(data),
            "--cells=1",
            "--channels=2",
            "--auxiliary=0",
            *sizes,
        ],
        "compare": [
            "compare",
            str(data),
            "--methods=nasp",
            "--seeds=0",
            "--epochs=2",
            "--space=nasbench201",
            "--threads=1",
            f"--search-config={more}",
        ],
    }
    with redirect_stdout(io.StringIO()):
        for name, words in calls.items():
            if (code := main([*words, f"--run={place / name}"])) != 0:
                raise SystemExit(f"{name} ended with {code}")
    shutil.copytree(place / "search", place / "stopped")
    (place / "stopped" / "result.json").unlink()
    Image.new("L", (8, 8), 90).save(place / "train" / "image.png")
    return {name: place / name for name in (*calls, "stopped")}


def table_of(folder: Path, path: Path) -> Path:
    """A table with the cell that the search in the folder found."""
    from proxnas.cells.reading import read_genotype

    path.write_text(
        f"arch,valid,test\n{read_genotype(folder).without_values().to_string()},91.0,90.0\n"
    )
    return path


def fuzz(
    place: Path, data: Path, trials: int, seed: int = 0, only: str = ""
) -> tuple[int, list[str]]:
    """(how many, what went wrong) of so many changes for each reader."""
    made = place / "made"
    made.mkdir(parents=True)
    runs = make_runs(data, made)
    table = table_of(runs["search"], made / "table.csv")
    found, count = [], 0
    for kind, reader in readers(data, table):
        if only in str(reader):
            draw = random.Random(f"{seed} {reader}")
            for _ in range(trials):
                count += 1
                found += (
                    [fault] if (fault := trial(runs[kind], place / "trial", reader, draw)) else []
                )
    return count, found
