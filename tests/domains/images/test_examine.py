"""What a test tells besides its figure."""

from __future__ import annotations

import base64
import io
import json
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn

from proxnas.domains.images.data.images import Images, from_arrays
from proxnas.domains.images.data.stream import ImageBatches
from proxnas.domains.images.evaluate import evaluate
from proxnas.domains.images.examine import BINS, MISTAKES, calibration, examine, png
from proxnas.report.examined import examined_figures


def numbered(count: int, classes: int) -> Images:
    """Image n is of brightness n, its class n modulo the number of classes."""
    x = np.broadcast_to(np.arange(count, dtype=np.uint8)[:, None, None], (count, 8, 8)).copy()
    y = np.arange(count) % classes
    return from_arrays({"x_train": x, "y_train": y, "x_test": x, "y_test": y}, "data", "data")


class Certain(nn.Module):
    """Answers the class 1 of every image, the surer the brighter it is."""

    def __init__(self, images: Images) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(1))
        self.mean, self.std = images.mean[0], images.std[0]

    def forward(self, x: Tensor) -> Tensor:
        light = x.mean((1, 2, 3)) * self.std + self.mean
        return torch.stack([0 * light, 10 * light, 0 * light], 1)


def test_the_surest_mistakes_come_first_with_their_own_pictures() -> None:
    images = numbered(60, 3)
    part = ImageBatches(images, (images.x_test, images.y_test))
    tested = evaluate(Certain(images).eval(), part, 3, torch.float32, keep=True)
    found = examine(tested, images)
    expected = [n for n in range(59, -1, -1) if n % 3 != 1][:MISTAKES]
    assert [one["image"] for one in found["mistakes"]] == expected
    for one in found["mistakes"]:
        picture = np.asarray(Image.open(io.BytesIO(base64.b64decode(one["png"]))))
        assert (picture == one["image"]).all()  # of this very image
        assert one["answer"] == "1" and one["true"] == str(one["image"] % 3)
    assert found["confusion"] == [[0, 20, 0], [0, 20, 0], [0, 20, 0]]
    assert found["confused"] == [[0, 1, 20], [2, 1, 20]]
    json.dumps(found)
    plain = evaluate(Certain(images).eval(), part, 3, torch.float32)
    assert plain.logits is None and examine(plain, images) == {}


def test_calibration_is_the_mean_gap_of_probability_and_truth() -> None:
    random = np.random.RandomState(0)
    sure = random.uniform(0.5, 1, 20_000)
    shares = np.stack([sure, 1 - sure], 1)
    honest = calibration(shares, (random.rand(len(sure)) > sure).astype(int))
    assert honest["error"] < 0.02 and len(honest["bins"]) == BINS // 2
    assert sum(count for _, _, count in honest["bins"]) == len(sure)
    boastful = calibration(shares, (random.rand(len(sure)) > 0.5).astype(int))
    assert boastful["error"] == pytest.approx(0.25, abs=0.02)


def test_pictures_of_floats_and_large_ones() -> None:
    for x in (np.linspace(-3, 5, 64).reshape(8, 8, 1), np.zeros((200, 300, 3), np.uint8)):
        picture = Image.open(io.BytesIO(base64.b64decode(png(x))))
        assert max(picture.size) <= 64


def test_a_page_believes_nothing_of_the_file() -> None:
    good: dict[str, Any] = {
        "classes": ["<b>", "c"],
        "confusion": [[1, 0], [2, 3]],
        "confused": [[1, 0, 2]],
        "calibration": {"error": 0.1, "bins": [[0.9, 0.8, 5]]},
        "mistakes": [{"png": "AAAA", "true": "c", "answer": "<b>", "probability": 0.9, "image": 1}],
    }
    found = examined_figures(good)
    assert found is not None and found["confused"] == [["c", "<b>", "2"]]
    assert found["calibration"] == "expected calibration error 0.1000"
    import xml.etree.ElementTree as tree

    assert tree.fromstring(found["curve"]).tag.endswith("svg")
    assert [one["said"] for one in found["mistakes"]] == ["taken for <b> (0.900)"]
    assert examined_figures({}) is None and examined_figures({"classes": [1]}) is None
    bad = examined_figures(
        good
        | {
            "confusion": [[1], ["x", 2]],
            "confused": [[9, 9, 9], "x"],
            "calibration": {"bins": ["x", [1]]},
            "mistakes": [{"png": '"><script>'}, 3],
        }
    )
    assert bad is not None
    assert bad["confusion"] == bad["confused"] == bad["mistakes"] == []
    assert "NaN" not in bad["curve"]
