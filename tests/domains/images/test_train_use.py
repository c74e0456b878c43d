"""A trained model in use: `proxnas test` on other data, `proxnas predict` on image files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from proxnas.cells.genotype import Genotype
from proxnas.cli.main import main
from proxnas.domains.images import networks
from proxnas.domains.images.model import Model, load_model, save_model
from proxnas.domains.images.networks.cnn import Size

CELL = "|nor_conv_1x1~0|+|skip_connect~0|none~1|+|none~0|none~1|skip_connect~2|"


@torch.no_grad()
def brightness_model(folder: Path, channels: int, pixels: str = "uint8", side: int = 8) -> Path:
    """Tells dark from bright images, by a network whose last layer is set by hand."""
    size = Size(cells=1, channels=2, image_channels=channels, classes=3)
    genotype = Genotype.from_string(CELL)
    network = networks.build_network(genotype, size).eval()
    for w in network.parameters():
        w.data.fill_(0.1)  # all positive: brighter images make larger features
    weight, bias = network.classifier.weight.data, network.classifier.bias.data
    weight[:] = torch.tensor([[-1.0], [1.0], [0.0]])
    bias.zero_()
    levels = torch.tensor([-40.0, 40.0]).view(2, 1, 1, 1).expand(2, channels, side, side)
    middle = float(network(levels)[:, 1].mean())  # between dark and bright
    bias[:] = torch.tensor([middle, -middle, -9.0])
    unit = 1.0 if pixels == "uint8" else 255.0
    model = Model(
        network,
        genotype,
        size,
        ("dark", "bright", "none"),
        (0.5 * unit,) * channels,
        (0.01 * unit,) * channels,
        (channels, side, side),
        pixels,
    )
    save_model(folder / "model.safetensors", model)
    return folder / "model.safetensors"


def grey(level: int, *shape: int) -> np.ndarray[Any, Any]:
    return np.full(shape, level, np.uint8)


@pytest.fixture
def pictures(tmp_path: Path) -> dict[str, Path]:
    """Files of all kinds: bright ones but for `dark`."""
    made = {
        "dark.png": Image.fromarray(grey(10, 8, 8)),
        "same.png": Image.fromarray(grey(240, 8, 8)),
        "large.jpg": Image.fromarray(grey(240, 30, 50)),
        "colour.png": Image.fromarray(grey(240, 8, 8, 3)),
        "alpha.png": Image.fromarray(grey(240, 9, 9, 4)),
        "wide.png": Image.fromarray(np.full((8, 8), 62000, np.uint16)),
    }
    for name, image in made.items():
        image.save(tmp_path / name)
    return {name: tmp_path / name for name in made}


@pytest.mark.parametrize("channels", [1, 3])
def test_predict_takes_files_of_all_kinds(
    channels: int, pictures: dict[str, Path], tmp_path: Path, capsys: Any
) -> None:
    model = brightness_model(tmp_path, channels)
    assert main(["predict", str(model), *map(str, pictures.values())]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == [str(path) for path in pictures.values()]
    assert [line.split()[1] for line in lines] == ["dark", *["bright"] * 5]
    assert main(["predict", str(model), str(pictures["dark.png"]), "--top", "9", "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert [answer["class"] for answer in row["answers"]] == ["dark", "bright", "none"]
    assert sum(answer["probability"] for answer in row["answers"]) == pytest.approx(1.0)


def test_predict_from_python(pictures: dict[str, Path], tmp_path: Path) -> None:
    model = load_model(brightness_model(tmp_path, 1))
    from_files = model.predict([pictures["dark.png"], pictures["same.png"]], top=2)
    from_arrays = model.predict(np.stack([grey(10, 8, 8), grey(240, 8, 8)]), top=2)
    assert from_files == from_arrays and [row[0].name for row in from_files] == ["dark", "bright"]


def test_predict_answers_what_it_can_read_and_names_the_rest(
    pictures: dict[str, Path], tmp_path: Path, capsys: Any
) -> None:
    """Folders are searched for images, at any depth."""
    model = brightness_model(tmp_path, 1)
    inner = tmp_path / "photos" / "inner"
    inner.mkdir(parents=True)
    (tmp_path / "empty").mkdir()
    for i in range(70):  # more than one batch
        Image.fromarray(grey(240 - i % 2 * 230, 8, 8)).save(inner / f"{i:02}.png")
    (inner / "10a.png").write_bytes(b"junk")
    (inner / "notes.txt").write_text("no image")
    argv = [
        "predict",
        str(model),
        str(tmp_path / "photos"),
        "lost.png",
        str(tmp_path / "empty"),
        str(pictures["dark.png"]),
    ]
    assert main(argv) == 2
    said = capsys.readouterr()
    lines = said.out.splitlines()
    assert [line.split()[0] for line in lines[:70]] == [
        str(inner / f"{i:02}.png") for i in range(70)
    ]
    assert [line.split()[1] for line in lines] == ["bright", "dark"] * 35 + ["dark"]
    assert (
        said.err.startswith(f"proxnas: error: {inner / '10a.png'}: ") and said.err.count("\n") == 1
    )
    assert (
        "lost.png: " in said.err and f"{tmp_path / 'empty'}: no images in this folder" in said.err
    )
    assert "3 of 74 images not read, 71 others are answered" in said.err
    assert main([*argv, "--json"]) == 2
    rows = json.loads(capsys.readouterr().out)
    assert len(rows) == 74 and [row["image"] for row in rows if "error" in row][1] == "lost.png"
    assert all(bool(row["answers"]) != ("error" in row) for row in rows)


def test_predict_says_how_far_the_images_are_from_what_the_model_reads(
    pictures: dict[str, Path], tmp_path: Path, capsys: Any
) -> None:
    model = str(brightness_model(tmp_path, 1))
    assert (
        main(
            [
                "predict",
                model,
                *(str(pictures[name]) for name in ("same.png", "large.jpg", "colour.png")),
            ]
        )
        == 0
    )
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("proxnas: warning: 1 of 3 images were brought to the 8 x 8 pixels")
    assert "(the largest from 50 x 30); 1 of 3 lost their colours" in line
    assert main(["predict", model, str(pictures["same.png"])]) == 0
    assert capsys.readouterr().err == ""


def test_a_language_model_is_called_so(tmp_path: Path, capsys: Any) -> None:
    from proxnas.domains.text.data.text import TextOptions
    from proxnas.domains.text.language import LanguageSize
    from proxnas.domains.text.model import TextModel, language_network, save_text_model

    size = LanguageSize(words=3, units=4)
    words = ("a", "b", "<unk>")
    save_text_model(
        tmp_path / "m",
        TextModel(language_network(None, size).eval(), None, size, words, TextOptions()),
    )
    assert main(["predict", str(tmp_path / "m"), "a.png"]) == 2
    error = capsys.readouterr().err
    assert "a language model" in error and "proxnas generate" in error and "damaged" not in error


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("", "MODEL is missing"),
        ("{model}", "IMAGE is missing"),
        ("{model} nothing.png", "nothing.png: "),
        ("{model} {broken}", "broken.png: "),
        ("{model} {model}", "model.safetensors: no image in a format that is read"),
        ("{broken} {same}", "broken.png: not a readable safetensors file"),
        ("{model} {same} --top 0", "--top 0: give a number of at least 1"),
        ("{floats} {same}", "this model was trained on float32 arrays"),
        ("{oblong} {same}", "same.png: 8 x 8 pixels instead of 9 x 8"),
    ],
)
def test_bad_input_to_predict_is_one_line(
    words: str, said: str, pictures: dict[str, Path], tmp_path: Path, capsys: Any
) -> None:
    (tmp_path / "broken.png").write_bytes(pictures["same.png"].read_bytes()[:40])
    for name in ("floats", "oblong"):
        (tmp_path / name).mkdir()
    places = {
        "model": brightness_model(tmp_path, 1),
        "floats": brightness_model(tmp_path / "floats", 1, "float32"),
        "oblong": tmp_path / "oblong" / "model.safetensors",
        "same": pictures["same.png"],
        "broken": tmp_path / "broken.png",
    }
    model = load_model(places["model"])
    save_model(
        places["oblong"],
        Model(
            model.network,
            model.genotype,
            model.size,
            model.classes,
            model.mean,
            model.std,
            (1, 8, 9),
        ),
    )
    assert main(["predict", *(word.format(**places) for word in words.split())]) == 2
    error = capsys.readouterr().err
    assert error.startswith("proxnas: error: ") and said in error and error.count("\n") == 1


def folder_data(place: Path, classes: dict[str, int], side: int = 8) -> Path:
    """class -> brightness; five images a class in train and test."""
    for part in ("train", "test"):
        for name, level in classes.items():
            (place / part / name).mkdir(parents=True)
            for i in range(5):
                Image.fromarray(grey(level + i, side, side)).save(place / part / name / f"{i}.png")
    return place


def test_classes_are_matched_by_name(tmp_path: Path, capsys: Any) -> None:
    """The folder sorts them otherwise and lacks one."""
    data = folder_data(tmp_path / "data", {"bright": 200, "dark": 20})
    model = brightness_model(tmp_path, 1)
    assert main(["test", str(model), str(data), "--json", str(tmp_path / "t.json")]) == 0
    figures = json.loads((tmp_path / "t.json").read_text())
    assert figures["accuracy"] == 1.0 and figures["per_class"] == {
        "dark": 1.0,
        "bright": 1.0,
        "none": None,
    }
    assert figures["confusion"] == [[5, 0, 0], [0, 5, 0], [0, 0, 0]]
    assert "no images" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("", "MODEL is missing"),
        ("{model}", "DATA is missing"),
        ("{model} {others}", "class 'cat' is none of the model's 3 classes (dark, bright, none"),
        (
            "{model} {small}",
            "images of 1 x 4 x 4 (channels, height, width), the model reads 1 x 8 x 8",
        ),
        (
            "{model} {data} --image-size 16",
            "--image-size 16: the model reads 8 x 8 pixels: leave it out",
        ),
        ("{model} {plain} --part valid", "--part valid: plain has no such part"),
        ("{model} {data} --part valid", "--part valid: data has no such part"),
        (
            "{model} digits",
            "class '0' (and 9 more: '1', '2', '3', '4', '5', ...) is none of the model's 3 classes",
        ),
        ("{floats} {data}", "uint8 images, the model was trained on float32"),
    ],
)
def test_bad_input_to_test_is_one_line(words: str, said: str, tmp_path: Path, capsys: Any) -> None:
    (tmp_path / "floats").mkdir()
    places = {
        "model": brightness_model(tmp_path, 1),
        "floats": brightness_model(tmp_path / "floats", 1, "float32"),
        "data": folder_data(tmp_path / "data", {"bright": 200, "dark": 20}),
        "others": folder_data(tmp_path / "others", {"cat": 200, "dark": 20}),
        "plain": plain_folder(tmp_path / "plain", {"bright": 200}),
        "small": tmp_path / "small.npz",
    }
    np.savez(places["small"], x_train=np.zeros((9, 4, 4), np.uint8), y_train=np.arange(9) % 2)
    assert main(["test", *(word.format(**places) for word in words.split())]) == 2
    error = capsys.readouterr().err
    assert error.startswith("proxnas: error: ") and said in error and error.count("\n") == 1


def test_image_files_are_brought_to_the_models_size(tmp_path: Path, capsys: Any) -> None:
    data = folder_data(tmp_path / "larger", {"bright": 200, "dark": 20}, side=16)
    for size in ([], ["--image-size", "8"], ["--image-size", "auto"]):
        assert main(["test", str(brightness_model(tmp_path, 1)), str(data), *size]) == 0
        said = capsys.readouterr()
        assert (
            "test accuracy 1.0000" in said.out and "10 images: the test part of larger" in said.out
        )
        assert (
            size
            or "20 of 20 images are brought to the 8 x 8 pixels that the model reads" in said.err
        )


def plain_folder(place: Path, classes: dict[str, int], n: int = 5) -> Path:
    """class -> brightness; n images a class, without parts."""
    for name, level in classes.items():
        (place / name).mkdir(parents=True)
        for i in range(n):
            Image.fromarray(grey(level + i, 8, 8)).save(place / name / f"{i}.png")
    return place


def figures_of(tmp_path: Path, *argv: str | Path) -> dict[str, Any]:
    assert main(["test", *map(str, argv), "--json", str(tmp_path / "t.json")]) == 0
    figures: dict[str, Any] = json.loads((tmp_path / "t.json").read_text())
    return figures


@pytest.mark.parametrize("classes", [{"bright": 200}, {"bright": 200, "dark": 20}])
def test_a_plain_folder_is_tested_whole(
    classes: dict[str, int], tmp_path: Path, capsys: Any
) -> None:
    """Of one class or of some; it is not what the model was trained on."""
    model, data = brightness_model(tmp_path, 1), plain_folder(tmp_path / "plain", classes)
    figures = figures_of(tmp_path, model, data)
    assert (figures["part"], figures["images"], figures["accuracy"]) == (
        "all",
        5 * len(classes),
        1.0,
    )
    assert (
        f"({5 * len(classes)} images: all of plain, which has no test part)"
        in capsys.readouterr().out
    )
    fifth = figures_of(tmp_path, model, data, "--part", "test")
    rest = figures_of(tmp_path, model, data, "--part", "train")
    assert fifth["images"] == len(classes) and fifth["images"] + rest["images"] == 5 * len(classes)
    assert "the fifth of plain that is set aside" in fifth["tested"]


def test_a_folder_of_a_test_part_alone_and_all_parts_together(tmp_path: Path) -> None:
    model = brightness_model(tmp_path, 1)
    alone = plain_folder(tmp_path / "alone" / "Test", {"dark": 20}).parent
    figures = figures_of(tmp_path, model, alone)
    assert (figures["part"], figures["images"], figures["confusion"][0]) == ("test", 5, [5, 0, 0])
    both = folder_data(tmp_path / "data", {"bright": 200, "dark": 20})
    (both / "test" / "dark" / "0.png").unlink()
    Image.fromarray(grey(230, 8, 8)).save(
        both / "train" / "dark" / "0.png"
    )  # an answer that will be wrong
    parts = {
        part: figures_of(tmp_path, model, both, "--part", part) for part in ("train", "test", "all")
    }
    assert [parts[part]["images"] for part in parts] == [10, 9, 19]
    assert parts["all"]["accuracy"] == pytest.approx(18 / 19)
    total = sum(parts[part]["loss"] * parts[part]["images"] for part in ("train", "test"))
    assert parts["all"]["loss"] == pytest.approx(total / 19)


def test_arrays_without_a_test_part_and_of_one_class(tmp_path: Path) -> None:
    model = brightness_model(tmp_path, 1)
    saved = load_model(model)
    model = tmp_path / "numbered.safetensors"
    save_model(
        model,
        Model(
            saved.network,
            saved.genotype,
            saved.size,
            ("3", "7", "9"),
            saved.mean,
            saved.std,
            saved.shape,
        ),
    )
    np.savez(tmp_path / "a.npz", x_train=np.stack([grey(240, 16, 16)] * 3), y_train=np.full(3, 7))
    figures = figures_of(tmp_path, model, tmp_path / "a.npz")
    assert (figures["images"], figures["accuracy"], figures["part"]) == (3, 1.0, "all")


def test_of_the_data_it_was_trained_on_the_fifth_is_tested(tmp_path: Path, capsys: Any) -> None:
    """The accuracy is that of the training, to the last digit; of a changed copy all images are
    tested."""
    data, run = tmp_path / "a.npz", tmp_path / "run"
    x = np.random.default_rng(0).integers(0, 256, (60, 8, 8), dtype=np.uint8)
    np.savez(data, x_train=x, y_train=np.arange(60) % 3)
    argv = [
        "--epochs",
        "1",
        "--cells",
        "1",
        "--channels",
        "2",
        "--batch-size",
        "8",
        "--threads",
        "1",
        "--quiet",
    ]
    assert main(["train", CELL, str(data), "--run", str(run), *argv]) == 0
    result = json.loads((run / "result.json").read_text())
    figures = figures_of(tmp_path, run, data)
    assert (figures["part"], figures["images"], figures["accuracy"]) == (
        "test",
        12,
        result["test_accuracy"],
    )
    assert "the fifth of a that is set aside" in figures["tested"]
    assert "trained on some of them" in figures_of(tmp_path, run, data, "--part", "all")["tested"]
    (tmp_path / "other").mkdir()
    np.savez(tmp_path / "other" / "a.npz", x_train=x[:30], y_train=np.arange(30) % 3)
    assert figures_of(tmp_path, run, tmp_path / "other" / "a.npz")["images"] == 30
