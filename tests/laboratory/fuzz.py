# ruff: noqa: T201  a command that prints
"""Hostile bodies for whatever parses a lock record, and the parser under them.

``python -m tests.laboratory fuzz --inputs 1000000`` runs seeded inputs on all cores.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import tracemalloc
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Any, Final

from asynclock._core.record import parse_record
from asynclock.errors import RecordCorruptError
from tests.laboratory.cores import spread

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

MAX_BODY: Final = 64 * 1024
MOST_BYTES: Final = 1024 * 1024
"""The parser takes no more at its peak, whatever it is given."""
MOST_SECONDS: Final = 1.0
"""Of processor time for one input; more is a hang."""
MEASURE_EVERY: Final = 100
"""One input in this many has its memory measured, which takes longer than to parse it."""
PER_SEED: Final = 50_000
_STORE_TIME: Final = 1_700_000_000.0
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
    if rng.random() < 0.3:
        for name in ("nonce", "epoch", "leaseMs", "holder"):
            del fields[name]
    fields["expired"] = rng.random() < 0.5
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


@dataclass(slots=True)
class FuzzResult:
    """What the parser made of many inputs.

    Attributes:
        inputs: How many.
        records: Those that were taken for records; the others were found corrupt.
        measured: Those whose memory was measured.
        peak: The most bytes that one of these took.
        slowest: The most seconds of processor time that one took.
        failures: One text for each input that broke a promise.
    """

    inputs: int = 0
    records: int = 0
    measured: int = 0
    peak: int = 0
    slowest: float = 0.0
    failures: list[str] = field(default_factory=list)

    def merge(self, other: FuzzResult) -> None:
        """Take in what another process ran."""
        self.inputs += other.inputs
        self.records += other.records
        self.measured += other.measured
        self.peak = max(self.peak, other.peak)
        self.slowest = max(self.slowest, other.slowest)
        self.failures += other.failures


def run_fuzz(*, seed: int, count: int, measure_every: int = MEASURE_EVERY) -> FuzzResult:
    """Parse ``count`` seeded inputs.

    Each must give a record or ``RecordCorruptError`` with a printable text, within
    ``MOST_SECONDS`` and, where it is measured, ``MOST_BYTES``.

    Args:
        seed: The same seed gives the same inputs.
        count: How many.
        measure_every: Measure the memory of one input in this many.
    """
    result = FuzzResult()
    for number, body in enumerate(bodies(seed=seed, count=count)):
        measured = number % measure_every == 0
        problem = _measured(body, result) if measured else _timed(body, result)
        result.inputs += 1
        if problem is not None:
            result.failures.append(f"input {number} of seed {seed}: {problem}: {body[:200]!r}")
    return result


def _timed(body: bytes, result: FuzzResult) -> str | None:
    began = time.thread_time()
    problem = _parsed(body, result)
    took = time.thread_time() - began
    result.slowest = max(result.slowest, took)
    return problem or (f"took {took:.1f} s" if took > MOST_SECONDS else None)


def _measured(body: bytes, result: FuzzResult) -> str | None:
    tracemalloc.start()
    try:
        problem = _parsed(body, result)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    result.measured += 1
    result.peak = max(result.peak, peak)
    return problem or (f"took {peak} bytes" if peak > MOST_BYTES else None)


def _parsed(body: bytes, result: FuzzResult) -> str | None:
    try:
        parse_record(body, key="fuzz.json", store_time=_STORE_TIME)
    except RecordCorruptError as corrupt:
        return None if str(corrupt).isprintable() else "an unprintable error text"
    except Exception as error:  # noqa: BLE001  that there is none is what is tested
        return repr(error)
    result.records += 1
    return None


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; 0 if no input broke a promise, and both records and corrupt ones occurred."""
    parser = argparse.ArgumentParser(prog="python -m tests.laboratory fuzz", description=__doc__)
    parser.add_argument("--inputs", type=int, default=1_000_000)
    parser.add_argument("--jobs", type=int, help="processes; default: every core")
    options = parser.parse_args(arguments)
    began = time.perf_counter()
    starts = range(0, options.inputs, PER_SEED)
    jobs = [(seed, min(PER_SEED, options.inputs - start)) for seed, start in enumerate(starts)]
    total = FuzzResult()
    for part in spread(_run_job, jobs, processes=options.jobs):
        total.merge(part)
    for failure in total.failures:
        print(failure)
    print(
        f"fuzz: {total.inputs} inputs, {total.records} of them records, {len(total.failures)} failures; "
        f"at most {total.peak // 1024} KiB (of {total.measured}) and {total.slowest * 1000:.1f} ms; "
        f"{time.perf_counter() - began:.0f} s"
    )
    return 0 if not total.failures and 0 < total.records < total.inputs else 1


def _run_job(job: tuple[int, int]) -> FuzzResult:
    return run_fuzz(seed=job[0], count=job[1])


if __name__ == "__main__":
    sys.exit(main())
