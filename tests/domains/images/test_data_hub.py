from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image

from proxnas.common.errors import InputError
from proxnas.domains.images.data import hub
from proxnas.domains.images.data.images import LoadOptions, load
from proxnas.domains.images.data.lazy import Lazy
from support.refusal import refused

datasets = pytest.importorskip("datasets", reason="the extra `hub` is not installed")

PIXELS = np.random.default_rng(0).integers(0, 256, (12, 8, 8, 3), dtype=np.uint8)


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of the tests stays on the machine, and nothing is fetched."""
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


def png(number: int) -> bytes:
    file = io.BytesIO()
    Image.fromarray(PIXELS[number]).save(file, "PNG")
    return file.getvalue()


def made(n: int = 12, names: tuple[str, ...] = ("cat", "dog"), **columns: Any) -> Any:
    """A dataset as the hub keeps them: image files inside, named classes."""
    rows = {
        "image": [{"bytes": png(i), "path": f"{i}.png"} for i in range(n)],
        "label": [i % 2 for i in range(n)],
    }
    features = {"image": datasets.Image(), "label": datasets.ClassLabel(names=list(names))}
    for name, (values, kind) in columns.items():
        rows[name], features[name] = values, kind
        if kind is None:
            del rows[name], features[name]
    return datasets.Dataset.from_dict(rows, features=datasets.Features(features))


def test_a_parquet_file(tmp_path: Path) -> None:
    path = tmp_path / "my pets.parquet"
    made().to_parquet(path)
    for spec in (str(path), f"hf:{path}"):
        read = load(spec)
        assert (read.name, read.shape, read.classes) == ("my-pets", (3, 8, 8), ("cat", "dog"))
        assert (len(read.y_train), len(read.y_test)) == (10, 2)
        assert isinstance(read.x_train, np.ndarray)
        found = {image.tobytes() for image in (*read.x_train, *np.asarray(read.x_test))}
        assert found == {image.tobytes() for image in PIXELS}


def test_a_folder_with_splits_by_the_names_of_files(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    for name, n in (
        ("train-00000-of-00002", 12),
        ("train-00001-of-00002", 6),
        ("validation", 4),
        ("test-0", 2),
    ):
        made(n).to_parquet(tmp_path / "data" / f"{name}.parquet")
    read = load(f"hf:{tmp_path}")
    assert (len(read.y_train), len(read.y_test)) == (18, 2)
    assert read.y_valid is not None and len(read.y_valid) == 4
    np.testing.assert_array_equal(read.x_test, PIXELS[:2])
    np.testing.assert_array_equal(read.x_train, np.concatenate([PIXELS, PIXELS[:6]]))
    without = load(f"hf:{tmp_path}?valid=&test=validation")
    assert without.x_valid is None and len(without.y_test) == 4


def test_files_that_another_program_wrote(tmp_path: Path) -> None:
    """Plain bytes and words, without the hub's notes on what is an image."""
    pyarrow = pytest.importorskip("pyarrow", reason="comes with datasets")
    parquet = pytest.importorskip("pyarrow.parquet", reason="comes with datasets")
    table = pyarrow.table(
        {"photo": [png(i) for i in range(12)], "class": ["dog", "cat"] * 6, "id": list(range(12))}
    )
    parquet.write_table(table, tmp_path / "a.parquet")
    read = load(str(tmp_path / "a.parquet"))
    assert read.classes == ("cat", "dog") and np.bincount(read.y_train).tolist() == [5, 5]


def test_large_sets_are_read_later(tmp_path: Path) -> None:
    made().to_parquet(tmp_path / "a.parquet")
    later = load(str(tmp_path / "a.parquet"), LoadOptions(resident_limit=0))
    here = load(str(tmp_path / "a.parquet"))
    assert isinstance(later.x_train, Lazy)
    np.testing.assert_array_equal(np.asarray(later.x_train), here.x_train)


def test_sizes_and_broken_images(tmp_path: Path) -> None:
    images = [{"bytes": png(i), "path": None} for i in range(12)]
    images[3] = {"bytes": b"junk", "path": None}
    made(image=(images, datasets.Image(decode=False))).to_parquet(tmp_path / "a.parquet")
    refused(tmp_path / "a.parquet", "train[3]: broken image", "--skip-broken")
    assert load(
        str(tmp_path / "a.parquet"), LoadOptions(skip_broken=True, image_size=16)
    ).shape == (3, 16, 16)


