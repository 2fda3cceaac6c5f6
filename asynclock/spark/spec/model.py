"""The spec of a table: its streams, their source files and its locks.

The dataclasses check every rule about single values and their combinations and raise ``ConfigError``;
``load_spec`` reads them from TOML and turns that into a ``SpecError`` with file, line and key. Nothing is
created, locked or written here, and Spark is not needed.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from pydantic import Field
from pydantic.json_schema import SkipJsonSchema

from asynclock._shared.words import refuse_credentials
from asynclock.errors import ConfigError
from asynclock.spark.spec.checked import Switch, Whole, checked, problems_of, refuse, run_all, wrong
from asynclock.spark.spec.column import Column, Columns
from asynclock.spark.spec.column_groups import TOMBSTONE, GroupSpec, check_groups, physical_name, split
from asynclock.spark.spec.defaults import check_defaults, sql_literal
from asynclock.spark.spec.derive import UTC, DerivedText, check_derive, check_sources, derived_columns
from asynclock.spark.spec.dialect import CsvDialect
from asynclock.spark.spec.functions import (
    KEPT,
    NEWEST,
    Function,
    Nulls,
    check_functions,
    function_groups,
    stored_name,
)
from asynclock.spark.spec.hudi_settings import HudiSpec
from asynclock.spark.spec.joins import ViewSpec, check_views
from asynclock.spark.spec.kafka_settings import KafkaSpec, check_source
from asynclock.spark.spec.kinds import (
    CHOICES,
    Concurrency,
    Markers,
    Merge,
    TableKind,
    TableType,
    check_combination,
    check_whole_rows,
)
from asynclock.spark.spec.ordering import ORDERING, Ordering, misfits
from asynclock.spark.spec.place import beside
from asynclock.spark.spec.shared_columns import check_shared_columns
from asynclock.spark.spec.spark import SparkSpec
from asynclock.spark.spec.toml import unknown_name
from asynclock.spark.spec.view import check_renamed, check_stream_name, view_names

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from asynclock.spark.spec.column_groups import ColumnGroup
    from asynclock.spark.spec.derive import Derived
    from asynclock.spark.spec.lock_settings import LocksSpec
    from asynclock.spark.spec.service_settings import ServicesSpec

SourceFormat = Literal["csv", "parquet", "json"]
BadRowPolicy = Literal["quarantine", "fail"]
Envelope = Literal["debezium"]
Deletes = Literal["stream", "row"]

RECORD_KEY: Final = "_asynclock_key"
"""The column with the whole key; see ``asynclock.spark.spec.keys``."""

KEY_TYPES: Final = ("string", "int", "bigint", "date")

_NAMES_OF_ENVELOPE: Final = ("__op", "__ts_ms", "__ts_us", "__ts_ns", "__source_<name>")
_OF_ENVELOPE: Final = re.compile(r"__(?:op|ts_(?:ms|us|ns)|source_.+)")

URL: Final = re.compile(r"[a-z][a-z0-9+.-]*:/", re.IGNORECASE)


@checked
class TableSpec:
    """The Hudi table that the streams write together.

    Attributes:
        path: URL of the table for Hadoop (``file://``, ``s3a://``).
        key: Columns that identify a row; every stream has them.
        partition_by: Key columns, or columns that never change for a key; every stream has them, or they are
            derived.
        buckets: Hash buckets per partition, which only a rebucket changes; 0: none, in a plain table.
        kind: Whether each stream has its own columns (``splice``) or writes whole rows (``plain``).
        type: Merge-on-read or copy-on-write; fixed for the life of the table.
        merge: Which of two records of a key wins; fixed for the life of the table.
        concurrency: How writers that run at the same time treat each other.
        markers: How a running write marks its files.
        metadata_table: Whether writers keep Hudi's metadata table; fixed for the life of a splice table.
        derive: Columns that are functions of the time of an event, such as ``date(at)``, by their names.
        derive_zone: The time zone of these functions.
    """

    path: str
    key: tuple[str, ...]
    partition_by: tuple[str, ...] = ()
    buckets: Annotated[Whole, Field(ge=0)] = 4
    kind: TableKind = "splice"
    type: TableType = "mor"
    merge: Merge = "splice"
    concurrency: Concurrency = "nbcc"
    markers: Markers = "direct"
    metadata_table: Switch = False
    derive: Mapping[str, DerivedText] = Field(default_factory=dict)
    derive_zone: str = UTC

    def __post_init__(self) -> None:
        run_all(self._check_path, self._check_columns, self._check_combination)

    def _check_path(self) -> None:
        refuse_credentials("path", self.path)

    def _check_columns(self) -> None:
        check_shared_columns(self.key, self.partition_by, tuple(self.derive))
        check_derive(self.derive, self.derive_zone, kind=self.kind)

    def _check_combination(self) -> None:
        check_combination({name: getattr(self, name) for name in CHOICES}, self.buckets)
        if self.kind == "splice" and not self.buckets:
            raise wrong("buckets", self.buckets, "must be a whole number, 1 or more")

    @property
    def kept(self) -> str:
        """The folder, next to the table, for its things that must outlive its files."""
        return beside(self.path)

    @property
    def shared_columns(self) -> tuple[str, ...]:
        """Key and partition columns, each once: the columns that every stream writes."""
        return tuple(dict.fromkeys((*self.key, *self.partition_by)))

    @property
    def derived(self) -> tuple[Derived, ...]:
        """The columns that no source has, since they are functions of the time of an event."""
        return derived_columns(self.derive, self.derive_zone)


@checked
class StreamSpec:
    """One source of events and the column group it owns.

    Attributes:
        name: Name of the stream, of its lease ``stream/<name>``, and prefix of its physical columns.
        source: Glob of the source files; a local one must match a file or name an empty folder.
        kafka: The topic that is read in place of files; then the source is empty.
        format: Format of the files; columns are matched by name in all formats. Records of a topic are JSON.
        ordering: The columns whose newer values win, compared in turn; the first is stored as ``<name>__ts``.
        checkpoint: Folder of the query's progress; the quarantine is next to it.
        columns: The stream's columns, in the order of the view; may also give the types of key columns.
        csv: Dialect of CSV files; None: RFC 4180.
        max_files_per_trigger: Most files in one micro-batch; None: all files that exist.
        max_records_per_trigger: Most records of the topic in one micro-batch; None: all records that exist.
        on_bad_row: Quarantine bad rows, or fail the batch before anything is written.
        optional: Columns that a file need not have, since they joined the stream later; null in its events.
        envelope: The form of changes in JSON: ``debezium``. None: each object is an event.
        deletes: What a tombstone deletes: the columns of the stream, or the whole row.
        groups: Columns that are merged apart from the others, by an ordering of their own; by their names.
        merge: Merge functions of some columns, by their names; ``last_value`` for the others.
        nulls: Whether a newer null erases a value, or the columns keep their last value that is not null.
        as_: Names in the view of some of the columns, by their names in the files; in the spec ``as``.
        default: Values that the view shows in place of null, by the names of their columns.
        whole_rows: Whether its events are rows of a plain table, stored under their plain names.
    """

    name: SkipJsonSchema[str]
    source: str = ""
    kafka: KafkaSpec | None = None
    format: SourceFormat
    ordering: Ordering
    checkpoint: str
    columns: Columns
    csv: CsvDialect | None = None
    max_files_per_trigger: Annotated[Whole, Field(ge=1)] | None = None
    max_records_per_trigger: Annotated[Whole, Field(ge=1)] | None = None
    on_bad_row: BadRowPolicy = "fail"
    optional: tuple[str, ...] = ()
    envelope: Envelope | None = None
    deletes: Deletes = "stream"
    groups: Mapping[str, GroupSpec] = Field(default_factory=dict)
    merge: Mapping[str, Function] = Field(default_factory=dict)
    nulls: Nulls = "erase"
    as_: Mapping[str, str] = Field(default_factory=dict, alias="as")
    default: Mapping[str, Any] = Field(default_factory=dict)
    whole_rows: SkipJsonSchema[bool] = False

    def __post_init__(self) -> None:
        run_all(
            lambda: check_stream_name(self.name),
            lambda: refuse_credentials("source", self.source),
            lambda: refuse_credentials("checkpoint", self.checkpoint),
            self._check_source,
            self._check_names,
            self._check_ordering,
            self._check_tombstone,
            self._check_optional,
            self._check_envelope,
            self._check_defaults,
            self._check_groups,
            lambda: check_renamed(self.as_, [each.name for each in self.columns if each.name != TOMBSTONE]),
        )

    def _check_source(self) -> None:
        if self.csv is not None and self.format != "csv":
            raise wrong("csv", self.format, f"a stream of {self.format} files has no CSV dialect; drop it")
        check_source(
            source=self.source,
            kafka=self.kafka,
            format=self.format,
            max_files_per_trigger=self.max_files_per_trigger,
            max_records_per_trigger=self.max_records_per_trigger,
        )

    def _check_names(self) -> None:
        known: set[str] = set()
        taken: dict[str, str] = {}
        for column in self.columns:
            if column.name.lower() in known:
                raise wrong(f"columns.{column.name}", column.name, "another column differs only in case")
            known.add(column.name.lower())
            other = taken.setdefault(column.source, column.name)
            if other != column.name:
                reason = f"column {other!r} is from {column.source!r} too; each column needs one of its own"
                of = column.name if column.from_ is not None else other
                raise wrong(f"columns.{of}.from", column.source, reason)

    def _check_ordering(self) -> None:
        types = {column.name: column.type for column in self.columns}
        for name in self.ordering:
            if name not in types:
                known = ", ".join(types) or "none"
                reason = f"the ordering column is missing; add {name!r} to columns (there are: {known})"
                for column in self.columns:
                    if column.source == name:
                        reason = f"that is a name in the files; write the name of the column, {column.name!r}"
                raise wrong("ordering", name, reason)
        for name, reason in misfits(self.ordering, types):
            raise wrong(f"columns.{name}", types[name], reason)
        taken = ORDERING in map(str.lower, types) and self.ordering[0].lower() != ORDERING
        if not self.whole_rows and taken:
            reason = (
                f"{self.name}__{ORDERING} holds the ordering column {self.ordering[0]!r}; use another name"
            )
            raise wrong(f"columns.{ORDERING}", ORDERING, reason)

    @property
    def quarantine(self) -> str:
        """The folder of the stream's bad rows."""
        return self.checkpoint.rstrip("/") + "-quarantine"

    @property
    def dialect(self) -> CsvDialect | None:
        """The dialect of the files; None if they are not CSV."""
        return (self.csv or CsvDialect()) if self.format == "csv" else None

    def owned(self, table: TableSpec) -> tuple[Column, ...]:
        """Return the columns that are its own and not those of key or partition, its tombstone included."""
        derived = (one.column for one in table.derived)
        return tuple(one for one in (*self.columns, *derived) if one.name not in table.shared_columns)

    def column_groups(self, table: TableSpec) -> tuple[ColumnGroup, ...]:
        """Return the groups in which a splice table merges the columns, that of ``ordering`` first."""
        owned = self.owned(table)
        functions = {column.name: self.function(column.name) for column in owned}
        plain = [column for column in owned if functions[column.name] == NEWEST]
        own, *groups = split(self.name, self.ordering, self.groups, plain)
        return (own, *groups, *function_groups(self.name, own.orderings, functions, owned))

    def function(self, name: str) -> str:
        """Return the merge function of a column."""
        by_default = self.nulls == "erase" or name in {*self.ordering, TOMBSTONE}
        return self.merge.get(name, NEWEST if by_default else KEPT)

    def stored(self, table: TableSpec) -> dict[str, Column]:
        """Return the stream's columns by their names in the table: those it owns, and its tombstones."""
        if self.whole_rows:
            return {column.name: column for column in self.owned(table)}
        stored: dict[str, Column] = {}
        for group in self.column_groups(table):
            stored |= group.stored()
        return stored

    def physical(self, column: Column) -> str:
        """Return the physical name of an owned column."""
        if self.whole_rows:
            return column.name
        if (function := self.function(column.name)) != NEWEST:
            return stored_name(self.name, column.name, function)
        name = next((group for group, one in self.grouped() if one == column.name), "")
        ordering = self.groups[name].ordering if name else self.ordering
        return physical_name(self.name, name, column.name, ordering)

    def grouped(self) -> Iterator[tuple[str, str]]:
        """Yield the names of the groups and of the columns in them."""
        for name, group in self.groups.items():
            yield from ((name, column) for column in (*group.ordering, *group.columns))

    def sources(self, table: TableSpec) -> dict[str, str]:
        """Return the names in the files or records, by the names of the columns that an event has."""
        named = {column.name: column.source for column in self.columns}
        owned = [column.name for column in self.owned(table)]
        every = dict.fromkeys((*table.shared_columns, *owned))
        return {name: named.get(name, name) for name in every if name not in table.derive}

    def _check_optional(self) -> None:
        names = [column.name for column in self.columns]
        for name in self.optional:
            if name not in names:
                raise wrong("optional", name, unknown_name(name, names))
            if name in self.ordering:
                raise wrong("optional", name, "the ordering column cannot be missing; take it out")

    def _check_envelope(self) -> None:
        if self.envelope is None:
            return
        if self.format != "json":
            reason = f"only JSON has an envelope, and this is a stream of {self.format} files; drop it"
            raise wrong("envelope", self.envelope, reason)
        tombstone = next((column for column in self.columns if column.name == TOMBSTONE), None)
        if tombstone is None:
            reason = f'a change may be a delete; add {TOMBSTONE} = "boolean" to columns'
            raise wrong("envelope", self.envelope, reason)
        if tombstone.from_ is not None:
            reason = "the envelope says what is deleted; drop from"
            raise wrong(f"columns.{TOMBSTONE}.from", tombstone.from_, reason)
        for column in self.columns:
            if column.source.startswith("__") and not _OF_ENVELOPE.fullmatch(column.source):
                reason = f"the envelope has no such field; use one of {', '.join(_NAMES_OF_ENVELOPE)}"
                raise wrong(f"columns.{column.name}.from", column.source, reason)
        of_row = {one.name for one in self.columns if not _OF_ENVELOPE.fullmatch(one.source)}
        for name, group in self.groups.items():
            for ordering in of_row.intersection(group.ordering):
                reason = f"a delete need not have {ordering}, and the group would outlive it; order the group"
                reason += " by a field of the envelope, or drop the group"
                raise wrong(f"groups.{name}.ordering", ordering, reason)

    def _check_defaults(self) -> None:
        unfit = {
            **dict.fromkeys(self.ordering, "the ordering column of an event is never null"),
            TOMBSTONE: "the tombstone is not in the view",
        }
        check_defaults(self.default, {each.name: each.type for each in self.columns}, unfit)

    def _check_groups(self) -> None:
        if self.groups and self.whole_rows:
            reason = 'a plain table merges whole rows; drop the groups, or set kind = "splice" in [table]'
            raise wrong("groups", list(self.groups), reason)
        if self.whole_rows and self.merge:
            reason = "a plain table has one rule for all columns; set merge in [table], or kind = 'splice'"
            raise wrong("merge", dict(self.merge), reason)
        if self.whole_rows and self.nulls != "erase":
            reason = 'a plain table merges whole rows; drop nulls, or set kind = "splice" in [table]'
            raise wrong("nulls", self.nulls, reason)
        types = {column.name: column.type for column in self.columns}
        grouped = {column for _, column in self.grouped()}
        run_all(
            lambda: check_groups(self.groups, types, self.ordering),
            lambda: check_functions(self.merge, self.nulls, types, self.ordering, grouped),
        )

    def _check_tombstone(self) -> None:
        for column in self.columns:
            if column.name.lower() != TOMBSTONE:
                continue
            setting = f"columns.{column.name}"
            if column.name != TOMBSTONE:
                reason = f"only {TOMBSTONE!r} in lower case is a tombstone; write it so or use another name"
                raise wrong(setting, column.type, reason)
            if column.type != "boolean":
                reason = f"{TOMBSTONE!r} is the tombstone of the stream; make it boolean or use another name"
                raise wrong(setting, column.type, reason)


@dataclass(frozen=True, kw_only=True)
class Spec:
    """A table, its locks, services and streams.

    Attributes:
        path: The spec's file; relative paths in the spec start from its folder.
        views: Joins of the streams, which a registration puts into the catalog.
        hudi: Options of Hudi that no layer of asynclock sets.
    """

    path: Path
    table: TableSpec
    locks: LocksSpec
    services: ServicesSpec
    streams: tuple[StreamSpec, ...]
    spark: SparkSpec = field(default_factory=SparkSpec)
    views: tuple[ViewSpec, ...] = ()
    hudi: HudiSpec = field(default_factory=HudiSpec)

    def __post_init__(self) -> None:
        if not self.streams:
            raise wrong("streams", None, "a spec needs at least one stream; add a table [streams.NAME]")
        for each in self.streams:
            check_sources(self.table.derived, each.name, each.columns, each.optional)
        run_all(
            self._check_checkpoints,
            self._check_shared_types,
            self._check_owners,
            self._check_rows,
            self._check_services,
            self._check_shown,
        )
        self._check_views()  # a wrong column would make wrong names in the views too

    def stream(self, name: str) -> StreamSpec:
        """Return the stream of that name.

        Raises:
            ConfigError: There is no such stream.
        """
        for stream in self.streams:
            if stream.name == name:
                return stream
        raise wrong("stream", name, unknown_name(name, (stream.name for stream in self.streams)))

    def column_groups(self) -> tuple[ColumnGroup, ...]:
        """Return the column groups of a splice table, stream by stream."""
        return tuple(group for stream in self.streams for group in stream.column_groups(self.table))

    def shared_type(self, column: str) -> str:
        """Return the type of a key or partition column: derived or as a stream declares it, else string."""
        derived = (one.column for one in self.table.derived)
        declared = (found for _, found in self._declared(column))
        return next((one.type for one in (*derived, *declared) if one.name == column), "string")

    def view_names(self) -> dict[str, str]:
        """Return the names in the view by the physical names of the columns, stream by stream.

        Key and partition columns keep their names; tombstones are not in the view.

        Raises:
            ConfigError: Two columns would have one name.
        """
        if self.table.kind == "plain":
            hidden = {*self.table.shared_columns, TOMBSTONE}
            return {name: name for name in self.physical_types() if name not in hidden}
        own = {
            (stream.name, column.name): stream.physical(column)
            for stream in self.streams
            for column in stream.owned(self.table)
            if column.name != TOMBSTONE
        }
        renamed = {
            (stream.name, name): shown for stream in self.streams for name, shown in stream.as_.items()
        }
        names = view_names(own, renamed, self.table.shared_columns)
        return {physical: names[column] for column, physical in own.items()}

    def view_defaults(self) -> dict[str, str]:
        """Return what the view shows in place of null, as SQL, by the physical names of the columns.

        Raises:
            ConfigError: Two streams of a plain table give one column two defaults.
        """
        found: dict[str, str] = {}
        for stream in self.streams:
            for column in stream.owned(self.table):
                if column.name not in stream.default:
                    continue
                literal = sql_literal(stream.default[column.name], column.type)
                if found.setdefault(stream.physical(column), literal) != literal:
                    reason = "another stream gives this column another default; give it one everywhere"
                    setting = f"streams.{stream.name}.default.{column.name}"
                    raise wrong(setting, stream.default[column.name], reason)
        return found

    def physical_types(self) -> dict[str, str]:
        """Return the stored columns and their types, the shared ones first, then stream by stream."""
        shared = {name: self.shared_type(name) for name in self.table.shared_columns}
        stored = {
            name: column.type for stream in self.streams for name, column in stream.stored(self.table).items()
        }
        return shared | stored

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
                raise wrong(f"streams.{stream.name}.checkpoint", checkpoint, reason)
            owners[checkpoint] = stream.name

    def _check_shared_types(self) -> None:
        for name in self.table.shared_columns:
            expected = self.shared_type(name)
            for stream, column in self._declared(name):
                setting = f"streams.{stream.name}.columns.{name}"
                if column.type not in KEY_TYPES:
                    reason = f"no type for a key or partition column; use one of {', '.join(KEY_TYPES)}"
                    raise wrong(setting, column.type, reason)
                if column.type != expected:
                    reason = f"another stream declares it {expected}; give it one type everywhere"
                    raise wrong(setting, column.type, reason)
                if name in stream.optional:
                    reason = "a key or partition column cannot be missing; take it out"
                    raise wrong(f"streams.{stream.name}.optional", name, reason)
                if name in stream.ordering:
                    reason = "a key or partition column cannot order a stream; choose another column"
                    raise wrong(f"streams.{stream.name}.ordering", name, reason)
        for stream in self.streams:
            known = stream.sources(self.table)
            for name, column in itertools.product(known, stream.columns):
                source = known[name]
                if column.source == source and column.name != name:
                    reason = (
                        f"the key or partition column {name!r} is that column of the files; name another "
                        f"one, or say where {name!r} is from"
                    )
                    raise wrong(f"streams.{stream.name}.columns.{column.name}.from", source, reason)

    def _check_shown(self) -> None:
        for stream in self.streams:
            for name in stream.default:
                if name in self.table.shared_columns:
                    reason = "a key or partition column is never null; take it out"
                    raise wrong(f"streams.{stream.name}.default.{name}", stream.default[name], reason)
        self.view_defaults()

    def _check_rows(self) -> None:
        if self.table.kind != "plain":
            return
        for stream in self.streams:
            if stream.deletes == "row":
                reason = "a delete in a plain table removes the whole row already; drop it"
                raise wrong(f"streams.{stream.name}.deletes", stream.deletes, reason)
            for name, shown in stream.as_.items():
                reason = "a plain table shows its columns under their own names; drop it from as"
                raise wrong(f"streams.{stream.name}.as.{name}", shown, reason)
        owned = {stream.name: stream.owned(self.table) for stream in self.streams}
        check_whole_rows(
            {name: {column.name: column.type for column in columns} for name, columns in owned.items()},
            {stream.name: stream.ordering for stream in self.streams},
            merge=self.table.merge,
            buckets=self.table.buckets,
        )

    def _check_views(self) -> None:
        names = self.view_names()
        columns = {
            stream.name: [names.get(stream.physical(column), "") for column in stream.owned(self.table)]
            for stream in self.streams
        }
        check_views(self.views, columns, self.table.shared_columns, self.table.kind)

    def _check_services(self) -> None:
        columns = [stream.physical(column) for stream in self.streams for column in stream.owned(self.table)]
        try:
            self.services.refuse_unfit(
                kind=self.table.kind,
                concurrency=self.table.concurrency,
                buckets=self.table.buckets,
                columns=[*self.table.shared_columns, *columns],
            )
        except ConfigError as error:
            refuse(problems_of(error, "services"))
        if self.hudi.syncs and self.services.mode == "inline":
            reason = (
                "the meta sync of [hudi] runs in one elected service, not in writers; remove one of the two"
            )
            raise wrong("services.mode", self.services.mode, reason)

    def _check_owners(self) -> None:
        shared = {name.lower(): name for name in self.table.shared_columns}
        for stream in self.streams:
            for column in stream.owned(self.table):
                if column.name.lower() in shared:
                    reason = (
                        f"differs from the key or partition column {shared[column.name.lower()]!r} in case "
                        "only; write it in the same way or use another name"
                    )
                    raise wrong(f"streams.{stream.name}.columns.{column.name}", column.type, reason)
            for group, member in stream.grouped():
                if member in self.table.shared_columns:
                    reason = "a key or partition column is in no group; take it out"
                    raise wrong(f"streams.{stream.name}.groups.{group}", member, reason)
            for name, function in stream.merge.items():
                if name in self.table.shared_columns:
                    reason = "a key or partition column has one value; take it out"
                    raise wrong(f"streams.{stream.name}.merge.{name}", function, reason)
            for name in stream.as_:
                if name in self.table.shared_columns:
                    reason = "a key or partition column keeps its name in the view; drop it from as"
                    raise wrong(f"streams.{stream.name}.as.{name}", stream.as_[name], reason)
