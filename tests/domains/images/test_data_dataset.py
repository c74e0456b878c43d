from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import Dataset, IterableDataset, Subset, TensorDataset

import proxnas
from proxnas.common.errors import InputError
from proxnas.domains.images.data.augment import Augment
from proxnas.domains.images.data.dataset import from_dataset
from proxnas.domains.images.data.images import LoadOptions
from proxnas.domains.images.data.lazy import Lazy
from proxnas.domains.images.data.stream import ImageBatches, Stream

Array = np.ndarray[Any, Any]
PIXELS = np.random.default_rng(0).integers(0, 256, (20, 8, 12, 3), dtype=np.uint8)


class Made(Dataset[Any]):
    """What torchvision's are: items by number, `classes`, `targets`."""

    def __init__(
        self, image: Callable[[int], Any], n: int = 20, classes: list[str] | None = None
    ) -> None:
        self.image, self.n, self.read = image, n, 0
        if classes:
            self.classes = classes
            self.targets = [i % 2 for i in range(n)]

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, number: int) -> tuple[Any, Any]:
        if not 0 <= number < self.n:
            raise IndexError(number)
        self.read += 1
        return self.image(number), number % 2


def pil(number: int) -> Image.Image:
    return Image.fromarray(PIXELS[number])


def tensor(number: int) -> torch.Tensor:
    return torch.from_numpy(PIXELS[number]).permute(2, 0, 1)


KINDS: dict[str, Callable[[int], Any]] = {
    "PIL": pil,
    "array": lambda number: PIXELS[number],
    "tensor": tensor,
}


@pytest.mark.parametrize("kind", KINDS)
def test_images_of_every_kind(kind: str) -> None:
    made = Made(KINDS[kind], classes=["cat", "dog"])
    read = from_dataset(made, Made(KINDS[kind], 6), name="pets")
    assert (read.name, read.shape, read.classes) == ("pets", (3, 8, 12), ("cat", "dog"))
    np.testing.assert_array_equal(read.x_train, PIXELS)
    np.testing.assert_array_equal(read.x_test, PIXELS[:6])
    assert read.y_train.tolist() == [0, 1] * 10
    assert made.read == 21  # once each, and the first one more to see its size


def test_without_a_test_set_a_fifth_is_set_aside() -> None:
    read = from_dataset(Made(pil), valid=Made(pil, 4))
    assert (
        len(read.y_train),
        len(read.y_test),
        len(read.y_valid if read.y_valid is not None else ()),
    ) == (16, 4, 4)
    assert read.classes == ("0", "1")


def test_floats_are_taken_as_they_are() -> None:
    x = torch.rand(20, 1, 8, 8) * 3 - 1
    read = from_dataset(
        TensorDataset(x, torch.arange(20) % 2), classes=("a", "b"), flip=True, shift=False
    )
    assert isinstance(read.x_train, np.ndarray) and read.x_train.dtype == np.float32
    assert (read.shape, read.classes, read.shift, read.flip) == ((1, 8, 8), ("a", "b"), False, True)
    grey = from_dataset(Made(lambda number: PIXELS[number, ..., 0] / 255))
    assert grey.shape == (1, 8, 12)


def test_grey_rgba_and_sizes_are_dealt_with_as_in_folders() -> None:
    def mixed(number: int) -> Any:
        return (
            pil(number),
            pil(number).convert("L"),
            pil(number).convert("RGBA"),
            PIXELS[number, :6],
        )[number % 4]

    assert from_dataset(Made(mixed)).shape == (3, 8, 8)
    assert from_dataset(Made(mixed), options=LoadOptions(image_size=6)).shape == (3, 6, 6)
    assert from_dataset(Made(lambda number: pil(number).convert("L"))).shape == (1, 8, 12)


def test_subsets_and_lists_are_datasets_too() -> None:
    read = from_dataset(Subset(Made(pil), range(10)), [(pil(0), 0), (pil(1), 1)])
    assert len(read.y_train) == 10 and read.y_test.tolist() == [0, 1]


