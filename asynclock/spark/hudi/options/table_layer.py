"""The layer of the table: the options that are fixed at its creation."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from asynclock.spark import hoodie
from asynclock.spark.hudi.options.option import Option
from asynclock.spark.spec.hudi_settings import METADATA_PAGE
from asynclock.spark.spec.kinds import NAME_ENDS
from asynclock.spark.spec.model import RECORD_KEY

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from asynclock.spark.hudi.options.option import Use
    from asynclock.spark.spec.kinds import TableType
    from asynclock.spark.spec.model import TableSpec

HUDI_TYPES: Final[Mapping[TableType, str]] = {"mor": "MERGE_ON_READ", "cow": "COPY_ON_WRITE"}


def table(spec: TableSpec, use: Use, name: str | None) -> Iterator[Option]:
    """Yield the options of the table itself.

    Args:
        spec: The table.
        use: The use of the options.
        name: The name in the existing table's ``hoodie.properties``; None: the name of a new table.
    """
    if use == "sync":
        yield from _told(spec, name or _new_name(spec))
    elif use != "read":
        yield from _layout(spec)
    if use in {"write", "sql"}:
        yield from _creation(spec, name or _new_name(spec))
    if use == "write" and name is None:
        why = "A new table has its times in UTC; those of local clocks repeat an hour each autumn."
        yield _option(hoodie.TABLE_TIMELINE_TIMEZONE, "UTC", why)
    yield from _metadata_table(spec, use)


def stored_properties(spec: TableSpec) -> dict[str, str]:
    """Return the entries of this layer in a table's ``hoodie.properties``."""
    return {
        hoodie.TABLE_RECORDKEY_FIELDS: RECORD_KEY,
        hoodie.TABLE_PARTITION_FIELDS: ",".join(spec.partition_by),
        hoodie.TABLE_TYPE: HUDI_TYPES[spec.type],
        **(partition_options() if spec.partition_by else {}),
    }


def folder_name(path: str) -> str:
    """Return the name of the table's folder, as an identifier."""
    return re.sub(r"\W", "_", path.rstrip("/").rpartition("/")[2])


def _new_name(spec: TableSpec) -> str:
    # A read looks this name up in the catalog. It fails if that is a view, and takes over the properties of a
    # table, whichever that is. So it is neither the name of our view nor that of our table in the catalog.
    return folder_name(spec.path) + NAME_ENDS[spec.kind]


def partition_options() -> dict[str, str]:
    """Return options that name partition folders ``column=value``, percent-encoded; fixed at creation.

    Without the encoding a slash would open a folder; without the column's name ``..`` would leave the table.
    """
    return {
        hoodie.DATASOURCE_WRITE_HIVE_STYLE_PARTITIONING: "true",
        hoodie.DATASOURCE_WRITE_PARTITIONPATH_URLENCODE: "true",
    }


def _layout(spec: TableSpec) -> Iterator[Option]:
    kind = HUDI_TYPES[spec.type]
    if spec.type == "mor":
        why = "Merge on read: a write appends to logs, which reads and compactions merge."
    else:
        why = "Copy on write: a write rewrites the files of its keys, so that reads have nothing to merge."
    yield _option(hoodie.TABLE_TYPE, kind, why)
    yield _option(
        hoodie.DATASOURCE_WRITE_TABLE_TYPE, kind, "The same; parts of Hudi read only one of the two names."
    )
    yield _option(
        hoodie.DATASOURCE_WRITE_RECORDKEY_FIELD,
        RECORD_KEY,
        "The key columns in one, percent-encoded: Hudi would confuse keys that contain ':' or ','.",
    )
    if spec.buckets:
        why = "The hash of its key names the file of a row, so that all writers agree without a look-up."
        yield _option(hoodie.INDEX_TYPE, "BUCKET", why)
        yield _option(
            hoodie.INDEX_BUCKET_ENGINE, "SIMPLE", "A fixed number of files; others cannot be written at once."
        )
    else:
        why = "A write looks its keys up in the files, which may have any number, so clustering is possible."
        yield _option(hoodie.INDEX_TYPE, "SIMPLE", why)
    yield _option(
        hoodie.PARQUET_BLOOM_FILTER_ENABLED,
        "false",
        "Neither index reads it; it would add 400 kB to each base file, which each read loads.",
    )


