"""The part of a source that a stream has not committed yet."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

from asynclock.spark.results import Backlog
from asynclock.spark.source.checkpoint import Checkpoint
from asynclock.spark.source.files import source_files
from asynclock.spark.source.kafka import topic_offsets

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from asynclock.spark.spec.kafka_settings import KafkaSpec
    from asynclock.spark.spec.model import Spec, StreamSpec


class BacklogLook:
    """Looks at the source of a stream and at its checkpoint, from any process and one thread at a time.

    A look at files lists the source once, and reads the entries that the checkpoint has gained since the last
    look. A look at a topic asks a broker. Only the first look at an old checkpoint reads all entries.

    Args:
        spec: The spec, for errors.
        stream: The stream.
        spark: A session.
    """

    def __init__(self, spec: Spec, stream: StreamSpec, spark: SparkSession) -> None:
        self._spec = spec
        self._stream = stream
        self._spark = spark
        self._checkpoint = Checkpoint(spec, stream, spark)
        self._files: set[str] = set()  # committed ones
        self._entry = -1  # the newest of theirs in the log of the source

    def __call__(self) -> Backlog:
        """Return what waits now.

        Raises:
            SpecError: There is no such topic, or no broker answers. Nothing was written.
        """
        batch = self._checkpoint.committed()
        end = "" if batch is None else self._checkpoint.offset(batch)
        kafka = self._stream.kafka
        return self._of_files(end) if kafka is None else self._of_topic(kafka, end)

    def _of_files(self, end: str) -> Backlog:
        listed = source_files(self._spark, self._stream.source)
        self._learn(int(json.loads(end)["logOffset"]) if end else -1)
        waiting = [file.modified_ms for file in listed if file.url not in self._files]
        lag = max(0.0, time.time() - min(waiting) / 1000) if waiting else 0.0
        return Backlog(stream=self._stream.name, files=len(waiting), lag_seconds=lag)

    def _learn(self, entry: int) -> None:
        """Add the committed files up to an entry."""
        if entry < self._entry:  # a restore has set the checkpoint back
            self._files, self._entry = set(), -1
        added = self._checkpoint.entries(self._entry + 1, entry)
        if added is None:  # Spark keeps old entries only in a later one
            arrived = self._checkpoint.arrivals()
            self._files = {url for url, (number, _) in arrived.items() if number <= entry}
        else:
            self._files.update(url for url, _ in added)
        self._entry = entry

    def _of_topic(self, kafka: KafkaSpec, end: str) -> Backlog:
        spec, stream = self._spec, self._stream
        latest = topic_offsets(spec, stream, kafka, self._spark, latest=True)
        begins = {int(one): offset for one, offset in json.loads(end)[kafka.topic].items()} if end else {}
        if latest.keys() - begins.keys():  # the stream will read them from the earliest record on
            begins = {**topic_offsets(spec, stream, kafka, self._spark), **begins}
        behind = sum(max(0, offset - begins.get(one, 0)) for one, offset in latest.items())
        return Backlog(stream=stream.name, offsets=behind)
