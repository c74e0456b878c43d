"""Sets too large for the memory: workers read ahead, and nothing else is different."""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import proxnas
from proxnas.common.errors import InputError
from proxnas.domains.images.data.arrays import Images
from proxnas.domains.images.data.augment import Augment
from proxnas.domains.images.data.images import LoadOptions, load
from proxnas.domains.images.data.source import Streamed, default_workers
from proxnas.domains.images.data.stream import ImageBatches, Stream

CHANGED = Augment(flip=True, cutout=3)
LATER = LoadOptions(resident_limit=0)


def write(root: Path, n: int = 12) -> Path:
    rng = np.random.default_rng(0)
    for part in ("train", "test"):
        for name in ("cat", "dog"):
            (root / part / name).mkdir(parents=True)
            for i in range(n):
                Image.fromarray(rng.integers(0, 256, (8, 12, 3), dtype=np.uint8)).save(
                    root / part / name / f"{i:02}.png"
                )
    return root


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("photos"))


def part(images: Images, workers: int | None = None, augment: Augment = CHANGED) -> ImageBatches:
    return ImageBatches(images, (images.x_train, images.y_train), augment, workers=workers)


def children() -> list[int]:
    return [process.pid or 0 for process in multiprocessing.active_children()]


def ended(pids: list[int]) -> bool:
    end = time.monotonic() + 20
    while any(pid in children() for pid in pids) and time.monotonic() < end:
        time.sleep(0.01)
    return not any(pid in children() for pid in pids)


@pytest.mark.parametrize("workers", [0, 1, 2])
def test_batches_are_those_of_the_resident_set(root: Path, workers: int) -> None:
    here, later = part(load(str(root))), part(load(str(root), LATER), workers)
    assert isinstance(later.source, Streamed) and len(here) == len(later) == 24
    expected, found = Stream(here, 5, seed=3, name="w"), Stream(later, 5, seed=3, name="w")
    for _ in range(11):  # over the ends of epochs
        a, b = expected.next(), found.next()
        assert torch.equal(a.x, b.x) and torch.equal(a.y, b.y)
        assert b.x.is_contiguous(memory_format=torch.channels_last)
    assert len(children()) == workers
    for a, b in zip(here.evaluation_batches(7), later.evaluation_batches(7), strict=True):
        assert torch.equal(a.x, b.x) and torch.equal(a.y, b.y)
    assert (
        len(children()) == workers
    )  # those of the evaluation have ended, those of the stream have not
    a, b = expected.next(), found.next()
    assert torch.equal(a.x, b.x)
    pids = children()
    later.close()
    assert ended(pids)
    a, b = expected.next(), found.next()  # closed is not dead
    assert torch.equal(a.x, b.x)


def test_resume_is_exact_and_skips_ahead(root: Path) -> None:
    images = load(str(root), LATER)
    stream = Stream(part(images, 0), 5, seed=7)
    for _ in range(6):
        stream.next()
    resumed = Stream(part(images, 1), 5, seed=7)
    resumed.next()
    resumed.load_state_dict(stream.state_dict())
    for _ in range(5):
        expected, found = stream.next(), resumed.next()
        assert torch.equal(expected.x, found.x) and torch.equal(expected.y, found.y)
    resumed.part.close()


def test_workers_really_read_the_batches(root: Path) -> None:
    later = part(load(str(root), LATER), 1)
    stream = Stream(later, 5, 0)
    stream.next()
    assert isinstance(later.source, Streamed)
    asked = [stream.order.index(t).tolist() for t in range(1, 4)]
    read = [later.source._from_workers() for _ in range(3)]
    assert [entry[0] for entry in read if entry] == asked
    later.close()


def test_two_streams_of_one_part_are_right_if_slower(root: Path) -> None:
    here, later = part(load(str(root))), part(load(str(root), LATER), 1)
    expected = [Stream(here, 4, 0, name) for name in "ab"]
    found = [Stream(later, 4, 0, name) for name in "ab"]
    for _ in range(3):
        for a, b in zip(expected, found, strict=True):
            assert torch.equal(a.next().x, b.next().x)
    later.close()


def test_workers_end_with_the_part(root: Path) -> None:
    stream = Stream(part(load(str(root), LATER), 2), 5, 0)
    stream.next()
    pids = children()
    assert len(pids) == 2
    cycle = {"stream": stream}
    cycle["cycle"] = cycle  # type: ignore[assignment]
    start = time.monotonic()
    del stream, cycle
    gc.collect()
    assert ended(pids) and time.monotonic() - start < 9  # torch gives up after 5 seconds a worker


