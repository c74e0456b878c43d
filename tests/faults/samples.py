"""Small real files of every kind that proxnas reads, each with its reader."""

from __future__ import annotations

import gzip
import io
import json
import pickle
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from proxnas.cells import table
from proxnas.cells.genotype import Genotype
from proxnas.cells.reading import read_genotype
from proxnas.cli.search import parse_search
from proxnas.common.config_file import read_values
from proxnas.domains.images import networks
from proxnas.domains.images.data import images
from proxnas.domains.images.data.options import LoadOptions
from proxnas.domains.images.model import Model, load_model, save_model
from proxnas.domains.images.networks.cnn import Size
from proxnas.domains.images.options import ImageTrainOptions
from proxnas.domains.text import model as text_model
from proxnas.domains.text.data import corpus, text
from proxnas.domains.text.language import LanguageSize
from proxnas.domains.text.model import TextModel, load_text_model, save_text_model
from proxnas.report import reading
from proxnas.runs.checkpoint import SCHEMA, checksum
from proxnas.runs.folder import Run
from proxnas.searching.options import SearchOptions

CELL = "|nor_conv_1x1~0|+|skip_connect~0|none~1|+|avg_pool_3x3~0|nor_conv_3x3~1|skip_connect~2|"
RANDOM = np.random.RandomState(0)


@dataclass(frozen=True)
class Sample:
    """A file in a folder of its own, and who reads it."""

    name: str
    place: Path
    file: str
    content: bytes
    read: Callable[[Path], Any]


def samples(place: Path) -> list[Sample]:
    """All of them, in folders below `place`."""
    found = []
    for name, file, content, read in (*_json(), *_weights(), *_arrays(), *_pictures(), *_texts()):
        folder = place / f"{len(found)}"
        folder.mkdir(parents=True)
        found.append(Sample(name, folder, file, content, read))
    return [*found, *_cifar(place)]


Made = Iterator[tuple[str, str, bytes, Callable[[Path], Any]]]


def _json() -> Made:
    for name in ("zoo:darts_v2", "zoo:RNN_DARTS_V2", CELL):
        yield (
            f"genotype {name[:16]}",
            "genotype.json",
            read_genotype(name).to_json().encode(),
            read_genotype,
        )
    yield "nasbench201 string", "cell.txt", CELL.encode(), read_genotype
    config = {
        "epochs": 3,
        "method": "nasp",
        "space": "darts7",
        "learning_rate": 0.1,
        "pick": False,
        "seeds": "",
        "eta": 0.0,
    }
    yield "config of a search", "config.json", json.dumps(config).encode(), _search_config
    yield (
        "config of a training",
        "config.json",
        b'{"epochs": 3, "cell": "zoo:darts_v2", "clip": 5.0}',
        _train_config,
    )
    rows = "".join(
        json.dumps({"epoch": i + 1, "A": {"cell": [[0.5, 1.0]]}, "seconds": {"arch": 1.0}}) + "\n"
        for i in range(4)
    )
    yield "metrics.jsonl", "metrics.jsonl", rows.encode(), lambda path: Run(path.parent).metrics()
    yield (
        "metrics.jsonl of a report",
        "metrics.jsonl",
        rows.encode(),
        lambda path: reading.read_run(path.parent),
    )
    yield (
        "result.json",
        "result.json",
        b'{"valid_accuracy": 0.5}',
        lambda path: Run(path.parent).read_json(path.name),
    )
    words = json.dumps(["a", "b", "<unk>"]).encode()
    yield "vocabulary.json", "vocabulary.json", words, _vocabulary


def _vocabulary(path: Path) -> None:
    Run(path.parent).keep_vocabulary(["a", "b", "<unk>"])


def _search_config(path: Path) -> None:
    parse_search(["digits", "--config", str(path)])
    read_values(path, SearchOptions)


def _train_config(path: Path) -> None:
    ImageTrainOptions(**read_values(path, ImageTrainOptions))


def _weights() -> Made:
    buffer = io.BytesIO()
    state = {"w": torch.arange(60.0), "n": [1, 2], "epochs_done": 3, "name": "nasp"}
    torch.save({"schema": SCHEMA, "sha256": checksum(SCHEMA, state), "state": state}, buffer)
    yield (
        "checkpoint",
        "checkpoint.pt",
        buffer.getvalue(),
        lambda path: Run(path.parent).load_checkpoint(),
    )
    found, size = Genotype.from_string(CELL), Size(cells=1, channels=4, image_channels=3, classes=3)
    net = networks.build_network(found, size).eval()
    model = Model(
        net, found, size, ("a", "b", "c"), (0.1,) * 3, (0.5,) * 3, (3, 8, 8), info={"params": 7}
    )
    yield (
        "model.safetensors",
        "model.safetensors",
        _saved(lambda path: save_model(path, model)),
        load_model,
    )
    words = LanguageSize(5, 4)
    spoken = TextModel(
        text_model.language_network(None, words),
        None,
        words,
        ("a", "b", "c", "<eos>", "<unk>"),
        text.TextOptions(),
    )
    yield (
        "text model.safetensors",
        "model.safetensors",
        _saved(lambda path: save_text_model(path, spoken)),
        load_text_model,
    )


def _saved(save: Callable[[Path], None]) -> bytes:
    with tempfile.TemporaryDirectory() as place:
        save(Path(place) / "file")
        return (Path(place) / "file").read_bytes()


