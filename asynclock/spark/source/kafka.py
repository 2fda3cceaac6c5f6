"""Read the records of a Kafka topic into events, by the rules for the lines of JSON files.

A record is an event. In a partition, the record with the later offset arrived later. Kafka has no order
between partitions, so in a batch the record of the higher partition counts as the later one, in each attempt.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from py4j.protocol import Py4JJavaError
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  the name everybody uses

from asynclock._shared.words import printable
from asynclock.spark.jvm import classes
from asynclock.spark.source.reading import (
    ARRIVAL,
    RAW,
    REASON,
    Settled,
    Source,
    bad_rows,
    counted,
    event_columns,
    persisted,
    stored_as_declared,
)
from asynclock.spark.spec.keys import refuse_unfit
from asynclock.spark.spec.load import misplaced

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyspark.sql import SparkSession

    from asynclock.spark.spec.kafka_settings import KafkaSpec
    from asynclock.spark.spec.model import Spec, StreamSpec

TOPIC: Final = "_asynclock_topic"
PARTITION: Final = "_asynclock_partition"
OFFSET: Final = "_asynclock_offset"
_UNKNOWN: Final = "UnknownTopicOrPartitionException"


def open_source(spec: Spec, stream: StreamSpec, spark: SparkSession) -> Source | TopicSource:
    """Return the source of a stream.

    Args:
        spec: The spec, for key columns and errors.
        stream: The stream.
        spark: A session with asynclock's jar.

    Raises:
        SpecError: The source does not exist or cannot be read. Nothing was written.
    """
    if stream.kafka is None:
        return Source(spec, stream, spark)
    return TopicSource(spec, stream, stream.kafka, spark)


class TopicSource:
    """The topic of one stream.

    Args:
        spec: The spec, for key columns and errors.
        stream: The stream.
        kafka: Its topic.
        spark: A session with asynclock's jar and Spark's connector.

    Raises:
        SpecError: There is no such topic, or no broker answers. Nothing was written.
    """

    def __init__(self, spec: Spec, stream: StreamSpec, kafka: KafkaSpec, spark: SparkSession) -> None:
        self._spec = spec
        self._stream = stream
        self._kafka = kafka
        self._spark = spark
        self._types, self._required = event_columns(spec, stream)
        self._unnamed: Any = classes(spark).io.asynclock.source.SourceFiles.unnamed(
            spark._jsparkSession  # noqa: SLF001
        )
        topic_offsets(spec, stream, kafka, spark)

    def stream(self) -> DataFrame:
        """Return the records as a streaming frame, from the earliest one on."""
        reader = self._spark.readStream.format("kafka").options(**read_options(self._kafka))
        reader = reader.option("startingOffsets", "earliest")
        if self._stream.max_records_per_trigger is not None:
            reader = reader.option("maxOffsetsPerTrigger", self._stream.max_records_per_trigger)
        return reader.option("subscribe", self._kafka.topic).load()

    @contextmanager
    def settled(self, records: DataFrame, due: object = None) -> Iterator[Settled]:  # noqa: ARG002  as of files
        """Yield the rows of records, read once and kept while the context lasts."""
        with persisted(self.parse(records), counted) as rows:
            yield rows

    def parse(self, records: DataFrame) -> DataFrame:
        """Return the rows of records, each with its values or a reason.

        Args:
            records: The rows of Spark's connector.

        Returns:
            The key, partition and stream columns in their declared types, ``ARRIVAL``, ``TOPIC``,
            ``PARTITION``, ``OFFSET``, and for bad rows ``REASON`` and ``RAW``, null for good ones.
        """
        jvm: Any = classes(self._spark)
        if self._stream.envelope is not None:
            records = records.where(F.col("value").isNotNull())  # it follows a delete, for Kafka's compaction
        rows = jvm.io.asynclock.source.TopicRecords.rows(
            records.select("topic", "partition", "offset", "value")._jdf,  # noqa: SLF001
            list(self._types),
            list(self._types.values()),
            list(self._stream.sources(self._spec.table).values()),
            self._required,
            self._stream.envelope is not None,
            self._unnamed,
        )
        about = (TOPIC, PARTITION, OFFSET, REASON, RAW)
        parsed = stored_as_declared(DataFrame(rows, self._spark), self._types, about)
        arrival = F.struct(F.col(PARTITION).alias("partition"), F.col(OFFSET).alias("offset"))
        return refuse_unfit(parsed.withColumn(ARRIVAL, arrival), self._spec, reason=REASON, record=RAW)

    def unnamed_columns(self) -> list[str]:
        """Return fields of the records read so far that the spec does not name, at most 100."""
        return list(self._unnamed.value())

    def good(self, parsed: DataFrame) -> DataFrame:
        """Return the events among parsed rows, in the columns that a splice takes."""
        return parsed.where(F.col(REASON).isNull()).select(*self._types, ARRIVAL)

    def bad(self, parsed: DataFrame) -> DataFrame:
        """Return the bad ones among parsed rows for the quarantine: with their place and the reason."""
        return bad_rows(parsed, {"topic": TOPIC, "partition": PARTITION, "offset": OFFSET})


def read_options(kafka: KafkaSpec) -> dict[str, str]:
    """Return the options with which Spark's connector reads a topic, streaming or not.

    Raises:
        ConfigError: An environment variable is not set.
    """
    client = {f"kafka.{name}": value for name, value in kafka.client().items()}
    return {
        **client,
        "kafka.isolation.level": "read_committed",  # records of aborted transactions are not events
        "kafkaConsumer.pollTimeoutMs": "30000",  # Spark's own is two minutes
        "failOnDataLoss": "true",  # a gap must not go unnoticed
    }


def topic_offsets(
    spec: Spec, stream: StreamSpec, kafka: KafkaSpec, spark: SparkSession, *, latest: bool = False
) -> Mapping[int, int]:
    """Return the offset of the earliest record that a topic still has, by partition.

    Args:
        spec: The spec, for errors.
        stream: The stream.
        kafka: Its topic.
        spark: A session with Spark's connector.
        latest: Return the offset that the next record will get instead.

    Raises:
        SpecError: There is no such topic, or no broker answers. Nothing was written.
    """
    jvm: Any = classes(spark)
    settings = jvm.java.util.Properties()
    for name, value in kafka.client().items():
        settings.setProperty(name, value)
    keys = ("streams", stream.name, "kafka")
    clients = jvm.org.apache.kafka.clients.admin
    try:
        admin = clients.AdminClient.create(settings)
    except Py4JJavaError as error:
        raise misplaced(spec, keys, kafka.name, f"{_said(error)}; nothing was written") from error
    try:
        topics = admin.describeTopics(jvm.java.util.List.of(kafka.topic)).allTopicNames().get()
        wanted = jvm.java.util.HashMap()
        which = clients.OffsetSpec.latest() if latest else clients.OffsetSpec.earliest()
        for info in topics.get(kafka.topic).partitions():
            partition = jvm.org.apache.kafka.common.TopicPartition(kafka.topic, info.partition())
            wanted.put(partition, which)
        found = admin.listOffsets(wanted).all().get()
        return {one.partition(): found.get(one).offset() for one in found.keySet()}
    except Py4JJavaError as error:
        said = _said(error)
        reason = f"no topic can be read there; nothing was written: {said}"
        if _UNKNOWN in str(error.java_exception):
            reason = "the topic does not exist; nothing was written; create it or correct kafka.topic"
        raise misplaced(spec, keys, kafka.name, reason) from error
    finally:
        admin.close()


def _said(error: Py4JJavaError) -> str:
    cause = error.java_exception
    while cause.getCause() is not None:
        cause = cause.getCause()
    return printable(f"{cause.getClass().getSimpleName()}: {cause.getMessage()}")
