"""The run folder: who may write into it, and what a crash or a damaged file may do to it."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import proxnas.runs.checkpoint
import proxnas.runs.folder
from proxnas.common.errors import InputError
from proxnas.runs.checkpoint import checksum, digest
from proxnas.runs.folder import FILES, Run, open_run, write_atomically

HOLD = """
import sys
from filelock import FileLock
with FileLock(sys.argv[1]):
    print("held", flush=True)
    sys.stdin.read()
"""


def contents(folder: Path) -> dict[str, bytes]:
    """Every file below the folder but the lock, byte for byte."""
    files = (path for path in folder.rglob("*") if path.is_file() and path.name != ".lock")
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def earlier_run(folder: Path, finished: bool = True) -> Path:
    """A folder with all files of a run, and two that are none of its."""
    folder.mkdir(parents=True)
    for name in FILES:
        (folder / name).write_text("{}\n")
    (folder / "config.json").write_text(json.dumps({"proxnas": "0.1.0", "command": "search"}))
    (folder / "notes.txt").write_text("mine\n")
    (folder / "model.pth").write_text("mine too\n")
    if not finished:
        (folder / "result.json").unlink()
    return folder


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(tmp_path)


@pytest.fixture
def state() -> dict[str, Any]:
    return {
        "weights": {
            "w": torch.arange(300.0).reshape(30, 10),
            "empty": torch.empty(0),
            "scalar": torch.tensor(2.5),
        },
        "epochs_done": 3,
        "steps": [1, 2, (3, 4)],
        "random": torch.arange(40, dtype=torch.uint8),
        "name": "nasp",
        "none": None,
    }


def same(a: Any, b: Any) -> bool:
    """Equality of nested values with tensors in them, written without `digest`."""
    if isinstance(a, torch.Tensor):
        return isinstance(b, torch.Tensor) and a.dtype == b.dtype and torch.equal(a, b)
    if isinstance(a, dict):
        return isinstance(b, dict) and list(a) == list(b) and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    return type(a) is type(b) and bool(a == b)


# who may open it


def test_a_new_folder_is_made_with_its_parents(tmp_path: Path) -> None:
    with open_run(tmp_path / "a" / "b") as run:
        run.write_json("config.json", {"proxnas": "x"})
    assert contents(tmp_path / "a" / "b").keys() == {"config.json"}


def test_a_second_opening_is_refused_while_the_first_lasts(tmp_path: Path) -> None:
    earlier_run(tmp_path / "run", finished=False)
    with open_run(tmp_path / "run", resume=True):
        before = contents(tmp_path / "run")
        for mode in ({}, {"resume": True}, {"force": True}):
            said = f"in use by process {os.getpid()}: wait for it"
            with pytest.raises(InputError, match=said), open_run(tmp_path / "run", **mode):
                pass
        assert contents(tmp_path / "run") == before
    with open_run(tmp_path / "run", resume=True):
        pass


def test_a_folder_held_by_another_process_is_refused_and_unharmed(tmp_path: Path) -> None:
    folder = earlier_run(tmp_path / "run")
    before = contents(folder)
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(folder / ".lock")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with holder:
        assert holder.stdout is not None and holder.stdout.readline() == "held\n"
        with (
            pytest.raises(InputError, match=r"run: in use by another process: wait"),
            open_run(folder, force=True),
        ):
            pass
        holder.kill()
    assert contents(folder) == before
    with open_run(folder, resume=True):  # the lock dies with its holder
        pass


def test_the_lock_is_released_after_an_error(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), open_run(tmp_path):
        raise ZeroDivisionError
    with open_run(tmp_path):
        pass


@pytest.mark.parametrize(
    ("finished", "said"), [(True, "a finished run"), (False, "an unfinished run")]
)
def test_an_earlier_run_is_not_overwritten(tmp_path: Path, finished: bool, said: str) -> None:
    folder = earlier_run(tmp_path / "run", finished)
    before = contents(folder)
    with pytest.raises(InputError, match=f"holds {said}: use resume .* force"), open_run(folder):
        pass
    assert contents(folder) == before


def test_force_removes_our_files_and_no_others(tmp_path: Path) -> None:
    folder = earlier_run(tmp_path / "run")
    (folder / "checkpoint.pt.part").write_text("left by a kill")
    (folder / "seed-0").mkdir()
    (folder / "seed-0" / "result.json").write_text("{}")
    with open_run(folder, force=True):
        pass
    assert contents(folder).keys() == {"notes.txt", "model.pth", "seed-0/result.json"}


def test_force_that_is_killed_leaves_config_json_till_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A checkpoint without the configuration it belongs to would be resumed by any other run."""
    folder = earlier_run(tmp_path / "run")
    removed: list[str] = []
    real = Path.unlink

    def killed_later(path: Path, missing_ok: bool = False) -> None:
        real(path, missing_ok)
        removed.append(path.name)
        assert (folder / "config.json").exists() or not set(FILES) & {
            path.name for path in folder.iterdir()
        }

    monkeypatch.setattr(Path, "unlink", killed_later)
    with open_run(folder, force=True):
        pass
    assert set(FILES) <= set(removed)


