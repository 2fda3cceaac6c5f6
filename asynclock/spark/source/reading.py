"""Read source files into events: typed rows, and the reason for each bad row or file.

docs/concepts/pipeline/files.md has the rules. ``io.asynclock.source`` reads CSV and JSON in the JVM, text
by text. Spark reads parquet, after a look at the footer of each file.
"""

from __future__ import annotations

import contextlib
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException
from pyspark.errors.exceptions.captured import CapturedException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  the name everybody uses

from asynclock.errors import ConfigError
from asynclock.spark.jvm import classes
from asynclock.spark.source import parquet
from asynclock.spark.source.files import listed, plain_path
from asynclock.spark.spec.dialect import CsvDialect
from asynclock.spark.spec.keys import refuse_unfit
from asynclock.spark.spec.load import local_path, misplaced, missing_source
from asynclock.spark.spec.model import URL

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from pyspark.sql import Column, Row, SparkSession

    from asynclock.spark.spec.model import Spec, StreamSpec

ARRIVAL: Final = "_asynclock_arrival"
FILE: Final = "_asynclock_file"
LINE: Final = "_asynclock_line"
REASON: Final = "_asynclock_reason"
RAW: Final = "_asynclock_record"
_MODIFIED: Final = "_asynclock_modified"
_PLACE: Final = "_asynclock_row"
_HEADERS: Final = 20
# The schema of Spark's format, which a streaming frame must name.
_BINARY_FILE: Final = "path string, modificationTime timestamp_ltz, length bigint, content binary"
# The type in which the JVM returns each declared type, and the conversion.
_STORED: Final = {"date": "date_from_unix_date(`{}`)", "timestamp": "timestamp_micros(`{}`)"}
# Without this Spark silently skips a new file that is a week older than the newest one it has seen.
_FOR_EVER: Final = "1000000d"


@dataclass(frozen=True, slots=True)
class Settled:
    """The rows of a batch, read once.

    Attributes:
        frame: The rows, each with its values or a reason.
        rows: Number of rows.
        bad: Number of rows with a reason.
    """

    frame: DataFrame
    rows: int
    bad: int


