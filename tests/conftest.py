"""What all tests share: one thread, a seed a test, and a tiny search to take apart."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import settings

from proxnas.cli.search import parse_search
from proxnas.domains.images.data.images import Images, from_arrays
from proxnas.domains.text.data.text import Text
from proxnas.searching.job import Search
from proxnas.searching.options import SearchOptions

# The same examples in every run of `make test`: it passes everywhere or nowhere. `make test-all`
# draws new ones.
settings.register_profile("same", derandomize=True)
settings.register_profile("drawn")
settings.load_profile(os.environ.get("PROXNAS_EXAMPLES", "same"))


@cache  # a command line takes longer to read than a tiny network to build
def _parsed(*flags: str) -> SearchOptions:
    return parse_search(list(flags))


@pytest.fixture(autouse=True, scope="session")
def one_thread() -> None:
    """The same number for all, so that results can be compared to the bit; `--threads auto` keeps
    to it too."""
    os.environ["OMP_NUM_THREADS"] = "1"
    torch.set_num_threads(1)


@pytest.fixture(autouse=True, scope="session")
def heeds_signals() -> None:
    """Who starts the tests by nohup hands down that SIGHUP is ignored, and a shell that does so in
    the background SIGINT: the commands that are tested would never end by them."""
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(0)


@pytest.fixture
def double() -> Iterator[None]:
    """Modules and tensors made in the test are float64, where equality means something."""
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.fixture(scope="session")
def tiny_images() -> Images:
    """Ten batches of four images of 8 x 8 pixels in two classes, half of them for A."""
    random = np.random.RandomState(0)
    arrays = {
        f"{kind}_{part}": (
            random.randint(0, 256, (n, 8, 8, 3)).astype(np.uint8)
            if kind == "x"
            else np.arange(n) % 2
        )
        for part, n in (("train", 40), ("test", 4))
        for kind in "xy"
    }
    return from_arrays(arrays, "tiny", "tiny")


@pytest.fixture(scope="session")
def tiny_text() -> Text:
    """Five windows of 6 tokens in two columns, six words."""
    random = np.random.RandomState(0)
    return Text("tiny", "word", tuple("abcdef"), *(random.randint(0, 6, n) for n in (62, 62, 10)))


@pytest.fixture
def make_search(tiny_images: Images, tiny_text: Text) -> Callable[..., Search]:
    """make_search("--method", "nasp", ...) -> a Search over the tiny images or text, its network as
    small as can be."""

    def make(*flags: str) -> Search:
        if "rnn" in flags:
            size = [
                "--units",
                "4",
                "--batch-size",
                "2",
                "--bptt",
                "6",
                "--device",
                "cpu",
                "--threads",
                "1",
            ]
            return Search(_parsed("pydocs", *size, *flags), tiny_text)
        cells = "1" if {"nasbench201", "mobile"} & set(flags) else "3"
        size = [
            "--cells",
            cells,
            "--channels",
            "2",
            "--batch-size",
            "4",
            "--device",
            "cpu",
            "--threads",
            "1",
        ]
        return Search(_parsed("digits", *size, *flags), tiny_images)

    return make


@pytest.fixture(scope="session")
def stripes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A hundred images in two classes that are told apart easily, in a file: a fifth is for
    testing."""
    random = np.random.RandomState(0)
    y = np.arange(100) % 2
    x = random.randint(0, 100, (100, 8, 8)).astype(np.uint8)
    x[y == 1, 3:5] += 120
    path = tmp_path_factory.mktemp("data") / "stripes.npz"
    np.savez(path, x_train=x, y_train=y)
    return path
