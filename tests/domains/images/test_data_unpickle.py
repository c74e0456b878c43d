from __future__ import annotations

import io
import pickle
import pickletools
import struct
import sys
import time
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxnas.common.errors import InputError
from proxnas.domains.images.data.unpickle import LARGEST_FILE, read_pickle
from support.py2_pickle import Py2Pickle


def batch(n: int = 4) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    return {
        "batch_label": "training batch 1 of 5",
        "labels": [i % 10 for i in range(n)],
        "data": rng.integers(0, 256, (n, 12), dtype=np.uint8),
        "filenames": [f"leptodactylus_pentadactylus_s_{i:06}.png" for i in range(n)],
    }


def same(found: dict[str, Any], wanted: dict[str, Any]) -> None:
    assert found.keys() == wanted.keys()
    for key, value in wanted.items():
        if isinstance(value, np.ndarray):
            np.testing.assert_array_equal(found[key], value)
            assert found[key].dtype == value.dtype
        else:
            assert found[key] == value


def test_the_files_of_these_tests_begin_as_the_official_ones_do() -> None:
    """The first bytes of data_batch_1, and what Python's own reader makes of the rest."""
    written = Py2Pickle().dump(batch())
    assert written.startswith(
        b"\x80\x02}q\x01(U\x0bbatch_labelq\x02U\x15training batch 1 of"
        b" 5q\x03U\x06labelsq\x04]q\x05("
    )
    same(pickle.loads(written, encoding="latin1"), batch())
    names = {opcode.name for opcode, _, _ in pickletools.genops(written)}
    assert {"SHORT_BINSTRING", "BINSTRING", "GLOBAL", "REDUCE", "BUILD"} <= names


@pytest.mark.parametrize("n", [1, 4, 2500])
def test_a_pickle_of_python_2_is_read(n: int) -> None:
    same(read_pickle(Py2Pickle().dump(batch(n)), "x"), batch(n))


@pytest.mark.parametrize("dtype", ["|u1", "<i4", ">i4", "<f8", "|b1"])
def test_numbers_of_every_kind(dtype: str) -> None:
    array = np.arange(6).reshape(2, 3).astype(dtype)
    same(
        read_pickle(Py2Pickle().dump({"a": array, "n": [0, 255, 256, 70000, -1]}), "x"),
        {"a": array, "n": [0, 255, 256, 70000, -1]},
    )


@pytest.mark.parametrize("protocol", [0, 1, 2, 3, 4])
@pytest.mark.parametrize("keys", [str, str.encode])
@pytest.mark.parametrize("order", ["C", "F"])
def test_pickles_of_python_3_are_read_too(protocol: int, keys: Any, order: Any) -> None:
    wanted = batch() | {
        "float": 1.5,
        "none": None,
        "yes": True,
        "big": 2**80,
        "pair": (1, "two"),
        "é": "ü",
    }
    wanted["data"] = np.asarray(wanted["data"], order=order)
    if keys is str.encode:
        wanted.pop("é")
    stored = {keys(key): value for key, value in wanted.items()}
    same(read_pickle(pickle.dumps(stored, protocol=protocol), "x"), wanted)


def test_one_array_under_two_names() -> None:
    array = np.arange(5)
    found = read_pickle(pickle.dumps({"a": array, "b": array}, protocol=2), "x")
    np.testing.assert_array_equal(found["a"], found["b"])


# what must not run


class Call:
    """Pickles as a call of whatever is given."""

    def __init__(self, function: Any, *arguments: Any) -> None:
        self.call = function, arguments

    def __reduce__(self) -> Any:
        return self.call


class WithState:
    def __reduce__(self) -> Any:
        return (np.ndarray, ((2,),), {"__class__": int})


