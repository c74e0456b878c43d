from __future__ import annotations

import io
import os
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from proxnas.common.errors import InputError
from proxnas.domains.images.data.gather import auto_side
from proxnas.domains.images.data.images import Images, LoadOptions, load
from proxnas.domains.images.data.lazy import Lazy
from proxnas.domains.images.parts import search_parts
from support.refusal import refused

Array = np.ndarray[Any, Any]


def noise(seed: int, height: int = 8, width: int = 8, channels: int = 3) -> Array:
    array = np.random.default_rng(seed).integers(0, 256, (height, width, channels), dtype=np.uint8)
    return array[..., 0] if channels == 1 else array


def save(path: Path, array: Array | Image.Image, **options: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    (array if isinstance(array, Image.Image) else Image.fromarray(array)).save(path, **options)
    return path


def folder(root: Path, parts: tuple[str, ...] = ("train", "test"), n: int = 3, **size: int) -> Path:
    """Classes cat and dog, n images each a part; part "" is the root itself. Image i is
    noise(i)."""
    for p, part in enumerate(parts):
        for c, name in enumerate(("cat", "dog")):
            for i in range(n):
                save(root / part / name / f"{i}.png", noise(100 * p + 10 * c + i, **size))
    return root


def x_of(images: Images) -> Array:
    assert isinstance(images.x_train, np.ndarray)
    return images.x_train


# layouts


def test_train_and_test(tmp_path: Path) -> None:
    read = load(str(folder(tmp_path / "My pets!")))
    assert (read.name, read.shape, read.classes) == ("My-pets", (3, 8, 8), ("cat", "dog"))
    assert (read.shift, read.flip, read.x_valid, read.skipped) == (True, False, None, ())
    assert read.y_train.tolist() == read.y_test.tolist() == [0, 0, 0, 1, 1, 1]
    np.testing.assert_array_equal(x_of(read)[4], noise(11))
    np.testing.assert_array_equal(np.asarray(read.x_test)[0], noise(100))
    np.testing.assert_allclose(read.mean, x_of(read).mean((0, 1, 2)) / 255)
    np.testing.assert_allclose(read.std, x_of(read).std((0, 1, 2)) / 255)


@pytest.mark.parametrize("name", ["valid", "val"])
def test_a_validation_part_is_the_half_for_A(name: str, tmp_path: Path) -> None:
    read = load(str(folder(tmp_path, ("train", name, "test"))))
    (x_w, _), (x_A, _) = search_parts(read, 0)
    assert x_w is read.x_train
    np.testing.assert_array_equal(np.asarray(x_A)[0], noise(100))


@pytest.mark.parametrize("part", ["", "train"])
def test_without_a_test_part_a_fixed_fifth_is_set_aside(part: str, tmp_path: Path) -> None:
    read = load(str(folder(tmp_path, (part,), n=10)))
    assert (len(read.y_train), np.bincount(read.y_test).tolist()) == (16, [2, 2])
    assert load(str(tmp_path)).mean == read.mean


def test_only_images_count(tmp_path: Path) -> None:
    folder(tmp_path)
    (tmp_path / "train" / "cat" / "notes.txt").write_text("nice cats")
    (tmp_path / "train" / "cat" / "._0.png").write_bytes(b"resource fork")
    (tmp_path / "train" / ".DS_Store").write_bytes(b"x")
    (tmp_path / "train" / ".hidden").mkdir()
    (tmp_path / "__MACOSX").mkdir()
    os.mkfifo(tmp_path / "train" / "cat" / "pipe.png")
    assert len(load(str(tmp_path)).y_train) == 6


def test_suffixes_of_either_case_and_folders_in_class_folders(tmp_path: Path) -> None:
    folder(tmp_path)
    save(tmp_path / "train" / "dog" / "old" / "scan.JPEG", noise(5))
    save(tmp_path / "train" / "dog" / "old" / "photo.Jpg", noise(5))
    assert load(str(tmp_path)).y_train.tolist() == [0, 0, 0, 1, 1, 1, 1, 1]


def test_a_class_may_be_called_train(tmp_path: Path) -> None:
    for name in ("train", "car", "test"):
        for i in range(5):
            save(tmp_path / name / f"{i}.png", noise(i))
    assert load(str(tmp_path)).classes == ("car", "test", "train")


def test_links_that_lead_round_in_circles_end(tmp_path: Path) -> None:
    folder(tmp_path)
    (tmp_path / "train" / "cat" / "again").symlink_to(tmp_path / "train" / "cat")
    assert len(load(str(tmp_path)).y_train) >= 6


def test_a_link_to_nothing_is_a_broken_image(tmp_path: Path) -> None:
    (folder(tmp_path) / "train" / "cat" / "lost.png").symlink_to(tmp_path / "nowhere.png")
    refused(tmp_path, "cat/lost.png: broken image", "No such file")


def tiny(root: Path) -> Path:
    for c, wnid in enumerate(("n01443537", "n01629819", "n02963159")):
        for i in range(4):
            save(root / "train" / wnid / "images" / f"{wnid}_{i}.JPEG", noise(10 * c + i, 64, 64))
        (root / "train" / wnid / f"{wnid}_boxes.txt").write_text(f"{wnid}_0.JPEG\t0\t10\t63\t58\n")
    lines = []
    for i, wnid in enumerate(("n02963159", "n01443537", "n01629819", "n01443537")):
        save(root / "val" / "images" / f"val_{i}.JPEG", noise(50 + i, 64, 64))
        lines.append(f"val_{i}.JPEG\t{wnid}\t0\t32\t44\t62\n")
    (root / "val" / "val_annotations.txt").write_text("".join(lines))
    save(root / "test" / "images" / "test_0.JPEG", noise(99, 64, 64))
    (root / "wnids.txt").write_text("n02963159\nn01443537\nn01629819\n")
    return root


def test_tiny_imagenet(tmp_path: Path) -> None:
    read = load(str(tiny(tmp_path)))
    assert (read.name, read.shape, read.num_classes, read.flip) == (
        "tinyimagenet",
        (3, 64, 64),
        3,
        True,
    )
    assert read.y_train.tolist() == [0] * 4 + [1] * 4 + [2] * 4
    assert read.x_valid is None and read.y_test.tolist() == [0, 0, 1, 2]
    with Image.open(tmp_path / "val" / "images" / "val_0.JPEG") as image:
        np.testing.assert_array_equal(np.asarray(read.x_test)[3], np.asarray(image))
    (said,) = read.warnings  # what is passed over is named
    assert said.endswith("ignored 1 beside the parts and class folders: test/ (no labels)")


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("val_9.JPEG\tn01443537\t0\t0\t1\t1", "line 5 names 'val_9.JPEG', which is not in images"),
        ("../../x.JPEG\tn01443537", "which is not in images"),
        ("val_0.JPEG\tn00000000", "line 5 is not an image and a class of train"),
        ("val_0.JPEG", "line 5 is not an image and a class"),
        ("\x00\x01 \x02", "line 5 is not"),
    ],
)
def test_bad_annotations(line: str, words: str, tmp_path: Path) -> None:
    with open(tiny(tmp_path) / "val" / "val_annotations.txt", "a") as file:
        file.write(line + "\n")
    refused(tmp_path, "val_annotations.txt", words)