@pytest.mark.parametrize("text", ['{"name": "my app"}', "[1, 2]", "no JSON", "", '"proxnas"'])
def test_a_foreign_config_json_is_refused_even_with_force(tmp_path: Path, text: str) -> None:
    (tmp_path / "config.json").write_text(text)
    (tmp_path / "result.json").write_text("theirs")
    before = contents(tmp_path)
    for mode in ({}, {"resume": True}, {"force": True}):
        with (
            pytest.raises(InputError, match=r"config\.json: not written by proxnas"),
            open_run(tmp_path, **mode),
        ):
            pass
    assert contents(tmp_path) == before


@pytest.mark.parametrize("name", ["checkpoint.pt", "result.json", "metrics.jsonl"])
def test_files_without_a_config_json_are_not_mixed_with(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("whose?")
    for mode in ({}, {"resume": True}, {"force": True}):
        with (
            pytest.raises(InputError, match=f"{name}: without a config.json"),
            open_run(tmp_path, **mode),
        ):
            pass
    assert contents(tmp_path) == {name: b"whose?"}


@pytest.mark.parametrize("below", ["file", "file/run"])
def test_a_path_that_is_a_file_is_refused(tmp_path: Path, below: str) -> None:
    (tmp_path / "file").write_text("text")
    with pytest.raises(InputError, match=r"^run .*cannot be made"), open_run(tmp_path / below):
        pass
    assert (tmp_path / "file").read_text() == "text"


@pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write anywhere"
)
def test_a_folder_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir(mode=0o500)
    for place in (folder, folder / "below"):
        with pytest.raises(InputError, match=r"run .*choose another folder"), open_run(place):
            pass


# text files


def test_write_atomically_replaces_whole_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "x.json"
    write_atomically(path, "old")

    def crash(source: Path, target: Path) -> None:
        assert source.read_text() == "new" and target.read_text() == "old"
        raise OSError(errno.ENOSPC, "no space")

    with (
        monkeypatch.context() as patch,
        pytest.raises(InputError, match=r"x\.json: cannot be written \(no space\): make"),
    ):
        patch.setattr(proxnas.runs.folder.os, "replace", crash)
        write_atomically(path, "new")
    assert path.read_text() == "old"
    write_atomically(path, "new")
    assert contents(tmp_path) == {"x.json": b"new"}


def test_text_is_synced_before_it_is_renamed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []
    fsync, replace = os.fsync, os.replace
    monkeypatch.setattr(
        proxnas.runs.folder.os, "fsync", lambda fd: (calls.append("sync"), fsync(fd))
    )
    monkeypatch.setattr(
        proxnas.runs.folder.os, "replace", lambda a, b: (calls.append("rename"), replace(a, b))
    )
    write_atomically(tmp_path / "x", "text")
    assert calls == ["sync", "rename"]
    calls.clear()
    Run(tmp_path).save_checkpoint({"n": 1})
    assert calls == ["sync", "rename", "sync"]  # the last one is the folder's


