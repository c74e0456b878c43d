"""What anybody has in seconds: the most frequent class, nearest neighbours and a linear model on
pixels. A network is worth its time if it is better than these."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from proxnas.common.seeds import Array
from proxnas.domains.images.data.pixels import Pixels, averaged
from proxnas.domains.images.targets import CLASSES, Target

SIDE = 16
"""Pixels that larger images are brought to."""
MOST_TRAINING = 5000
MOST_WORK = 2.5e10
"""Products of training images, answers and features: so many of the first are taken that neighbours
are found in a second or two."""
LEAST_TRAINING = 1000
MOST_ITERATIONS = 60

Predict = Callable[[Array], Array]
"""Answers to rows of features."""
Models = dict[str, Callable[[Array, Array], tuple[Predict, int]]]


@dataclass(frozen=True)
class Baseline:
    """A simple model: its name, how right it is, and how long it took to make."""

    name: str
    valid_accuracy: float | None
    test_accuracy: float
    params: int
    seconds: float
    mirrored_accuracy: float | None = None
    """Of the validation images with left and right exchanged."""


def baselines(
    train: tuple[Pixels, Array],
    valid: tuple[Pixels, Array] | None,
    test: tuple[Pixels, Array],
    target: Target = CLASSES,
) -> list[Baseline]:
    """Each model, fitted to so many of the training images as there is time for."""
    # validation, test, and at the end the validation images mirrored: (rows, y) of each
    parts = [(None if part is None else (features(part[0]), part[1])) for part in (valid, test)]
    answers = sum(0 if part is None else part[0].size for part in parts)
    # brute-force neighbours take N_train * N_answered * features products
    most = min(MOST_TRAINING, max(LEAST_TRAINING, int(MOST_WORK / max(answers, 1))))
    some = np.arange(len(train[1]))
    if len(some) > most:  # a part of every class
        some = np.sort(np.random.RandomState(0).permutation(len(some))[:most])
    x, y = features(train[0][some]), train[1][some]
    # pixels that hardly vary, such as black corners, must not be blown up
    scale = x.std(0).clip(min=1e-3 * max(float(x.std()), 1e-9))
    middle = x.mean(0)
    if valid is not None:
        # columns in reverse order: left and right exchanged
        parts.append((features(np.asarray(valid[0])[:, :, ::-1]), valid[1]))

    def scaled(rows: Array) -> Array:
        found: Array = (rows - middle) / scale
        return found

    models = MODELS[target.kind].items()
    return [_made(name, fit, (x, y), parts, scaled, target) for name, fit in models]


def _made(
    name: str,
    fit: Callable[[Array, Array], tuple[Predict, int]],
    train: tuple[Array, Array],
    parts: Sequence[tuple[Array, Array] | None],
    scaled: Callable[[Array], Array],
    target: Target,
) -> Baseline:
    """A model fitted to rows and their answers, and how right it is on each of the parts."""
    start = time.monotonic()
    predict, params = fit(scaled(train[0]), train[1])
    figures: list[float | None] = []
    for part in parts:
        if part is None:
            figures.append(None)
        else:
            figures.append(target.score(predict(scaled(part[0])), part[1]))
    known, right, *mirrored = figures
    seconds = time.monotonic() - start
    return Baseline(name, known, right or 0.0, params, seconds, *mirrored)


def features(x: Pixels) -> NDArray[np.float32]:
    """Rows of pixels, of images that are small."""
    images = np.asarray(x)
    if min(images.shape[1:3]) > SIDE:
        images = averaged(images, SIDE)
    return images.reshape(len(images), -1).astype(np.float32)


def majority(x: Array, y: Array) -> tuple[Predict, int]:
    """Always the most frequent class."""
    label = np.bincount(y).argmax()
    return lambda rows: np.full(len(rows), label), 0


def neighbours(x: Array, y: Array) -> tuple[Predict, int]:
    """The class of the nearest training image."""
    from sklearn.neighbors import KNeighborsClassifier

    model = KNeighborsClassifier(1, algorithm="brute").fit(x, y)
    return model.predict, 0


def logistic(x: Array, y: Array) -> tuple[Predict, int]:
    """Logistic regression; where it has not converged it is taken as it is."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        # strongly regularised: there are hundreds of pixels, and few images
        model = LogisticRegression(C=0.01, max_iter=MOST_ITERATIONS).fit(x, y)
    return model.predict, int(model.coef_.size + model.intercept_.size)


def mean_of(x: Array, y: Array) -> tuple[Predict, int]:
    """Always the mean."""
    mean = y.mean(0)
    return lambda rows: np.broadcast_to(mean, (len(rows), len(mean))), len(mean)


def neighbours_of(x: Array, y: Array) -> tuple[Predict, int]:
    """The mean of the five nearest training images."""
    from sklearn.neighbors import KNeighborsRegressor

    model = KNeighborsRegressor(min(5, len(x)), algorithm="brute").fit(x, y)
    return model.predict, 0


def ridge(x: Array, y: Array) -> tuple[Predict, int]:
    """Linear, with small weights."""
    from sklearn.linear_model import Ridge

    model = Ridge(alpha=float(x.shape[1])).fit(x, y)
    return lambda rows: model.predict(rows).reshape(len(rows), -1), int(model.coef_.size)


MOST_FREQUENT, LINEAR = "most frequent class", "logistic regression"
CLASSIFIERS: Models = {MOST_FREQUENT: majority, "nearest neighbour": neighbours, LINEAR: logistic}
OF_NUMBERS: Models = {"nearest neighbours": neighbours_of, "ridge regression": ridge}
MODELS: dict[str, Models] = {
    "classes": CLASSIFIERS,
    "numbers": {"mean": mean_of, **OF_NUMBERS},
    "labels": {"share of each label": mean_of, **OF_NUMBERS},
}
"""Kind of target -> name -> how it is fitted: what answers rows, and its parameters."""