def test_labels_are_whole_numbers_of_any_kind() -> None:
    labels = [np.int64(5), torch.tensor(9), 5, np.uint8(9)] * 5
    read = from_dataset([(PIXELS[i], label) for i, label in enumerate(labels)])
    assert read.classes == ("5", "9") and len(read.y_train) == 16
    for label in (0.5, "cat", None, torch.zeros(2)):
        with pytest.raises(InputError, match=r"train\[0\]: its label is .*: give a whole number"):
            from_dataset([(PIXELS[0], label), (PIXELS[1], 1)])


def test_a_large_dataset_is_read_later() -> None:
    made = Made(pil, classes=["cat", "dog"])
    later = from_dataset(
        made, Made(pil, 6, ["cat", "dog"]), options=LoadOptions(resident_limit=1000)
    )
    assert isinstance(later.x_train, Lazy)
    here = from_dataset(made, Made(pil, 6))
    assert (later.mean, later.y_train.tolist()) == (here.mean, here.y_train.tolist())
    streams = [
        Stream(ImageBatches(images, (images.x_train, images.y_train), Augment(), workers=1), 4, 0)
        for images in (here, later)
    ]
    for _ in range(6):
        a, b = (stream.next() for stream in streams)
        assert torch.equal(a.x, b.x) and torch.equal(a.y, b.y)
    streams[1].part.close()
    with pytest.raises(InputError, match="floats beyond 1000 bytes"):
        from_dataset(
            TensorDataset(torch.rand(20, 1, 8, 8), torch.arange(20) % 2),
            options=LoadOptions(resident_limit=1000),
        )


def failing(number: int) -> Any:
    if number == 5:
        raise OSError("truncated\nfile")
    return pil(number)


def test_items_that_cannot_be_read(capsys: Any) -> None:
    with pytest.raises(
        InputError, match=r"train\[5\]: broken image \(OSError: truncated file\): replace or"
    ):
        from_dataset(Made(failing), Made(pil, 6))
    read = from_dataset(Made(failing), Made(pil, 6), options=LoadOptions(skip_broken=True))
    assert read.skipped == ("train[5]",) and len(read.y_train) == 19
    assert "skipped 1 broken of 26 images: train[5]" in capsys.readouterr().err


class Endless(IterableDataset[Any]):
    def __iter__(self) -> Any:
        return iter([(PIXELS[0], 0)])


@pytest.mark.parametrize(
    ("dataset", "words"),
    [
        (Endless(), "Endless has no length or no items by number"),
        (7, "int has no length"),
        ([], "list has no items"),
        ([PIXELS[0, 0, 0]] * 4, r"train\[0\]"),
        (
            [("a path", 0), ("a path", 1)],
            "its image is a str: give a PIL image, an array or a tensor",
        ),
        ([(PIXELS[0], 0)] * 9, "one class only"),
        ([(np.zeros((8, 8, 5), np.uint8), i % 2) for i in range(9)], r"uint8 of shape \(8, 8, 5\)"),
        ([(np.zeros((8, 8), np.complex64), i % 2) for i in range(9)], "complex64"),
        (
            [(np.zeros((8, 8 + i)), i % 2) for i in range(9)],
            r"train\[1\]: float64 of shape \(8, 9\), but train\[0\]",
        ),
        ([(np.full((8, 8), np.nan), i % 2) for i in range(9)], "NaN"),
        (Made(lambda number: 1 / 0), "ZeroDivisionError"),
    ],
)
def test_bad_datasets(dataset: Any, words: str) -> None:
    with pytest.raises(InputError, match=words) as caught:
        from_dataset(dataset)
    assert "\n" not in str(caught.value)


def test_labels_that_training_does_not_know() -> None:
    with pytest.raises(InputError, match="y_test has label 7"):
        from_dataset(Made(pil), [(pil(0), 7)])


def test_torch_and_torchvision_are_not_needed_to_import_it() -> None:
    code = """
import sys, proxnas.domains.images.data.dataset
sys.exit("torch" in sys.modules or "torchvision" in sys.modules)
"""
    source = Path(proxnas.__file__).parents[1]
    assert subprocess.run([sys.executable, "-c", code], cwd=source, check=False).returncode == 0