def touching(path: Path) -> dict[str, bytes]:
    """Pickles that would make a file if anything of them ran."""
    quoted = repr(str(path)).encode()
    touch = f"touch {path}".encode()
    code = b"open(" + quoted + b", 'w').close()"
    short = b"U" + bytes([len(touch)]) + touch
    array = b"cnumpy.core.multiarray\n_reconstruct\n"
    return {
        "system": b"\x80\x02cos\nsystem\n" + short + b"\x85R.",
        "system, protocol 0": b"cos\nsystem\n(S'" + touch + b"'\ntR.",
        "system, protocol 4": (
            b"\x80\x04\x8c\x02os\x8c\x06system\x93\x8c" + bytes([len(touch)]) + touch + b"\x85R."
        ),
        "posix": b"\x80\x02cposix\nsystem\n" + short + b"\x85R.",
        "eval": b"\x80\x02c__builtin__\neval\nU" + bytes([len(code)]) + code + b"\x85R.",
        "exec": pickle.dumps({"data": Call(exec, code.decode())}, protocol=2),
        "open": pickle.dumps({"data": Call(open, str(path), "w")}, protocol=2),
        "open, protocol 5": pickle.dumps({"data": Call(open, str(path), "w")}, protocol=5),
        "inst": b"(S'" + touch + b"'\nios\nsystem\n.",
        "obj": b"(cos\nsystem\n" + short + b"o.",
        "newobj": b"\x80\x02cos\nsystem\n" + short + b"\x85\x81.",
        "newobj_ex": (
            b"\x80\x04\x8c\x02os\x8c\x06system\x93\x8c"
            + bytes([len(touch)])
            + touch
            + b"\x85}\x92."
        ),
        "persid": b"Pos.system\n.",
        "binpersid": short + b"Q.",
        "ext1": b"\x82\x01.",
        "ext4": b"\x84\x01\x00\x00\x00.",
        "attribute of numpy": b"\x80\x02cnumpy.core.multiarray\n_reconstruct.__globals__\n.",
        "dotted name": b"\x80\x04\x8c\x05numpy\x8c\x10ndarray.__init__\x93.",
        "numpy's own loader": b"\x80\x02cnumpy\nload\n" + short + b"\x85R.",
        "numpy's runner": (
            b"\x80\x02cnumpy.testing._private.utils\nrunstring\n" + short + b"}\x86R."
        ),
        "another class to reconstruct": (
            b"\x80\x02" + array + b"csubprocess\nPopen\nK\x00\x85U\x01b\x87R."
        ),
        "a codec that runs code": b"\x80\x02c_codecs\nencode\n" + short + b"U\x03zip\x86R.",
        "a codec of another kind": b"\x80\x02c_codecs\ndecode\n" + short + b"U\x05utf-7\x86R.",
        "calling a string": b"\x80\x02" + short + b")R.",
        "calling a built array": b"\x80\x02" + array + b"cnumpy\nndarray\nK\x00\x85U\x01b\x87R)R.",
        "calling without a tuple": b"\x80\x02" + array + b"]R.",
        "state of a list": b"\x80\x02]}b.",
        "state of a name": b"\x80\x02cnumpy\nndarray\n}U\x08__init__K\x01sb.",
        "state of a dict": b"\x80\x02}(U\x09__class__K\x01tb.",
        "objects": pickle.dumps(
            {"data": np.array([Call(open, str(path), "w"), 1], dtype=object)}, protocol=2
        ),
        "records": pickle.dumps({"data": np.zeros(2, dtype=[("a", "u1")])}, protocol=2),
        "dates": pickle.dumps({"data": np.zeros(2, dtype="M8[s]")}, protocol=2),
        "a class with state": pickle.dumps({"data": WithState()}, protocol=2),
        "out-of-band buffers": b"\x80\x05\x97.",
        "no dict": pickle.dumps([1, 2], protocol=2),
        "keys of another kind": pickle.dumps({1: 2}, protocol=2),
        "keys of tuples": pickle.dumps({("a",): 2}, protocol=2),
    }


@pytest.mark.parametrize("case", touching(Path("/tmp/x")))
def test_what_is_not_data_is_refused_and_does_not_run(case: str, tmp_path: Path) -> None:
    canary = tmp_path / "canary"
    with pytest.raises(InputError) as caught:
        read_pickle(touching(canary)[case], "some/data_batch_1")
    assert str(caught.value).startswith("some/data_batch_1: refused: ") and "\n" not in str(
        caught.value
    )
    assert not canary.exists()


def test_these_pickles_would_run_in_python_itself(tmp_path: Path) -> None:
    """Else the test above would show nothing."""
    for case in (
        "system",
        "system, protocol 0",
        "system, protocol 4",
        "eval",
        "open",
        "inst",
        "obj",
    ):
        canary = tmp_path / case.replace(" ", "-").replace(",", "")
        made = pickle.loads(touching(canary)[case])
        if isinstance(made, dict):
            made["data"].close()
        assert canary.exists(), case


def test_nothing_is_imported_for_a_name() -> None:
    for name in (b"antigravity\nfly\n", b"this\ns\n"):
        with pytest.raises(InputError, match="refused"):
            read_pickle(b"\x80\x02c" + name + b".", "x")
    assert "antigravity" not in sys.modules and "this" not in sys.modules


# what must not fill the memory or take for ever


def array_state(shape: bytes, content: bytes) -> bytes:
    return (
        b"\x80\x02}U\x01acnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R(K\x01"
        + shape
        + b"cnumpy\ndtype\nU\x02u1K\x00K\x01\x87R("
        b"K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb\x89U"
        + bytes([len(content)])
        + content
        + b"tbs."
    )


@pytest.mark.parametrize(
    "shape",
    [
        b"J\xff\xff\xff\x7f\x85",
        b"J\xff\xff\xff\x7fJ\xff\xff\xff\x7f\x86",
        b"J\xff\xff\xff\xff\x85",
        b"K\x00\x8a\x20" + b"\xff" * 31 + b"\x7f\x86",
        b"K\x02K\x04\x86",
        b"K\x01\x85",
        b")",
        b"N",
        b"(" + b"K\x01" * 70 + b"K\x03t",
        b"U\x013\x85",
        b"G@\x08\x00\x00\x00\x00\x00\x00\x85",
    ],
)
def test_absurd_shapes(shape: bytes) -> None:
    read_pickle(array_state(b"K\x03\x85", b"abc"), "x")
    with pytest.raises(InputError, match="refused: an array"):
        read_pickle(array_state(shape, b"abc"), "x")