class Source:
    """The files of one stream.

    Args:
        spec: The spec, for key columns and errors.
        stream: The stream whose source this is.
        spark: A session with asynclock's jar.

    Raises:
        SpecError: No file matches, or the first ones all lack a column that the spec names.
    """

    def __init__(self, spec: Spec, stream: StreamSpec, spark: SparkSession) -> None:
        self._spec = spec
        self._stream = stream
        self._spark = spark
        self._types, self._required = event_columns(spec, stream)
        self._sources = stream.sources(spec.table)
        self._dialect = stream.dialect.settings() if stream.dialect else None
        self._unnamed: Any = classes(spark).io.asynclock.source.SourceFiles.unnamed(
            spark._jsparkSession  # noqa: SLF001
        )
        self._check_headers(self._files())

    def stream(self) -> DataFrame:
        """Return the files as a streaming frame of their names."""
        reader = (
            self._spark.readStream.format("binaryFile").schema(_BINARY_FILE).option("maxFileAge", _FOR_EVER)
        )
        if self._stream.max_files_per_trigger is not None:
            reader = reader.option("maxFilesPerTrigger", self._stream.max_files_per_trigger)
        return _located(reader.load(self._stream.source))

    def all(self) -> DataFrame:
        """Return the names of the files that exist now."""
        return _located(self._spark.read.format("binaryFile").load(self._stream.source))

    @contextmanager
    def settled(self, files: DataFrame, due: Sequence[tuple[str, int]] | None = None) -> Iterator[Settled]:
        """Yield the rows of files, read once and kept while the context lasts; a bad file has no good row.

        Args:
            files: URL and modification time of each, as ``all`` and ``stream`` list them.
            due: The same from the checkpoint. If a file has vanished since, it is only here, and is bad.
        """
        if due is not None:
            files = listed(self._spark, due)
        with contextlib.ExitStack() as kept:
            try:
                rows = kept.enter_context(persisted(self.parse(files), settled))
            except (Py4JJavaError, CapturedException):
                if self._stream.format != "parquet":
                    raise
                # Perhaps Spark cannot decode one file, and it does not say which. Reading them one by one
                # finds it, and raises any other error again.
                rows = kept.enter_context(persisted(self.parse(files, carefully=True), settled))
            yield rows

    def parse(self, files: DataFrame, *, carefully: bool = False) -> DataFrame:
        """Return the rows of files, each with its values or a reason; see ``settled``.

        Args:
            files: URL and modification time of each.
            carefully: Read parquet files one by one, so that one that cannot be decoded spoils no other;
            slower.

        Returns:
            The key, partition and stream columns in their declared types, ``ARRIVAL``, ``FILE``, ``LINE``,
            and for bad rows and files ``REASON`` and ``RAW``, null for good ones. ``LINE`` is null for a bad
            file.
        """
        if self._stream.format == "parquet":
            rows = parquet.rows(
                files, self._types, self._sources, self._required, self._footers(files), carefully=carefully
            )
        else:
            rows = self._texts(files)
        # A total order for any number of tasks: by the age of the file, then by the place in it.
        arrival = F.struct(
            F.timestamp_micros(_MODIFIED).alias("modified"),
            F.col(FILE).alias("file"),
            F.col(_PLACE).alias("row"),
        )
        parsed = rows.select(*self._types, arrival.alias(ARRIVAL), FILE, LINE, REASON, RAW)
        return refuse_unfit(parsed, self._spec, reason=REASON, record=RAW)

    def unnamed_columns(self) -> list[str]:
        """Return columns of the files read so far that the spec does not name, at most 100."""
        return list(self._unnamed.value())

    def good(self, parsed: DataFrame) -> DataFrame:
        """Return the events among parsed rows, in the columns that a splice takes."""
        return parsed.where(F.col(REASON).isNull()).select(*self._types, ARRIVAL)

    def bad(self, parsed: DataFrame) -> DataFrame:
        """Return the bad ones among parsed rows for the quarantine: ``file``, ``line`` and the reason."""
        return bad_rows(parsed, {"file": FILE, "line": LINE})

    def _texts(self, files: DataFrame) -> DataFrame:
        return _text_rows(
            files,
            self._dialect,
            self._types,
            self._sources,
            required=self._required,
            optional=self._stream.optional,
            enveloped=self._stream.envelope is not None,
            unnamed=self._unnamed,
        )

    def _footers(self, files: DataFrame) -> list[Row]:
        return parquet.footers(files, self._sources, self._stream.optional, self._unnamed)

    def _check_headers(self, files: list[str]) -> None:
        """Refuse a column that neither the newest nor the oldest files have."""
        if self._stream.format == "json":
            return
        jvm: Any = classes(self._spark)
        conf = self._spark._jsc.hadoopConfiguration()  # noqa: SLF001
        missing = {
            name: source for name, source in self._sources.items() if name not in self._stream.optional
        }
        first: tuple[str, list[str]] | None = None
        for file in dict.fromkeys((*files[:_HEADERS], *files[-_HEADERS:])):
            header = list(jvm.io.asynclock.source.SourceFiles.header(file, self._dialect, conf))
            if header:
                first = first or (file, header)
                missing = {name: source for name, source in missing.items() if source not in header}
            if not missing:
                return
        if first is not None:
            file, header = first
            name, wanted = next(iter(missing.items()))
            reason = (
                f"{file} has no column {wanted!r} (it has: {', '.join(header)}); correct the spec or the "
                "source, or name the column in optional if it is still to come"
            )
            raise misplaced(self._spec, ("streams", self._stream.name, "columns", name), name, reason)

    def _files(self) -> list[str]:
        """Return the URLs of the files, the newest first; none before the first delivery."""
        source = self._stream.source
        path = classes(self._spark).org.apache.hadoop.fs.Path(source)
        system = path.getFileSystem(self._spark._jsc.hadoopConfiguration())  # noqa: SLF001
        found: Any = system.globStatus(path)
        files = _plain_files(system, found or [])
        if not files:
            reason = missing_source(source) if local_path(source) else _missing_remote(path, system)
            if reason:
                raise misplaced(self._spec, ("streams", self._stream.name, "source"), source, reason)
        return files


def event_columns(spec: Spec, stream: StreamSpec) -> tuple[dict[str, str], list[str]]:
    """Return the types of the columns that a source gives, and those of them that must not be null."""
    shared = {name: spec.shared_type(name) for name in spec.table.shared_columns}
    owned = {column.name: column.type for column in stream.owned(spec.table)}
    times = (one.source for one in spec.table.derived)
    given = {name: kind for name, kind in (shared | owned).items() if name not in spec.table.derive}
    required = (name for name in (*shared, *stream.ordering, *times) if name in given)
    return given, list(dict.fromkeys(required))


def bad_rows(parsed: DataFrame, places: Mapping[str, str]) -> DataFrame:
    """Return the bad ones among parsed rows: their places, ``reason`` and ``record``.

    Args:
        parsed: The rows.
        places: The names of a row's place, each with its column.
    """
    shown = {**places, "reason": REASON, "record": RAW}
    bad = parsed.where(F.col(REASON).isNotNull())
    return bad.select(*(F.col(column).alias(name) for name, column in shown.items()))


def stored_as_declared(rows: DataFrame, types: Mapping[str, str], about: Sequence[str]) -> DataFrame:
    """Return rows of ``io.asynclock.source`` with dates and timestamps in place of numbers, and ``about``."""
    values = [
        F.expr(_STORED[kind].format(name)).alias(name) if kind in _STORED else F.col(name)
        for name, kind in types.items()
    ]
    return rows.select(*values, *about)


