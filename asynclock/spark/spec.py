"""The spec of a splice table: which streams write it, from which files, under which locks.

The dataclasses hold every rule about single values and their combinations, and raise ``ConfigError`` wherever
they are built; ``load_spec`` reads them from TOML and turns a complaint into a ``SpecError`` with file, line
and key. Nothing is created, locked or written here, and Spark is not needed.
"""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, get_args

from asynclock.backends._url import refuse_credentials
from asynclock.client import connect
from asynclock.errors import BackendNotInstalledError, ConfigError
from asynclock.spark.spec_toml import unknown_name

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from asynclock.settings import LeaseSettings

SourceFormat = Literal["csv", "parquet", "json"]
BadRowPolicy = Literal["quarantine", "fail"]

COLUMN_TYPES: Final = (
    "string", "boolean", "int", "bigint", "float", "double", "date", "timestamp", "decimal(p,s)",
)  # fmt: skip
ORDERING_TYPES: Final = ("timestamp", "date", "int", "bigint", "string")
KEY_TYPES: Final = ("string", "int", "bigint", "date")
TOMBSTONE: Final = "deleted"
ORDERING: Final = "ts"

_STREAM_NAME: Final = re.compile(r"[a-z][a-z0-9_]*")
_COLUMN_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
_DECIMAL: Final = re.compile(r"decimal\((\d{1,2}),(\d{1,2})\)")
_MAX_DECIMAL_DIGITS: Final = 38
URL: Final = re.compile(r"[a-z][a-z0-9+.-]*:/", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True)
class TableSpec:
    """The Hudi table that the streams write together.

    Attributes:
        path: Where the table is, a URL that Hadoop reads (``file://``, ``s3a://``).
        key: Columns that name a row; every stream has them.
        partition_by: Key columns, or columns that never change for a key; every stream has them.
        buckets: Hash buckets a partition; fixed for the life of the table.
    """

    path: str
    key: tuple[str, ...]
    partition_by: tuple[str, ...] = ()
    buckets: int = 4

    def __post_init__(self) -> None:
        refuse_credentials("path", self.path)
        if not self.key:
            raise _wrong(
                "key", self.key, "a splice table needs a key; name the columns that tell its rows apart"
            )
        for setting, names in (("key", self.key), ("partition_by", self.partition_by)):
            for name in names:
                _check_shared_column(setting, name)
            if len({name.lower() for name in names}) < len(names):
                raise _wrong(setting, list(names), "a column is named twice; name each once")
        _check_at_least("buckets", self.buckets, 1)

    @property
    def shared_columns(self) -> tuple[str, ...]:
        """Key and partition columns, each once: the columns that every stream writes."""
        return tuple(dict.fromkeys((*self.key, *self.partition_by)))


@dataclass(frozen=True, kw_only=True)
class LocksSpec:
    """Where the leases of the pipeline live, and how long they last.

    Attributes:
        url: Prefix of the locks, as for ``asynclock.connect``.
        settings: Validity and the rest, in seconds.
    """

    url: str
    settings: LeaseSettings

    def __post_init__(self) -> None:
        # A store whose package is missing on this machine may still be written down.
        with suppress(BackendNotInstalledError):
            connect(self.url, settings=self.settings)


@dataclass(frozen=True, kw_only=True)
class ServicesSpec:
    """When the table services work, all counted in commits.

    Attributes:
        compact_every_commits: Delta commits after which logs are merged into base files.
        retain_commits: Commits whose files cleaning keeps for readers.
        archive_min_commits: Commits left on the active timeline by an archival; above ``retain_commits``.
        archive_max_commits: Commits on the active timeline that start an archival.
    """

    compact_every_commits: int = 10
    retain_commits: int = 10
    archive_min_commits: int = 20
    archive_max_commits: int = 30

    def __post_init__(self) -> None:
        _check_at_least("compaction.every_commits", self.compact_every_commits, 1)
        _check_at_least("cleaning.retain_commits", self.retain_commits, 1)
        if self.archive_min_commits <= self.retain_commits:
            raise _wrong(
                "archiving.keep_min_commits",
                self.archive_min_commits,
                f"Hudi cleans by the active timeline: keep more than retain_commits ({self.retain_commits})",
            )
        if self.archive_max_commits <= self.archive_min_commits:
            raise _wrong(
                "archiving.keep_max_commits",
                self.archive_max_commits,
                f"must be above keep_min_commits ({self.archive_min_commits})",
            )