# kinds of images


def palette() -> Image.Image:
    return Image.fromarray(noise(3)).quantize(16)


def transparent() -> Image.Image:
    array = np.concatenate([noise(3), np.full((8, 8, 1), 255, np.uint8)], axis=2)
    array[0, 0] = (10, 20, 30, 0)
    return Image.fromarray(array)


def test_grey_stays_grey_if_all_are(tmp_path: Path) -> None:
    folder(tmp_path, channels=1)
    save(
        tmp_path / "train" / "cat" / "bilevel.png",
        Image.fromarray(noise(1, channels=1)).convert("1"),
    )
    read = load(str(tmp_path))
    assert read.shape == (1, 8, 8)
    np.testing.assert_array_equal(x_of(read)[0, ..., 0], noise(0, channels=1))
    assert set(np.unique(x_of(read)[3])) <= {0, 255}


@pytest.mark.parametrize("part", ["train", "test"])
def test_one_coloured_image_makes_all_rgb(part: str, tmp_path: Path) -> None:
    save(folder(tmp_path, channels=1) / part / "dog" / "rgb.png", noise(7))
    read = load(str(tmp_path))
    assert read.shape == (3, 8, 8)
    np.testing.assert_array_equal(
        x_of(read)[0], np.repeat(noise(0, channels=1)[..., None], 3, axis=2)
    )


