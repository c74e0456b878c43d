"""Image files through the command line, and a search on files that workers read."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import proxnas
from proxnas.cli.main import main

SMALL = [
    "--space",
    "nasbench201",
    "--cells",
    "1",
    "--channels",
    "2",
    "--batch-size",
    "4",
    "--threads",
    "1",
    "--quiet",
]
STREAMING = """
import dataclasses, sys
from proxnas.domains.images.options import ImageFlags
read = ImageFlags.load_options
ImageFlags.load_options = lambda self: dataclasses.replace(read(self), resident_limit=0)
from proxnas.cli.main import main
sys.exit(main(sys.argv[1:]))
"""


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    for c, name in enumerate(("cat", "dog")):
        (tmp_path / "photos" / name).mkdir(parents=True)
        for i in range(16):
            pixels = rng.integers(100 * c, 100 * c + 100, (10, 8 + i % 3, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(tmp_path / "photos" / name / f"{i:02}.png")
    return tmp_path / "photos"


def call(*argv: object) -> int:
    return main([str(word) for word in argv])


def test_a_search_on_a_folder(photos: Path, tmp_path: Path, capsys: Any) -> None:
    run = tmp_path / "run"
    argv = ["search", photos, *SMALL, "--epochs", "1", "--run", run]
    (photos / "dog" / "00.png").write_bytes(b"junk")
    assert call(*argv, "--image-size", "8") == 2
    error = capsys.readouterr().err
    assert (
        error.startswith(f"proxnas: error: {photos / 'dog' / '00.png'}: broken image (")
        and error.count("\n") == 1
    )
    assert not run.exists()
    assert call(*argv, "--image-size", "8", "--skip-broken") == 0
    assert f"skipped 1 broken of 32 images: {photos / 'dog' / '00.png'}" in capsys.readouterr().err
    stored = json.loads((run / "config.json").read_text())
    assert (stored["image_size"], stored["skip_broken"], stored["protocol"]) == (8, True, "quick")


def test_a_search_on_images_of_different_sizes(photos: Path, tmp_path: Path, capsys: Any) -> None:
    """Their common size is said, and the same when it goes on."""
    argv = ["search", photos, *SMALL, "--epochs", "1", "--dry-run", "--json"]
    assert call(*argv) == 0
    said = capsys.readouterr()
    assert json.loads(said.out)["images"] == [3, 8, 8]
    assert "the middle square of each is brought to 8 x 8" in said.err
    assert call(*argv, "--image-size", "auto") == 0
    assert json.loads(capsys.readouterr().out)["images"] == [3, 8, 8]
    assert call(*argv, "--image-size", "4") == 0
    assert json.loads(capsys.readouterr().out)["images"] == [3, 4, 4]


def metrics(run: Path) -> list[dict[str, Any]]:
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [
        {key: value for key, value in row.items() if key not in ("seconds", "memory")}
        for row in rows
    ]


@pytest.mark.slow
def test_a_streamed_search_is_stopped_with_its_workers_and_goes_on(
    photos: Path, tmp_path: Path
) -> None:
    """Ctrl-C reaches the whole group of processes; the result is that of a search that was not
    stopped."""
    flags = ["--image-size", "8", "--epochs", "12", "--patience", "0"]
    source = str(Path(proxnas.__file__).parents[1])
    assert call("search", photos, *SMALL, *flags, "--run", tmp_path / "resident") == 0

    def start(*more: str) -> subprocess.Popen[str]:
        command = [
            sys.executable,
            "-W",
            "error",
            "-c",
            STREAMING,
            "search",
            str(photos),
            *SMALL,
            *flags,
        ]
        return subprocess.Popen(
            [*command, "--run", str(tmp_path / "streamed"), *more],
            env=os.environ | {"PYTHONPATH": source, "OMP_NUM_THREADS": "1"},
            start_new_session=True,
            stderr=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            text=True,
        )

    process = start()
    end = time.monotonic() + 120
    while not (tmp_path / "streamed" / "metrics.jsonl").exists() and time.monotonic() < end:
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGINT)
    assert "Traceback" not in process.communicate(timeout=60)[1]
    assert process.returncode == 130
    process = start("--resume")
    said = process.communicate(timeout=120)[1]
    assert process.returncode == 0 and said.count("\n") == 1 and "read batch by batch" in said
    assert metrics(tmp_path / "streamed") == metrics(tmp_path / "resident")
