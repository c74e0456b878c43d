"""Small files that would take much: memory when unpacked, time when searched through, or the
machine when unpickled."""

from __future__ import annotations

import gzip
import io
import json
import pickle
import struct
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save

from proxnas.cells import genotype, table
from proxnas.cells.reading import read_genotype
from proxnas.common.config_file import read_values
from proxnas.domains.images import networks
from proxnas.domains.images.data import images
from proxnas.domains.images.model import Model, load_model, save_model
from proxnas.domains.images.networks.cnn import Size
from proxnas.domains.text.data import text
from proxnas.report import reading
from proxnas.runs.folder import Run
from proxnas.searching.options import SearchOptions

from faults.samples import CELL, Sample, _as_class  # isort: skip

LARGEST = 2**20
"""No file here has more bytes."""


def _read_search(path: Path) -> object:
    return read_values(path, SearchOptions)


def bombs(place: Path) -> list[Sample]:
    """Files to be refused, or read within the limits."""
    found = []
    for name, file, content, read in _bombs():
        folder = place / str(len(found))
        folder.mkdir(parents=True)
        assert len(content) <= LARGEST, name
        found.append(Sample(name, folder, file, content, read))
    return found


def _bombs() -> Iterator[tuple[str, str, bytes, Callable[[Path], Any]]]:
    def load(path: Path) -> object:
        return images.load(str(path))

    for kind in ("|u1", "<f2", "<f8"):
        yield f"npz of zeros {kind}", "x.npz", _zeros_npz(kind, 300 * 2**20), load
        yield f"npz of fewer zeros {kind}", "x.npz", _zeros_npz(kind, 60 * 2**20), load
    yield "npz with absurd shapes", "x.npz", _zeros_npz("|u1", 1000, (2**40, 2**40, 8)), load
    yield "npz of many entries", "x.npz", _many_entries(), load
    for mode, channels in ((0, 1), (2, 3), (6, 4)):
        for bits in (8, 16):
            size = (8_000, 8_000) if bits == 8 else (6_000, 6_000)
            yield (
                f"png {mode} of {bits} bits",
                "x.png",
                _png(*size, mode, bits, channels),
                _as_class,
            )
            yield (
                f"smaller png {mode} of {bits} bits",
                "x.png",
                _png(4_000, 4_000, mode, bits, channels),
                _as_class,
            )
    yield "png of absurd size", "x.png", _png(2**31 - 1, 2**31 - 1, 2, 8, 0), _as_class
    for what, piece in (
        ("lines", b"\n"),
        ("rows", b"a\n"),
        ("columns", b","),
        ("one field", b"a"),
        ("quotes", b'"'),
    ):
        yield (
            f"table of {what}",
            "t.csv.gz",
            gzip.compress(b"arch,valid\n" + piece * (2**26 // len(piece))),
            table.check_table,
        )
    wide = b"arch," + b"a," * 200_000 + b"\n" + (b"b," * 200_000 + b"\n") * 40
    yield "table of wide rows", "t.csv.gz", gzip.compress(wide), table.check_table
    for what, content in (
        ("deep", b"[" * 900_000),
        ("deep objects", b'{"a":' * 120_000),
        ("digits", b"9" * 900_000),
    ):
        yield f"{what} as a genotype", "genotype.json", content, read_genotype
        yield f"{what} as a configuration", "config.json", content, _read_search
        yield (
            f"{what} as a result",
            "result.json",
            content,
            lambda path: Run(path.parent).read_json(path.name),
        )
        yield (
            f"{what} as metrics",
            "metrics.jsonl",
            content + b"\n",
            lambda path: Run(path.parent).metrics(),
        )
        yield (
            f"{what} in a report",
            "metrics.jsonl",
            content + b"\n",
            lambda path: reading.read_run(path.parent),
        )
        yield (
            f"{what} in the metadata of a model",
            "m.safetensors",
            _model(size=content.decode()),
            load_model,
        )
    nodes = [[["sep_conv_3x3", 0]] for _ in range(40_000)]
    cells = {name: {"nodes": nodes[:20_000], "concat": [2]} for name in ("normal", "reduce")}
    large = json.dumps({"schema": 1, "kind": "cnn", "space": None, "cells": cells})
    yield "a genotype of 40,000 nodes", "genotype.json", large.encode(), read_genotype
    yield "a model of 40,000 nodes", "m.safetensors", _model(genotype=large), load_model
    size = {"cells": 200, "channels": 4096, "image_channels": 1024, "classes": 1_000_000}
    yield "a model without end", "m.safetensors", _model(size=json.dumps(size)), load_model
    for shape in ([3, 65536, 65536], [3, 4000, 4000]):
        yield (
            f"a model that reads images of {shape}",
            "m.safetensors",
            _wide_model(shape),
            load_model,
        )
    header = json.dumps(
        {"w": {"dtype": "F32", "shape": [2**40, 2**20], "data_offsets": [0, 2**62]}}
    ).encode()
    yield (
        "weights of absurd shape",
        "m.safetensors",
        struct.pack("<Q", len(header)) + header,
        load_model,
    )
    yield "a header of absurd length", "m.safetensors", struct.pack("<Q", 2**62) + b"{}", load_model
    yield (
        "checkpoint of absurd size",
        "checkpoint.pt",
        _absurd_checkpoint(),
        lambda path: Run(path.parent).load_checkpoint(),
    )
    yield (
        "checkpoint of zeros",
        "checkpoint.pt",
        _zeros_checkpoint(),
        lambda path: Run(path.parent).load_checkpoint(),
    )
    yield "one word", "t.txt", b"a" * 900_000, lambda path: text.load(str(path))
    yield (
        "many words",
        "t.txt",
        " ".join(map(str, range(130_000))).encode(),
        lambda path: text.load(str(path)),
    )
    yield "many lines", "t.txt", b"a b\n" * 220_000, lambda path: text.load(str(path))
    yield "many characters", "t.txt", "".join(map(chr, range(32, 55_000))).encode() * 4, _characters


def _characters(path: Path) -> object:
    return text.load(str(path), text.TextOptions("char"))


def _zeros_npz(kind: str, size: int, shape: tuple[int, ...] | None = None) -> bytes:
    """Arrays of nothing: a thousandth of what they unpack to, so cut off at a megabyte, which the
    header denies."""
    images_ = size // np.dtype(kind).itemsize // 64
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, form, dtype in (
            ("x_train", shape or (images_, 8, 8), kind),
            ("y_train", (images_,), "|u1"),
        ):
            header = io.BytesIO()
            np.lib.format.write_array_header_1_0(
                header, {"descr": dtype, "fortran_order": False, "shape": form}
            )
            with archive.open(f"{name}.npy", "w") as file:
                file.write(header.getvalue())
                left = size if name == "x_train" else images_
                block = bytes(2**20) if name == "x_train" else bytes(range(2)) * 2**19
                while left > 0:
                    file.write(block[:left])
                    left -= len(block)
    return buffer.getvalue()


def _wide_model(shape: list[int]) -> bytes:
    """A sound little model but for the size of its images."""
    found, size = (
        genotype.Genotype.from_string(CELL),
        Size(cells=1, channels=4, image_channels=3, classes=2),
    )
    network, wide = networks.build_network(found, size).eval(), (shape[0], shape[1], shape[2])
    model = Model(network, found, size, ("a", "b"), (0.5,) * 3, (0.5,) * 3, wide)
    with tempfile.TemporaryDirectory() as place:
        save_model(Path(place) / "m", model)
        return (Path(place) / "m").read_bytes()


def _many_entries() -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for number in range(10_500):
            archive.writestr(f"{number}.npy", b"")
    return buffer.getvalue()


def _png(width: int, height: int, mode: int, bits: int, channels: int) -> bytes:
    """All black; without channels there is not even that."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return (
            struct.pack(">I", len(content))
            + kind
            + content
            + struct.pack(">I", zlib.crc32(kind + content))
        )

    packer = zlib.compressobj(6)
    row = bytes(1 + width * channels * bits // 8) if channels else b""
    packed = (
        b"".join(packer.compress(row) for _ in range(height if channels else 0)) + packer.flush()
    )
    head = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, bits, mode, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + head + chunk(b"IDAT", packed) + chunk(b"IEND", b"")


def _model(**metadata: str) -> bytes:
    size = {"cells": 1, "channels": 4, "image_channels": 3, "classes": 3}
    sound = {
        "genotype": read_genotype(CELL).to_json(),
        "size": json.dumps(size),
        "classes": '["a", "b", "c"]',
    }
    return bytes(save({"w": torch.zeros(1)}, sound | {"shape": "[3, 8, 8]"} | metadata))


def _absurd_checkpoint() -> bytes:
    """A storage that is said to hold far more than its record in the archive."""
    stored, changed = io.BytesIO(), io.BytesIO()
    torch.save({"state": torch.zeros(4), "sha256": ""}, stored)
    with zipfile.ZipFile(stored) as source, zipfile.ZipFile(changed, "w") as target:
        for name in source.namelist():
            absurd = b"\x8a\x08" + (2**55).to_bytes(8, "little")
            target.writestr(name, source.read(name).replace(b"K\x04", absurd))
    return changed.getvalue()


def _zeros_checkpoint() -> bytes:
    """One zero, seen as if it were many: what is compared with the checksum must not be written out
    first."""
    buffer = io.BytesIO()
    torch.save({"state": {"w": torch.zeros(1).expand(2**33)}, "sha256": ""}, buffer)
    return buffer.getvalue()


# pickles that would run code


class Evil:
    """Makes a folder when it is unpickled by whoever runs what a pickle says."""

    def __init__(self, canary: Path) -> None:
        self.canary = str(canary)

    def __reduce__(self) -> tuple[Any, ...]:
        import os

        return os.mkdir, (self.canary,)


def evil(place: Path, canary: Path) -> list[Sample]:
    """A pickle with a canary in every place that could hold one."""
    found = []
    for name, file, content, read in _evil(canary):
        folder = place / str(len(found)) / ("cifar-10-batches-py" if "CIFAR" in name else "")
        folder.mkdir(parents=True)
        found.append(Sample(name, folder, file, content, read))
    return found


def _evil(canary: Path) -> Iterator[tuple[str, str, bytes, Callable[[Path], Any]]]:
    poison = Evil(canary)
    for protocol in range(6):
        plain = pickle.dumps({"data": poison, "labels": [0]}, protocol)
        for file in ("data_batch_1", "batches.meta"):
            yield (f"CIFAR {file} {protocol}", file, plain, partial(_cifar, content=plain))
        for place in (
            "genotype.json",
            "config.json",
            "result.json",
            "metrics.jsonl",
            "vocabulary.json",
        ):
            yield f"{place} {protocol}", place, plain, READERS[place]
        yield (
            f"npz that is a pickle {protocol}",
            "x.npz",
            plain,
            lambda path: images.load(str(path)),
        )
        yield f"model that is a pickle {protocol}", "m.safetensors", plain, load_model
        yield (
            f"checkpoint that is a pickle {protocol}",
            "checkpoint.pt",
            plain,
            READERS["checkpoint.pt"],
        )
        yield f"table that is a pickle {protocol}", "t.csv", plain, table.check_table
        yield f"text that is a pickle {protocol}", "t.txt", plain, lambda path: text.load(str(path))
        yield f"image that is a pickle {protocol}", "x.png", plain, _as_class
    for name, options in (("zip", {}), ("old form", {"_use_new_zipfile_serialization": False})):
        buffer = io.BytesIO()
        torch.save({"state": poison, "sha256": ""}, buffer, **options)
        yield f"checkpoint, {name}", "checkpoint.pt", buffer.getvalue(), READERS["checkpoint.pt"]
        yield f"checkpoint as model, {name}", "m.safetensors", buffer.getvalue(), load_model
    for where in ("x_train", "y_train"):
        arrays = {"x_train": np.zeros((4, 8, 8), np.uint8), "y_train": np.arange(4) % 2}
        buffer = io.BytesIO()
        np.savez(buffer, **arrays | {where: np.array([poison] * 4, dtype=object)})  # type: ignore[arg-type]
        yield f"objects in {where}", "x.npz", buffer.getvalue(), lambda path: images.load(str(path))


READERS: dict[str, Callable[[Path], Any]] = {
    "genotype.json": read_genotype,
    "config.json": _read_search,
    "result.json": lambda path: Run(path.parent).read_json(path.name),
    "metrics.jsonl": lambda path: Run(path.parent).metrics(),
    "vocabulary.json": lambda path: Run(path.parent).keep_vocabulary(["a"]),
    "checkpoint.pt": lambda path: Run(path.parent).load_checkpoint(),
}


def _cifar(path: Path, content: bytes) -> object:
    """The folder complete, so that its reader comes to the file."""
    for name in (*(f"data_batch_{number}" for number in range(1, 6)), "test_batch", "batches.meta"):
        if not (path.parent / name).exists():
            names = pickle.dumps({"label_names": [f"c{n}" for n in range(10)]})
            (path.parent / name).write_bytes(names if name == "batches.meta" else content)
    return images.load(str(path.parent))
