from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxnas.cli.search import parse_search
from proxnas.common.errors import InputError
from proxnas.domains.images.data.images import Images, load
from support.py2_pickle import Py2Pickle
from support.refusal import refused

NAMES10 = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]
NAMES100 = [f"thing_{number:02}" for number in range(100)]
BATCHES = [f"data_batch_{number}" for number in range(1, 6)]
Array = np.ndarray[Any, Any]


def records(n: int, classes: int, seed: int) -> tuple[Array, Array]:
    """(planes, labels)."""
    rng = np.random.default_rng(seed)
    return rng.integers(0, 256, (n, 3072), dtype=np.uint8), rng.integers(0, classes, n)


def binary10(folder: Path, n: int = 6) -> None:
    for number, name in enumerate([*BATCHES, "test_batch"]):
        planes, labels = records(n, 10, number)
        (folder / f"{name}.bin").write_bytes(
            np.column_stack((labels.astype(np.uint8), planes)).tobytes()
        )
    (folder / "batches.meta.txt").write_text("\n".join(NAMES10) + "\n\n")


def python10(folder: Path, n: int = 6) -> None:
    for number, name in enumerate([*BATCHES, "test_batch"]):
        planes, labels = records(n, 10, number)
        stored = {
            "batch_label": name,
            "labels": labels.tolist(),
            "data": planes,
            "filenames": [f"{i}.png" for i in range(n)],
        }
        (folder / name).write_bytes(Py2Pickle().dump(stored))
    meta = {"num_cases_per_batch": 10000, "label_names": NAMES10, "num_vis": 3072}
    (folder / "batches.meta").write_bytes(Py2Pickle().dump(meta))
    (folder / "readme.html").write_text("<meta>")


def binary100(folder: Path, n: int = 6) -> None:
    for number, (name, count) in enumerate((("train", 5 * n), ("test", n))):
        planes, labels = records(count, 100, number)
        coarse = np.full(
            count, 255 - 99, np.uint8
        )  # not a fine label: it must not be taken for one
        (folder / f"{name}.bin").write_bytes(
            np.column_stack((coarse, labels.astype(np.uint8), planes)).tobytes()
        )
    (folder / "fine_label_names.txt").write_text("\n".join(NAMES100) + "\n")
    (folder / "coarse_label_names.txt").write_text("\n".join(NAMES10 * 2))


def python100(folder: Path, n: int = 6) -> None:
    for number, (name, count) in enumerate((("train", 5 * n), ("test", n))):
        planes, labels = records(count, 100, number)
        stored = {"filenames": ["x"] * count, "batch_label": name, "fine_labels": labels.tolist()}
        (folder / name).write_bytes(
            Py2Pickle().dump(stored | {"coarse_labels": [19] * count, "data": planes})
        )
    meta = {"fine_label_names": NAMES100, "coarse_label_names": NAMES10 * 2}
    (folder / "meta").write_bytes(Py2Pickle().dump(meta))


LAYOUTS: dict[str, tuple[Callable[[Path], None], int]] = {
    "cifar-10-batches-bin": (binary10, 10),
    "cifar-10-batches-py": (python10, 10),
    "cifar-100-binary": (binary100, 100),
    "cifar-100-python": (python100, 100),
}


def made(folder: Path, layout: str) -> Path:
    place = folder / layout
    place.mkdir(parents=True)
    LAYOUTS[layout][0](place)
    return place


def as_images(planes: Array) -> Array:
    return planes.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)


def check(read: Images, classes: int) -> None:
    assert (read.name, read.shape, read.num_classes) == (f"cifar{classes}", (3, 32, 32), classes)
    assert list(read.classes) == (NAMES10 if classes == 10 else NAMES100)
    assert (read.shift, read.flip) == (True, True)
    parts = (
        [records(6, 10, seed) for seed in range(6)]
        if classes == 10
        else [records(30, 100, 0), records(6, 100, 1)]
    )
    planes, labels = (np.concatenate(arrays) for arrays in zip(*parts[:-1], strict=True))
    np.testing.assert_array_equal(read.x_train, as_images(planes))
    np.testing.assert_array_equal(read.y_train, labels)
    np.testing.assert_array_equal(read.x_test, as_images(parts[-1][0]))
    np.testing.assert_array_equal(read.y_test, parts[-1][1])
    # row 5, column 9, green
    assert np.asarray(read.x_train)[9, 5, 9, 1] == planes[9, 1024 + 5 * 32 + 9]
    np.testing.assert_allclose(read.mean, as_images(planes).mean((0, 1, 2)) / 255, rtol=1e-9)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_gives_the_same_images(layout: str, tmp_path: Path) -> None:
    place = made(tmp_path, layout)
    classes = LAYOUTS[layout][1]
    check(load(str(place)), classes)
    check(load(str(tmp_path)), classes)
    renamed = place.rename(tmp_path / "mine")
    check(load(str(renamed)), classes)


def test_two_layouts_of_one_set_are_no_question_but_two_sets_are(tmp_path: Path) -> None:
    made(tmp_path, "cifar-10-batches-py")
    made(tmp_path, "cifar-10-batches-bin")
    check(load(str(tmp_path)), 10)
    made(tmp_path, "cifar-100-python")
    refused(tmp_path, "both CIFAR-10 and CIFAR-100", "cifar-100-python")