def test_an_evaluation_that_is_left_early_ends_its_workers(root: Path) -> None:
    batches = part(load(str(root), LATER), 1).evaluation_batches(5)
    next(batches)
    pids = children()
    del batches
    gc.collect()
    assert ended(pids)


def test_the_global_generator_is_left_alone(root: Path) -> None:
    torch.manual_seed(0)
    before = torch.get_rng_state()
    later = part(load(str(root), LATER), 1)
    Stream(later, 5, 0).next()
    next(later.evaluation_batches(5))
    later.close()
    assert torch.equal(torch.get_rng_state(), before)


def test_workers_that_are_ended_from_outside_do_not_stop_the_run(root: Path) -> None:
    """As when a whole group of processes gets SIGTERM: the first of them still has its checkpoint
    to write."""
    here, later = part(load(str(root))), part(load(str(root), LATER), 2)
    expected, found = Stream(here, 5, 0), Stream(later, 5, 0)
    assert torch.equal(expected.next().x, found.next().x)
    for pid in children():
        os.kill(pid, signal.SIGINT)  # ignored
        os.kill(pid, signal.SIGTERM)
    for _ in range(8):
        assert torch.equal(expected.next().x, found.next().x)
    later.close()


@pytest.mark.parametrize("workers", [0, 1])
def test_a_file_that_breaks_later(tmp_path: Path, workers: int, capfd: Any) -> None:
    images = load(str(write(tmp_path, n=6)), LATER)
    skipping = load(str(tmp_path), LoadOptions(resident_limit=0, skip_broken=True))
    capfd.readouterr()  # how much there is, and how it is read
    path = tmp_path / "train" / "cat" / "03.png"
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(InputError) as caught:
        list(part(images, workers).evaluation_batches(4))
    assert str(caught.value).startswith(f"{path}: broken image (") and "skip_broken" in str(
        caught.value
    )
    stream = Stream(part(images, workers), 4, 0)
    with pytest.raises(InputError, match="broken image"):
        for _ in range(3):
            stream.next()

    batches = list(part(skipping, workers, Augment(shift=False)).evaluation_batches(12))
    assert len(batches) == 1 and sorted(batches[0].y.tolist()) == [0] * 6 + [1] * 6
    assert batches[0].x.unique(dim=0).shape[0] == 11  # its neighbour is there twice
    gc.collect()
    assert capfd.readouterr().err == f"proxnas: {path} is broken: the next image is in its place\n"


def test_all_files_break_later(tmp_path: Path) -> None:
    images = load(str(write(tmp_path, n=3)), LoadOptions(resident_limit=0, skip_broken=True))
    for path in tmp_path.rglob("*.png"):
        path.write_bytes(b"")
    with pytest.raises(InputError, match="so are the next 100: mend the data"):
        list(part(images, 1).evaluation_batches(4))


SCRIPT = """
import sys
from proxnas.domains.images.data.images import LoadOptions, load
from proxnas.domains.images.data.stream import ImageBatches, Stream
images = load(sys.argv[1], LoadOptions(resident_limit=0))
stream = Stream(ImageBatches(images, (images.x_train, images.y_train), workers=2), 5, 0)
stream.cycle = stream  # as in a search, which is not freed before the end
for _ in range(3):
    stream.next()
if sys.argv[2] == "error":
    raise SystemExit(3)
"""


@pytest.mark.parametrize(
    ("how", "code"), [("end", 0), pytest.param("error", 3, marks=pytest.mark.slow)]
)
def test_a_process_ends_at_once_and_without_a_word(root: Path, how: str, code: int) -> None:
    source = str(Path(proxnas.__file__).parents[1])
    ran = subprocess.run(
        [sys.executable, "-W", "error", "-c", SCRIPT, str(root), how],
        env=os.environ | {"PYTHONPATH": source},
        capture_output=True,
        text=True,
        timeout=120,
    )
    said = [line for line in ran.stderr.splitlines() if "read batch by batch" not in line]
    assert (ran.returncode, ran.stdout, said) == (code, "", [])


def test_the_number_of_workers() -> None:
    assert 1 <= default_workers() <= 8