def nested(depth: int, link: bytes) -> bytes:
    """Tuples (or lists) of twice the one before: 2^depth entries in a few bytes each."""
    return b"\x80\x02)q\x00" + b"".join(b"h\x00h\x00" + link + b"q\x00" for _ in range(depth))


def bombs() -> dict[str, bytes]:
    text = b"x" * 100_000
    encoded = b"h\x01h\x00X\x06\x00\x00\x00latin1\x86R"
    stored = b"X" + struct.pack("<I", len(text)) + text + b"q\x00"
    raw = b"T" + struct.pack("<I", len(text)) + text + b"q\x00"
    state = b"K\x01J" + struct.pack("<i", len(text)) + b"\x85h\x03\x89h\x00"
    array = b"h\x01cnumpy\nndarray\nK\x00\x85U\x01b\x87R(" + state + b"tb"
    dtype = (
        b"cnumpy\ndtype\nU\x02u1K\x00K\x01\x87R("
        b"K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tbq\x03"
    )
    return {
        "a string encoded again and again": (
            b"\x80\x02" + stored + b"c_codecs\nencode\nq\x01](" + encoded * 20_000 + b"e."
        ),
        "an array built again and again": (
            b"\x80\x02"
            + raw
            + b"cnumpy.core.multiarray\n_reconstruct\nq\x01"
            + dtype
            + b"]("
            + array * 20_000
            + b"e."
        ),
        "a key of nested tuples": nested(200, b"\x86") + b"}h\x00K\x01s.",
        "nested lists": b"\x80\x02]q\x00" + b"](h\x00h\x00eq\x00" * 10_000 + b".",
        "nested tuples": b"\x80\x02)" + b"\x85" * 100_000 + b".",
        "a list in itself": b"\x80\x02]q\x00h\x00a.",
        "a great memo number": b"\x80\x02]r\xff\xff\xff\xff.",
        "marks": b"\x80\x02" + b"(" * 100_000 + b".",
        "a string longer than the file": b"\x80\x02T\xff\xff\xff\x7fabc.",
        "bytes longer than the file": b"\x80\x04\x8e" + b"\xff" * 7 + b"\x7fabc.",
        "a frame longer than the file": b"\x80\x04\x95" + b"\xff" * 7 + b"\x7f).",
        "a long number in words": b"I" + b"9" * 100_000 + b"\n.",
        "a long number": b"\x80\x02\x8b\xff\xff\xff\x7f\x01.",
    }


@pytest.mark.parametrize("case", bombs())
def test_bombs_do_not_go_off(case: str) -> None:
    content = bombs()[case]
    tracemalloc.start()
    start = time.perf_counter()
    try:
        with pytest.raises(InputError):
            read_pickle(content, "x")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert time.perf_counter() - start < 60
    assert peak < 100 * len(content) + 2**20


def test_a_file_beyond_all_sizes_is_refused_unread() -> None:
    class Huge(bytes):
        def __len__(self) -> int:
            return LARGEST_FILE + 1

    with pytest.raises(InputError, match="too many for a CIFAR file"):
        read_pickle(Huge(b"."), "x")


# damage


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_a_damaged_pickle_is_read_or_refused(data: st.DataObject) -> None:
    content = bytearray(Py2Pickle().dump(batch()))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(content) - 1))
        content[at : at + data.draw(st.integers(0, 2))] = data.draw(st.binary(max_size=3))
    try:
        read_pickle(bytes(content), "x")
    except InputError as error:
        assert "\n" not in str(error) and str(error).startswith("x: ")


CODES = [opcode.code.encode("latin-1") for opcode in pickletools.opcodes]
PIECES = [
    *CODES,
    b"cnumpy\nndarray\n",
    b"cnumpy\ndtype\n",
    b"cnumpy.core.multiarray\n_reconstruct\n",
    b"c_codecs\nencode\n",
    b"K\x01",
    b"U\x02u1",
    b"U\x06latin1",
    b"q\x00",
    b"h\x00",
]


@settings(max_examples=500, deadline=None)
@given(st.lists(st.sampled_from(PIECES) | st.binary(max_size=3), max_size=40))
def test_random_programs_are_read_or_refused(pieces: list[bytes]) -> None:
    try:
        assert isinstance(read_pickle(b"".join(pieces) + b".", "x"), dict)
    except InputError as error:
        assert "\n" not in str(error)


def test_every_truncation_is_refused() -> None:
    content = Py2Pickle().dump(batch(2))
    for end in range(len(content)):
        with pytest.raises(InputError, match=r"not a readable pickle|refused"):
            read_pickle(content[:end], "x")
    with pytest.raises(InputError, match="it is empty"):
        read_pickle(io.BytesIO().getvalue(), "x")
