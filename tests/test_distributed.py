"""One search or training by two processes: the same steps as by one, and one run folder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from team import Job
from torch import Tensor, nn

from proxnas import launch
from proxnas.config import SearchConfig
from proxnas.data.images import Images
from proxnas.distributed import joined, team
from proxnas.launch import Place
from proxnas.searching import Search
from proxnas.settings import parse_search

SIZES = ["--space", "nasbench201", "--cells", "1", "--channels", "2", "--batch-size", "8", "--epochs", "2"]
SIZES += ["--device", "cpu", "--threads", "1"]
METHODS = {
    "nasp": ["--method", "nasp", "--look-ahead", "2"],
    "nasp-2nd": ["--method", "nasp", "--order", "2", "--preset", "paper"],
    "darts-1st": ["--method", "darts-1st"],
    "darts-2nd": ["--method", "darts-2nd"],
    "gdas": ["--method", "gdas"],
    "snas": ["--method", "snas"],
    "asap": ["--method", "asap", "--tau-start", "0.9"],
    "asng": ["--method", "asng"],
    "random-ws": ["--method", "random-ws"],
}
STEPS = 5


def by_group(module: nn.Module) -> None:
    """Batch norm that does not depend on the batch."""
    for name, child in module.named_children():
        if isinstance(child, nn.BatchNorm2d):
            setattr(module, name, nn.GroupNorm(1, child.num_features, affine=False))
        by_group(child)


def steps(config: SearchConfig, images: Images) -> dict[str, Any]:
    """A and w after some steps in float64, what was lost by the way, and what was exchanged in a weight step."""
    torch.set_default_dtype(torch.float64)
    try:
        search = Search(config, images)
    finally:
        torch.set_default_dtype(torch.float32)
    module = search.net.module
    by_group(module)
    module.register_forward_pre_hook(lambda _, args: (args[0].double(),))
    losses = [search.step().loss for _ in range(STEPS)]
    A, A_bar = search.method.architecture()
    return {"A": A, "A_bar": A_bar, "w": module.state_dict(), "losses": losses}


def work(folder: Path, configs: dict[str, SearchConfig], images: Images) -> None:
    place = launch.launched()
    assert place is not None
    torch.set_num_threads(1)
    with joined(place):
        for name, config in configs.items():
            torch.save(steps(config, images), folder / f"{name}.{place.rank}.pt")


@pytest.fixture(scope="module")
def configs() -> dict[str, SearchConfig]:
    return {name: parse_search(["digits", *SIZES, *flags]) for name, flags in METHODS.items()}


@pytest.fixture(scope="module")
def together(configs: dict[str, SearchConfig], tiny_images: Images, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("together")
    job = Job(folder, 2, work, folder, configs, tiny_images)
    assert job.codes() == [0, 0], job.said()
    return folder


@pytest.mark.parametrize("name", METHODS)
def test_two_processes_take_the_steps_of_one(
    together: Path, configs: dict[str, SearchConfig], tiny_images: Images, name: str
) -> None:
    alone = steps(configs[name], tiny_images)
    for rank in range(2):
        found = torch.load(together / f"{name}.{rank}.pt", weights_only=True)
        for key in ("A", "A_bar", "w"):
            assert all((found[key][n] - x).abs().max() < 1e-8 for n, x in alone[key].items()), (rank, key)
