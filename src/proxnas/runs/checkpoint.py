"""The file of a checkpoint: a state, its checksum and the number of its form. It is read with
suspicion: nothing of it is ever run."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import IO, Any, TypedDict

import torch
from torch import Tensor

from proxnas.common import stored
from proxnas.common.errors import AboutOptions, escape
from proxnas.common.types import State, tensors_in

SCHEMA = 1
"""Of checkpoint.pt: raised when a state of an earlier version would be misunderstood."""
SHARED = 10
"""So many names a tensor of a checkpoint may have at most, on average; it is stored once."""
DAMAGE = (Exception,)  # a damaged file makes torch.load raise nearly every kind


class Checkpoint(TypedDict):
    """What checkpoint.pt holds."""

    schema: int
    sha256: str
    """Of both."""
    state: State


def write_state(state: State, file: IO[bytes]) -> None:
    """Writes the checkpoint of a state."""
    content: Checkpoint = {"schema": SCHEMA, "sha256": checksum(SCHEMA, state), "state": state}
    torch.save(content, file)


def sound_state(path: Path) -> State | None:
    """What a checkpoint holds; None if its content is not what was written. An InputError if
    another version has written it."""
    with stored.open_regular(path) as file:  # what cannot be read at all is no damage
        try:
            found = torch.load(file, map_location="cpu", weights_only=True)
            state: State = found["state"]
            # one number can be seen as a tensor of any size
            if claimed_bytes(state) > SHARED * path.stat().st_size:
                return None
            schema = found.get("schema")
            if found["sha256"] != checksum(schema, state):
                return None
        except DAMAGE:
            return None
    if schema != SCHEMA:
        raise AboutOptions(
            f"{escape(path)}: a checkpoint of schema {escape(str(schema)[:20])}, and this version"
            f" of proxnas reads {SCHEMA}: go on with the version that wrote it, or use {{force}}"
        )
    return state


def checksum(schema: int | None, state: State) -> str:
    """Of a checkpoint; of one without a schema, as there were once, of its state alone."""
    return digest(state if schema is None else [schema, state])


def claimed_bytes(state: State) -> int:
    """Bytes of all its tensors, if each were written out."""
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors_in(state))


def digest(value: Any) -> str:
    """A checksum of nested dicts, lists, tensors, numbers and strings."""
    sha = hashlib.sha256()
    _feed(sha, value)
    return sha.hexdigest()


def _feed(sha: hashlib._Hash, value: Any) -> None:
    if isinstance(value, dict):
        # with its length, so that no two nestings are fed the same bytes
        sha.update(f"{{{len(value)}".encode())
        for key, item in value.items():
            sha.update(f"{key!r}:".encode())
            _feed(sha, item)
    elif isinstance(value, list | tuple):
        sha.update(f"[{len(value)}".encode())
        for item in value:
            _feed(sha, item)
    elif isinstance(value, Tensor):
        flat = value.detach().cpu().contiguous()
        sha.update(f"{flat.dtype}{tuple(flat.shape)}".encode())
        # the bytes themselves: NaN and -0.0 count too
        sha.update(flat.reshape(-1).view(torch.uint8).numpy().data)
    else:
        sha.update(repr(value).encode())
