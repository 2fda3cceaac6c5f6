"""Read parquet files, each by its own schema, with conversions that change no value.

Spark reads a file if it can. ``io.asynclock.source.ParquetRows`` reads the others. If Spark cannot decode one
file of a batch, the latter reads all files of that batch.
"""

from __future__ import annotations

import re
from functools import reduce
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812  the name everybody uses

from asynclock.spark.jvm import classes
from asynclock.spark.source.files import frame_of, listed, plain_path
from asynclock.spark.spec.column import sql_type

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import Row, SparkSession

_SMALL: Final = ("int8", "int16", "uint8", "uint16")
_INTEGERS: Final = (*_SMALL, "int32", "uint32", "int64")
# The types of files that each declared type accepts, by their names in io.asynclock.source.ParquetFooter.
_TAKES: Final[Mapping[str, tuple[str, ...]]] = {
    "string": ("string", *_INTEGERS, "uint64"),
    "boolean": ("boolean",),
    "int": (*_SMALL, "int32"),
    "bigint": _INTEGERS,
    "float": ("float", "float16"),
    "double": ("double", "float", "float16", *_SMALL, "int32", "uint32"),
    "date": ("date",),
    "timestamp": tuple(f"timestamp({unit})" for unit in ("millis", "micros", "nanos", "int96")),
}
# The types as which Spark reads them.
_READ_AS: Final[Mapping[str, str]] = {
    "int8": "tinyint", "int16": "smallint", "int32": "int", "int64": "bigint",
    "uint8": "smallint", "uint16": "int", "uint32": "bigint", "uint64": "decimal(20,0)",
    **{f"timestamp({unit})": "timestamp_ltz" for unit in ("millis", "micros", "int96")},
    "timestamp(nanos)": "bigint", "float16": "float",
}  # fmt: skip
# SQL that turns values of io.asynclock.source.ParquetRows into those that Spark reads; else a cast does.
_FROM_LIBRARY: Final[Mapping[str, str]] = {
    "date": "date_from_unix_date({})",
    **{f"timestamp({unit})": "timestamp_micros({})" for unit in ("millis", "micros", "int96")},
}
_DIGITS: Final[Mapping[str, int]] = {
    "int8": 3, "uint8": 3, "int16": 5, "uint16": 5, "int32": 10, "uint32": 10, "int64": 19, "uint64": 20,
}  # fmt: skip
_DECIMAL: Final = re.compile(r"decimal\((\d+),(\d+)\)")
# In every session, dates are in the Gregorian calendar, and unreadable files are not skipped.
_OPTIONS: Final = {
    "datetimeRebaseMode": "CORRECTED",
    "int96RebaseMode": "CORRECTED",
    "ignoreCorruptFiles": "false",
    "ignoreMissingFiles": "false",
    "mergeSchema": "false",
    "parquet.page.verify-checksum.enabled": "true",
}
# Hadoop sees a pattern in these. Spark's own switch against patterns reads files twice if a name has them.
_PATTERN: Final = re.compile(r"[\[\]{}*?\\]")
_NANOS: Final = "timestamp(nanos)"
_NOTHING: Final = ("absent", "null")  # such a column is null in every row


def rows(
    files: DataFrame,
    types: Mapping[str, str],
    sources: Mapping[str, str],
    required: Sequence[str],
    footers: Sequence[Row],
    *,
    carefully: bool,
) -> DataFrame:
    """Return the rows of ``files`` in the columns of ``io.asynclock.source``, with their declared types.

    Args:
        files: URL and modification time of each.
        types: The declared types by column.
        sources: The names in the files, by column.
        required: The columns that must not be null.
        footers: The result of ``footers`` for them.
        carefully: Read all files one by one and not by Spark, so that one that cannot be decoded is a bad
            file and fails no task.
    """
    spark = files.sparkSession
    good: dict[tuple[bool, tuple[str, ...]], list[Row]] = {}
    bad: list[tuple[str, int, str]] = []
    for footer in footers:
        reason = footer["reason"] or _misfit(dict(zip(types, footer["types"], strict=True)), types)
        if reason is None:
            by_spark = footer["for_spark"] and not carefully
            good.setdefault((by_spark, tuple(footer["types"])), []).append(footer)
        else:
            bad.append((footer["file"], footer["modified"], reason))
    frames = []
    for (by_spark, kinds), some in good.items():
        found = dict(zip(types, kinds, strict=True))
        present = {name: kind for name, kind in found.items() if kind not in _NOTHING}
        read = _by_spark if by_spark else _by_library
        frames.append(_checked(read(spark, some, present, sources), present, types, required))
    if bad or not frames:
        frames.append(_bad_files(spark, bad, types))
    return reduce(DataFrame.unionByName, frames)


def footers(
    files: DataFrame,
    sources: Mapping[str, str],
    optional: Sequence[str],
    unnamed: Any,  # noqa: ANN401  py4j
) -> list[Row]:
    """Return the findings of ``io.asynclock.source`` in each file, in the order of arrival.

    Args:
        files: URL and modification time of each.
        sources: The names in the files, by column.
        optional: The columns that a file may lack.
        unnamed: An ``io.asynclock.source.UnnamedColumns``; takes the names of the files' other columns.
    """
    spark = files.sparkSession
    jvm: Any = classes(spark)
    java_files: Any = files._jdf  # noqa: SLF001
    found = jvm.io.asynclock.source.SourceFiles.footers(
        java_files, list(sources), list(sources.values()), [sources[name] for name in optional], unnamed
    )
    rows = DataFrame(found, spark).collect()
    return sorted(rows, key=lambda footer: (footer["modified"], footer["file"]))