def test_json_files_come_back_and_refuse_nan(run: Run) -> None:
    run.write_json("a.json", {"x": [1, 2.5, None]})
    assert run.read_json("a.json") == {"x": [1, 2.5, None]}
    with pytest.raises(ValueError, match="JSON"):
        run.write_json("a.json", {"x": float("nan")})
    assert run.read_json("a.json") == {"x": [1, 2.5, None]}


@pytest.mark.parametrize("damage", [b"", b"{", b"\xff\xfe"])
def test_an_unreadable_json_file_is_named(run: Run, damage: bytes) -> None:
    (run / "result.json").write_bytes(damage)
    with pytest.raises(InputError, match=r"result\.json: cannot be read .* force"):
        run.read_json("result.json")


# metrics.jsonl


def row(epoch: int, **more: Any) -> dict[str, Any]:
    """A line of metrics.jsonl."""
    return {"epoch": epoch, "seconds": {"other": 0.5}} | more


def test_metrics_grow_by_a_line(run: Run) -> None:
    assert run.metrics() == []
    for epoch in (1, 2):
        run.append_metrics(row(epoch, loss=0.1 + epoch))
    assert run.metrics() == [row(1, loss=1.1), row(2, loss=2.1)]
    assert (run / "metrics.jsonl").read_bytes().count(b"\n") == 2


def test_a_torn_last_line_is_none_wherever_it_is_torn(run: Run) -> None:
    run.append_metrics(row(1))
    whole = (run / "metrics.jsonl").read_bytes()
    run.append_metrics(row(2))
    both = (run / "metrics.jsonl").read_bytes()
    for size in range(len(whole), len(both)):
        (run / "metrics.jsonl").write_bytes(both[:size])
        assert run.metrics() == [row(1)]
    assert run.cut_metrics(1) == [row(1)]
    run.append_metrics(row(2))  # not glued to the torn line
    assert run.metrics() == [row(1), row(2)]


def test_metrics_are_cut_back_byte_for_byte(run: Run) -> None:
    for epoch in range(1, 6):
        run.append_metrics(row(epoch, third=epoch / 3, A={"cell": [[0.1, 1e-30]]}))
    lines = (run / "metrics.jsonl").read_bytes().splitlines(keepends=True)
    assert [row["epoch"] for row in run.cut_metrics(3)] == [1, 2, 3]
    assert (run / "metrics.jsonl").read_bytes() == b"".join(lines[:3])
    assert run.cut_metrics(0) == []
    assert (run / "metrics.jsonl").read_bytes() == b""


def test_rows_of_another_schema_are_refused(run: Run) -> None:
    run.append_metrics(row(1, schema=1))
    assert run.metrics() == [row(1, schema=1)]
    run.append_metrics(row(2, schema=2))
    with pytest.raises(InputError, match=r"rows of schema 2, and this version reads 1"):
        run.metrics()


def test_fewer_metrics_than_the_checkpoint_has_epochs_are_an_error(run: Run) -> None:
    run.append_metrics(row(1))
    before = contents(run.folder)
    with pytest.raises(InputError, match=r"metrics\.jsonl: has 1 epochs, the checkpoint 2"):
        run.cut_metrics(2)
    assert contents(run.folder) == before


@pytest.mark.parametrize(
    "line",
    [
        b"{broken}\n",
        b"\xff\n",
        b"[]\n",
        b'{"seconds": {}}\n',
        b'{"epoch": 1, "seconds": -1}\n',
        b'{"epoch": 1, "seconds": {"other": -1}}\n',
        b'{"epoch": 1, "seconds": {}, "A": 1.5}\n',
        b'{"epoch": 1' + b"0" * 400 + b', "seconds": {}}\n',
        b'{"epoch": 1' + b"0" * 5000 + b', "seconds": {}}\n',
    ],
    ids=lambda line: repr(line[:30]),
)
def test_a_damaged_line_in_the_middle_is_named(run: Run, line: bytes) -> None:
    (run / "metrics.jsonl").write_bytes(line + json.dumps(row(2)).encode() + b"\n")
    with pytest.raises(InputError, match=r"metrics\.jsonl: damaged"):
        run.metrics()


# checkpoints


def test_no_checkpoint_is_none(run: Run) -> None:
    assert run.load_checkpoint() is None