def test_transparency_is_white_paper(tmp_path: Path) -> None:
    save(folder(tmp_path) / "train" / "cat" / "a.png", transparent())
    x = x_of(load(str(tmp_path)))[3]
    assert x[0, 0].tolist() == [255, 255, 255]
    np.testing.assert_array_equal(x[1:], noise(3)[1:])


def test_a_palette_becomes_its_colours(tmp_path: Path) -> None:
    save(folder(tmp_path) / "train" / "cat" / "a.png", palette())
    np.testing.assert_array_equal(
        x_of(load(str(tmp_path)))[3], np.asarray(palette().convert("RGB"))
    )
    save(tmp_path / "train" / "cat" / "b.gif", palette(), transparency=0)
    assert x_of(load(str(tmp_path)))[4].max() == 255


@pytest.mark.parametrize("suffix", ["png", "tif"])
def test_sixteen_bits_are_scaled_to_eight(suffix: str, tmp_path: Path) -> None:
    wide = np.linspace(0, 65535, 64).reshape(8, 8).astype(np.uint16)
    for part in ("train", "test"):
        for name in ("cat", "dog"):
            save(tmp_path / part / name / f"a.{suffix}", Image.fromarray(wide))
    read = load(str(tmp_path))
    assert read.shape == (1, 8, 8)
    assert (x_of(read).min(), x_of(read).max()) == (0, 255)
    np.testing.assert_allclose(x_of(read)[0, ..., 0], wide / 257, atol=0.51)


def test_the_colours_of_print_become_those_of_screens(tmp_path: Path) -> None:
    cmyk = Image.new("CMYK", (8, 8), (255, 0, 0, 0))
    save(folder(tmp_path) / "train" / "cat" / "a.jpg", cmyk)
    red, green, blue = x_of(load(str(tmp_path)))[3].mean((0, 1))
    assert red < 60 and green > 200 and blue > 200


def test_a_camera_held_sideways(tmp_path: Path) -> None:
    image = Image.new("RGB", (16, 8), "black")
    image.paste("white", (0, 0, 8, 8))  # the left half; turned clockwise by 90 degrees it is above
    exif = Image.Exif()
    exif[0x0112] = 6
    for part in ("train", "test"):
        for name in ("cat", "dog"):
            save(tmp_path / part / name / "a.jpg", image, exif=exif, quality=95)
    read = load(str(tmp_path))
    assert read.shape == (3, 16, 8)
    assert x_of(read)[0, :6].min() > 200 and x_of(read)[0, 10:].max() < 50


def test_other_formats(tmp_path: Path) -> None:
    folder(tmp_path)
    for i, suffix in enumerate(("bmp", "gif", "tif", "webp", "ppm")):
        save(tmp_path / "train" / "dog" / f"z{i}.{suffix}", noise(40))
    assert len(load(str(tmp_path)).y_train) == 11


# sizes


def test_different_sizes_get_a_common_one(tmp_path: Path, capsys: Any) -> None:
    save(folder(tmp_path) / "test" / "dog" / "big.png", noise(0, 10, 12))
    read = load(str(tmp_path))
    assert read.shape == (3, 8, 8)
    np.testing.assert_array_equal(x_of(read)[0], noise(0))
    (line,) = capsys.readouterr().err.splitlines()
    assert (
        "13 images from 8 x 8 to 12 x 10 pixels" in line
        and "brought to 8 x 8 (--image-size N" in line
    )
    read = load(str(tmp_path), LoadOptions(image_size=16))
    assert read.shape == (3, 16, 16)


@given(st.lists(st.integers(1, 5000), min_size=1, max_size=30))
def test_the_common_size_suits_the_data(shorter: list[int]) -> None:
    side = auto_side(shorter)
    assert 4 <= side <= 64 and (side in (32, 48, 64) or side < 32)
    enlarged = [length for length in shorter if length < side]
    assert len(enlarged) <= len(shorter) / 2 or side == 4


def test_large_images_are_not_read_without_a_word(tmp_path: Path, capsys: Any) -> None:
    folder(tmp_path / "wide", n=1, height=20, width=300)
    assert load(str(tmp_path / "wide")).shape == (3, 20, 300)
    line = capsys.readouterr().err
    assert "4 images of 300 x 20 are 0.1 MiB of pixels: --image-size N makes them smaller" in line
    folder(tmp_path / "many")
    load(str(tmp_path / "many"), LoadOptions(resident_limit=100))
    assert (
        "12 images of 8 x 8 are 0.0 MiB of pixels, read batch by batch" in capsys.readouterr().err
    )
    folder(tmp_path / "few")
    load(str(tmp_path / "few"))
    assert capsys.readouterr().err == ""


