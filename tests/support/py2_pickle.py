"""Writes pickles byte by byte as Python 2's cPickle wrote those of CIFAR: protocol 2, strings of
bytes, memo from 1."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np


class Py2Pickle:
    """One pickle; `Py2Pickle().dump(value)` returns its bytes."""

    def __init__(self) -> None:
        self.memo: dict[Any, int] = {}
        self.out = b""

    def dump(self, value: Any) -> bytes:
        self.out = b"\x80\x02"
        self.save(value)
        return self.out + b"."

    def put(self, key: Any = None) -> None:
        number = len(self.memo) + 1
        self.memo[key if key is not None else object()] = number
        self.out += b"q" + bytes([number]) if number < 256 else b"r" + struct.pack("<I", number)

    def save(self, value: Any) -> None:
        if isinstance(value, dict):
            self.out += b"}"
            self.put()
            self.out += b"("
            for key, entry in value.items():
                self.save(key)
                self.save(entry)
            self.out += b"u"
        elif isinstance(value, list):
            self.out += b"]"
            self.put()
            for begin in range(0, len(value), 1000):  # cPickle's batches
                self.out += b"("
                for entry in value[begin : begin + 1000]:
                    self.save(entry)
                self.out += b"e"
        elif isinstance(value, int):
            self.integer(value)
        elif isinstance(value, np.ndarray):
            self.array(value)
        else:
            self.string(value if isinstance(value, bytes) else value.encode("latin-1"))

    def integer(self, value: int) -> None:
        if 0 <= value < 256:
            self.out += b"K" + bytes([value])
        elif 0 <= value < 65536:
            self.out += b"M" + struct.pack("<H", value)
        else:
            self.out += b"J" + struct.pack("<i", value)

    def string(self, value: bytes) -> None:
        self.out += (
            b"U" + bytes([len(value)]) + value
            if len(value) < 256
            else b"T" + struct.pack("<i", len(value)) + value
        )
        self.put()

    def array(self, value: np.ndarray[Any, Any]) -> None:
        """(version, shape, dtype, in Fortran's order, bytes) as the state of _reconstruct(ndarray,
        (0,), 'b')."""
        for name in (b"numpy.core.multiarray\n_reconstruct\n", b"numpy\nndarray\n"):
            self.out += b"c" + name
            self.put(name)
        self.out += b"K\x00\x85U\x01b\x87R"
        self.put()
        self.out += b"(K\x01"
        for side in value.shape:
            self.integer(side)
        self.out += {1: b"\x85", 2: b"\x86", 3: b"\x87"}[value.ndim]
        self.out += b"cnumpy\ndtype\nU\x02" + value.dtype.str[1:].encode() + b"K\x00K\x01\x87R"
        self.put()
        order = value.dtype.str[:1].encode()
        self.out += b"(K\x03U\x01" + order + b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb\x89"
        raw = value.tobytes()
        self.out += b"T" + struct.pack("<i", len(raw)) + raw + b"tb"
