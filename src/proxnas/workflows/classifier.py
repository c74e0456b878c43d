"""`proxnas.ImageClassifier`: `proxnas.fit` in the form that scikit-learn's tools know."""

# N images, H height, W width, C channels, K classes

from __future__ import annotations

import csv
import io
import os
import shutil
import tempfile
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from proxnas.common.errors import InputError
from proxnas.common.seeds import Array
from proxnas.domains.images.data.dataset import from_dataset
from proxnas.domains.images.data.given import BadImages, fitted_to, paths_of, pixels_of
from proxnas.domains.images.data.images import is_dataset
from proxnas.domains.images.data.options import LoadOptions
from proxnas.domains.images.parts import held_out
from proxnas.workflows.folders import keep_file

OPTIONS = (
    *("minutes", "seed", "threads", "device", "space", "image_size", "skip_broken", "force"),
    *("max_params", "max_flops", "max_latency"),
)
"""Parameters that are options of `proxnas.fit`."""
TABLE = "data.csv"
"""What paths and labels are kept as in the run folder."""
BATCH = 512
"""Images that are answered at a time."""


class ImageClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A classifier of images that is found, trained and tested in a given time.

    X is an array (N, H, W) or (N, H, W, C), rows of pixels (N, H * W * C), a list of paths, a table
    with a column of paths, and, without y, a torch Dataset of (image, label) or what `proxnas fit`
    takes as DATA: a folder, a file, a name. y may be of any kind that can be compared and hashed.

    Args:
        minutes: time of `fit`; 0: as the data ask for.
        seed: of everything random.
        threads: CPU threads, or auto.
        device: auto, cpu, cuda, ...
        space: where is searched, as in `proxnas fit`; likewise the limits max_params, max_flops and
            max_latency, of which one can be given.
        image_size: side that images are brought to; 0: as they are, or as there is time for.
        shape: (H, W) or (H, W, C) of images that are given as rows of pixels.
        test_share: share of X that is kept out of the training for the figures in `result_`.
        skip_broken: leave image files out that cannot be read.
        run: folder for everything that is made, the ONNX model among it; without one it is a
            temporary folder, which goes when the classifier goes. `force` replaces a run there.
        verbose: say how far it is.

    Attributes:
        classes_: the labels, in the order of the columns of `predict_proba`.
        model_: the trained model, as of `proxnas.load_model`; `result_`: its figures.
        run_: the run folder.
        n_features_in_: values of a row, if X was rows of pixels.
    """

    def __init__(
        self,
        minutes: float = 0.0,
        *,
        seed: int = 0,
        threads: int | str = "auto",
        device: str = "auto",
        space: str = "auto",
        max_params: str = "",
        max_flops: str = "",
        max_latency: str = "",
        image_size: int = 0,
        shape: Sequence[int] | None = None,
        test_share: float = 0.1,
        skip_broken: bool = False,
        run: str | os.PathLike[str] | None = None,
        force: bool = False,
        verbose: bool = False,
    ) -> None:
        self.minutes = minutes
        self.seed = seed
        self.threads = threads
        self.device = device
        self.space = space
        self.max_params = max_params
        self.max_flops = max_flops
        self.max_latency = max_latency
        self.image_size = image_size
        self.shape = shape
        self.test_share = test_share
        self.skip_broken = skip_broken
        self.run = run
        self.force = force
        self.verbose = verbose

    def fit(self, X: Any, y: Any = None) -> ImageClassifier:
        """Finds and trains a network for the images X with the labels y."""
        from proxnas.workflows.fitting import fit

        if not 0 < self.test_share < 1:
            raise BadImages(f"test_share {self.test_share}: give a share between 0 and 1")
        folder = self._folder()
        data, classes = self._data(X, y, folder)
        options = {name: getattr(self, name) for name in OPTIONS}
        self.model_ = fit(data, run=folder, progress=bool(self.verbose), **options)
        # names of the model; the labels that y had are what scikit-learn wants back
        own = getattr(self.model_.model, "classes", ())
        self.run_, self.result_ = folder, dict(self.model_.result)
        self.classes_ = np.asarray(own) if classes is None else _in_model_order(classes, own)
        return self

    def predict_proba(self, X: Any) -> Array:
        """(N, K): the probability of each class."""
        check_is_fitted(self, "model_")
        model: Any = self.model_.model
        if (paths := paths_of(X)) is not None:
            parts = [model.read(paths[i : i + BATCH]) for i in range(0, len(paths), BATCH)]
            return np.concatenate([model.probabilities(part).numpy() for part in parts])
        if is_torch_dataset(X):
            X = from_dataset(X, options=LoadOptions(for_model=model.shape)).x_train
        x = fitted_to(self._pixels(X), model.shape, model.pixels)
        found: Array = model.probabilities(x).numpy()
        return found

    def predict(self, X: Any) -> Array:
        """(N,): the most probable class of each image."""
        probabilities = self.predict_proba(X)
        answers: Array = self.classes_[probabilities.argmax(1)]
        return answers

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """The accuracy; without y on data that bring their labels along."""
        check_is_fitted(self, "model_")
        if y is None:
            named = os.fspath(X) if isinstance(X, str | os.PathLike) else X
            return float(self.model_.score(named, part="all"))
        return float(super().score(X, y, sample_weight))

    def _data(self, X: Any, y: Any, folder: Path) -> tuple[Any, Array | None]:
        """What `proxnas.fit` takes, and the labels in the order of its classes; None: its own."""
        if y is None:
            if isinstance(X, str | os.PathLike) or is_torch_dataset(X):
                return X, None
            raise BadImages("requires y to be passed, but the target y is None: give labels")
        if isinstance(X, str | os.PathLike) or is_torch_dataset(X):
            raise BadImages("X brings its labels along: leave y out")
        classes, codes = codes_of(y)
        paths = paths_of(X)
        x = self._pixels(X, fitting=True) if paths is None else np.array(paths)
        if len(x) != len(codes):
            raise BadImages(f"{len(x)} images but {len(codes)} labels: give one label an image")
        train, test = held_out(codes, self.test_share)
        if not len(test):
            raise BadImages(
                f"{len(x)} images, n_samples={len(x)}, are too few to keep a share of"
                f" {self.test_share} for a test: give more images or a larger test_share"
            )
        if paths is not None:
            labels = [names_of(classes)[code] for code in codes]
            content = table_of(paths, labels, set(test.tolist()))
            file = keep_file(folder / TABLE, content, self.force)
            # whatever they look like: numbers, or with a | in them
            return f"{file}?kind=classes", classes
        arrays = {"x_train": x[train], "y_train": codes[train], "x_test": x[test]}
        return arrays | {"y_test": codes[test], "classes": np.array(names_of(classes))}, classes

    def _pixels(self, X: Any, fitting: bool = False) -> Array:
        """The images of X; how long rows of pixels are is noted, or held to what was noted."""
        columns = np.shape(X)[1] if np.ndim(X) == 2 else None
        if fitting:
            # of an earlier fit, on rows of another length
            self.__dict__.pop("n_features_in_", None)
            if columns is not None:
                self.n_features_in_ = columns
        elif columns is not None and columns != getattr(self, "n_features_in_", columns):
            raise BadImages(
                f"X has {columns} features, but ImageClassifier is expecting {self.n_features_in_}"
                " features as input"
            )
        return pixels_of(X, self.shape)

    def _folder(self) -> Path:
        if self.run is not None:
            return Path(self.run)
        folder = Path(tempfile.mkdtemp(prefix="proxnas-classifier-"))
        # when the classifier is collected, or Python ends
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        return folder

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = True
        tags.non_deterministic = True  # how many steps there are is for the clock to say
        return tags


def table_of(paths: Sequence[str], labels: Sequence[str], test: set[int]) -> bytes:
    """Paths and labels as a table, with the part of each."""
    text = io.StringIO(newline="")
    rows = csv.writer(text)
    rows.writerow(["file", "label", "part"])
    for number, (path, label) in enumerate(zip(paths, labels, strict=True)):
        part = "test" if number in test else "train"
        rows.writerow([os.path.abspath(path), label, part])
    return text.getvalue().encode()


def _in_model_order(classes: Array, names: Sequence[str]) -> Array:
    """The labels in the order of the model's classes."""
    number = {name: k for k, name in enumerate(names_of(classes))}
    found: Array = classes[[number[name] for name in names]]
    return found


