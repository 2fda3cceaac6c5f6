"""The table's expected rows by the records of a stream's topic.

The commits of the stream have the end offsets of each batch, so the topic is read again up to there. Spark's
connector fetches the bytes of the records; the second reader turns them into values.
"""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from asynclock.spark.check.committed import Committed
from asynclock.spark.check.sources import StreamValidation
from asynclock.spark.check.state import FIRST
from asynclock.spark.check.strict.json_records import record
from asynclock.spark.check.strict.rows import Good
from asynclock.spark.check.strict.stored_rows import Reading
from asynclock.spark.source.checkpoint import Checkpoint
from asynclock.spark.source.kafka import read_options, topic_offsets

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from asynclock.spark.check.committed import NamedTypes
    from asynclock.spark.check.state import Order, State
    from asynclock.spark.check.strict.expected import Cells, Expected, Key
    from asynclock.spark.spec.kafka_settings import KafkaSpec

Offsets = dict[int, int]
_BYTES: Final = 200
"""The assumed bytes of a record: brokers count only the bytes of whole segments."""
_AT_ONCE: Final = 50_000
"""The number of a partition's records that the driver takes into its memory at a time."""


class TopicEvents:
    """The topic of one stream, from its first record to the last that is committed.

    Args:
        table: The table that its events are expected in; its session has Spark's connector.
        number: Number of the stream in the spec.
        kafka: Its topic.

    Attributes:
        size: About the bytes of its records.
        groups: Places of its columns among the table's groups.

    Raises:
        SpecError: There is no such topic, or no broker answers.
    """

    def __init__(self, table: State, number: int, kafka: KafkaSpec) -> None:
        self._spec = spec = table.spec
        self._stream = spec.streams[number]
        self._kafka = kafka
        self._spark = spark = table.spark
        self.groups = table.table.layout.groups_of(number)
        self._columns = {group: table.groups[group] for group in self.groups}
        checkpoint = Checkpoint(spec, self._stream, spark)
        checkpoint.refuse_damage()
        self._table = table
        self._committed = Committed.of(table.commits, self._stream.name, checkpoint.query_id())
        self._batches = {batch: self._parsed(text) for batch, text in self._committed.offsets.items()}
        # An earlier checkpoint read from the first record on too, and perhaps further than the present one.
        self._others = _furthest([self._parsed(text) for text in self._committed.other_offsets])
        self._ends = _furthest([self._others, *self._batches.values()])
        begin = self._parsed(checkpoint.first_offset())
        first = topic_offsets(spec, self._stream, kafka, spark)
        self._begin, self._removed = {}, 0
        for partition, end in self._ends.items():
            read_from = begin.get(partition, 0)
            kept = max(read_from, min(end, first.get(partition, end)))
            self._begin[partition] = kept
            self._removed += kept - read_from
        self._latest = topic_offsets(spec, self._stream, kafka, spark, latest=True)
        self.size = _BYTES * sum(end - self._begin[partition] for partition, end in self._ends.items())
        self._events = self._bad = 0

    @property
    def incomplete(self) -> bool:
        """Whether the topic has lost records that committed batches have read, as its retention does."""
        return self._removed > 0

    def steps(self, expected: Expected, _folder: Path) -> Iterator[tuple[Order, Callable[[], None]]]:
        """Yield for each batch its place in the merge, and a function that adds its events.

        Call each function before you take the next one.
        """
        records = {partition: _Records(self._read(partition)) for partition in sorted(self._ends)}
        order = FIRST
        for batch, ends in sorted(self._batches.items()):
            order = max(order, self._table.order(self._committed.commits[batch]))
            yield order, partial(self._take, batch, ends, records, expected)
        if self._committed.other is not None:
            order = max(order, self._table.order(self._committed.other))
            yield order, partial(self._take, None, self._others, records, expected)

    def report(self) -> StreamValidation:
        """Return the report on the topic."""
        latest = ((end, self._ends.get(partition, 0)) for partition, end in self._latest.items())
        return StreamValidation(
            stream=self._stream.name,
            files=0,
            events=self._events,
            bad_rows=self._bad,
            unread_files=(),
            changed_files=(),
            hidden_files=(),
            topic=self._kafka.name,
            unread_records=sum(end - read for end, read in latest),
            removed_records=self._removed,
        )

    def _take(
        self, batch: int | None, ends: Offsets, records: Mapping[int, _Records], expected: Expected
    ) -> None:
        columns = () if batch is None else self._committed.columns[batch]
        expected.add_each(self._events_of(ends, records, columns))

    def _events_of(
        self, ends: Offsets, records: Mapping[int, _Records], columns: NamedTypes
    ) -> Iterator[tuple[int, Key, Any, Cells]]:
        reading = Reading(self._spec, self._stream, columns, self._columns)
        for partition, end in sorted(ends.items()):
            for offset, value in records[partition].before(end):
                if value is None and self._stream.envelope is not None:
                    continue
                row = record(value, offset, reading.layout)
                if isinstance(row, Good):
                    self._events += 1
                    yield from reading.events(row.values)
                else:
                    self._bad += 1

    def _read(self, partition: int) -> Iterator[tuple[int, bytes | None]]:
        """Yield the offset and value of each record of a partition that batches have read."""
        begin, end = self._begin[partition], self._ends[partition]
        if begin >= end:
            return
        topic = self._kafka.topic
        reader = self._spark.read.format("kafka").options(**read_options(self._kafka))
        reader = reader.option("assign", json.dumps({topic: [partition]}))
        reader = reader.option("startingOffsets", json.dumps({topic: {str(partition): begin}}))
        reader = reader.option("endingOffsets", json.dumps({topic: {str(partition): end}}))
        reader = reader.option("minPartitions", -(-(end - begin) // _AT_ONCE))
        for offset, value in reader.load().select("offset", "value").toLocalIterator():
            yield offset, None if value is None else bytes(value)

    def _parsed(self, offset: str) -> Offsets:
        """Return the offsets of the topic that a commit or a checkpoint has; none for other sources."""
        found: dict[str, Any] = json.loads(offset or "{}")
        return {int(partition): end for partition, end in found.get(self._kafka.topic, {}).items()}


class _Records:
    """The records of one partition, taken in pieces."""

    def __init__(self, records: Iterator[tuple[int, bytes | None]]) -> None:
        self._records = records
        self._next: tuple[int, bytes | None] | None = None

    def before(self, end: int) -> Iterator[tuple[int, bytes | None]]:
        """Yield the remaining records with an offset below ``end``."""
        while True:
            if self._next is None:
                self._next = next(self._records, None)
            if self._next is None or self._next[0] >= end:
                return
            found, self._next = self._next, None
            yield found


def _furthest(offsets: list[Offsets]) -> Offsets:
    furthest: Offsets = {}
    for ends in offsets:
        for partition, end in ends.items():
            furthest[partition] = max(end, furthest.get(partition, 0))
    return furthest
