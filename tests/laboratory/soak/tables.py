"""The tables of a soak: what is delivered to them, and what they must say then.

The splice table has the orders, payments and shipments of the restarts: inserts, updates, deletes, late
events and equal ordering values. The plain table has visits: whole rows, which clustering sorts.
"""

from __future__ import annotations

import json
import random
import threading
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F  # noqa: N812  the name everybody uses

from asynclock.spark import load_spec, read
from asynclock.spark.hudi.options import read_options
from tests.laboratory.restarts.orders import SCHEMA_CHANGES, Shop, spec, streams
from tests.laboratory.soak.checks import States, doubled

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping, Sequence
    from pathlib import Path

    from pyspark.sql import Column, DataFrame, SparkSession

    from asynclock.spark import Spec
    from asynclock.spark.hudi.options.option import QueryType
    from tests.laboratory.restarts.orders import Key, Row
    from tests.laboratory.soak.checks import Cells
    from tests.laboratory.soak.places import Place

SHARED_NUMBERS: Final = 1000
"""Orders from this number on belong to the deletes and to SQL, and not to the states of the streams."""
# A consumer that is further behind than the cleaning retains would have to start again.
SERVICES: Final = {
    "retain_commits = 4": "retain_commits = 25",
    "keep_min_commits = 8, keep_max_commits = 12": "keep_min_commits = 27, keep_max_commits = 30",
    "validity = 5.0": "validity = 10.0",
}
TIMELINE_AT_MOST: Final = 200
"""Instants of the active timeline of either table, of which archiving keeps 30 commits."""
VISITORS: Final = 300
_VISITS_OF_A_FILE: Final = 40
_PLAIN: Final = """\
[table]
path = "{root}/visits"
key = ["k"]
kind = "plain"
type = "cow"
buckets = 0
concurrency = "occ"
merge = "event_time"

[locks]
validity = 10.0
{locks}
[services]
clustering = {{ every_commits = 4, sort_by = ["note"] }}
cleaning = {{ retain_commits = 25 }}
archiving = {{ keep_min_commits = 27, keep_max_commits = 30 }}

[streams.visits]
source = "{root}/in/visits/*.csv"
ordering = "at"
checkpoint = "{root}/checkpoints/visits"
max_files_per_trigger = 1
columns = {{ at = "bigint", x = "int", note = "string" }}
"""


class Table:
    """A table, its sources and what is known of it.

    Args:
        name: For messages.
        place: Where it is.
        text: Its spec.
        file: Where the spec goes.

    Attributes:
        driven: The spec that drivers get.
        spec: That of everybody who looks on: faults of the store are avoided.
        states: By stream, what a reader may see.
        place: Where it is.
        name: For messages.
    """

    def __init__(self, name: str, place: Place, text: str, file: Path) -> None:
        file.write_text(text)
        self.name = name
        self.place = place
        self.driven: Spec = load_spec(file)
        direct = file.with_name(f"direct-{file.name}")
        direct.write_text(text.replace(*place.around) if all(place.around) else text)
        self.spec: Spec = load_spec(direct)
        self.states = {stream.name: States(stream.name) for stream in self.spec.streams}
        self._held: list[tuple[str, bytes]] = []
        self._mutex = threading.Lock()

    def deliver(self, stream: str) -> None:
        """Make one more file of a stream, which ``flush`` puts to its place."""
        raise NotImplementedError

    def flush(self) -> None:
        """Put the files to their place, those first that could not be put there before."""
        with self._mutex:
            while self._held:
                self.place.put(*self._held[0])
                del self._held[0]

    def _hold(self, stream: str, name: str, body: bytes) -> None:
        self._held.append((f"in/{stream}/{name}", body))

    def batches(self, stream: str) -> int:
        """Return how many batches of a stream its checkpoint has ended."""
        folder = f"{self.spec.stream(stream).checkpoint}/commits"
        numbers = [int(name) for name in self.place.files(folder) if name.isdigit()]
        return max(numbers, default=-1) + 1

    def committed(self, stream: str) -> int:
        """Return how many files of a stream are in these batches.

        Spark lists the file of a batch before it plans the batch. After a kill in between the batch takes the
        next file as well.
        """
        batches = self.batches(stream)
        if not batches:
            return 0
        offsets = self.place.get(f"{self.spec.stream(stream).checkpoint}/offsets/{batches - 1}")
        newest: int = json.loads(offsets.splitlines()[-1])["logOffset"]
        return newest + 1

    def waiting(self) -> dict[str, int]:
        """Return how many delivered files of each stream are not committed."""
        return {name: states.files - self.committed(name) for name, states in self.states.items()}

    def at_rest(self) -> bool:
        """Whether everything that was delivered is committed."""
        return not any(self.waiting().values())

    def stored(self, spark: SparkSession, query_type: QueryType = "snapshot") -> DataFrame:
        """Return the stored rows."""
        options = read_options(self.spec, query_type=query_type)
        return spark.read.format("hudi").options(**options).load(self.spec.table.path)

    def look(self, spark: SparkSession, *, last: bool = False) -> list[str]:
        """Read a snapshot and judge it."""
        keys, rows = self._snapshot(self.stored(spark))
        found = [f"{self.name}: {one}" for one in doubled(keys)]
        for stream, states in self.states.items():
            judged = states.last(rows[stream]) if last else states.look(rows[stream])
            found += [f"{self.name}: {one}" for one in judged]
        return found

    def _snapshot(self, stored: DataFrame) -> tuple[Sequence[Hashable], dict[str, dict[Hashable, Cells]]]:
        """Return the keys of all rows, and for each stream what it says of which key."""
        raise NotImplementedError


