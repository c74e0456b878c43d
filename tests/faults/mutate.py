"""Ways to spoil a file: bits, numbers, pieces, and the values of JSON."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from typing import Any

EXTREMES = [bytes([b]) for b in (0, 1, 0x7F, 0x80, 0xFF)] + [
    n.to_bytes(size, order, signed=True)
    for n in (-1, -(2**31), 2**31 - 1, 65535, 0)
    for size in (4, 8)
    for order in ("little", "big")
]
VALUES: list[Any] = [
    None,
    True,
    0,
    -1,
    2**31,
    10**400,
    -(10**400),
    1e308,
    "",
    "x" * 1000,
    "\u202e\x00",
    "../../x",
    [],
    {},
    [[]],
    "NaN",
    0.1,
    "zoo:darts_v2",
    [None] * 50,
    {"a": {"b": []}},
]


def mutated(content: bytes, draw: random.Random, others: Sequence[bytes]) -> bytes:
    """The content spoilt in one to four ways."""
    for _ in range(draw.choice((1, 1, 1, 2, 4))):
        content = draw.choice(WAYS)(content, draw, others)
    return content


def _flipped(content: bytes, draw: random.Random, others: Sequence[bytes]) -> bytes:
    spoilt = bytearray(content or b"\0")
    for _ in range(draw.choice((1, 1, 2, 8, 64))):
        spoilt[draw.randrange(len(spoilt))] ^= 1 << draw.randrange(8)
    return bytes(spoilt)


def _extreme(content: bytes, draw: random.Random, others: Sequence[bytes]) -> bytes:
    number, at = draw.choice(EXTREMES), draw.randrange(len(content) + 1)
    return content[:at] + number + content[at + len(number) :]


def _head(content: bytes, draw: random.Random, others: Sequence[bytes]) -> bytes:
    """Where the formats keep their sizes."""
    number, at = draw.choice(EXTREMES), draw.randrange(min(len(content), 300) + 1)
    return content[:at] + number + content[at + len(number) :]


def _cut(content: bytes, draw: random.Random, others: Sequence[bytes]) -> bytes:
    return content[: draw.randrange(len(content) + 1)]


def _without(content: bytes, draw: random.Random, others: Sequence[bytes]) -> bytes:
    a, b = sorted(draw.randrange(len(content) + 1) for _ in range(2))
    return content[:a] + content[b:]


def _twice(content: bytes, draw: random.Random, others: Sequence[bytes]) -> bytes:
    a, b = sorted(draw.randrange(len(content) + 1) for _ in range(2))
    return (content[:b] + content[a:b] * draw.choice((1, 2, 20)) + content[b:])[:500_000]


def _noise(content: bytes, draw: random.Random, others: Sequence[bytes]) -> bytes:
    a = draw.randrange(len(content) + 1)
    return content[:a] + draw.randbytes(draw.choice((1, 8, 200))) + content[a:]


def _spliced(content: bytes, draw: random.Random, others: Sequence[bytes]) -> bytes:
    other = draw.choice(others)
    return (content[: draw.randrange(len(content) + 1)] + other[draw.randrange(len(other) + 1) :])[
        :500_000
    ]


def _value(content: bytes, draw: random.Random, others: Sequence[bytes]) -> bytes:
    """JSON with another value somewhere in it; other content is flipped."""
    try:
        value = json.loads(content)
    except (ValueError, RecursionError):
        return _flipped(content, draw, others)
    holders = [holder for holder in _holders(value) if holder]
    if not holders:
        return json.dumps(draw.choice(VALUES)).encode()
    holder = draw.choice(holders)
    key = draw.choice(list(holder) if isinstance(holder, dict) else range(len(holder)))
    if draw.random() < 0.2:
        del holder[key]
    elif draw.random() < 0.1:
        return json.dumps(value).replace(json.dumps(holder), "[" * 5000, 1).encode()
    else:
        holder[key] = draw.choice(VALUES)
    return json.dumps(value).encode()


def _holders(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return [value, *(found for item in value.values() for found in _holders(item))]
    if isinstance(value, list):
        return [value, *(found for item in value for found in _holders(item))]
    return []


WAYS: list[Callable[[bytes, random.Random, Sequence[bytes]], bytes]] = [
    _flipped,
    _extreme,
    _head,
    _cut,
    _without,
    _twice,
    _noise,
    _spliced,
    _value,
    _value,
]