def test_the_middle_square_is_scaled(tmp_path: Path) -> None:
    image = np.zeros((8, 16, 3), np.uint8)
    image[:, 4:12] = noise(1)
    for part in ("train", "test"):
        for name in ("cat", "dog"):
            save(tmp_path / part / name / "a.png", image)
    read = load(str(tmp_path), LoadOptions(image_size=8))
    np.testing.assert_array_equal(x_of(read)[0], noise(1))
    wide = load(str(tmp_path))
    assert wide.shape == (3, 8, 16)


def test_a_large_jpeg_is_shrunk_without_artefacts(tmp_path: Path) -> None:
    """It is decoded at a fraction of its size: the result must be that of the whole picture."""
    gradient = np.linspace(0, 255, 256, dtype=np.uint8)
    picture = np.repeat(np.repeat(gradient[None, :, None], 256, axis=0), 3, axis=2)
    for part in ("train", "test"):
        for name in ("cat", "dog"):
            save(tmp_path / part / name / "a.jpg", picture, quality=95)
    read = load(str(tmp_path), LoadOptions(image_size=32))
    expected = picture.reshape(32, 8, 32, 8, 3).mean((1, 3))
    np.testing.assert_allclose(x_of(read)[0], expected, atol=3)


def test_images_too_small_to_be_halved_twice(tmp_path: Path) -> None:
    folder(tmp_path, height=3)
    refused(tmp_path, "8 x 3 pixels", "less than 4", "image_size N")
    assert load(str(tmp_path), LoadOptions(image_size=4)).shape == (3, 4, 4)


# broken images


