"""What is said of data before anything is made of them."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
from PIL import Image

from proxnas.domains.images.data.images import from_arrays, load
from proxnas.domains.images.data.sheet import data_sheet, duplicates, sheet_lines, sheet_warnings


def test_images_that_are_in_two_parts_are_counted() -> None:
    x = np.random.RandomState(0).randint(0, 256, (30, 8, 8), np.uint8)
    y = np.arange(30) % 2
    arrays = {"x_train": x[:20], "y_train": y[:20], "x_valid": x[18:24], "y_valid": y[18:24]}
    arrays |= {"x_test": np.concatenate([x[24:], x[:3]]), "y_test": np.concatenate([y[24:], y[:3]])}
    sheet = data_sheet(from_arrays(arrays, "data", "data"))
    assert sheet["duplicates"] == {"train in valid": 2, "train in test": 3, "valid in test": 0}
    said = sheet_warnings(sheet)
    assert len(said) == 2 and said[1].startswith("3 of 9 test images are in train too")
    assert said[1] in sheet_lines(sheet)


def test_many_images_are_compared_in_a_moment() -> None:
    """Each is looked up once, not beside all others."""
    x = np.random.RandomState(0).randint(0, 256, (12_000, 2, 2, 3), np.uint8)
    start = time.process_time()
    duplicates({"train": x[:6000], "test": x[6000:]})
    assert time.process_time() - start < 0.5


def test_counts_sizes_and_imbalance(tmp_path: Path) -> None:
    random = np.random.RandomState(0)
    for label, count in (("many", 20), ("few", 3)):
        (tmp_path / label).mkdir()
        for number in range(count):
            side = 10 + number
            pixels = random.randint(0, 256, (side, side + 4), np.uint8)
            Image.fromarray(pixels).save(tmp_path / label / f"{number}.png")
    Image.new("RGB", (8, 8)).save(tmp_path / "many" / "colour.png")
    images = load(str(tmp_path))
    sheet = data_sheet(images)
    assert sum(sheet["images"].values()) == 24 and sheet["classes"] == 2
    assert sheet["stored"]["smallest"] == [8, 8] and sheet["stored"]["largest"] == [33, 29]
    assert sheet["stored"]["kinds"] == {"grey": 23, "colour": 1}
    assert sheet["largest_class"][0] == "many" and sheet["smallest_class"] == ["few", 2]
    text = "\n".join(sheet_lines(sheet))
    assert "8 x 8 to 33 x 29" in text and "unbalanced, many has most and few fewest" in text


def test_what_is_alike_is_said_once() -> None:
    sheet = {"images": {"train": 6}, "pixels": [8, 8, 1], "classes": 2, "target": "classes"}
    sheet |= {"stored": {"smallest": [9, 8], "largest": [9, 8], "kinds": {"grey": 6}}}
    sheet |= {"largest_class": ["a", 3], "smallest_class": ["b", 3], "broken": 1}
    lines = sheet_lines(sheet | {"duplicates": None})
    assert lines[1:] == [
        "stored as 9 x 8 pixels (6 grey)",
        "2 classes of 3 training images",
        "1 broken image is left out",
    ]
