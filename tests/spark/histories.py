"""Seeded random histories of one key: events of three streams, late, duplicated, tied and deleted."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

from tests.spark.oracle import Delete, Event

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Sequence

    from tests.spark.oracle import Arrival

# Four types of ordering values take different ways through the merger.
STREAMS: Final[dict[str, dict[str, str]]] = {
    "gate": {"ts": "timestamp", "x": "int", "note": "string", "deleted": "boolean"},
    "radar": {"ts": "decimal(12,3)", "u": "double", "tags": "array<string>", "deleted": "boolean"},
    "fuel_2": {"ts": "string", "x": "int", "when": "date", "deleted": "boolean"},
    "crew": {"ts": "int", "note": "string"},
    "_in_price_gate": {"ts": "bigint", "x": "int", "note": "string", "deleted": "boolean"},
}
COLUMNS: Final[dict[str, str]] = {
    f"{stream}__{name}": kind for stream, columns in STREAMS.items() for name, kind in columns.items()
}
_DISTINCT_TIMES: Final = 40


def _value(kind: str, rng: random.Random) -> Any:  # noqa: ANN401 - a value of the column's type
    make: dict[str, Callable[[], Any]] = {
        "int": lambda: rng.randrange(1000),
        "double": lambda: rng.randrange(1000) / 8,
        "string": lambda: rng.choice(["", "a", "ä€", "some longer text"]) + str(rng.randrange(100)),
        "boolean": lambda: rng.random() < 0.5,
        "date": lambda: rng.randrange(20_000),
        "array<string>": lambda: [str(rng.randrange(10)) for _ in range(rng.randrange(3))],
    }
    return make[kind]()


def _ordering(kind: str, instant: int) -> Any:  # noqa: ANN401 - a value of the column's type
    make: dict[str, Callable[[int], Any]] = {
        "timestamp": lambda n: 1_700_000_000_000_000 + n * 1_000_001,
        "decimal(12,3)": lambda n: Decimal(n - 20).scaleb(-1).quantize(Decimal("0.001")),
        "string": lambda n: f"2024-01-01T00:00:{n:02d}",
        "int": lambda n: n - 20,
        "bigint": lambda n: (n - 20) << 40,
    }
    return make[kind](instant)


def random_event(rng: random.Random, streams: Sequence[str], instant: int) -> Event:
    """An event of one of the streams; a third of its values are null, one in ten is a tombstone."""
    stream = rng.choice(streams)
    kinds = STREAMS[stream]
    values = {
        name: None if rng.random() < 1 / 3 else _value(kind, rng)
        for name, kind in kinds.items()
        if name not in {"ts", "deleted"}
    }
    if "deleted" in kinds:
        values["deleted"] = True if rng.random() < 0.1 else rng.choice([None, False])
    return Event(stream, _ordering(kinds["ts"], instant), values)


def random_history(
    rng: random.Random, *, length: int, ties: bool = True, deletes: bool = False
) -> list[Arrival]:
    """Arrivals of one key, in the order of arrival.

    Args:
        rng: The source of all randomness.
        length: How many arrivals.
        ties: Whether events of a stream may share an ordering value; about a third then do.
        deletes: Whether one arrival in eight is a Hudi delete.
    """
    streams = rng.sample(sorted(STREAMS), k=rng.randint(1, len(STREAMS)))
    instants = rng.sample(range(_DISTINCT_TIMES), k=length)
    if ties:
        instants = [
            rng.choice(instants[:i]) if i and rng.random() < 0.5 else instants[i] for i in range(length)
        ]
    return [
        Delete() if deletes and rng.random() < 1 / 8 else random_event(rng, streams, instant)
        for instant in instants
    ]


@dataclass
class TieCount:
    """How many of the events seen share stream and ordering value with an earlier one of their history."""

    events: int = 0
    ties: int = 0

    def add(self, history: Sequence[Arrival]) -> None:
        """Count one history."""
        seen: set[tuple[str, Any]] = set()
        for event in history:
            if isinstance(event, Event):
                self.events += 1
                self.ties += (event.stream, event.ts) in seen
                seen.add((event.stream, event.ts))