class Orders(Table):
    """The splice table.

    Args:
        place: Where it is.
        folder: Where its spec goes.
        seed: Of its rows.

    Attributes:
        unknown: Keys of which nothing is expected, since a job on them has failed.
    """

    def __init__(self, place: Place, folder: Path, seed: int) -> None:
        self.unknown: set[Key] = set()
        text = spec(SCHEMA_CHANGES)
        changes = SERVICES | {
            'path = "table"': f'path = "{place.url}/orders"',
            'source = "in/': f'source = "{place.url}/in/',
            "\n[services]": f"{place.locks}\n[services]",
        }
        for old, new in changes.items():
            text = text.replace(old, new)
        for stream in streams(SCHEMA_CHANGES):
            head = f"[streams.{stream}]\n"
            text = text.replace(head, f'{head}checkpoint = "{place.url}/checkpoints/{stream}"\n')
            place.make(f"in/{stream}")
        super().__init__(f"orders on {place.name}", place, text, folder / f"orders-{place.name}.toml")
        self._shop = Shop(folder, seed, put=self._hold)
        self._also: dict[str, list[Key]] = {name: [] for name in self.states}
        self._gone: set[Key] = set()
        self._by_sql: dict[Key, Row] = {}

    def deliver(self, stream: str) -> None:
        """Make one more file of a stream, with the events that were asked for."""
        with self._mutex:
            also, self._also[stream] = self._also[stream], []
            self._shop.deliver(stream, SCHEMA_CHANGES, also)
            state = {
                key: (second, event["status"], bool(event.get("deleted")))
                for key, (second, event) in self._shop.newest(stream).items()
                if key[1] < SHARED_NUMBERS
            }
            self.states[stream].add(state)

    def ask(self, key: Key) -> dict[str, int]:
        """Have the next file of each stream bring an event of the key; return which files these will be."""
        with self._mutex:
            for keys in self._also.values():
                keys.append(key)
            return {name: states.files + 1 for name, states in self.states.items()}

    def is_committed(self, files: Mapping[str, int]) -> bool:
        """Whether each stream has committed that many files."""
        return all(self.committed(stream) >= number for stream, number in files.items())

    def erased(self, key: Key) -> None:
        """Expect the key no more."""
        self._gone.add(key)

    def by_sql(self, key: Key, row: Row | None) -> None:
        """Expect what a statement has written; None: it has deleted the row."""
        if row is None:
            self._by_sql.pop(key, None)
        else:
            self._by_sql[key] = row

    def expected(self) -> dict[Key, Row]:
        """Return the rows that the view must have."""
        rows = {key: row for key, row in self._shop.expected().items() if key not in self._gone}
        return rows | self._by_sql

    def has(self, spark: SparkSession, key: Key) -> bool:
        """Whether the view has the key."""
        is_key = (F.col("shop") == key[0]) & (F.col("number") == key[1])
        return bool(read(self.spec, spark).where(is_key).count())

    def _snapshot(self, stored: DataFrame) -> tuple[Sequence[Hashable], dict[str, dict[Hashable, Cells]]]:
        chosen = [F.col("shop"), F.col("number")]
        for stream in self.states:
            at = _column(stored, f"{stream}__ts")
            chosen.append(at if stream == "shipments" else F.unix_seconds(at.cast("timestamp")))
            chosen += [_column(stored, f"{stream}__{name}") for name in ("status", "deleted")]
        rows = stored.select(*chosen).collect()
        seen: dict[str, dict[Hashable, Cells]] = {stream: {} for stream in self.states}
        for row in rows:
            for place, stream in enumerate(self.states):
                at, status, deleted = row[2 + 3 * place : 5 + 3 * place]
                if at is not None and row[1] < SHARED_NUMBERS:
                    seen[stream][row[0], row[1]] = (at, status, bool(deleted))
        return [(row[0], row[1]) for row in rows], seen


class Visits(Table):
    """The plain table.

    Args:
        place: Where it is.
        folder: Where its spec goes.
        seed: Of its rows.
    """

    def __init__(self, place: Place, folder: Path, seed: int) -> None:
        text = _PLAIN.format(root=place.url, locks=place.locks)
        place.make("in/visits")
        super().__init__(f"visits on {place.name}", place, text, folder / f"visits-{place.name}.toml")
        self._random = random.Random(f"visits of {seed}")
        self._rows: dict[Hashable, Cells] = {}
        self._count = 0

    def deliver(self, stream: str) -> None:
        """Make one more file, in which some events come late."""
        dice = self._random
        lines = ["k,at,x,note"]
        for _ in range(_VISITS_OF_A_FILE):
            self._count += 1
            key = f"k{dice.randrange(VISITORS)}"
            # Odd and even numbers, so that no late event ties with one that is in time.
            at = 2 * self._count if dice.random() < 0.7 else 2 * dice.randrange(self._count) + 1
            x, note = self._count, dice.choice(["new", "again", "ü"])
            lines.append(f"{key},{at},{x},{note}")
            if at >= self._rows.get(key, (-1,))[0]:
                self._rows[key] = (at, x, note)
        self.states[stream].add(self._rows)
        number = self.states[stream].files
        self._hold(stream, f"{number:05}.csv", "\n".join([*lines, ""]).encode())

    def _snapshot(self, stored: DataFrame) -> tuple[Sequence[Hashable], dict[str, dict[Hashable, Cells]]]:
        # In a plain table the columns have their plain names.
        rows = stored.select("k", "at", "x", "note").collect()
        return [row.k for row in rows], {"visits": {row.k: (row.at, row.x, row.note) for row in rows}}


def _column(stored: DataFrame, name: str) -> Column:
    """A column of the table; null where no stream has brought it."""
    return F.col(name) if name in stored.columns else F.lit(None)
