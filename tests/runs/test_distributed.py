"""One search by two processes takes the same steps as by one, and exchanges no more than it
must."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from proxnas.cli.main import main
from proxnas.cli.search import parse_search
from proxnas.common.environment import pick_device
from proxnas.common.errors import InputError
from proxnas.common.launch import ProcessPlace, command_to_continue, here, place_by_torchrun, taking
from proxnas.domains.images.data.images import Images
from proxnas.domains.images.data.stream import ImageBatches, Stream
from proxnas.domains.text.data.text import Text
from proxnas.domains.text.data.text_stream import TextStream
from proxnas.domains.text.options import TextTrainOptions
from proxnas.domains.text.training import TextTraining
from proxnas.methods import optimizers
from proxnas.runs.consensus import agree_to_stop, check_alike, mean_gradients
from proxnas.runs.messages import gather, share, shared_state, take_part, team, total
from proxnas.searching.job import Search
from proxnas.searching.options import SearchOptions
from support.team import Job

SIZES = ["--epochs", "2", "--device", "cpu", "--threads", "1"]
IMAGES = [
    "digits",
    *SIZES,
    "--space",
    "nasbench201",
    "--cells",
    "1",
    "--channels",
    "2",
    "--batch-size",
    "7",
]
TEXT = [
    "pydocs",
    *SIZES,
    "--space",
    "rnn",
    "--norm",
    "none",
    "--units",
    "4",
    "--batch-size",
    "2",
    "--bptt",
    "6",
]
METHODS = {
    "nasp": (5, ["--look-ahead", "2"]),
    "darts-1st": (5, ["--method", "darts-1st"]),
    "darts-2nd": (2, ["--method", "darts-2nd"]),
    "lazy-pa": (2, ["--method", "lazy-pa", "--order", "2"]),
    "gdas": (2, ["--method", "gdas"]),
    "snas": (2, ["--method", "snas"]),
    "asap": (2, ["--method", "asap", "--tau-start", "0.9"]),
    "asng": (2, ["--method", "asng"]),
    "proxyless": (2, ["--method", "proxyless", "--warmup", "0"]),
    "drnas": (3, ["--method", "drnas"]),
    "pc-darts": (2, ["--method", "pc-darts", "--resting", "0"]),
    "darts-pt": (4, ["--method", "darts-pt"]),
    "enas": (2, ["--method", "enas", "--controller-steps", "1"]),
    "random-ws": (4, ["--method", "random-ws", "--random-cells", "4"]),
    "spos": (4, ["--method", "spos", "--paths", "fair", "--population", "4"]),
    "score": (4, ["--method", "score", "--random-cells", "4"]),
    "recurrent": (5, TEXT),
}
"""Name -> steps to compare, flags. Two epochs of two steps: random-ws, spos and enas choose too."""
STEPS = 5


def by_group(module: nn.Module) -> None:
    """In place of batch norm one that does not depend on the batch."""
    for name, child in module.named_children():
        if isinstance(child, nn.BatchNorm2d):
            setattr(module, name, nn.GroupNorm(1, child.num_features, affine=False))
        by_group(child)


def steps(config: SearchOptions, data: Images | Text, number: int) -> dict[str, Any]:
    """A, A_bar, w and the validation after so many steps in float64."""
    torch.set_default_dtype(torch.float64)
    try:
        search = Search(config, data)
        module = search.net.module
        by_group(module)
        if isinstance(data, Images):
            module.register_forward_pre_hook(lambda _, args: (args[0].double(),))
        losses = [search.step().loss for _ in range(number)]
        assert all(loss.isfinite() for loss in losses)
        (A, A_bar), validation = search.method.architecture(), search.validation()
    finally:
        torch.set_default_dtype(torch.float32)
    return {
        "A": A,
        "A_bar": A_bar,
        "w": module.state_dict(),
        "validation": {"": torch.tensor(validation, dtype=torch.float64)},
    }


def spoken(text: Text) -> dict[str, Tensor]:
    """The weights and the state of a language model after some steps of its training in float64."""
    torch.set_default_dtype(torch.float64)
    try:
        training = TextTraining(
            TextTrainOptions(units=4, batch_size=2, bptt=6, device="cpu", threads=1), text, None
        )
        for _ in range(STEPS):
            training.step()
        hidden = training.state_dict()["hidden"]
    finally:
        torch.set_default_dtype(torch.float32)
    return training.network.state_dict() | dict(zip("hc", hidden, strict=False))


def counted(sizes: list[list[int]]) -> None:
    """From now on notes of each weight step what it exchanged, what it used, and all there is, in
    bytes."""

    def noting(
        weights: Sequence[Tensor], buffers: Sequence[Tensor], loss: Tensor, examples: int
    ) -> Tensor:
        before, used = team().traffic.bytes, [w for w in weights if w.grad is not None]
        found = mean_gradients(weights, buffers, loss, examples)
        each = [sum(w.numel() * w.element_size() for w in some) for some in (used, weights)]
        sizes.append([team().traffic.bytes - before, *each])
        return found

    optimizers.mean_gradients = noting  # type: ignore[attr-defined]


def disagreeing(rank: int) -> dict[str, str]:
    """What is said when the processes do not do the same."""
    w = [torch.zeros(3, requires_grad=True) for _ in range(2)]
    w[rank].grad = torch.ones(3)
    mean_gradients(w, [], torch.tensor(1.0), 1)
    said = {}
    for name, check in (
        ("bits", lambda: agree_to_stop(None, False)),
        ("weights", lambda: check_alike({"w": [w[0] + rank]})),
    ):
        try:
            check()
        except InputError as error:
            said[name] = str(error)
    return said


def messages(rank: int) -> dict[str, Any]:
    """What comes out of each kind of message."""
    mine = torch.tensor([rank, 1])
    return {
        "total": total(mine),
        "gathered": gather(mine),
        "shared": [share(f"of {rank}".encode()), share(None if rank == 0 else b"mine")],
        "state": shared_state({"x": mine} if rank == 0 else None),
    }


def work(folder: Path, configs: dict[str, SearchOptions], images: Images, text: Text) -> None:
    place = place_by_torchrun()
    assert place is not None
    torch.set_num_threads(1)
    sizes: list[list[int]] = []
    with take_part(place):
        counted(sizes)
        for name, config in configs.items():
            data = text if name == "recurrent" else images
            torch.save(steps(config, data, METHODS[name][0]), folder / f"{name}.{place.rank}.pt")
            if name == "nasp":
                torch.save(list(sizes), folder / f"sizes.{place.rank}.pt")
        torch.save(spoken(text), folder / f"spoken.{place.rank}.pt")
        torch.save(messages(place.rank), folder / f"messages.{place.rank}.pt")
        torch.save(disagreeing(place.rank), folder / f"said.{place.rank}.pt")
    assert here().alone


@pytest.fixture(scope="module")
def configs() -> dict[str, SearchOptions]:
    return {
        n: parse_search(flags if flags is TEXT else [*IMAGES, *flags])
        for n, (_, flags) in METHODS.items()
    }


@pytest.fixture(scope="module")
def together(
    configs: dict[str, SearchOptions],
    tiny_images: Images,
    tiny_text: Text,
    tmp_path_factory: pytest.TempPathFactory,
) -> Path:
    """What two processes have done, in files."""
    folder = tmp_path_factory.mktemp("together")
    job = Job(folder, 2, work, folder, configs, tiny_images, tiny_text)
    assert job.codes() == [0, 0], job.said()
    return folder


@pytest.mark.parametrize("name", METHODS)
def test_two_processes_take_the_steps_of_one(
    together: Path,
    configs: dict[str, SearchOptions],
    tiny_images: Images,
    tiny_text: Text,
    name: str,
) -> None:
    """A batch of 7 is 4 and 3 images: also unequal parts give the gradient of the whole."""
    alone = steps(
        configs[name], tiny_text if name == "recurrent" else tiny_images, METHODS[name][0]
    )
    for rank in range(2):
        found = torch.load(together / f"{name}.{rank}.pt", weights_only=True)
        for key, matrices in alone.items():
            assert all((found[key][n] - x).abs().max() < 1e-8 for n, x in matrices.items()), (
                rank,
                key,
            )


def test_two_processes_train_a_language_model_as_one(together: Path, tiny_text: Text) -> None:
    alone = spoken(tiny_text)
    for rank in range(2):
        found = torch.load(together / f"spoken.{rank}.pt", weights_only=True)
        assert found.keys() == alone.keys() and all(
            (found[n] - x).abs().max() < 1e-8 for n, x in alone.items()
        )


def test_only_what_is_selected_is_exchanged(together: Path) -> None:
    sizes = torch.load(together / "sizes.0.pt", weights_only=True)
    assert len(sizes) == METHODS["nasp"][0]
    for exchanged, used, everything in sizes:
        assert used <= exchanged <= 1.1 * used and exchanged < 0.9 * everything


def test_messages(together: Path) -> None:
    for rank in range(2):
        found = torch.load(together / f"messages.{rank}.pt", weights_only=True)
        assert found["total"].tolist() == [1, 2] and found["gathered"].tolist() == [[0, 1], [1, 1]]
        assert found["shared"] == [b"of 0", None] and found["state"]["x"].tolist() == [0, 1]


def test_processes_that_disagree_are_told(together: Path) -> None:
    for rank in range(2):
        said = torch.load(together / f"said.{rank}.pt", weights_only=True)
        assert (
            "select different operations" in said["bits"] and "different weights" in said["weights"]
        )


def batches(images: Images, place: ProcessPlace) -> list[list[Tensor]]:
    """The first batches, and the batches of an evaluation, that a process sees."""
    with taking(place):
        part = ImageBatches(images, (images.x_train, images.y_train))
        stream = Stream(part, 8, seed=0)
        return [
            [stream.next().x for _ in range(7)],
            [batch.x for batch in part.evaluation_batches(8)],
        ]


def test_every_image_is_seen_by_one_of_them(tiny_images: Images) -> None:
    """And changed in the same way as by one process."""
    (whole, evaluated), parts = (
        batches(tiny_images, ProcessPlace()),
        [batches(tiny_images, ProcessPlace(r, 3)) for r in range(3)],
    )
    for t, batch in enumerate(whole):
        assert torch.equal(torch.cat([part[0][t] for part in parts]), batch)
    for t, batch in enumerate(evaluated):
        assert torch.equal(parts[t % 3][1][t // 3], batch)
    assert sum(len(part[1]) for part in parts) == len(evaluated)


def test_parts_make_the_whole() -> None:
    for n, size in ((7, 2), (8, 3), (2, 4)):
        parts = [list(range(n))[ProcessPlace(rank, size).part(n)] for rank in range(size)]
        assert (
            list(chain(*parts)) == list(range(n))
            and max(map(len, parts)) - min(map(len, parts)) <= 1
        )


def test_what_torchrun_says() -> None:
    told = {"RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"}
    assert place_by_torchrun(told) == ProcessPlace(3, 4, 1, 2, 0)
    assert place_by_torchrun(told | {"TORCHELASTIC_RESTART_COUNT": "2"}) == ProcessPlace(
        3, 4, 1, 2, 2
    )
    assert place_by_torchrun({"RANK": "0", "WORLD_SIZE": "2"}) is None
    for wrong in ({"RANK": "x"}, {"RANK": "4"}):
        with pytest.raises(InputError, match="torchrun"):
            place_by_torchrun(told | wrong)


def test_a_restarted_command_goes_on() -> None:
    argv = ["search", "digits", "--force"]
    assert command_to_continue(ProcessPlace(), argv) == argv
    assert command_to_continue(ProcessPlace(restarts=1), argv) == ["search", "digits", "--resume"]
    assert command_to_continue(ProcessPlace(restarts=1), ["search", "--resume"]) == [
        "search",
        "--resume",
    ]


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["compare", "digits"], "compare: torchrun is for search and train"),
        (["fit", "digits"], "fit: torchrun is for search and train"),
    ],
)
def test_other_commands_are_refused(
    argv: list[str], said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for rank in "01":
        for name, value in {"RANK": rank, "WORLD_SIZE": "2", "LOCAL_RANK": rank}.items():
            monkeypatch.setenv(name, value)
        assert main(argv) == 2
        errors = capsys.readouterr().err
        assert errors.startswith(f"proxnas: error: {said}") if rank == "0" else errors == ""


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["search", "--seeds", "0,1"], "--seeds 0,1: is for one process"),
        (["search", "--minutes", "1"], "--minutes 1.0: is for one process"),
        (["search", "--method", "random", "--workers", "2"], "--workers 2: is for one process"),
        (["search", "--dry-run"], "--dry-run: is for one process"),
        (["search", "--method", "bayesnas"], "--method bayesnas: is for one process"),
        (["search", "--max-latency", "2ms"], "--max-latency 2ms: is for one process"),
        (["train", "zoo:DARTS_V2", "digits", "--dry-run"], "--dry-run: is for one process"),
        (["train", "zoo:LSTM", "pydocs", "--dry-run"], "--dry-run: is for one process"),
        (
            ["train", "zoo:DARTS_V2", "digits", "--minutes", "1"],
            "--minutes 1.0: is for one process",
        ),
    ],
)
def test_what_several_processes_cannot_do_is_refused(
    argv: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with taking(ProcessPlace(0, 2)):
        assert main(argv) == 2
    assert capsys.readouterr().err.startswith(f"proxnas: error: {said}")


def test_a_batch_must_be_large_enough(tiny_images: Images) -> None:
    part = ImageBatches(tiny_images, (tiny_images.x_train, tiny_images.y_train))
    with (
        taking(ProcessPlace(3, 4)),
        pytest.raises(InputError, match=r"batch_size 7: .* give at least 8"),
    ):
        Stream(part, 7, seed=0)


def test_columns_must_be_divisible(tiny_text: Text) -> None:
    with (
        taking(ProcessPlace(0, 2)),
        pytest.raises(InputError, match=r"batch_size 3: .* a multiple"),
    ):
        TextStream(tiny_text.train, 3, 4, seed=0)


def test_a_device_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a machine with two CUDA devices."""
    taken: list[int] = []
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda: torch.device("cuda"))
    monkeypatch.setattr(torch.accelerator, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "set_device", taken.append)
    with taking(ProcessPlace(3, 4, 1, 2)):
        assert pick_device("auto") == pick_device("cuda") == torch.device("cuda:1") and taken == [
            1,
            1,
        ]
        assert pick_device("cpu") == torch.device("cpu")
        with pytest.raises(InputError, match="give device cuda"):
            pick_device("cuda:0")
    with (
        taking(ProcessPlace(3, 4, 1, 4)),
        pytest.raises(InputError, match="processes 4: this machine has 2"),
    ):
        pick_device("cuda")
    assert pick_device("cuda:0") == torch.device("cuda:0")