@dataclass(frozen=True, kw_only=True)
class Column:
    """A column under its plain name, and its Spark type."""

    name: str
    type: str

    def __post_init__(self) -> None:
        if not _COLUMN_NAME.fullmatch(self.name):
            raise _wrong(self.name, self.name, "column names are letters, digits and _, the first a letter")
        if not _is_column_type(self.type):
            raise _wrong(self.name, self.type, f"unknown type; use one of {', '.join(COLUMN_TYPES)}")


@dataclass(frozen=True, kw_only=True)
class StreamSpec:
    """One source of events and the column group it owns.

    Attributes:
        name: Names the lease ``stream/<name>`` and prefixes the physical columns.
        source: Glob of the source files; a local one must match a file or lie in an empty folder.
        format: How the files are read; columns are matched by name in all three.
        ordering: The column whose newer value wins; stored as ``<name>__ts``.
        checkpoint: Folder of the query's progress; the quarantine lies beside it.
        columns: What the stream owns, in the order of the view; key columns may be typed here as well.
        max_files_per_trigger: Files a micro-batch takes at most; None: all there are.
        on_bad_row: Put rows that cannot be read aside, or fail the batch before anything is written.
    """

    name: str
    source: str
    format: SourceFormat
    ordering: str
    checkpoint: str
    columns: tuple[Column, ...]
    max_files_per_trigger: int | None = None
    on_bad_row: BadRowPolicy = "fail"

    def __post_init__(self) -> None:
        check_stream_name(self.name)
        refuse_credentials("source", self.source)
        refuse_credentials("checkpoint", self.checkpoint)
        _check_choice("format", self.format, get_args(SourceFormat))
        _check_choice("on_bad_row", self.on_bad_row, get_args(BadRowPolicy))
        if self.max_files_per_trigger is not None:
            _check_at_least("max_files_per_trigger", self.max_files_per_trigger, 1)
        types: dict[str, str] = {}
        for column in self.columns:
            if column.name.lower() in types:
                raise _wrong(f"columns.{column.name}", column.name, "another column differs only in case")
            types[column.name.lower()] = column.type
        if self.ordering not in {column.name for column in self.columns}:
            known = ", ".join(column.name for column in self.columns) or "none"
            reason = f"the ordering column is missing; add {self.ordering!r} to columns (there are: {known})"
            raise _wrong("ordering", self.ordering, reason)
        ordering_type = types[self.ordering.lower()]
        if ordering_type not in ORDERING_TYPES:
            reason = f"cannot order by {ordering_type}; use one of {', '.join(ORDERING_TYPES)}"
            raise _wrong(f"columns.{self.ordering}", ordering_type, reason)
        if ORDERING in types and self.ordering.lower() != ORDERING:
            reason = f"{self.name}__{ORDERING} holds the ordering column {self.ordering!r}; use another name"
            raise _wrong(f"columns.{ORDERING}", ORDERING, reason)
        if types.get(TOMBSTONE, "boolean") != "boolean":
            reason = f"{TOMBSTONE!r} is the tombstone of the stream; make it boolean or use another name"
            raise _wrong(f"columns.{TOMBSTONE}", types[TOMBSTONE], reason)

    @property
    def quarantine(self) -> str:
        """The folder of rows put aside."""
        return self.checkpoint.rstrip("/") + "-quarantine"

    def owned(self, table: TableSpec) -> tuple[Column, ...]:
        """The columns that are this stream's alone, its tombstone included."""
        return tuple(column for column in self.columns if column.name not in table.shared_columns)

    def physical(self, column: Column) -> str:
        """The name of an owned column in the table."""
        return f"{self.name}__{ORDERING if column.name == self.ordering else column.name}"


