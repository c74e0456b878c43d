"""Weights and what belongs to them in one safetensors file, whatever the network is."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import nn

from proxnas.common.errors import AboutOptions, InputError, escape
from proxnas.common.files import write_atomically
from proxnas.common.stored import parse_json

FILE = "model.safetensors"


AnyModule = TypeVar("AnyModule", bound=nn.Module)


Read = TypeVar("Read")


def write_weights(path: Path, network: nn.Module, metadata: dict[str, str]) -> None:
    """A safetensors file, whole or not at all."""
    weights, seen = {}, set()
    for name, w in network.state_dict().items():
        weights[name] = w.detach().cpu().contiguous()
        place = weights[name].data_ptr()
        if place in seen:  # the format wants tied weights written out twice
            weights[name] = weights[name].clone()
        seen.add(place)
    write_atomically(path, in_order(save(weights, metadata)))


def in_order(content: bytes) -> bytes:
    """A safetensors file whose metadata is sorted by name: the library writes it in another order
    each time, and the same weights are to give the same bytes.

    The format: 8 bytes with the length of the header, the header as JSON filled up with blanks to a
    multiple of 8, the weights, whose places are counted from the end of the header.
    """
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])
    header["__metadata__"] = dict(sorted(header["__metadata__"].items()))
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + content[8 + length :]


def find_model(place: str | os.PathLike[str]) -> Path:
    """The model file that MODEL names: itself, or in the folder of a `train` or `fit` run."""
    path = Path(place)
    if not path.is_dir():
        if not path.is_file():
            raise InputError(
                f"{place}: no such file: give a {FILE} or the folder of a train or fit run"
            )
        return path
    for found in (path / FILE, path / "train" / FILE):
        if found.is_file():
            return found
    raise InputError(f"{path}: holds no {FILE}: give the folder of a finished train or fit run")


def read_file(
    place: str | os.PathLike[str], read: Callable[[Any, Mapping[str, str]], Read]
) -> Read:
    """What `read` makes of the model file and its metadata; errors name the file."""
    path = find_model(place)
    try:
        with safe_open(path, framework="pt") as file:
            return read(file, file.metadata() or {})
    except SafetensorError as error:
        raise InputError(
            f"{path}: not a readable safetensors file ({error}): give a {FILE}"
        ) from error
    except AboutOptions as error:
        raise AboutOptions(f"{escape(path)}: {error.template}") from error
    except InputError as error:
        raise InputError(f"{path}: {error}") from error


def metadata_entry(metadata: Mapping[str, str], name: str) -> Any:
    """A JSON value of the metadata."""
    try:
        return parse_json(metadata[name])
    except (KeyError, ValueError) as error:
        fault = "missing" if isinstance(error, KeyError) else "not JSON"
        raise InputError(
            f"{name} is {fault} in its metadata: the file is damaged or not written by proxnas"
        ) from error


def read_weights(file: Any, network: AnyModule) -> AnyModule:
    """The network, made on the meta device, with the weights of a file: those it needs, no others,
    all finite."""
    wanted, names = network.state_dict(), set(file.keys())
    if missing := sorted(wanted.keys() - names):
        raise InputError(
            f"weight {missing[0]} is missing ({len(missing)} in all): not the weights of this"
            " genotype"
        )
    if left := sorted(names - wanted.keys()):
        raise InputError(
            f"weight {left[0]} has no place in this genotype's network ({len(left)} in all)"
        )
    for name, like in wanted.items():
        if (shape := list(file.get_slice(name).get_shape())) != list(like.shape):
            raise InputError(
                f"weight {name} has shape {shape}, the genotype's network {list(like.shape)}"
            )
    weights = {name: file.get_tensor(name) for name in wanted}
    for name, w in weights.items():
        if w.dtype != wanted[name].dtype or not torch.isfinite(w).all():
            raise InputError(
                f"weight {name} is {w.dtype} or not finite: give finite {wanted[name].dtype}"
                " weights"
            )
    # assign: weights on the meta device have no memory to copy into
    network.load_state_dict(weights, assign=True)
    return network