def converts(found: str, declared: str) -> bool:
    """Return whether every value of a file's type ``found`` is a value of the type ``declared``."""
    wanted = _DECIMAL.fullmatch(declared)
    if found in _NOTHING:
        return True
    if wanted is None:
        return found in _TAKES[declared]
    before, after = int(wanted[1]) - int(wanted[2]), int(wanted[2])
    if given := _DECIMAL.fullmatch(found):
        return int(given[2]) <= after and int(given[1]) - int(given[2]) <= before
    return _DIGITS.get(found, before + 1) <= before


def _misfit(found: Mapping[str, str], types: Mapping[str, str]) -> str | None:
    wrong = [
        f"{name} is {found[name]}, which cannot become {declared} without loss"
        for name, declared in types.items()
        if not converts(found[name], declared)
    ]
    return f"{'; '.join(wrong)}; correct the file or the type in the spec" if wrong else None


def _by_spark(
    spark: SparkSession, footers: Sequence[Row], found: Mapping[str, str], sources: Mapping[str, str]
) -> DataFrame:
    quoted = {name: f"`{sources[name].replace('`', '``')}`" for name in found}
    schema = ", ".join(f"{quoted[name]} {_READ_AS.get(kind, kind)}" for name, kind in found.items())
    paths = (_PATTERN.sub(r"\\\g<0>", footer["path"]) for footer in footers)
    frame = spark.read.schema(schema).options(**_OPTIONS).parquet(*paths)
    metadata = F.col("_metadata")
    return frame.select(
        *(F.col(quoted[name]).alias(name) for name in found),
        plain_path(metadata["file_path"]).alias("_asynclock_file"),
        F.unix_micros(metadata["file_modification_time"]).alias("_asynclock_modified"),
        metadata["row_index"].alias("_asynclock_row"),
        F.lit(None).cast("string").alias("_asynclock_problem"),
    )


def _by_library(
    spark: SparkSession, footers: Sequence[Row], found: Mapping[str, str], sources: Mapping[str, str]
) -> DataFrame:
    """Return the rows of ``_by_spark``, and a row without a place for each file that cannot be decoded."""
    files = listed(spark, [(footer["file"], footer["modified"]) for footer in footers])
    jvm: Any = classes(spark)
    rows = jvm.io.asynclock.source.SourceFiles.parquetRows(
        files._jdf,  # noqa: SLF001
        list(found),
        [sources[name] for name in found],
        list(found.values()),
    )
    values = []
    for name, kind in found.items():
        value = _FROM_LIBRARY.get(kind, f"CAST({{}} AS {_READ_AS.get(kind, kind)})").format(f"`{name}`")
        values.append(F.expr(value).alias(name))
    about = ("_asynclock_file", "_asynclock_modified", "_asynclock_row", "_asynclock_problem")
    return DataFrame(rows, spark).select(*values, *about)


def _checked(
    frame: DataFrame, found: Mapping[str, str], types: Mapping[str, str], required: Sequence[str]
) -> DataFrame:
    absent = [name for name in types if name not in found]
    complaints = [F.col("_asynclock_problem")]
    complaints += [F.lit(f"{name} is missing") for name in absent if name in required]
    for name, kind in found.items():
        value = F.col(name)
        if name in required:
            missing = (value.isNull() | (value == "")) if kind == "string" else value.isNull()
            complaints.append(F.when(missing, F.lit(f"{name} is missing")))
        if kind == "string":
            unreadable = ~_is_utf8(value, frame.sparkSession)
            complaints.append(F.when(unreadable, F.lit(f"{name} has bytes that are not utf-8")))
        if kind == _NANOS:
            reason = F.concat(F.lit(f"{name} has nanoseconds: "), value.cast("string"))
            complaints.append(F.when(value % 1000 != 0, reason))
    is_bad = F.coalesce(*complaints).isNotNull()
    is_file = F.col("_asynclock_row").isNull()
    said = F.when(is_file, F.col("_asynclock_problem")).otherwise(F.concat_ws("; ", *complaints))
    record = F.to_json(F.struct(*found), {"ignoreNullFields": "false"})
    return frame.select(
        *(_converted(name, kind, types[name]).alias(name) for name, kind in found.items()),
        *(F.lit(None).cast(sql_type(types[name])).alias(name) for name in absent),
        "_asynclock_file",
        "_asynclock_modified",
        (F.col("_asynclock_row") + 1).alias("_asynclock_line"),
        F.coalesce("_asynclock_row", F.lit(0)).alias("_asynclock_row"),
        F.when(is_bad, said).alias("_asynclock_reason"),
        F.when(is_bad & ~is_file, record).alias("_asynclock_record"),
    )


def _is_utf8(text: Column, spark: SparkSession) -> Column:
    jvm: Any = classes(spark)
    # Decoding and comparing each text would take longer than all the rest of the reading.
    return Column(jvm.io.asynclock.source.SourceFiles.isUtf8(text.cast("binary")._jc))  # noqa: SLF001


def _converted(name: str, found: str, declared: str) -> Column:
    if found == _NANOS:
        return F.expr(f"timestamp_micros(`{name}` div 1000)")
    return F.col(name).cast(sql_type(declared))


def _bad_files(
    spark: SparkSession, bad: Sequence[tuple[str, int, str]], types: Mapping[str, str]
) -> DataFrame:
    frame = frame_of(
        spark, bad, "_asynclock_file string, _asynclock_modified bigint, _asynclock_reason string"
    )
    return frame.select(
        *(F.lit(None).cast(sql_type(kind)).alias(name) for name, kind in types.items()),
        "_asynclock_file",
        "_asynclock_modified",
        F.lit(None).cast("bigint").alias("_asynclock_line"),
        F.lit(0).cast("bigint").alias("_asynclock_row"),
        "_asynclock_reason",
        F.lit(None).cast("string").alias("_asynclock_record"),
    )
