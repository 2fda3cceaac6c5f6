"""Source files read into events: typed rows, and beside each bad row the reason why it is none.

Every format is read as it stands and each column is converted on its own, so that one value that cannot be
read costs its row and says which column it was, and never turns into a silent null.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import functions as F  # noqa: N812  the name everybody uses
from pyspark.sql.types import StringType, StructType

from asynclock.spark.keys import refuse_unfit
from asynclock.spark.load import local_path, misplaced, missing_source

if TYPE_CHECKING:
    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame, SparkSession

    from asynclock.spark.spec import Spec, StreamSpec

ARRIVAL: Final = "_asynclock_arrival"
REASON: Final = "_asynclock_reason"
FILE: Final = "_asynclock_file"
RAW: Final = "_asynclock_raw"
_CORRUPT: Final = "_asynclock_corrupt"
_MALFORMED: Final = "the record is malformed"
# Spark passes over a new file that is a week older than the newest one it has seen, and says nothing.
_FOR_EVER: Final = "1000000d"


class Source:
    """The files of one stream.

    Args:
        spec: The spec, for key columns and errors.
        stream: The stream whose source this is.
        spark: A session.

    Raises:
        SpecError: No file matches, or the first one lacks a column that the spec names.
    """

    def __init__(self, spec: Spec, stream: StreamSpec, spark: SparkSession) -> None:
        self._spec = spec
        self._stream = stream
        self._spark = spark
        shared = {name: spec.shared_type(name) for name in spec.table.shared_columns}
        owned = {column.name: column.type for column in stream.owned(spec.table)}
        self._types = shared | owned
        self._required = (*shared, stream.ordering)
        self._schema = self._raw_schema()

    def stream(self) -> DataFrame:
        """The files as an endless frame of raw rows, for a streaming query."""
        reader = self._spark.readStream.format(self._stream.format).schema(self._schema)
        reader = reader.option("maxFileAge", _FOR_EVER)
        if self._stream.max_files_per_trigger is not None:
            reader = reader.option("maxFilesPerTrigger", self._stream.max_files_per_trigger)
        return self._located(reader.options(**self._read_options()).load(self._stream.source))

    def all(self) -> DataFrame:
        """The files that are there now, as raw rows."""
        reader = self._spark.read.format(self._stream.format).schema(self._schema)
        return self._located(reader.options(**self._read_options()).load(self._stream.source))

    def parse(self, raw: DataFrame) -> DataFrame:
        """Raw rows converted to the declared types.

        Returns:
            The key, partition and stream columns, ``ARRIVAL``, ``FILE``, and for bad rows ``REASON`` and
            ``RAW``, both null for good ones.
        """
        data = [_quoted(name) for name in raw.columns if name not in (ARRIVAL, FILE, _CORRUPT)]
        typed = {name: F.expr(f"try_cast(`{name}` AS {kind})") for name, kind in self._types.items()}
        reason = F.concat_ws("; ", *self._complaints(typed, raw))
        record = F.to_json(F.struct(*data))
        if _CORRUPT in raw.columns:
            record = F.coalesce(F.col(_CORRUPT), record)
        bad = F.col(REASON).isNotNull()
        parsed = (
            raw.withColumn(REASON, F.when(reason != "", reason))
            .withColumn(RAW, F.when(bad, record))
            .select(*(value.alias(name) for name, value in typed.items()), ARRIVAL, FILE, REASON, RAW)
        )
        return refuse_unfit(parsed, self._spec, reason=REASON, record=RAW)

    def good(self, parsed: DataFrame) -> DataFrame:
        """The events among parsed rows, in the columns that a splice takes."""
        return parsed.where(F.col(REASON).isNull()).select(*self._types, ARRIVAL)

    def _complaints(self, typed: dict[str, SparkColumn], raw: DataFrame) -> list[SparkColumn]:
        complaints = []
        if _CORRUPT in raw.columns:
            complaints.append(F.when(F.col(_CORRUPT).isNotNull(), F.lit(_MALFORMED)))
        for name, kind in self._types.items():
            value = F.col(name)
            if name in self._required:
                # Hudi takes an empty key for a missing one.
                missing = value.isNull() | (value.cast("string") == "")
                complaints.append(F.when(missing, F.lit(f"{name} is missing")))
            unreadable = value.isNotNull() & (value.cast("string") != "") & typed[name].isNull()
            complaints.append(
                F.when(unreadable, F.concat(F.lit(f"{name} is no {kind}: "), value.cast("string")))
            )
        return complaints

    def _located(self, frame: DataFrame) -> DataFrame:
        """Add where each row came from, and an order of arrival that does not depend on Spark's tasks."""
        metadata = F.col("_metadata")
        return frame.select(
            *(_quoted(name) for name in self._schema.fieldNames()),
            plain_path(metadata["file_path"]).alias(FILE),
            F.struct(
                metadata["file_modification_time"].alias("modified"),
                metadata["file_path"].alias("file"),
                metadata["file_block_start"].alias("block"),
            ).alias(ARRIVAL),
        )

    def _read_options(self) -> dict[str, str]:
        if self._stream.format == "parquet":
            return {}
        options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT}
        if self._stream.format == "csv":
            # Columns are found by name: a file with another header fails instead of being misread.
            options |= {"header": "true", "enforceSchema": "false"}
        return options

    def _raw_schema(self) -> StructType:
        """The columns of the files: all of a CSV's, for it has no others; else those the spec names."""
        first = self._first_file()
        if self._stream.format == "json" or first is None:
            return _texts((*self._types, _CORRUPT))
        reader = self._spark.read.format(self._stream.format)
        schema = reader.options(header="true").load(first).schema
        for name in self._types:
            if name not in schema.fieldNames():
                reason = f"{first} has no column {name!r} (it has: {', '.join(schema.fieldNames())})"
                keys = ("streams", self._stream.name, "columns", name)
                raise misplaced(self._spec, keys, name, reason + "; correct the spec or the source")
        if self._stream.format == "csv":
            return _texts((*schema.fieldNames(), _CORRUPT))
        return StructType([schema[name] for name in self._types])

    def _first_file(self) -> str | None:
        """One of the files, or None where the first delivery is still to come."""
        source = self._stream.source
        path = self._spark._jvm.org.apache.hadoop.fs.Path(source)  # noqa: SLF001  no public way
        system = path.getFileSystem(self._spark._jsc.hadoopConfiguration())  # noqa: SLF001
        found: Any = system.globStatus(path)
        files = _plain_files(system, found or [])
        if files:
            return files[0]
        local = local_path(source)
        reason = missing_source(source) if local else f"nothing matches {source}; correct the pattern"
        if reason:
            raise misplaced(self._spec, ("streams", self._stream.name, "source"), source, reason)
        return None


