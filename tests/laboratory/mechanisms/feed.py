"""The files of the fleet, delivered one after the other, and the table after each of them."""

from __future__ import annotations

import csv
import io
import os
from datetime import datetime
from typing import TYPE_CHECKING, Final

from asynclock.spark import load_spec, read
from tests.laboratory.mechanisms.stage import must

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from pyspark.sql import SparkSession

    from asynclock.spark.spec.model import Spec
    from tests.laboratory.mechanisms.stage import Stage

STREAMS: Final = ("registry", "departures", "arrivals")
ORDERINGS: Final = {"registry": "registered_at", "departures": "departed_at", "arrivals": "arrived_at"}
_EPOCH: Final = 1_700_000_000
_PLAIN: Final = """\
[table]
path = "{name}"
key = ["tailnum"]
kind = "plain"
{table}

[services]
{services}

[streams.departures]
source = "data/departures/*.csv"
ordering = "departed_at"
max_files_per_trigger = 1
columns = {{ departed_at = "timestamp", file = "int", carrier = "string", flight = "int", origin = "string", \
dest = "string", dep_delay = "double" }}
"""

State = frozenset[tuple[str, int, int]]
"""For each aircraft that a stream knows: when its newest event was, in ms, and the file that brought it."""


class Feed:
    """Delivers the files of three streams: each is a batch, and each event has the number of its file.

    Args:
        stage: Where; its folder must be empty.
        rows: Number of events.
        files: Files of each stream.
        changes: Of the spec's text, as for ``Stage.fleet``.

    Attributes:
        spec: The spec of the table.
        delivered: How many files of each stream are delivered.
    """

    def __init__(
        self, stage: Stage, rows: int, *, files: int, changes: Mapping[str, str] | None = None
    ) -> None:
        one_file = {f"max_files_per_trigger = {number}": "max_files_per_trigger = 1" for number in (8, 3)}
        stamped = {
            f'{name} = "timestamp"': f'{name} = "timestamp", file = "int"' for name in ORDERINGS.values()
        }
        self.spec: Spec = stage.fleet(rows, files=files, changes=one_file | stamped | dict(changes or {}))
        self.delivered = dict.fromkeys(STREAMS, 0)
        self._folder = stage.folder / "data"
        self._bodies: dict[str, list[str]] = {}
        self._states: dict[str, list[State]] = {}
        for stream in STREAMS:
            self._prepare(stream)

    def _prepare(self, stream: str) -> None:
        newest: dict[str, tuple[int, int]] = {}
        self._bodies[stream] = []
        self._states[stream] = [frozenset()]
        for number, path in enumerate(sorted((self._folder / stream).glob("*.csv")), 1):
            rows = list(csv.DictReader(io.StringIO(path.read_text())))
            text = io.StringIO()
            names = list(rows[0])
            names.insert(names.index(ORDERINGS[stream]) + 1, "file")
            writer = csv.DictWriter(text, names, lineterminator="\n")
            writer.writeheader()
            writer.writerows({**row, "file": number} for row in rows)
            self._bodies[stream].append(text.getvalue())
            path.unlink()
            for row in rows:
                at = round(datetime.fromisoformat(row[ORDERINGS[stream]]).timestamp() * 1000)
                # Of equal times the later arrival wins.
                newest[row["tailnum"]] = max(newest.get(row["tailnum"], (at, number)), (at, number))
            self._states[stream].append(frozenset((key, *event) for key, event in newest.items()))

    def plain(self, name: str, table: str, services: str = "") -> Spec:
        """Return the spec of a plain table of the departures, with further settings of it."""
        path = self._folder.parent / f"{name}.toml"
        path.write_text(_PLAIN.format(name=name, table=table, services=services))
        return load_spec(path)

    def deliver(self, stream: str, files: int = 1) -> None:
        """Deliver the next files of a stream; those that there are no more of are left out."""
        for body in self._bodies[stream][self.delivered[stream] :][: max(files, 0)]:
            number = self.delivered[stream] + 1
            hidden = self._folder / stream / f".{number}"
            hidden.write_text(body)
            os.utime(hidden, (_EPOCH + number, _EPOCH + number))
            hidden.rename(hidden.with_name(f"{number:05}.csv"))
            self.delivered[stream] = number

    def held_back(self, stream: str) -> Path:
        """Count the next file of a stream as delivered, but put it where the stream does not look."""
        number = self.delivered[stream] = self.delivered[stream] + 1
        path = self._folder / f"{stream}-{number}.csv"
        path.write_text(self._bodies[stream][number - 1])
        return path

    def expected(self, stream: str) -> State:
        """Return the state after all files that are delivered."""
        return self._states[stream][self.delivered[stream]]

    def batches(self, stream: str, state: State) -> tuple[int, int]:
        """Return the least and the largest number of first files that give this state.

        Raises:
            NotShownError: No number does: a batch is partly there, missing or there too early.
        """
        found = [number for number, one in enumerate(self._states[stream]) if one == state]
        what = f"a reader sees each batch of {stream} wholly and in order"
        must(found, f"{what}, {_difference(state, self._states[stream])}")
        return found[0], found[-1]


def _difference(state: State, states: list[State]) -> str:
    number, best = min(enumerate(states), key=lambda one: len(one[1] ^ state))
    return f"and not one that differs from that of {number} files by {sorted(best ^ state)[:6]}"


def seen(spec: Spec, spark: SparkSession) -> dict[str, State]:
    """Read one snapshot; return the state of each stream in it."""
    columns = [f"unix_millis({ORDERINGS[stream]})" for stream in STREAMS]
    columns += [f"{stream}__file" for stream in STREAMS]
    rows = read(spec, spark).selectExpr("tailnum", *columns).collect()
    return {
        stream: frozenset(
            (row[0], row[1 + place], row[4 + place]) for row in rows if row[1 + place] is not None
        )
        for place, stream in enumerate(STREAMS)
    }
