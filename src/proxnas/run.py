"""The run folder: locked while in use, written so that a crash at any moment loses nothing that was finished.

Text files are replaced whole (written beside, synced, renamed). A checkpoint loads with `weights_only=True`,
holds a checksum of its own content, and the one before it is kept. metrics.jsonl grows by a line an epoch and is cut
back to the checkpoint on resume.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock, Timeout
from torch import Tensor

from proxnas.errors import InputError
from proxnas.types import State

FILES = (
    "table.md",
    "table.csv",
    "table.json",
    "tests.json",
    "plan.json",
    "report.html",
    "result.json",
    "model_card.md",
    "model.onnx",
    "model.pt2",
    "model.safetensors",
    "checkpoint.pt",
    "checkpoint.previous.pt",
    "metrics.jsonl",
    "genotype.json",
    "vocabulary.json",
    "space.json",
    "environment.json",
    "config.json",
)
"""What a run writes into its folder, and what --force removes: config.json last, it says whose the others are."""

LOCK_SECONDS = 0.3
"""A command that looks whether a run is under way holds the lock for an instant; whoever runs holds it for longer."""
DAMAGE = (Exception,)  # a damaged file makes torch.load raise nearly every kind


class Run:
    """One run folder that is open, and locked against other processes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __truediv__(self, name: str) -> Path:
        return self.folder / name

    @property
    def finished(self) -> bool:
        return (self / "result.json").exists()

    def write_json(self, name: str, value: Any) -> None:
        write_atomically(self / name, json.dumps(value, indent=2, allow_nan=False) + "\n")

    def read_json(self, name: str) -> Any:
        try:
            return json.loads((self / name).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise InputError(f"{self / name}: cannot be read ({error}): use --force to run anew") from error

    def keep_vocabulary(self, words: Sequence[str]) -> None:
        """Written once; a text that has changed since cannot go on with the weights of the old one."""
        path = self / "vocabulary.json"
        if not path.exists():
            write_atomically(path, json.dumps(list(words), ensure_ascii=False, indent=0) + "\n")
        elif self.read_json(path.name) != list(words):
            raise InputError(
                f"{path}: the text has other words than when this run was started: restore the text, or use --force "
                "to start anew"
            )

    def append_metrics(self, row: dict[str, Any]) -> None:
        with (self / "metrics.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
            file.flush()
            os.fsync(file.fileno())

    def metrics(self) -> list[dict[str, Any]]:
        """The whole lines of metrics.jsonl; a line torn by a crash is none."""
        path = self / "metrics.jsonl"
        try:
            lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
            return [json.loads(line) for line in lines if line.endswith("\n")]
        except FileNotFoundError:
            return []
        except ValueError as error:
            raise InputError(f"{path}: damaged ({error}): use --force to run anew") from error

    def cut_metrics(self, epochs: int) -> list[dict[str, Any]]:
        """The rows of the first so many epochs; later ones, written after the checkpoint, are removed."""
        rows = self.metrics()[:epochs]
        if len(rows) < epochs:
            raise InputError(f"{self / 'metrics.jsonl'}: has {len(rows)} epochs, the checkpoint {epochs}: use --force")
        write_atomically(self / "metrics.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
        return rows

    def save_checkpoint(self, state: State) -> None:
        part = self / "checkpoint.pt.part"
        with part.open("wb") as file:
            torch.save({"sha256": digest(state), "state": state}, file)
            file.flush()
            os.fsync(file.fileno())
        newest = self / "checkpoint.pt"
        if newest.exists():  # killed between the two renames: the previous one is still there to resume from
            os.replace(newest, self / "checkpoint.previous.pt")
        os.replace(part, newest)
        _sync_folder(self.folder)

    def load_checkpoint(self) -> State | None:
        """The newest checkpoint; None if the run was stopped before its first."""
        for name in ("checkpoint.pt", "checkpoint.previous.pt"):
            if (self / name).exists():
                return self._load(self / name)
        return None

    def _load(self, path: Path) -> State:
        try:
            stored = torch.load(path, map_location="cpu", weights_only=True)
            state: State = stored["state"]
            intact = stored["sha256"] == digest(state)
        except DAMAGE:
            intact = False
        if not intact:
            previous = self / "checkpoint.previous.pt"
            other = previous.exists() and path != previous
            way = f"remove it to resume from {previous.name}" if other else "use --force to start anew"
            raise InputError(f"{path}: the checkpoint is damaged or truncated: {way}")
        return state


@contextmanager
def open_run(folder: Path, resume: bool = False, force: bool = False) -> Iterator[Run]:
    """The run folder, made if need be and locked; an earlier run in it is neither overwritten nor mixed with."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"--run {folder}: cannot be made ({error.strerror}): choose another folder") from error
    lock = FileLock(folder / ".lock")
    try:
        lock.acquire(timeout=LOCK_SECONDS)
    except Timeout as error:
        raise InputError(f"{folder}: in use by another process: wait for it or choose another --run") from error
    except OSError as error:
        raise InputError(f"--run {folder}: cannot be written ({error.strerror}): choose another folder") from error
    try:
        run = Run(folder)
        _check_earlier(run, resume, force)
        yield run
    finally:
        lock.release()


def _check_earlier(run: Run, resume: bool, force: bool) -> None:
    if not (run / "config.json").exists():
        for name in FILES:  # ours come after config.json and go before it
            if (run / name).exists():
                raise InputError(f"{run / name}: without a config.json beside it, whose is it? choose another --run")
        return
    if not _ours(run / "config.json"):
        raise InputError(f"{run / 'config.json'}: not written by proxnas: choose another --run")
    if force:
        for name in FILES:
            (run / f"{name}.part").unlink(missing_ok=True)
            (run / name).unlink(missing_ok=True)
    elif not resume:
        state = "a finished run" if run.finished else "an unfinished run"
        raise InputError(f"{run.folder}: holds {state}: use --resume to go on, --force to overwrite, or another --run")


def _ours(config: Path) -> bool:
    try:
        stored = json.loads(config.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(stored, dict) and "proxnas" in stored


def write_atomically(path: Path, content: str | bytes) -> None:
    """Replace a file whole: readers and crashes see the old content or the new one."""
    part = path.with_name(path.name + ".part")
    with part.open("wb") as file:
        file.write(content.encode() if isinstance(content, str) else content)
        file.flush()
        os.fsync(file.fileno())
    os.replace(part, path)


def digest(value: Any) -> str:
    """A checksum of nested dicts, lists, tensors, numbers and strings."""
    sha = hashlib.sha256()
    _feed(sha, value)
    return sha.hexdigest()


def _feed(sha: hashlib._Hash, value: Any) -> None:
    if isinstance(value, dict):
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
        sha.update(flat.reshape(-1).view(torch.uint8).numpy().data)
    else:
        sha.update(repr(value).encode())


def _sync_folder(folder: Path) -> None:
    """Make the renames themselves durable, where the system can."""
    if os.name == "posix":
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