def is_torch_dataset(X: Any) -> bool:
    """Whether items are to be had by number, and X is no list, array or table."""
    plain = isinstance(X, list | tuple) or hasattr(X, "shape") or hasattr(X, "columns")
    return is_dataset(X) and not plain


def codes_of(y: Any) -> tuple[Array, Array]:
    """The labels that occur, in order, and the number of each image's in them."""
    labels = np.asarray(y) if hasattr(y, "dtype") else _one_each(y)
    # a column of a table
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    if labels.ndim != 1:
        raise BadImages(f"y of shape {labels.shape}: give a 1d array, one label an image")
    if labels.dtype.kind == "f" and not np.isfinite(labels).all():
        raise BadImages("y holds NaN or infinity: give a label for every image")
    if labels.dtype.kind == "f" and (labels != np.rint(labels)).any():
        raise BadImages("Unknown label type: continuous: y holds numbers that are no labels")
    try:
        # sorted, as scikit-learn has `classes_`
        classes, codes = np.unique(labels, return_inverse=True)
    except TypeError:  # of several kinds, which have no order of their own
        return _by_name(labels)
    if len(classes) < 2:
        raise BadImages(f"y has one class only ({classes[:1]}): give images of at least two")
    return classes, codes.reshape(-1).astype(np.int64)


def _one_each(y: Any) -> Array:
    """A label stays one thing, also if it is a tuple."""
    values = list(y)
    if any(isinstance(value, tuple) for value in values) or len({*map(type, values)}) > 1:
        found = np.empty(len(values), dtype=object)
        found[:] = values
        return found
    return np.asarray(values)


def _by_name(labels: Array) -> tuple[Array, Array]:
    try:
        known = sorted(set(labels.tolist()), key=lambda label: (type(label).__name__, repr(label)))
    except TypeError as error:
        raise BadImages(f"y: {error}: give labels that can be hashed") from error
    number = {label: k for k, label in enumerate(known)}
    return _one_each(known), np.array([number[label] for label in labels.tolist()], np.int64)


def names_of(classes: Array) -> list[str]:
    """A name each, for the model's files; of a word without the blanks around it, which tables do
    not keep."""
    names = [str(label).strip() for label in classes.tolist()]
    if len(set(names)) < len(names):
        names = [repr(label) for label in classes.tolist()]
    if not all(name.strip() for name in names):
        raise InputError("y: an empty label has no name: give each class one")
    return names
