"""A reader of pickles that can only make numpy arrays, bytes, strings, numbers, lists, tuples and
dicts.

A pickle is a program. Here it runs on a machine of our own, which knows no classes and calls
nothing by name: the three functions that a pickled array names (`_reconstruct`, `ndarray`, `dtype`)
and the one that Python 3 writes bytes with (`encode`) are played by code below, everything else is
refused. What is made never takes more than a few times the bytes of the file: strings and arrays
are cut out of it, and arrays may not claim more.
"""

from __future__ import annotations

import math
import pickletools
from collections.abc import Callable
from typing import Any

import numpy as np

from proxnas.common.errors import InputError, in_one_line
from proxnas.common.seeds import Array

LARGEST_FILE = 2**30  # bytes; the largest file of CIFAR has 155 million
NAMES = {
    ("numpy.core.multiarray", "_reconstruct"): "array",
    ("numpy._core.multiarray", "_reconstruct"): "array",
    ("numpy", "ndarray"): "ndarray",
    ("numpy", "dtype"): "dtype",
    ("_codecs", "encode"): "encode",
}
DTYPES = ("b1", "u1", "u2", "u4", "u8", "i1", "i2", "i4", "i8", "f4", "f8")
PUSHED = {
    "INT",
    "BININT",
    "BININT1",
    "BININT2",
    "LONG",
    "LONG1",
    "LONG4",
    "FLOAT",
    "BINFLOAT",
    "STRING",
    "BINSTRING",
    "SHORT_BINSTRING",
    "BINBYTES",
    "SHORT_BINBYTES",
    "BINBYTES8",
    "UNICODE",
    "BINUNICODE",
    "SHORT_BINUNICODE",
    "BINUNICODE8",
}
CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
MADE: dict[str, Callable[[], Any]] = {"EMPTY_LIST": list, "EMPTY_DICT": dict, "EMPTY_TUPLE": tuple}
IGNORED = {"PROTO", "FRAME", "STOP"}
MARK = object()


class Refused(Exception):
    """The pickle asks for what is not admitted."""


class _Name:
    """An admitted function or class, as a word only."""

    def __init__(self, word: str) -> None:
        self.word = word


class _Built:
    """An array or a dtype that the pickle makes empty and fills later."""

    def __init__(self, kind: str, value: Any = None) -> None:
        self.kind, self.value = kind, value


def read_pickle(content: bytes, where: str) -> dict[str, Any]:
    """The dict in a pickle, its keys as strings; errors begin with `where`."""
    if len(content) > LARGEST_FILE:
        raise InputError(
            f"{where}: {len(content)} bytes are too many for a CIFAR file: give the official one"
        )
    try:
        stored = _Machine(len(content)).run(content)
        if not isinstance(stored, dict):
            raise Refused("it holds no dict")
        found = {}
        for key, value in stored.items():
            found[_text(key)] = value.value if isinstance(value, _Built) else value
        return found
    except Refused as error:
        raise InputError(
            f"{where}: refused: {error}: give a file of the official CIFAR archive"
        ) from error
    except Exception as error:  # damaged pickles raise nearly every kind
        why = in_one_line(error) if content else "it is empty"
        raise InputError(
            f"{where}: not a readable pickle ({why}): extract the archive again"
        ) from error