def plain_path(path: SparkColumn) -> SparkColumn:
    """Spark writes one local file as ``file:/x`` or ``file:///x``, depending on who asks."""
    return F.regexp_replace(path, "^file:/+", "file:///")


def in_order(frame: DataFrame) -> DataFrame:
    """Complete ``ARRIVAL`` with the row's place in its block of its file; call it right above the scan.

    Spark refuses row numbers in an endless frame, so that this is left to each batch.
    """
    # Rises with the rows of a block, because one task reads a block from its start to its end.
    row = F.monotonically_increasing_id().alias("row")
    return frame.withColumn(ARRIVAL, F.struct(f"{ARRIVAL}.*", row))


def _plain_files(system: Any, found: list[Any]) -> list[str]:  # noqa: ANN401  py4j
    files = []
    for status in found:
        inner = system.listStatus(status.getPath()) if status.isDirectory() else [status]
        files += [one.getPath().toString() for one in inner if not one.isDirectory()]
    return sorted(name for name in files if not name.rpartition("/")[2].startswith(("_", ".")))


def _quoted(name: str) -> str:
    """A column of the files that the spec does not name may be called anything."""
    return "`" + name.replace("`", "``") + "`"


def _texts(names: tuple[str, ...]) -> StructType:
    schema = StructType()
    for name in names:
        schema = schema.add(name, StringType())
    return schema