def test_the_protocol_of_cifar_is_for_cifar(tmp_path: Path) -> None:
    for layout in LAYOUTS:
        assert parse_search([str(made(tmp_path / layout, layout))]).protocol == "cifar"
    (tmp_path / "photos" / "cat").mkdir(parents=True)
    assert parse_search([str(tmp_path / "photos")]).protocol == "quick"


def test_bad_binary_files(tmp_path: Path) -> None:
    folder = made(tmp_path, "cifar-10-batches-bin")
    batch, names = folder / "data_batch_3.bin", folder / "batches.meta.txt"
    content = batch.read_bytes()
    batch.write_bytes(content[:-1])
    refused(tmp_path, "data_batch_3.bin", "3073")
    batch.write_bytes(b"")
    refused(tmp_path, "data_batch_3.bin", "0 bytes")
    batch.write_bytes(b"\x0a" + content[1:])
    refused(tmp_path, "data_batch_3.bin", "label 10")
    batch.write_bytes(content)
    names.write_text("cat\ndog\n")
    refused(tmp_path, "batches.meta.txt", "2 class names")
    names.unlink()
    refused(folder, "no file batches.meta.txt", "cifar-10-batches-bin")


def test_the_binary_file_of_another_cifar(tmp_path: Path) -> None:
    ten, hundred = made(tmp_path, "cifar-10-batches-bin"), made(tmp_path / "b", "cifar-100-binary")
    (hundred / "train.bin").write_bytes((ten / "data_batch_1.bin").read_bytes())
    refused(hundred, "train.bin", "records of 3074")


BAD_BATCHES: dict[str, tuple[dict[str, Any], str]] = {
    "no data": ({"labels": [1, 2]}, "rows of 3072 bytes"),
    "data of another kind": ({"data": [1, 2], "labels": [1, 2]}, "rows of 3072 bytes"),
    "rows of another length": (
        {"data": np.zeros((2, 3071), np.uint8), "labels": [1, 2]},
        "rows of 3072 bytes",
    ),
    "numbers of another kind": (
        {"data": np.zeros((2, 3072), np.int32), "labels": [1, 2]},
        "rows of 3072 bytes",
    ),
    "no labels": ({"data": np.zeros((2, 3072), np.uint8)}, "its labels are no list of numbers"),
    "labels of CIFAR-100": (
        {"data": np.zeros((2, 3072), np.uint8), "fine_labels": [1, 2]},
        "no list of numbers",
    ),
    "words as labels": (
        {"data": np.zeros((2, 3072), np.uint8), "labels": ["a", "b"]},
        "no list of numbers",
    ),
    "negative labels": (
        {"data": np.zeros((2, 3072), np.uint8), "labels": [-1, 2]},
        "no list of numbers",
    ),
    "great labels": (
        {"data": np.zeros((2, 3072), np.uint8), "labels": [10, 2]},
        "label 10 is above 9",
    ),
    "fewer labels": (
        {"data": np.zeros((2, 3072), np.uint8), "labels": [1]},
        "2 images but 1 labels",
    ),
}


@pytest.mark.parametrize("case", BAD_BATCHES)
def test_bad_pickled_batches(case: str, tmp_path: Path) -> None:
    stored, words = BAD_BATCHES[case]
    folder = made(tmp_path, "cifar-10-batches-py")
    (folder / "data_batch_2").write_bytes(Py2Pickle().dump(stored))
    refused(folder, str(folder / "data_batch_2"), words, "extract the archive again")


def test_a_malicious_batch_does_not_run(tmp_path: Path) -> None:
    folder = made(tmp_path, "cifar-10-batches-py")
    canary = tmp_path / "canary"
    touch = f"touch {canary}".encode()
    (folder / "data_batch_4").write_bytes(
        b"\x80\x02cos\nsystem\nU" + bytes([len(touch)]) + touch + b"\x85R."
    )
    refused(folder, str(folder / "data_batch_4"), "refused", "os")
    assert not canary.exists()


@pytest.mark.parametrize(
    "names", [None, "cat", [1] * 10, ["cat\nproxnas: error"] * 10, ["cat"] * 9]
)
def test_bad_class_names(names: Any, tmp_path: Path) -> None:
    folder = made(tmp_path, "cifar-10-batches-py")
    (folder / "batches.meta").write_bytes(
        Py2Pickle().dump({} if names is None else {"label_names": names})
    )
    refused(folder, "batches.meta", "class names")


@pytest.mark.parametrize("layout", LAYOUTS)
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_damaged_files_are_read_or_refused(
    layout: str, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("fuzz") / layout
    folder.mkdir()
    LAYOUTS[layout][0](folder)
    path = data.draw(st.sampled_from(sorted(folder.iterdir())))
    content = bytearray(path.read_bytes())
    at = data.draw(st.integers(0, min(len(content), 400)) | st.integers(0, len(content)))
    content[at : at + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=4))
    path.write_bytes(content[: len(content) if data.draw(st.booleans()) else at])
    try:
        load(str(folder))
    except InputError as error:
        assert "\n" not in str(error)