def _arrays() -> Made:
    x, y = RANDOM.randint(0, 256, (20, 8, 8, 3)).astype(np.uint8), np.arange(20) % 2
    for name, save, values in (
        ("npz", np.savez, x),
        ("npz compressed", np.savez_compressed, x),
        ("npz of floats", np.savez, x.astype(np.float32)),
    ):
        buffer = io.BytesIO()
        save(buffer, x_train=values, y_train=y)
        yield name, "data.npz", buffer.getvalue(), lambda path: images.load(str(path))
    for name, array in (("x_train", x), ("y_train", y)):
        buffer = io.BytesIO()
        np.save(buffer, array)
        yield f"{name} in a sound npz", f"{name}.npy", buffer.getvalue(), _zipped


def _zipped(path: Path) -> None:
    """An array in an npz whose sums are right, beside a sound one."""
    other, sound = (
        ("y_train", np.arange(20) % 2)
        if path.stem == "x_train"
        else ("x_train", np.zeros((20, 8, 8)))
    )
    buffer = io.BytesIO()
    np.save(buffer, sound)
    with zipfile.ZipFile(path.parent / "data.npz", "w") as archive:
        archive.writestr(path.name, path.read_bytes())
        archive.writestr(f"{other}.npy", buffer.getvalue())
    images.load(str(path.parent / "data.npz"))


def _pictures() -> Made:
    kinds = {
        "png": "RGB",
        "jpg": "RGB",
        "gif": "P",
        "bmp": "RGB",
        "tif": "RGBA",
        "webp": "RGB",
        "ppm": "RGB",
    }
    pixels = RANDOM.randint(0, 256, (12, 12, 4)).astype(np.uint8)
    for suffix, mode in kinds.items():
        buffer = io.BytesIO()
        form = {"jpg": "JPEG", "tif": "TIFF"}.get(suffix, suffix.upper())
        Image.fromarray(pixels).convert(mode).save(buffer, form)
        yield f"{suffix} in a class folder", f"x.{suffix}", buffer.getvalue(), _as_class
    buffer = io.BytesIO()
    Image.fromarray(RANDOM.randint(0, 65536, (12, 12)).astype(np.uint16)).save(buffer, "PNG")
    yield "png of 16 bits", "x.png", buffer.getvalue(), _as_class
    yield "png with sums mended", "x.png", buffer.getvalue(), _mended


def _as_class(path: Path) -> None:
    """The file as one image of several in two classes."""
    top = path.parent / "set"
    for name in ("a", "b"):
        (top / name).mkdir(parents=True, exist_ok=True)
        for number in range(5):
            Image.new("RGB", (9, 9)).save(top / name / f"{number}.png")
    (top / "a" / path.name).write_bytes(path.read_bytes())
    images.load(str(top), LoadOptions(image_size=8))


def _mended(path: Path) -> None:
    """A PNG whose sums are right again, so that what they protect is read."""
    content, at = bytearray(path.read_bytes()), 8
    while at + 12 <= len(content):
        end = at + 8 + int.from_bytes(content[at : at + 4], "big")
        if end + 4 > len(content):
            break
        content[end : end + 4] = zlib.crc32(content[at + 4 : end]).to_bytes(4, "big")
        at = end + 4
    path.write_bytes(content)
    _as_class(path)


def _texts() -> Made:
    words = " ".join(f"w{n % 7}" for n in range(200))
    yield "text", "book.txt", (words + "\n").encode() * 3, lambda path: text.load(str(path))
    yield (
        "text in characters",
        "book.txt",
        words.encode(),
        lambda path: text.load(str(path), text.TextOptions("char")),
    )
    yield (
        "whether it is text",
        "book.txt",
        words.encode(),
        lambda path: corpus.is_text(str(path.parent)),
    )
    empty = "|none~0|+|none~0|none~1|+|none~0|none~1|none~2|"
    cells = f"arch,valid,test\n{CELL},91.2,90.0\n{empty},10,10\n"
    yield "table", "table.csv", cells.encode(), table.check_table
    yield "table compressed", "table.csv.gz", gzip.compress(cells.encode()), table.check_table
    cell = Genotype.from_string(CELL)
    yield (
        "table for a search",
        "table.csv",
        cells.encode(),
        lambda path: table.validation(path)(cell),
    )


def _cifar(place: Path) -> Iterator[Sample]:
    """Folders as published, with two images a file; the malformed one is the first batch, or the
    names."""
    planes, labels = (
        RANDOM.randint(0, 256, (20, 3072)).astype(np.uint8),
        [n % 10 for n in range(20)],
    )
    batch = {"data": planes, "labels": labels}
    names = {"label_names": [f"c{n}" for n in range(10)]}
    for protocol in (2, 4):
        folder = place / f"cifar{protocol}" / "cifar-10-batches-py"
        folder.mkdir(parents=True)
        for number in (*range(1, 6), "test"):
            name = f"data_batch_{number}" if isinstance(number, int) else "test_batch"
            (folder / name).write_bytes(pickle.dumps(batch, protocol))
        (folder / "batches.meta").write_bytes(pickle.dumps(names, protocol))
        for file in ("data_batch_1", "batches.meta"):
            content = (folder / file).read_bytes()
            yield Sample(
                f"CIFAR {file} {protocol}",
                folder,
                file,
                content,
                lambda path: images.load(str(path.parent)),
            )
    folder = place / "binary" / "cifar-10-batches-bin"
    folder.mkdir(parents=True)
    rows = np.concatenate([np.array(labels, np.uint8)[:, None], planes], 1).tobytes()
    for name in (*(f"data_batch_{n}.bin" for n in range(1, 6)), "test_batch.bin"):
        (folder / name).write_bytes(rows)
    (folder / "batches.meta.txt").write_text("\n".join(names["label_names"]))
    yield Sample(
        "CIFAR binary", folder, "data_batch_1.bin", rows, lambda path: images.load(str(path.parent))
    )
