# ruff: noqa: S311  reproducible on purpose
"""Hostile bodies for whatever parses a lock record."""

from __future__ import annotations

import json
from random import Random
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MAX_BODY: Final = 64 * 1024
_RECORD: Final[dict[str, Any]] = {
    "expired": False,
    "validUntil": 1_700_000_000_000,
    "owner": "3f1c0000-0000-4000-8000-000000000001",
    "nonce": "0123456789abcdef0123456789abcdef",
    "epoch": 1_700_000_000_000_000,
    "leaseMs": 300_000,
    "holder": "host:12:job",
}
_VALUES: Final[tuple[str, ...]] = (
    "null",
    "true",
    '"false"',
    "NaN",
    "Infinity",
    "-Infinity",
    "1e400",
    "-1",
    "-0",
    "0.5",
    "9007199254740992",
    "9" * 5000,
    "-" + "9" * 5000,
    "1" + "0" * 17,
    '""',
    '"\\ud800"',
    '"\\u0000\\u001b[31m\\r\\n"',
    '"' + "x" * 2000 + '"',
    "[]",
    "{}",
    "[" * 3000 + "]" * 3000,
    '{"expired":false,"expired":true}',
)


def bodies(*, seed: int, count: int) -> Iterator[bytes]:
    """Yield ``count`` bodies: real records, spoiled ones, and bytes that were never any.

    Args:
        seed: The same seed yields the same bodies.
        count: How many.
    """
    rng = Random(seed)
    for _ in range(count):
        yield rng.choice(_MAKERS)(rng)


def _record(rng: Random) -> bytes:
    fields = dict(_RECORD)
    if rng.random() < 0.3:  # noqa: PLR2004  a third
        for name in ("nonce", "epoch", "leaseMs", "holder"):
            del fields[name]
    fields["expired"] = rng.random() < 0.5  # noqa: PLR2004  a fair coin
    fields["validUntil"] += rng.randrange(-(10**10), 10**10)
    return json.dumps(fields, separators=rng.choice(((",", ":"), (", ", ": ")))).encode()


def _wrong_value(rng: Random) -> bytes:
    name = rng.choice(list(_RECORD))
    parts = [f'"{key}":{json.dumps(value)}' for key, value in _RECORD.items() if key != name]
    parts.insert(rng.randrange(len(parts) + 1), f'"{name}":{rng.choice(_VALUES)}')
    return ("{" + ",".join(parts) + "}").encode()


def _duplicate(rng: Random) -> bytes:
    body = _record(rng)
    name = rng.choice(list(_RECORD)).encode()
    return body[:-1] + b',"' + name + b'":' + rng.choice((b"0", b"true", b'"x"')) + b"}"


def _missing(rng: Random) -> bytes:
    fields = dict(_RECORD)
    for name in rng.sample(list(fields), rng.randint(1, 3)):
        del fields[name]
    return json.dumps(fields).encode()


def _extra(rng: Random) -> bytes:
    return _record(rng)[:-1] + b',"extra":' + rng.choice(_VALUES).encode() + b"}"


def _mutated(rng: Random) -> bytes:
    body = bytearray(_record(rng))
    for _ in range(rng.randint(1, 4)):
        body[rng.randrange(len(body))] = rng.randrange(256)
    return bytes(body)


def _cut(rng: Random) -> bytes:
    body = _record(rng)
    return body[: rng.randrange(len(body))]


def _spliced(rng: Random) -> bytes:
    one, other = _wrong_value(rng), _record(rng)
    return one[: rng.randrange(len(one))] + other[rng.randrange(len(other)) :]


def _noise(rng: Random) -> bytes:
    return rng.randbytes(rng.randrange(200))


def _deep(rng: Random) -> bytes:
    depth = rng.choice((10, 500, 5000, 30_000))
    opening, closing = rng.choice(((b"[", b"]"), (b'{"a":', b"}")))
    return (opening * depth + b"1" + closing * depth)[: MAX_BODY + 1]


def _large(rng: Random) -> bytes:
    padding = b" " * rng.choice((MAX_BODY - 400, MAX_BODY, MAX_BODY + 1))
    return padding + _record(rng)


def _digits(rng: Random) -> bytes:
    return b'{"validUntil":' + b"9" * rng.choice((17, 18, 5000, 60_000)) + b"}"


def _encoding(rng: Random) -> bytes:
    text = _record(rng).decode()
    return text.encode(rng.choice(("utf-16", "utf-32", "utf-8-sig", "utf-7")))


_COMMON: Final[tuple[Callable[[Random], bytes], ...]] = (
    _record,
    _wrong_value,
    _duplicate,
    _missing,
    _extra,
    _mutated,
    _cut,
    _spliced,
    _noise,
    _encoding,
)
_RARE: Final[tuple[Callable[[Random], bytes], ...]] = (_deep, _large, _digits)
_MAKERS: Final = _COMMON * 8 + _RARE