def _metadata_table(spec: TableSpec, use: Use) -> Iterator[Option]:
    if not spec.metadata_table:
        why = (
            "Without Hudi's metadata table a write takes half the time, and a cached join cannot hang "
            f"a read; {METADATA_PAGE} has the other reasons."
        )
        yield _option(hoodie.METADATA_ENABLE, "false", why)
        return
    if use in {"read", "sync"}:
        why = "A read lists the folders, so it shows each file, and a cached join cannot hang it."
        yield _option(hoodie.METADATA_ENABLE, "false", why)
        return
    why = "The spec's metadata_table: writers and services take the names of all files from a table of them."
    yield _option(hoodie.METADATA_ENABLE, "true", why)
    why = "Hudi would skip a file by the values of its events, of which the merge may show others."
    yield _option(hoodie.METADATA_INDEX_COLUMN_STATS_ENABLE, "false", why)
    yield _option(hoodie.METADATA_INDEX_PARTITION_STATS_ENABLE, "false", why)
    if use == "sql":
        why = "There are no statistics of columns, and to look for them can hang a cached join."
        yield _option(hoodie.ENABLE_DATA_SKIPPING, "false", why)


def _told(spec: TableSpec, name: str) -> Iterator[Option]:
    """Yield what a catalog learns about the table."""
    yield _option(hoodie.TABLE_NAME, name, "Hudi's own name for the table; the catalog has one of its own.")
    yield _option(hoodie.DATASOURCE_META_SYNC_BASE_PATH, spec.path, "The spec's path.")
    yield _option(hoodie.DATASOURCE_HIVE_SYNC_BASE_FILE_FORMAT, "PARQUET", "The format of the base files.")
    fields = ",".join(spec.partition_by)
    extractor = "MultiPartKeysValueExtractor" if fields else "NonPartitionedExtractor"
    why = "Values of a partition are read from the names of its folders, column=value and encoded."
    yield _option(hoodie.DATASOURCE_HIVE_SYNC_PARTITION_FIELDS, fields, "The spec's partition_by.")
    yield _option(
        hoodie.DATASOURCE_HIVE_SYNC_PARTITION_EXTRACTOR_CLASS, f"org.apache.hudi.hive.{extractor}", why
    )
    yield _option(hoodie.META_SYNC_DECODE_PARTITION, str(bool(fields)).lower(), why)
    yield _option(
        hoodie.META_SYNC_METADATA_FILE_LISTING, "false", "The files are listed: there is no metadata table."
    )
    yield _option(
        hoodie.DATASOURCE_HIVE_SYNC_CREATE_MANAGED_TABLE,
        "false",
        "The catalog does not own the files: a table that is dropped there loses no row.",
    )


def _creation(spec: TableSpec, name: str) -> Iterator[Option]:
    yield _option(hoodie.TABLE_NAME, name, "Hudi's own name for the table; an existing table keeps it.")
    yield _option(hoodie.DATASOURCE_WRITE_TABLE_NAME, name, "The same, for Spark's data source.")
    fields = ",".join(spec.partition_by)
    why = "The spec's partition_by." if fields else "The spec has no partition_by: one folder for all rows."
    yield _option(hoodie.DATASOURCE_WRITE_PARTITIONPATH_FIELD, fields, why)
    if fields:
        for key, value in partition_options().items():
            yield _option(key, value, "Folders are column=value, encoded, so that no value leaves the table.")
    if spec.buckets:
        why = "The spec's buckets: files per partition, best of 1 to 2 GB; a rebucket changes their number."
        yield _option(hoodie.BUCKET_INDEX_NUM_BUCKETS, str(spec.buckets), why)


def _option(key: str, value: str, why: str) -> Option:
    return Option(key, value, "table", why)
