"""`proxnas.ImageClassifier` among scikit-learn's tools."""

from __future__ import annotations

import gc
import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils import estimator_checks

import proxnas
from proxnas.domains.images.data.given import paths_of
from proxnas.domains.images.data.images import load
from proxnas.domains.images.data.kept import csv_of
from proxnas.domains.images.domain import IMAGES
from proxnas.workflows.classifier import ImageClassifier, _in_model_order, codes_of, names_of
from support.commands import stripes
from support.quick_fits import hurry

FAST: dict[str, Any] = {"minutes": 0.03, "threads": 1}
NAMES = np.array(["birch", "ash", "oak", "elm"])


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    hurry(monkeypatch)


@pytest.fixture(scope="module")
def images() -> tuple[Any, Any]:
    arrays = stripes(160)
    return arrays["x_train"], NAMES[arrays["y_train"]]


def fitted(X: Any, y: Any = None, **options: Any) -> ImageClassifier:
    return ImageClassifier(**FAST | options).fit(X, y)


@pytest.fixture(scope="module")
def model(images: tuple[Any, Any]) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        hurry(patch)
        yield fitted(*images)


def test_strings_in_strings_out(images: tuple[Any, Any], model: ImageClassifier) -> None:
    x, y = images
    assert model.classes_.tolist() == sorted(NAMES)
    probabilities = model.predict_proba(x[:7])
    np.testing.assert_allclose(probabilities.sum(1), 1, rtol=1e-5)
    assert (model.predict(x[:7]) == model.classes_[probabilities.argmax(1)]).all()
    assert model.score(x, y) > 0.8
    assert model.score(x, y) == np.mean(model.predict(x) == y)
    assert model.model_.model.classes == tuple(sorted(NAMES))
    assert model.result_["test_images"] == 16
    told = json.loads((model.run_ / "test.json").read_text())
    assert np.sum(told["confusion"]) == 16 and told["classes"] == sorted(NAMES)
    assert model.result_["calibration_error"] == told["calibration"]["error"]
    page = model.model_.report().read_text()
    assert "expected calibration error" in page and "nearest neighbour" in page
    restored = pickle.loads(pickle.dumps(model))
    assert (restored.predict_proba(x[:7]) == probabilities).all()


def test_rows_of_pixels_are_the_same_images(
    images: tuple[Any, Any], model: ImageClassifier
) -> None:
    x, y = images
    rows = fitted(x.reshape(len(x), -1), y, shape=(8, 8))
    assert rows.n_features_in_ == 64 and not hasattr(model, "n_features_in_")
    expected = model.predict_proba(x[:5])
    assert (rows.predict_proba(x[:5].reshape(5, -1)) == expected).all()
    assert (model.predict_proba(x[:5].reshape(5, -1)) == expected).all()  # a square by itself
    with pytest.raises(ValueError, match="60 features, but ImageClassifier is expecting 64"):
        rows.predict(np.zeros((2, 60)))
    with pytest.raises(ValueError, match="no square images"):
        fitted(np.zeros((20, 10)), np.arange(20) % 2)
    with pytest.raises(ValueError, match="no images of shape"):
        fitted(np.zeros((20, 10)), np.arange(20) % 2, shape=(3, 3))


@pytest.mark.slow
def test_cross_validation_in_a_pipeline(images: tuple[Any, Any]) -> None:
    x, y = images
    inverted = FunctionTransformer(lambda x: 255 - x)
    pipeline = Pipeline([("inverted", inverted), ("model", ImageClassifier(**FAST))])
    scores = cross_val_score(pipeline, x, y, cv=2)
    assert scores.shape == (2,) and scores.mean() > 0.5


def test_parameters_are_as_given_and_cloned() -> None:
    model = ImageClassifier(2.5, seed=3, space="darts7", max_params="100k", shape=(8, 8))
    assert clone(model).get_params() == model.get_params()
    assert model.set_params(seed=4).get_params()["seed"] == 4
    with pytest.raises(NotFittedError):
        model.predict(np.zeros((2, 8, 8)))
    with pytest.raises(NotFittedError):
        model.score(np.zeros((2, 8, 8)), [1, 2])


@pytest.mark.parametrize(
    "check",
    [
        "check_do_not_raise_errors_in_init_or_set_params",
        "check_estimator_cloneable",
        "check_estimator_repr",
        "check_estimator_tags_renamed",
        "check_estimators_unfitted",
        "check_mixin_order",
        "check_get_params_invariance",
        "check_no_attributes_set_in_init",
        "check_parameters_default_constructible",
        "check_set_params",
        "check_valid_tag_types",
        # refusals of what no classifier can take
        "check_classifiers_regression_target",
        "check_estimator_sparse_tag",
        "check_estimators_empty_data_messages",
        "check_requires_y_none",
        "check_complex_data",
    ],
)
def test_what_scikit_learn_asks_of_every_classifier(check: str) -> None:
    getattr(estimator_checks, check)("ImageClassifier", ImageClassifier(**FAST))


def test_a_dataset_brings_its_labels(images: tuple[Any, Any]) -> None:
    x, y = images
    codes = codes_of(y)[1]

    class Pairs(torch.utils.data.Dataset[Any]):
        classes = sorted(NAMES.tolist())

        def __len__(self) -> int:
            return len(x)

        def __getitem__(self, number: int) -> tuple[Any, int]:
            return x[number], int(codes[number])

    model = fitted(Pairs())
    assert model.classes_.tolist() == Pairs.classes
    assert model.score(Pairs()) > 0.8 and len(model.predict(Pairs())) == len(x)
    with pytest.raises(ValueError, match="leave y out"):
        fitted(Pairs(), y)