def read_keys(spec: Spec, spark: SparkSession, file: str) -> DataFrame:
    """Return the key and partition columns of a CSV or JSON file, by the rules for sources.

    Args:
        spec: The table.
        spark: A session with asynclock's jar.
        file: URL or path; the suffix gives the format and the compression.

    Raises:
        ConfigError: There is no such file, its suffix says nothing, or a row is bad.
    """
    url = file if URL.match(file) else Path(file).absolute().as_uri()
    suffixes = url.rpartition("/")[2].lower().split(".")[1:]
    json = not {"json", "jsonl", "ndjson"}.isdisjoint(suffixes)
    if not json and "csv" not in suffixes:
        raise ConfigError(setting="keys", value=file, reason="name a .csv, .json or .jsonl file of keys")
    try:
        files = _located(spark.read.format("binaryFile").load(url))
    except AnalysisException as error:
        raise ConfigError(setting="keys", value=file, reason="there is no such file") from error
    types = {name: spec.shared_type(name) for name in spec.table.shared_columns}
    jvm: Any = classes(spark)
    unnamed = jvm.io.asynclock.source.SourceFiles.unnamed(spark._jsparkSession)  # noqa: SLF001
    dialect = None if json else CsvDialect().settings()
    own = {name: name for name in types}
    rows = _text_rows(files, dialect, types, own, required=list(types), optional=(), unnamed=unnamed)
    parsed = refuse_unfit(rows, spec, reason=REASON, record=RAW)
    bad: Any = parsed.where(F.col(REASON).isNotNull()).sort(F.col(LINE).asc_nulls_first()).first()
    if bad is not None:
        place = "" if bad[LINE] is None else f"line {bad[LINE]}: "
        raise ConfigError(setting="keys", value=file, reason=f"{place}{bad[REASON]}; nothing was written")
    return parsed.select(*types)


def _text_rows(
    files: DataFrame,
    dialect: dict[str, str] | None,
    types: Mapping[str, str],
    sources: Mapping[str, str],
    *,
    required: list[str],
    optional: Sequence[str],
    enveloped: bool = False,
    unnamed: Any,  # noqa: ANN401  py4j
) -> DataFrame:
    """Return the rows of CSV files, or of JSON files if there is no dialect; each is good or has a reason."""
    jvm: Any = classes(files.sparkSession)
    rows = jvm.io.asynclock.source.SourceFiles.rows(
        files._jdf,  # noqa: SLF001
        dialect,
        list(types),
        list(types.values()),
        list(sources.values()),
        required,
        [sources[name] for name in optional],
        enveloped,
        unnamed,
    )
    about = (FILE, _MODIFIED, LINE, _PLACE, REASON, RAW)
    return stored_as_declared(DataFrame(rows, files.sparkSession), types, about)


def _missing_remote(path: Any, system: Any) -> str | None:  # noqa: ANN401  py4j
    """Return the reason not to wait for files, or None: an empty folder may still get files."""
    while any(wildcard in path.toString() for wildcard in "*?[{"):
        path = path.getParent()
    if not system.exists(path):
        remedy = "create it (in an object store, an empty object whose name ends in /) or correct the path"
        return f"the source does not exist: there is no {path.toString()}; {remedy}"
    if not system.listStatus(path):
        return None
    return f"the source does not exist: nothing in {path.toString()} matches; correct the pattern"


@contextmanager
def persisted(parsed: DataFrame, settle: Callable[[DataFrame], Settled]) -> Iterator[Settled]:
    """Yield the result of ``settle`` on rows that are read once and kept while the context lasts."""
    try:
        yield settle(parsed.persist())
    finally:
        parsed.unpersist()


def settled(parsed: DataFrame) -> Settled:
    """Return the parsed rows without those of bad files, except the one with the reason; mostly one job.

    A damaged file may show only after some of its rows were read. Persist ``parsed`` first.
    """
    is_bad_file = F.col(REASON).isNotNull() & F.col(LINE).isNull()
    # Not a filter: if it cannot match, Spark skips the reading, and damage would show too late.
    found = _counted(parsed, F.when(is_bad_file, F.col(FILE)))
    files = list(found.files())
    if files:
        return counted(parsed.where(~F.col(FILE).isin(files) | F.col(LINE).isNull()))
    return Settled(frame=parsed, rows=found.rows(), bad=found.bad())


def counted(parsed: DataFrame) -> Settled:
    """Return parsed rows if none has to be left out; one job."""
    found = _counted(parsed, F.lit(None).cast("string"))
    return Settled(frame=parsed, rows=found.rows(), bad=found.bad())


def _counted(parsed: DataFrame, bad_file: Column) -> Any:  # noqa: ANN401  py4j
    marks = parsed.select(F.col(REASON).isNotNull(), bad_file)
    return classes(parsed.sparkSession).io.asynclock.source.RowCounts.of(marks._jdf)  # noqa: SLF001


def _located(frame: DataFrame) -> DataFrame:
    # The content is not selected and so not read: the files may have any size.
    modified = F.unix_micros(F.col("_metadata.file_modification_time"))
    return frame.select(plain_path(F.col("_metadata.file_path")).alias("file"), modified.alias("modified"))


def _plain_files(system: Any, found: list[Any]) -> list[str]:  # noqa: ANN401  py4j
    files = []
    for status in found:
        inner = system.listStatus(status.getPath()) if status.isDirectory() else [status]
        files += [
            (-one.getModificationTime(), one.getPath().toUri().toString())
            for one in inner
            if not one.isDirectory() and not one.getPath().getName().startswith(("_", "."))
        ]
    return [name for _, name in sorted(files)]