def bomb(width: int, height: int) -> bytes:
    """A PNG of a few bytes that claims a great size."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return (
            struct.pack(">I", len(content))
            + kind
            + content
            + struct.pack(">I", zlib.crc32(kind + content))
        )

    head = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    return (
        b"\x89PNG\r\n\x1a\n"
        + head
        + chunk(b"IDAT", zlib.compress(bytes(100)))
        + chunk(b"IEND", b"")
    )


def png(array: Array, format: str = "PNG") -> bytes:
    file = io.BytesIO()
    Image.fromarray(array).save(file, format)
    return file.getvalue()


BROKEN: dict[str, Callable[[], bytes]] = {
    "empty": lambda: b"",
    "text": lambda: b"this is no image\n" * 20,
    "half a png": lambda: png(noise(0, 64, 64))[:3000],
    "half a jpeg": lambda: png(noise(0, 64, 64), "JPEG")[:1500],
    "a png without an end of its pixels": lambda: png(noise(0))[:60],
    "a bomb that Pillow warns of": lambda: bomb(10_000, 9_500),
    "a bomb that Pillow refuses": lambda: bomb(60_000, 60_000),
    "more pixels than we take": lambda: bomb(10_000, 7_000),
    "postscript": lambda: b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n",
    "floats": lambda: _tiff_of_floats(),
}


def _tiff_of_floats() -> bytes:
    file = io.BytesIO()
    Image.fromarray(np.zeros((8, 8), np.float32)).save(file, "TIFF")
    return file.getvalue()


@pytest.mark.parametrize("resident", [True, False])
@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_image_stops_or_is_skipped(
    case: str, resident: bool, tmp_path: Path, capsys: Any
) -> None:
    path = folder(tmp_path) / "train" / "dog" / "1.png"
    path.write_bytes(BROKEN[case]())
    size = 64 if "half" in case else 0  # their heads say 64 x 64
    limit = 2**30 if resident else 0
    with pytest.raises(InputError) as caught:
        load(str(tmp_path), LoadOptions(image_size=size, resident_limit=limit))
    assert str(caught.value).startswith(f"{path}: broken image (") and "skip_broken" in str(
        caught.value
    )
    assert "\n" not in str(caught.value)
    said = capsys.readouterr().err
    assert said == "" if resident else "broken image" not in said

    read = load(str(tmp_path), LoadOptions(skip_broken=True, image_size=size, resident_limit=limit))
    if resident:
        assert read.skipped == (str(path),)
        assert read.y_train.tolist() == [0, 0, 0, 1, 1] and len(read.x_train) == 5
        assert capsys.readouterr().err == f"proxnas: skipped 1 broken of 12 images: {path}\n"
        if not size:
            np.testing.assert_array_equal(x_of(read)[4], noise(12))
    else:
        assert isinstance(read.x_train, Lazy)


def test_all_broken_images_are_counted_and_some_are_named(tmp_path: Path, capsys: Any) -> None:
    folder(tmp_path, n=10)
    for i in range(8):
        (tmp_path / "train" / "cat" / f"{i}.png").write_bytes(b"junk")
    refused(tmp_path, "cat/0.png: broken image", "; 7 more of 40 images: ", "cat/7.png: replace")
    read = load(str(tmp_path), LoadOptions(skip_broken=True))
    assert len(read.skipped) == 8 and len(read.y_train) == 12
    assert "skipped 8 broken of 40 images" in capsys.readouterr().err


def test_broken_heads_and_broken_pixels_are_told_in_one_round(tmp_path: Path) -> None:
    folder(tmp_path, height=64, width=64)
    (tmp_path / "train" / "cat" / "0.png").write_bytes(b"junk")
    (tmp_path / "train" / "dog" / "1.png").write_bytes(png(noise(0, 64, 64))[:3000])
    refused(tmp_path, "cat/0.png: broken image", "; 1 more of 12 images: ", "dog/1.png: replace")


def test_a_class_without_a_sound_image_left(tmp_path: Path) -> None:
    folder(tmp_path, n=1)
    (tmp_path / "train" / "dog" / "0.png").write_bytes(b"junk")
    refused(
        tmp_path, "no readable image of class dog in train", options=LoadOptions(skip_broken=True)
    )
    (tmp_path / "train" / "cat" / "0.png").write_bytes(b"junk")
    refused(tmp_path, "no readable image", options=LoadOptions(skip_broken=True))
    for path in tmp_path.rglob("*.png"):
        path.write_bytes(b"junk")
    refused(tmp_path, "broken image", "all others", options=LoadOptions(skip_broken=True))
    refused(tmp_path, "0.png: broken image", "; 3 more", "skip_broken")


def test_a_name_with_a_line_break_stays_on_one_line(tmp_path: Path) -> None:
    folder(tmp_path)
    (tmp_path / "train" / "dog" / "a\nb.png").write_bytes(b"junk")
    refused(tmp_path, "a\\nb.png", "broken image")


@settings(max_examples=120, deadline=None)
@given(data=st.data())
def test_damaged_images_are_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    root = tmp_path_factory.getbasetemp() / "fuzz-folder"
    if not root.exists():
        folder(root)
    kind = data.draw(st.sampled_from(["PNG", "JPEG", "GIF", "BMP", "TIFF", "WEBP", "PPM"]))
    content = bytearray(png(noise(0), kind))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, max(0, len(content) - 1)))
        content[at : at + data.draw(st.integers(0, 2))] = data.draw(st.binary(max_size=3))
    (root / "train" / "dog" / "1.png").write_bytes(content)
    options = LoadOptions(
        image_size=data.draw(st.sampled_from([0, 8])), skip_broken=data.draw(st.booleans())
    )
    try:
        load(str(root), options)
    except InputError as error:
        assert "\n" not in str(error)


# bad folders


def test_bad_folders(tmp_path: Path) -> None:
    folder(tmp_path / "a")
    (tmp_path / "a" / "train" / "bird").mkdir()
    refused(tmp_path / "a", "no images of class 'bird' in train")
    save(tmp_path / "a" / "train" / "bird" / "0.png", noise(0))
    refused(tmp_path / "a", "class 'bird' is in train but not in test")
    folder(tmp_path / "b")
    save(tmp_path / "b" / "test" / "fox" / "0.png", noise(0))
    refused(tmp_path / "b", "class 'fox' is in test but not in train")
    folder(tmp_path / "c", ("train",))
    save(tmp_path / "c" / "test" / "0.png", noise(0))
    refused(
        tmp_path / "c" / "",
        str(tmp_path / "c" / "test"),
        "without labels",
        "sort them into a folder a class",
    )
    folder(tmp_path / "d", ("train", "val", "valid"))
    refused(tmp_path / "d", "both val and valid")
    save(tmp_path / "e" / "train" / "cat" / "0.png", noise(0))
    refused(tmp_path / "e", "one class only ('cat')")
    save(tmp_path / "f" / "0.png", noise(0))
    refused(tmp_path / "f", "images without class folders")
    (tmp_path / "g" / "train" / "cat").mkdir(parents=True)
    refused(tmp_path / "g", "no images in this class folder, nor in any other")
    folder(tmp_path / "h", ("train",), n=1)
    refused(tmp_path / "h", "too few images to set a fifth aside")
    folder(tmp_path / "i")
    (tmp_path / "i" / "test" / "cat" / "0.png").unlink()
    (tmp_path / "i" / "test" / "cat" / "1.png").unlink()
    (tmp_path / "i" / "test" / "cat" / "2.png").unlink()
    refused(tmp_path / "i", "no images of class 'cat' in test")


# too large for the memory


def test_a_large_folder_is_read_later(tmp_path: Path) -> None:
    folder(tmp_path, n=5)
    whole = load(str(tmp_path))
    later = load(str(tmp_path), LoadOptions(resident_limit=20 * 8 * 8 * 3 - 1))
    assert isinstance(
        load(str(tmp_path), LoadOptions(resident_limit=20 * 8 * 8 * 3)).x_train, np.ndarray
    )
    assert isinstance(later.x_train, Lazy) and isinstance(later.x_test, Lazy)
    assert (later.shape, len(later.x_train), later.mean, later.std) == (
        whole.shape,
        10,
        whole.mean,
        whole.std,
    )
    np.testing.assert_array_equal(np.asarray(later.x_train), whole.x_train)
    np.testing.assert_array_equal(np.asarray(later.x_train[np.array([7, 2])]), x_of(whole)[[7, 2]])
    for a, b in zip(search_parts(later, 3), search_parts(whole, 3), strict=True):
        np.testing.assert_array_equal(np.asarray(a[0]), b[0])
        np.testing.assert_array_equal(a[1], b[1])


# names of parts


@pytest.mark.parametrize(
    ("train", "valid", "test"),
    [
        ("Train", "Val", "Test"),
        ("training", "validation", "testing"),
        ("TRAIN", "dev", "TEST"),
        ("train", "Valid", "test"),
    ],
)
def test_parts_go_by_their_usual_names_in_either_case(
    train: str, valid: str, test: str, tmp_path: Path, capsys: Any
) -> None:
    read = load(str(folder(tmp_path, (train, valid, test))))
    assert read.classes == ("cat", "dog") and read.y_valid is not None
    np.testing.assert_array_equal(x_of(read)[0], noise(0))
    np.testing.assert_array_equal(np.asarray(read.x_valid)[0], noise(100))
    np.testing.assert_array_equal(np.asarray(read.x_test)[0], noise(200))
    assert (capsys.readouterr().err, read.warnings) == ("", ())


def test_folders_that_hold_the_same_folders_are_no_classes(tmp_path: Path) -> None:
    refused(
        folder(tmp_path / "a", ("first", "second")),
        "first, second all hold cat, dog",
        "rename them to train",
    )
    refused(folder(tmp_path / "b", ("test",)), "test but no train in it")
    refused(folder(tmp_path / "c", ("test", "val")), "test but no train in it")
    refused(folder(tmp_path / "d", ("train", "training")), "both train and training")
    # one folder in each, as Tiny ImageNet has them, makes no parts
    for name in ("cat", "dog"):
        for i in range(5):
            save(tmp_path / "e" / name / "images" / f"{i}.png", noise(i))
    assert load(str(tmp_path / "e")).classes == ("cat", "dog")


def test_what_is_ignored_is_named_once(tmp_path: Path, capsys: Any) -> None:
    folder(tmp_path, ("train", "test", "unsorted"))
    save(tmp_path / "stray.jpg", noise(0))
    save(tmp_path / "train" / "loose.png", noise(0))
    read = load(str(tmp_path))
    assert len(read.y_train) == 6
    (line,) = capsys.readouterr().err.splitlines()
    assert line == f"proxnas: {read.warnings[0]}"
    assert "ignored 3" in line and line.endswith("unsorted/, stray.jpg, train/loose.png")
    load(str(tmp_path))
    assert capsys.readouterr().err == ""