@dataclass(frozen=True, kw_only=True)
class Spec:
    """A splice table, its locks, services and streams.

    Attributes:
        path: The file it was read from; relative paths in it start from its folder.
    """

    path: Path
    table: TableSpec
    locks: LocksSpec
    services: ServicesSpec
    streams: tuple[StreamSpec, ...]

    def __post_init__(self) -> None:
        if not self.streams:
            raise _wrong("streams", None, "a spec needs at least one stream; add a table [streams.NAME]")
        self._check_checkpoints()
        self._check_shared_types()
        self._check_owners()

    def stream(self, name: str) -> StreamSpec:
        """The stream of that name.

        Raises:
            ConfigError: There is none.
        """
        for stream in self.streams:
            if stream.name == name:
                return stream
        raise _wrong("stream", name, unknown_name(name, (stream.name for stream in self.streams)))

    def shared_type(self, column: str) -> str:
        """The type of a key or partition column: as declared by a stream, else string."""
        return next((found.type for _, found in self._declared(column)), "string")

    def _declared(self, name: str) -> Iterator[tuple[StreamSpec, Column]]:
        for stream in self.streams:
            for column in stream.columns:
                if column.name == name:
                    yield stream, column

    def _check_checkpoints(self) -> None:
        owners: dict[str, str] = {}
        for stream in self.streams:
            checkpoint = stream.checkpoint.rstrip("/")
            if checkpoint in owners:
                reason = f"shared by streams {owners[checkpoint]!r} and {stream.name!r}; give each its own"
                raise _wrong(f"streams.{stream.name}.checkpoint", checkpoint, reason)
            owners[checkpoint] = stream.name

    def _check_shared_types(self) -> None:
        for name in self.table.shared_columns:
            expected = self.shared_type(name)
            for stream, column in self._declared(name):
                setting = f"streams.{stream.name}.columns.{name}"
                if column.type not in KEY_TYPES:
                    reason = f"no type for a key or partition column; use one of {', '.join(KEY_TYPES)}"
                    raise _wrong(setting, column.type, reason)
                if column.type != expected:
                    reason = f"another stream declares it {expected}; give it one type everywhere"
                    raise _wrong(setting, column.type, reason)
                if name == stream.ordering:
                    reason = "a key or partition column cannot order a stream; choose another column"
                    raise _wrong(f"streams.{stream.name}.ordering", name, reason)

    def _check_owners(self) -> None:
        owners: dict[str, str] = {name.lower(): "" for name in self.table.shared_columns}
        for stream in self.streams:
            for column in stream.owned(self.table):
                name = column.name.lower()
                if name == TOMBSTONE:
                    continue  # every stream may have one: the view does not show it
                setting = f"streams.{stream.name}.columns.{column.name}"
                if name in owners:
                    other = f"stream {owners[name]!r}" if owners[name] else "the key or partition columns"
                    reason = (
                        f"column {column.name!r} of stream {stream.name!r} is claimed by {other} as well; "
                        "a column has one owner: drop or rename it in one of them"
                    )
                    raise _wrong(setting, column.type, reason)
                owners[name] = stream.name


def check_stream_name(name: str) -> None:
    """Refuse a name from which a physical column could not be split again.

    Raises:
        ConfigError: With an empty setting: the caller knows where the name stands.
    """
    if not _STREAM_NAME.fullmatch(name) or "__" in name or name.endswith("_"):
        reason = "stream names are a-z, 0-9 and single inner _, the first a letter; rename the stream"
        raise _wrong("", name, reason)


def _check_shared_column(setting: str, name: str) -> None:
    if not _COLUMN_NAME.fullmatch(name) or "__" in name:
        reason = "key and partition columns are letters, digits and _, no double _, the first a letter"
        raise _wrong(setting, name, reason)


def _check_choice(setting: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        raise _wrong(setting, value, unknown_name(value, known))


def _check_at_least(setting: str, value: int, least: int) -> None:
    if value < least:
        raise _wrong(setting, value, f"must be a whole number, {least} or more")


def _is_column_type(name: str) -> bool:
    if digits := _DECIMAL.fullmatch(name):
        return 0 <= int(digits[2]) <= int(digits[1]) <= _MAX_DECIMAL_DIGITS and int(digits[1]) > 0
    return name in COLUMN_TYPES[:-1]


def _wrong(setting: str, value: object, reason: str) -> ConfigError:
    return ConfigError(setting=setting, value=value, reason=reason)
