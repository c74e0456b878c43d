"""What a test tells besides its figure: who is taken for whom, how far probabilities can be
believed, and the mistakes that the network is surest of."""

# N test images, K classes

from __future__ import annotations

import base64
import io
from typing import Any

import numpy as np
from PIL import Image

from proxnas.common.seeds import Array
from proxnas.domains.images.data.images import Images
from proxnas.domains.images.evaluate import Evaluation, Judged

BINS = 10
MISTAKES = 12
"""That are shown as pictures."""
SIDE = 64
"""Pixels of such a picture at most."""
PAIRS = 20
"""Of classes that are taken for each other, where a whole matrix would be too large."""
MOST_CLASSES = 30


def examine(tested: Evaluation | Judged, images: Images) -> dict[str, Any]:
    """All of it as JSON values; nothing of targets that are no classes."""
    if not isinstance(tested, Evaluation) or tested.logits is None or tested.y is None:
        return {}
    shares = tested.logits.softmax(-1).numpy()
    y, order = tested.y.numpy(), tested.order.numpy()
    return {
        "classes": list(images.classes),
        "images": len(y),
        **_confusion(tested.confusion.numpy()),
        "calibration": calibration(shares, y),
        "mistakes": mistakes(shares, y, order, images),
    }


def _confusion(counts: Array) -> dict[str, Any]:
    """The matrix, row: true class, column: answer; of many classes the most frequent pairs."""
    # right answers are no confusion
    wrong = counts.copy()
    np.fill_diagonal(wrong, 0)
    order = np.argsort(-wrong, axis=None, kind="stable")[:PAIRS]
    # flat number -> (true class, answer)
    pairs = [(int(k) // len(counts), int(k) % len(counts)) for k in order]
    found: dict[str, Any] = {
        "confused": [[a, b, int(wrong[a, b])] for a, b in pairs if wrong[a, b]]
    }
    if len(counts) <= MOST_CLASSES:
        found["confusion"] = counts.tolist()
    return found


def calibration(shares: Array, y: Array) -> dict[str, Any]:
    """Answers by their probability, in bins of equal width: how probable and how right they are;
    and the expected calibration error, the mean difference of the two."""
    sure, right = shares.max(1), shares.argmax(1) == y
    # a probability of exactly 1 belongs to the last bin
    at = np.minimum((sure * BINS).astype(int), BINS - 1)
    bins, error = [], 0.0
    for k in range(BINS):
        inside = at == k
        if inside.any():
            confidence, accuracy = float(sure[inside].mean()), float(right[inside].mean())
            bins.append([confidence, accuracy, int(inside.sum())])
            # ECE = sum over bins of (share of answers) |confidence - accuracy| (Guo et al., ICML
            # 2017)
            error += inside.mean() * abs(confidence - accuracy)
    return {"error": float(error), "bins": bins}


def mistakes(shares: Array, y: Array, order: Array, images: Images) -> list[dict[str, Any]]:
    """The wrong answers with the highest probabilities; `order`: the test image that each row of
    `shares` is of."""
    answers, sure = shares.argmax(1), shares.max(1)
    wrong = np.flatnonzero(answers != y)
    found = []
    for row in wrong[np.argsort(-sure[wrong], kind="stable")][:MISTAKES]:
        number = int(order[row])
        found.append(
            {
                "image": number,
                "true": images.classes[y[row]],
                "answer": images.classes[answers[row]],
                "probability": float(sure[row]),
                "png": png(np.asarray(images.x_test[number : number + 1])[0]),
            }
        )
    return found


def png(x: Array) -> str:
    """An image (H, W, C) as the content of a small PNG file, in base64; floats from their least to
    their largest."""
    if x.dtype != np.uint8:
        low, high = float(x.min()), float(x.max())
        x = ((x - low) * (255 / max(high - low, 1e-12))).astype(np.uint8)
    picture = Image.fromarray(x[..., 0] if x.shape[2] != 3 else x)
    picture.thumbnail((SIDE, SIDE))
    file = io.BytesIO()
    picture.save(file, "PNG", optimize=True)
    return base64.b64encode(file.getvalue()).decode()