def test_a_checkpoint_comes_back_and_needs_no_pickle(run: Run, state: dict[str, Any]) -> None:
    run.save_checkpoint(state)
    assert same(run.load_checkpoint(), state)
    assert torch.load(run / "checkpoint.pt", weights_only=True).keys() == {
        "schema",
        "sha256",
        "state",
    }
    assert contents(run.folder).keys() == {"checkpoint.pt"}


def test_the_checkpoint_before_is_kept(run: Run, state: dict[str, Any]) -> None:
    for epoch in range(3):
        run.save_checkpoint(state | {"epochs_done": epoch})
    loaded = run.load_checkpoint()
    assert loaded is not None and loaded["epochs_done"] == 2
    (run / "checkpoint.pt").unlink()  # as if killed between the two renames
    loaded = run.load_checkpoint()
    assert loaded is not None and loaded["epochs_done"] == 1
    run.save_checkpoint(state)
    assert same(run.load_checkpoint(), state)


@pytest.mark.parametrize("crash_at", [0, 1, 2])
def test_a_crash_while_saving_loses_no_checkpoint(
    run: Run, state: dict[str, Any], monkeypatch: pytest.MonkeyPatch, crash_at: int
) -> None:
    """At torch.save, at the first rename, at the second: the newest that was whole, or the one
    before, is found."""
    for epoch in (0, 1):
        run.save_checkpoint(state | {"epochs_done": epoch})
    replace, calls = os.replace, iter(range(1, 9))

    def crash(*arguments: Any) -> None:
        if crash_at == 0 or next(calls) == crash_at:
            raise KeyboardInterrupt
        replace(*arguments)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        if crash_at == 0:
            patch.setattr(proxnas.runs.checkpoint.torch, "save", crash)
        else:
            patch.setattr(proxnas.runs.folder.os, "replace", crash)
        run.save_checkpoint(state | {"epochs_done": 2})
    loaded = run.load_checkpoint()
    assert loaded is not None and loaded["epochs_done"] == 1


