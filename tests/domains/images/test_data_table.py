"""A CSV of file names and labels beside the images."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from proxnas.common.errors import InputError
from proxnas.domains.domain import of_data
from proxnas.domains.images.data.images import Images, load
from proxnas.domains.images.data.options import LoadOptions

COLOURS = {"red": (255, 0, 0), "green": (0, 255, 0)}


def pictures(folder: Path, count: int = 12) -> list[tuple[str, str]]:
    """Files of plain colours, and what they are."""
    folder.mkdir(parents=True, exist_ok=True)
    found = []
    for number in range(count):
        label = list(COLOURS)[number % 2]
        Image.new("RGB", (8, 8), COLOURS[label]).save(folder / f"p{number:02}.png")
        found.append((f"p{number:02}.png", label))
    return found


def written(file: Path, rows: list[tuple[str, ...]], header: str = "", sign: str = ",") -> Path:
    lines = ([header] if header else []) + [sign.join(row) for row in rows]
    file.write_text("\n".join(lines) + "\n")
    return file


def check(images: Images) -> None:
    """Every picture has the label of its colour."""
    assert images.classes == ("green", "red")
    for x, y in ((images.x_train, images.y_train), (images.x_test, images.y_test)):
        assert (np.asarray(x)[:, 0, 0, 0] // 255 == y).all() and len(y)


@pytest.mark.parametrize("sign", [",", ";", "\t", "|"])
@pytest.mark.parametrize("header", ["", "filename{}label", "Image{}Class", "picture{}colour"])
def test_delimiter_and_header_are_found(tmp_path: Path, sign: str, header: str) -> None:
    rows = pictures(tmp_path)
    written(tmp_path / "labels.csv", rows, header.format(sign), sign)
    check(load(str(tmp_path)))
    check(load(str(tmp_path / "labels.csv")))
    assert of_data(str(tmp_path / "labels.csv")).name == "images"


def test_columns_in_any_order_and_others_beside_them(tmp_path: Path) -> None:
    rows = [("x", label, "7", file) for file, label in pictures(tmp_path)]
    table = written(tmp_path / "labels.csv", rows, "note,label,width,file_name")
    check(load(str(table)))
    written(table, rows, "note,colour,width,file_name")
    with pytest.raises(InputError, match="no column of labels, or one of note, colour, width"):
        load(str(table))
    check(load(f"{table}?label=colour"))
    with pytest.raises(InputError, match="no column 'shade'"):
        load(f"{table}?label=shade")
    with pytest.raises(InputError, match=r"\?lable= is not known"):
        load(f"{table}?lable=colour")


def test_a_column_for_the_part(tmp_path: Path) -> None:
    parts = ["train", "Train", "val", "TEST"] * 3
    rows = [(*row, part) for row, part in zip(pictures(tmp_path), parts, strict=True)]
    rows[0] = (rows[0][0], "red", "")  # of train
    images = load(str(written(tmp_path / "labels.csv", rows, "file,label,split")))
    assert [len(images.y_train), len(images.y_test)] == [6, 3]
    assert images.y_valid is not None and len(images.y_valid) == 3
    rows[1] = (*rows[1][:2], "later")
    with pytest.raises(InputError, match="split says later"):
        load(str(written(tmp_path / "labels.csv", rows, "file,label,split")))


def test_a_table_a_part_and_files_in_a_folder_of_their_own(tmp_path: Path) -> None:
    rows = [(Path(file).stem, label) for file, label in pictures(tmp_path / "train")]
    written(tmp_path / "train.csv", rows[:8], "id,label")
    written(tmp_path / "test.csv", rows[8:], "id,label")
    images = load(str(tmp_path))
    check(images)
    assert [len(images.y_train), len(images.y_test)] == [8, 4]
    written(tmp_path / "test.csv", [(name, "") for name, _ in rows[8:]], "id,label")
    assert len(load(str(tmp_path)).y_test) == 2  # without labels it is no test


def test_missing_and_broken_files_are_counted_in_one_round(tmp_path: Path) -> None:
    rows = pictures(tmp_path)
    (tmp_path / "p03.png").write_bytes(b"nothing")
    (tmp_path / "p05.png").unlink()
    table = written(tmp_path / "labels.csv", [*rows, ("gone.png", "red")], "file,label")
    with pytest.raises(InputError, match="2 more of 13 images") as error:
        load(str(table))
    for name in ("p03.png", "p05.png", "gone.png"):
        assert name in str(error.value)
    images = load(str(table), LoadOptions(skip_broken=True))
    check(images)
    assert len(images.skipped) == 3 and len(images.y_train) + len(images.y_test) == 10


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "it is empty"),
        ("file,label\np00.png\n", "have not 2 columns, the first is row 2"),
        ("file\np00.png\n", "one column only"),
        ("file,label\np00.png,\np01.png,a\n", "1 of 2 rows have no label, the first in line 2"),
        ("file,label\np00.png,a\np01.png,a\n", "one class only"),
        ("file,tags\np00.png,a|b\np01.png,\n", r"or give \?kind=labels .* if they have none"),
        ("a,b\n1,2\n3,4\n", "no column of image files"),
        ("file,label,part\np00.png,a,train\np01.png,b,train\np02.png,c,test\n", "not in train"),
    ],
)
def test_what_is_no_table_is_refused_in_one_line(tmp_path: Path, text: str, why: str) -> None:
    pictures(tmp_path)
    (tmp_path / "labels.csv").write_text(text)
    with pytest.raises(InputError, match=why) as error:
        load(str(tmp_path))
    assert "labels.csv" in str(error.value) and "\n" not in str(error.value)


def test_a_table_about_something_else_leaves_class_folders_as_they_are(tmp_path: Path) -> None:
    for file, label in pictures(tmp_path / "all"):
        (tmp_path / label).mkdir(exist_ok=True)
        (tmp_path / "all" / file).rename(tmp_path / label / file)
    (tmp_path / "all").rmdir()
    written(tmp_path / "metadata.csv", [("7", "8")], "year,place")
    check(load(str(tmp_path)))


def test_numbers_as_classes_are_in_their_order(tmp_path: Path) -> None:
    rows = [(file, str(9 + k % 3)) for k, (file, _) in enumerate(pictures(tmp_path))]
    assert load(str(written(tmp_path / "labels.csv", rows))).classes == ("9", "10", "11")


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "cp1252"])
def test_letters_are_read_as_they_were_written(
    encoding: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Both would be one class if a letter that is not known were replaced."""
    names = ("p\u00eache", "p\u00e8che")
    rows = [f"{file};{names[k % 2]}" for k, (file, _) in enumerate(pictures(tmp_path))]
    table = tmp_path / "labels.csv"
    table.write_bytes("\r\n".join(["file;label", *rows]).encode(encoding))
    assert load(str(table)).classes == tuple(sorted(names))
    assert ("is read as Windows-1252" in capsys.readouterr().err) == (encoding == "cp1252")


@pytest.mark.parametrize("sign", [";", "\t"])
def test_a_decimal_comma_is_a_number(sign: str, tmp_path: Path) -> None:
    """As spreadsheets of half the world write them: not a class an image."""
    rows = [(file, f"{k},{k}5", str(k)) for k, (file, _) in enumerate(pictures(tmp_path))]
    images = load(str(written(tmp_path / "labels.csv", rows, sign.join(("file", "a", "b")), sign)))
    assert images.target.kind == "numbers" and images.classes == ("a", "b")
    found = np.concatenate([images.y_train, images.y_test])
    assert sorted(found[:, 0]) == [np.float32(f"{k}.{k}5") for k in range(12)]


def test_what_may_be_thousands_is_left_alone(tmp_path: Path) -> None:
    rows = [(file, f"{1 + k % 3},500") for k, (file, _) in enumerate(pictures(tmp_path))]
    images = load(str(written(tmp_path / "labels.csv", rows, "file;size", ";")))
    assert images.classes == ("1,500", "2,500", "3,500")