class _Machine:
    """The stack and the memo of one pickle."""

    def __init__(self, budget: int) -> None:
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}
        # bytes that `encode` may still make: a memoised string could be encoded over and over
        self.budget = budget

    def run(self, content: bytes) -> Any:
        """What the pickle leaves on the stack."""
        for opcode, argument, _ in pickletools.genops(content):
            name = opcode.name
            if name in PUSHED:
                self.stack.append(argument)
            elif name in CONSTANTS:
                self.stack.append(CONSTANTS[name])
            elif name in MADE:
                self.stack.append(MADE[name]())
            elif name not in IGNORED:
                step = STEPS.get(name)
                if step is None:
                    raise Refused(f"a pickle with the instruction {name}")
                step(self, argument)
        return self.stack.pop()

    def since_mark(self) -> list[Any]:
        """Takes everything above the last mark off the stack, and the mark."""
        # by identity: what the pickle has made is never asked whether it is equal to something
        at = len(self.stack) - 1
        while at >= 0 and self.stack[at] is not MARK:
            at -= 1
        if at < 0:
            raise Refused("a pickle without a mark")
        items = self.stack[at + 1 :]
        del self.stack[at:]
        return items

    def put(self, number: int | None) -> None:
        self.memo[len(self.memo) if number is None else number] = self.stack[-1]

    def take(self, count: int) -> None:
        """The top of the stack as a tuple."""
        if count > len(self.stack):
            raise Refused("a pickle whose stack is too short")
        items = tuple(self.stack[-count:])
        del self.stack[-count:]
        self.stack.append(items)

    def append(self, items: list[Any]) -> None:
        if type(self.stack[-1]) is not list:
            raise Refused("a pickle that appends to what is no list")
        self.stack[-1].extend(items)

    def set_items(self, items: list[Any]) -> None:
        if type(self.stack[-1]) is not dict:
            raise Refused("a pickle that sets items of what is no dict")
        self.stack[-1].update(_pairs(items))

    def name(self, module: Any, name: Any) -> None:
        if not (isinstance(module, str) and isinstance(name, str)) or (module, name) not in NAMES:
            raise Refused(
                f"a pickle that names {str(module)[:60]!r}.{str(name)[:60]!r}, which is none of"
                " numpy's arrays"
            )
        self.stack.append(_Name(NAMES[module, name]))

    def stack_name(self) -> None:
        name, module = self.stack.pop(), self.stack.pop()
        self.name(
            module if isinstance(module, str) else None, name if isinstance(name, str) else None
        )

    def call(self) -> None:
        """An admitted function with its arguments, played here."""
        # REDUCE: the function lies below its arguments
        arguments, function = self.stack.pop(), self.stack.pop()
        if not isinstance(function, _Name) or type(arguments) is not tuple:
            raise Refused("a pickle that calls what is no function of numpy's arrays")
        if function.word == "array":
            self.stack.append(_Built("array"))
        elif function.word == "dtype" and arguments and _text(arguments[0]) in DTYPES:
            self.stack.append(_Built("dtype", np.dtype(_text(arguments[0]))))
        elif (
            function.word == "encode"
            and len(arguments) == 2
            and _text(arguments[1]) in ("latin1", "latin-1")
        ):
            self.stack.append(self._encoded(arguments[0]))
        else:
            raise Refused(f"a pickle that calls {function.word} with strange arguments")

    def _encoded(self, text: Any) -> bytes:
        encoded = _text(text).encode("latin-1")
        self.budget -= len(encoded)
        if self.budget < 0:
            raise Refused("a pickle that would grow beyond its size")
        return encoded

    def build(self) -> None:
        state, target = self.stack.pop(), self.stack[-1]
        if not isinstance(target, _Built) or type(state) is not tuple:
            raise Refused("a pickle that sets the state of what is no array")
        target.value = self._array(state) if target.kind == "array" else _dtype(target.value, state)

    def _array(self, state: tuple[Any, ...]) -> Array:
        """ndarray.__setstate__((version, shape, dtype, in Fortran's order, bytes)), with everything
        checked."""
        _, shape, dtype, fortran, raw = state
        if not isinstance(dtype, _Built) or dtype.kind != "dtype" or type(shape) is not tuple:
            raise Refused("an array without dtype or shape")
        # Python 2 wrote the bytes of an array as a string, one letter a byte
        content = raw if isinstance(raw, bytes) else self._encoded(raw)
        sides = [side for side in shape if type(side) is int and 0 < side <= len(content)]
        if not 0 < len(shape) <= 4 or len(sides) != len(shape):
            raise Refused("an array of an impossible shape")
        # the array is a view of bytes that are there: it cannot be larger than the file
        if math.prod(sides) * dtype.value.itemsize != len(content):
            raise Refused(f"an array of shape {tuple(sides)} with {len(content)} bytes")
        return np.frombuffer(content, dtype.value).reshape(
            sides, order="F" if fortran is True else "C"
        )


def _dtype(dtype: Any, state: tuple[Any, ...]) -> np.dtype[Any]:
    """dtype.__setstate__((version, byte order, None, ...)) of a plain number."""
    if (
        len(state) < 8
        or any(entry is not None for entry in state[2:5])
        or _text(state[1]) not in ("|", "<", ">", "=")
    ):
        raise Refused("an array of what is not plain numbers")
    plain: np.dtype[Any] = dtype.newbyteorder(_text(state[1]))
    return plain


def _text(value: Any) -> str:
    """A string; those of Python 2 come as bytes of any kind."""
    if isinstance(value, bytes):
        return value.decode("latin-1")
    if not isinstance(value, str):
        raise Refused("a pickle with something else in place of a string")
    return value


def _pairs(items: list[Any]) -> dict[str | bytes, Any]:
    # no other keys: the hash of nested tuples could take for ever
    if len(items) % 2 or any(type(key) not in (str, bytes) for key in items[::2]):
        raise Refused("a pickle with a dict whose keys are no strings")
    return dict(zip(items[::2], items[1::2], strict=True))


STEPS: dict[str, Callable[[_Machine, Any], Any]] = {
    "MARK": lambda m, _: m.stack.append(MARK),
    "POP": lambda m, _: m.stack.pop(),
    "POP_MARK": lambda m, _: m.since_mark(),
    **dict.fromkeys(("PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE"), lambda m, number: m.put(number)),
    **dict.fromkeys(
        ("GET", "BINGET", "LONG_BINGET"), lambda m, number: m.stack.append(m.memo[number])
    ),
    "TUPLE": lambda m, _: m.stack.append(tuple(m.since_mark())),
    "TUPLE1": lambda m, _: m.take(1),
    "TUPLE2": lambda m, _: m.take(2),
    "TUPLE3": lambda m, _: m.take(3),
    "LIST": lambda m, _: m.stack.append(m.since_mark()),
    "DICT": lambda m, _: m.stack.append(_pairs(m.since_mark())),
    "APPEND": lambda m, _: m.append([m.stack.pop()]),
    "APPENDS": lambda m, _: m.append(m.since_mark()),
    "SETITEM": lambda m, _: m.set_items([m.stack.pop(-2), m.stack.pop()]),
    "SETITEMS": lambda m, _: m.set_items(m.since_mark()),
    "GLOBAL": lambda m, names: m.name(*names.split(" ", 1)),
    "STACK_GLOBAL": lambda m, _: m.stack_name(),
    "REDUCE": lambda m, _: m.call(),
    "BUILD": lambda m, _: m.build(),
}