def test_a_flipped_byte_anywhere_is_found_or_harmless(run: Run, state: dict[str, Any]) -> None:
    """Bytes of the zip file that carry nothing (padding, dates) may change; what is loaded may
    not."""
    run.save_checkpoint(state)
    whole = (run / "checkpoint.pt").read_bytes()
    found = 0
    for place in range(0, len(whole), max(1, len(whole) // 700)):
        damaged = bytearray(whole)
        damaged[place] ^= 0x41
        (run / "checkpoint.pt").write_bytes(damaged)
        try:
            assert same(run.load_checkpoint(), state), f"byte {place} of {len(whole)}"
        except InputError as error:
            assert "checkpoint.pt: the checkpoint is damaged or truncated: use force" in str(error)
            found += 1
    assert found > 100


def test_every_flipped_byte_of_the_values_is_found(run: Run, state: dict[str, Any]) -> None:
    run.save_checkpoint(state)
    whole = (run / "checkpoint.pt").read_bytes()
    start = whole.index(state["weights"]["w"].numpy().tobytes())
    for place in range(start, start + 1200, 37):
        damaged = bytearray(whole)
        damaged[place] ^= 1
        (run / "checkpoint.pt").write_bytes(damaged)
        with pytest.raises(InputError, match="damaged or truncated"):
            run.load_checkpoint()


def test_a_truncated_checkpoint_is_found(run: Run, state: dict[str, Any]) -> None:
    run.save_checkpoint(state)
    whole = (run / "checkpoint.pt").read_bytes()
    for size in (0, 1, 10, len(whole) // 2, len(whole) - 1):
        (run / "checkpoint.pt").write_bytes(whole[:size])
        with pytest.raises(
            InputError, match=r"checkpoint\.pt: the checkpoint is damaged or truncated: use force"
        ):
            run.load_checkpoint()


@pytest.mark.parametrize("schema", [None, 0, 2, "1"])
def test_a_checkpoint_of_another_form_is_refused_and_kept(
    run: Run, state: dict[str, Any], schema: Any
) -> None:
    content = {"schema": schema, "sha256": checksum(schema, state), "state": state}
    if schema is None:  # as it was before it had a number
        del content["schema"]
    torch.save(content, run / "checkpoint.pt")
    before = (run / "checkpoint.pt").read_bytes()
    with pytest.raises(InputError, match=f"a checkpoint of schema {schema}, and this version"):
        run.load_checkpoint()
    assert (run / "checkpoint.pt").read_bytes() == before


@pytest.mark.parametrize("stored", [7, [], {"state": {}}, {"state": {"n": 1}, "sha256": "0"}])
def test_a_sound_file_that_is_no_checkpoint_is_refused(run: Run, stored: Any) -> None:
    torch.save(stored, run / "checkpoint.pt")
    with pytest.raises(InputError, match="damaged"):
        run.load_checkpoint()


def test_a_checkpoint_cannot_run_code(run: Run, tmp_path: Path) -> None:
    class Evil:
        def __reduce__(self) -> tuple[Any, ...]:
            return os.mkdir, (str(tmp_path / "hacked"),)

    torch.save({"state": Evil(), "sha256": ""}, run / "checkpoint.pt")
    with pytest.raises(InputError, match="damaged"):
        run.load_checkpoint()
    assert not (tmp_path / "hacked").exists()


@pytest.mark.parametrize("damage", [b"", b"junk", "torn", "flipped"])
def test_a_damaged_newest_is_set_aside_and_the_previous_used(
    run: Run, state: dict[str, Any], damage: bytes | str, capsys: Any
) -> None:
    for epoch in (0, 1):
        run.save_checkpoint(state | {"epochs_done": epoch})
    whole = (run / "checkpoint.pt").read_bytes()
    middle = whole.index(state["weights"]["w"].numpy().tobytes()) + 600
    flipped = whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :]
    content = (
        {"torn": whole[:-700], "flipped": flipped}[damage] if isinstance(damage, str) else damage
    )
    (run / "checkpoint.pt").write_bytes(content)
    loaded = run.load_checkpoint()
    assert loaded is not None and loaded["epochs_done"] == 0
    said = (
        f"proxnas: {run / 'checkpoint.pt'}: damaged or truncated, kept as checkpoint.damaged.pt:"
        " going on from"
    )
    assert capsys.readouterr().err == f"{said} checkpoint.previous.pt\n"
    assert (run / "checkpoint.damaged.pt").read_bytes() == content
    run.save_checkpoint(
        state | {"epochs_done": 2}
    )  # must not move the damaged one over the sound one
    (run / "checkpoint.pt").unlink()
    loaded = run.load_checkpoint()
    assert loaded is not None and loaded["epochs_done"] == 0


def test_two_damaged_checkpoints_are_an_error_that_changes_nothing(run: Run) -> None:
    for name in ("checkpoint.pt", "checkpoint.previous.pt"):
        (run / name).write_bytes(b"junk")
    before = contents(run.folder)
    with pytest.raises(
        InputError, match=r"damaged or truncated, and so is checkpoint\.previous\.pt: use force"
    ):
        run.load_checkpoint()
    assert contents(run.folder) == before


def test_a_damaged_previous_does_not_advise_its_own_use(run: Run) -> None:
    (run / "checkpoint.previous.pt").write_bytes(b"junk")
    with pytest.raises(InputError, match="use force"):
        run.load_checkpoint()


def test_digest_tells_values_apart() -> None:
    values: list[Any] = [
        {"a": 1},
        {"a": 1.0},
        {"a": "1"},
        {"b": 1},
        {"a": [1]},
        {"a": [[1]]},
        {"a": torch.zeros(2)},
        {"a": torch.zeros(2, 1)},
        {"a": torch.zeros(2, dtype=torch.int32)},
        {"a": torch.tensor([0.0, -0.0])},
        {"a": {"b": 1}, "c": 2},
        {"a": {"b": 1, "c": 2}},
    ]
    digests = [digest(value) for value in values]
    assert len(set(digests)) == len(values)
    assert digests == [digest(value) for value in values]


def test_digest_does_not_depend_on_memory_layout() -> None:
    x = torch.arange(24.0).reshape(1, 2, 3, 4)
    assert digest(x) == digest(x.contiguous(memory_format=torch.channels_last)) == digest(x.clone())