def test_a_parquet_file_may_not_name_other_files(tmp_path: Path) -> None:
    (tmp_path / "secret.png").write_bytes(png(0))
    images = [{"bytes": png(i), "path": None} for i in range(11)] + [
        {"bytes": None, "path": str(tmp_path / "secret.png")}
    ]
    made(image=(images, datasets.Image(decode=False))).to_parquet(tmp_path / "a.parquet")
    refused(tmp_path / "a.parquet", "train[11]: broken image (no content of an image file)")


def test_columns_are_chosen_by_type_or_by_name(tmp_path: Path) -> None:
    coarse = ([i % 3 for i in range(12)], datasets.ClassLabel(names=["a", "b", "c"]))
    path = tmp_path / "a.parquet"
    made(coarse=coarse).to_parquet(path)
    refused(path, "columns label, coarse could be the label", "?label=COLUMN")
    assert load(f"hf:{path}?label=coarse").classes == ("a", "b", "c")
    refused(f"hf:{path}?label=corse", "unknown column 'corse': did you mean coarse")
    refused(f"hf:{path}?lable=coarse", "unknown choice 'lable': did you mean label")
    refused(f"hf:{path}?test=tset", "unknown split 'tset'")
    made(label=([], None)).to_parquet(path)
    refused(path, "no column of labels", "columns: image")
    made(image=([], None)).to_parquet(path)
    refused(path, "no column of images")


def test_labels_that_are_absent(tmp_path: Path) -> None:
    made().to_parquet(tmp_path / "train.parquet")
    made(4, label=([-1] * 4, datasets.ClassLabel(names=["cat", "dog"]))).to_parquet(
        tmp_path / "test.parquet"
    )
    refused(f"hf:{tmp_path}", "test: no labels", "?test=")
    assert len(load(f"hf:{tmp_path}?test=").y_test) == 2
    made(label=([0.5] * 12, datasets.Value("float32"))).to_parquet(tmp_path / "floats.parquet")
    refused(tmp_path / "floats.parquet", "no whole numbers or words")


def test_a_class_that_does_not_occur_is_left_out(tmp_path: Path) -> None:
    made(names=("cat", "dog", "unicorn")).to_parquet(tmp_path / "a.parquet")
    assert load(str(tmp_path / "a.parquet")).classes == ("cat", "dog")


def test_bad_places(tmp_path: Path, capfd: Any) -> None:
    refused(f"hf:{tmp_path}/missing", "no such file or folder")
    refused(f"hf:{tmp_path}", "no .parquet files")
    refused("hf:", "no name")
    refused("hf:?label=x", "no name")
    (tmp_path / "a.parquet").write_bytes(b"PAR1junk")
    refused(tmp_path / "a.parquet", "a.parquet: cannot be loaded", "write the parquet file again")
    assert capfd.readouterr() == ("", "")  # what the package logs is in our line


def test_a_name_that_cannot_be_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    refused(
        "hf:proxnas-nobody/no-such-set",
        "hf:proxnas-nobody/no-such-set: cannot be loaded",
        "check the name",
    )


def test_remote_code_is_never_trusted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked: list[dict[str, Any]] = []

    def old(path: str, name: Any = None, trust_remote_code: bool | None = None) -> Any:
        asked.append({"path": path, "trust": trust_remote_code})
        return {"train": made(), "test": made(2)}

    monkeypatch.setattr(datasets, "load_dataset", old)
    assert len(load("hf:some/pets").y_train) == 12
    assert asked == [{"path": "some/pets", "trust": False}]


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_damaged_parquet_is_read_or_refused(tmp_path: Path, data: st.DataObject) -> None:
    path = tmp_path / "fuzz.parquet"
    made(4).to_parquet(path)
    content = bytearray(path.read_bytes())
    at = data.draw(st.integers(0, len(content) - 1))
    content[at : at + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=4))
    path.write_bytes(content)
    try:
        hub.read_hub(str(path), LoadOptions())
    except InputError as error:
        assert "\n" not in str(error)