class Frame:
    """What a table of pandas has that is used of it."""

    def __init__(self, **columns: list[Any]) -> None:
        self._columns = columns
        self.columns = list(columns)

    def __getitem__(self, name: str) -> list[Any]:
        return self._columns[name]

    def __len__(self) -> int:
        return len(next(iter(self._columns.values())))


def test_paths_in_a_table(images: tuple[Any, Any], tmp_path: Path) -> None:
    x, y = images
    paths = [tmp_path / f"{number}.png" for number in range(len(x))]
    for pixels, path in zip(x, paths, strict=True):
        Image.fromarray(pixels).save(path)
    table = Frame(number=list(range(len(x))), path=[str(path) for path in paths])
    model = fitted(table, y)
    assert model.classes_.tolist() == sorted(NAMES) and model.score(table, y) > 0.8
    assert (model.predict(paths[:9]) == model.predict(x[:9])).all()
    lines = csv_of(Frame(path=["a.png", "b.png"], tag=["x", "y,z"])).decode().splitlines()
    first, second = (Path(name).absolute() for name in ("a.png", "b.png"))
    assert lines == ["file,tag", f"{first},x", f'{second},"y,z"']
    assert csv_of((["a.png"], [3])).decode().splitlines()[1].endswith("a.png,3")
    assert IMAGES.kept_as((x, y)) == "data.npz" and IMAGES.kept_as(table) == "data.csv"
    assert paths_of(np.array([["a.png"], ["b.png"]], dtype=object)) == ["a.png", "b.png"]
    assert paths_of(x) is None and paths_of([1, 2]) is None and paths_of("a.png") is None


@pytest.mark.parametrize(
    "labels",
    [
        ["cat|dog", "cat", "bird;fish"],
        [" cat", "dog ", "cat b"],
        ["cat", " cat", "dog"],
        ["1.5", "2.5", "3.5"],
        ["0", "1", "true"],
        [3.0, 1.0, 10.0],
        list(range(150)),
    ],
    ids=str,
)
def test_labels_of_paths_are_classes_whatever_they_look_like(
    labels: list[Any], tmp_path: Path
) -> None:
    """And neither numbers to be learnt nor several labels of an image."""
    y = labels * 4
    paths = [str(tmp_path / f"{number}.png") for number in range(len(y))]
    for number, path in enumerate(paths):
        Image.new("L", (4, 4), number % len(labels)).save(path)
    data, classes = ImageClassifier()._data(paths, y, tmp_path / "run")
    assert classes is not None and classes.tolist() == sorted(labels)
    images = load(data)
    assert images.target.kind == "classes" and len(images.y_test)
    found = _in_model_order(classes, images.classes)
    assert sorted(found.tolist()) == sorted(labels)
    grey = np.asarray(images.x_train)[:, 0, 0, 0]
    assert found[images.y_train].tolist() == [labels[k] for k in grey]


def test_a_refused_fit_leaves_the_table_of_the_earlier_one(tmp_path: Path) -> None:
    paths = [str(tmp_path / f"{number}.png") for number in range(20)]
    run = tmp_path / "run"
    ImageClassifier()._data(paths, [0, 1] * 10, run)
    before = (run / "data.csv").read_bytes()
    with pytest.raises(proxnas.InputError, match="holds other data than these: give force"):
        ImageClassifier()._data(paths, [0, 1, 1, 0] * 5, run)
    assert (run / "data.csv").read_bytes() == before
    ImageClassifier(force=True)._data(paths, [0, 1, 1, 0] * 5, run)
    assert (run / "data.csv").read_bytes() != before


@pytest.mark.slow
def test_a_file_is_as_proxnas_fit_takes_it(tmp_path: Path) -> None:
    np.savez(tmp_path / "data.npz", **stripes())
    model = fitted(tmp_path / "data.npz")
    assert model.classes_.tolist() == ["0", "1", "2", "3"]
    assert model.score(tmp_path / "data.npz") > 0.8


def test_the_run_folder_is_the_users_or_goes_with_the_classifier(
    images: tuple[Any, Any], tmp_path: Path
) -> None:
    x, y = images
    model = ImageClassifier()
    folder = model._folder()
    assert folder.exists()
    del model
    gc.collect()
    assert not folder.exists()
    kept = tmp_path / "run"
    fitted(x, y, run=kept)
    gc.collect()
    assert (kept / "model.safetensors").exists()
    with pytest.raises(proxnas.InputError, match="force"):
        fitted(x, y, run=kept)


def test_labels_of_any_kind() -> None:
    for labels in ([3, 1, 3], ["b", "a", "b"], [True, False, True], [(1, 2), (0, 5), (1, 2)]):
        classes, codes = codes_of(labels)
        assert [classes[k] for k in codes] == labels and codes.tolist() == [1, 0, 1]
    classes, codes = codes_of([None, "1", 1, 1])
    assert [classes[k] for k in codes] == [None, "1", 1, 1]
    assert len(set(names_of(classes))) == 3
    with pytest.raises(ValueError, match="one class only"):
        codes_of([1, 1])
    with pytest.raises(ValueError, match="1d array"):
        codes_of(np.zeros((3, 2)))


def test_bad_images_are_an_error_of_both_kinds(
    images: tuple[Any, Any], model: ImageClassifier
) -> None:
    x, y = images
    for bad, why in (
        (x[:5], "5 images but 160 labels"),
        (x.astype(float) * np.nan, "NaN"),
        (x[..., None, None], "shape"),
    ):
        with pytest.raises(ValueError, match=why) as error:
            fitted(bad, y)
        assert isinstance(error.value, proxnas.InputError)
    with pytest.raises(ValueError, match="3 channels"):
        model.predict(np.zeros((1, 8, 8, 3), np.uint8))
    with pytest.raises(ValueError, match="bytes"):
        model.predict(x[:2] / 255)
