"""The rows that a delete appends: tombstones of column groups, or Hudi's deletes of whole rows."""

from __future__ import annotations

import contextlib
import datetime as dt
import re
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from functools import reduce
from operator import and_, or_
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812  the name everybody uses

from asynclock.errors import ConfigError
from asynclock.spark import hoodie
from asynclock.spark.hudi.layout import layout_of
from asynclock.spark.hudi.own import active_session_kept
from asynclock.spark.hudi.stored import stored_rows
from asynclock.spark.results import DeleteReport
from asynclock.spark.spec.checked import wrong
from asynclock.spark.spec.column import sql_type
from asynclock.spark.spec.defaults import sql_literal
from asynclock.spark.spec.functions import FunctionGroup
from asynclock.spark.spec.keys import row_digest
from asynclock.spark.spec.toml import unknown_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Self

    from asynclock.spark.hudi.table import Table
    from asynclock.spark.spec.column_groups import ColumnGroup
    from asynclock.spark.spec.model import Spec

Value = int | float | str | Decimal | dt.datetime | dt.date
UpTo = Value | Sequence[Value]
"""An ordering value; of several ordering columns a list, in turn."""

DELETE_LOCK: Final = "delete/table"
_PRESENT: Final = "_asynclock_present"
_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,20}")
_BITS: Final = {"int": 32, "bigint": 64}
_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


@dataclass(frozen=True, kw_only=True)
class Deletion:
    """The column groups that lose their events of a key, each up to an ordering value.

    Attributes:
        spec: The table.
        up_to: SQL of the ordering values by the label of the group; None: those of the newest event in the
            table. Empty: a delete of Hudi, which removes the whole row.
    """

    spec: Spec
    up_to: Mapping[str, tuple[str, ...] | None]

    @classmethod
    def of(cls, spec: Spec, stream: str | None, up_to: UpTo | Mapping[str, UpTo] | None) -> Self:
        """Return the deletion that a caller wants, checked.

        Raises:
            ConfigError: The table is plain, there is no such stream, or a value is not of the type of its
                ordering column.
        """
        layout_of(spec).refuse_deletes()
        groups = spec.column_groups() if stream is None else spec.stream(stream).column_groups(spec.table)
        if stream is not None or up_to is not None:
            _refuse_kept(groups)
        groups = tuple(group for group in groups if not isinstance(group, FunctionGroup))
        if stream is not None:
            if len(groups) == 1 and isinstance(up_to, Mapping):
                raise _wrong(up_to, f"only stream {stream!r} is deleted; give its ordering value alone")
            if up_to is None:
                return cls(spec=spec, up_to=dict.fromkeys(group.label for group in groups))
        if up_to is None:
            return cls(spec=spec, up_to={})
        what = "a whole row" if stream is None else f"stream {stream!r}"
        return cls(spec=spec, up_to=_limits(groups, up_to, what))

    @property
    def of_whole_rows(self) -> bool:
        """Whether this is a delete of Hudi."""
        return not self.up_to

    @property
    def options(self) -> dict[str, str]:
        """The options of the write in which it differs from an append of events."""
        return {hoodie.DATASOURCE_WRITE_OPERATION: "delete"} if self.of_whole_rows else {}

    @contextlib.contextmanager
    def found(self, keys: DataFrame, table: Table) -> Iterator[tuple[DataFrame, DeleteReport]]:
        """Yield the rows to write and the report, and keep the parts that a validation needs.

        They are kept before the commit, so that each committed delete has them.
        """
        found = self._find(keys.distinct(), table).persist()
        try:
            chosen = (F.col(_PRESENT), self._anything())
            counts: Any = found.agg(F.count("*"), *(F.count(F.when(one, 1)) for one in chosen)).first()
            report = DeleteReport(
                keys=counts[0],
                absent=counts[0] - counts[1],
                written=counts[2],
                delete_id=str(uuid.uuid4()) if counts[2] else None,
            )
            deletes = found.where(self._anything())
            if report.delete_id is not None:
                digests = deletes.selectExpr(f"{row_digest(self.spec)} AS digest")
                kept = digests if self.of_whole_rows else deletes.drop(_PRESENT)
                kept.write.parquet(f"{self.spec.table.kept}/deletes/{report.delete_id}")
            yield deletes, report
        finally:
            found.unpersist()

    def _find(self, keys: DataFrame, table: Table) -> DataFrame:
        """Return the keys, ``_PRESENT`` if the table has values of them to delete, and the tombstones.

        The tombstones are the physical ordering columns of the deleted groups; null: nothing is written.
        Costs one read of the table.
        """
        shared = self.spec.table.shared_columns
        stored = stored_rows(table, spark=keys.sparkSession)
        known = set(stored.columns)
        deleted = self.spec.column_groups() if self.of_whole_rows else self._groups()
        alive = [_alive(one, known).alias(_alive_name(one)) for one in deleted]
        newest = [
            value.alias(_newest_name(name))
            for one in deleted
            for name, value in zip(one.stored_orderings, _newest(one, known), strict=True)
        ]
        found = keys.join(stored.select(*shared, *alive, *newest), list(shared), "left")
        is_present = reduce(or_, (F.coalesce(F.col(_alive_name(one)), F.lit(False)) for one in deleted))
        tombstones: list[Column] = []
        for group in self._groups():
            # A kept value has the order of its stream, whose newest event is the newest of all.
            of = self.spec.stream(group.stream).column_groups(self.spec.table)[0] if not group.name else group
            limit = self.up_to[group.label]
            newest_alive = [
                F.when(F.col(_alive_name(of)), F.col(_newest_name(one))) for one in of.stored_orderings
            ]
            values = newest_alive if limit is None else map(F.expr, limit)
            tombstones += map(Column.alias, values, group.stored_orderings)
        return found.select(*shared, is_present.alias(_PRESENT), *tombstones)

    def values(self) -> dict[str, str]:
        """Return SQL for the physical columns of a tombstone, over the rows of ``found``."""
        values: dict[str, str] = {}
        for group in self._groups():
            values |= {name: f"`{name}`" for name in group.stored_orderings}
            first = values[group.stored_orderings[0]]  # the others are null if it is
            values[group.stored_tombstone] = f"CASE WHEN {first} IS NOT NULL THEN true END"
        return values

    def _groups(self) -> list[ColumnGroup]:
        return [group for group in self.spec.column_groups() if group.label in self.up_to]

    def _anything(self) -> Column:
        """Return SQL that says whether a row has anything to write."""
        if self.of_whole_rows:
            return F.lit(True)
        return reduce(or_, (F.col(group.stored_orderings[0]).isNotNull() for group in self._groups()))


def key_frame(table: Table, keys: DataFrame | Iterable[Mapping[str, Any]]) -> DataFrame:
    """Return a frame of key and partition columns; other columns are left out.

    Raises:
        ConfigError: A column is missing or has another type.
    """
    spec = table.spec
    types = {name: spec.shared_type(name) for name in spec.table.shared_columns}
    if not isinstance(keys, DataFrame):
        rows = [[row.get(name) for name in types] for row in keys]
        schema = ", ".join(f"`{name}` {kind}" for name, kind in types.items())
        with active_session_kept(table.spark):
            return table.spark.createDataFrame(rows, schema)
    found = {field.name: field.dataType.simpleString() for field in keys.schema}
    for name, kind in types.items():
        if (given := found.get(name)) != kind:
            has = f"has it as {given}" if given else "does not have it"
            reason = f"a delete needs {name} as {kind}, the frame {has}; nothing was written"
            raise ConfigError(setting="keys", value=name, reason=reason)
    return keys.select(*types)


def _refuse_kept(groups: Sequence[ColumnGroup]) -> None:
    """Refuse tombstones of a column that keeps a value of any age."""
    for group in groups:
        if not group.has_tombstone:
            reason = (
                f"{group.columns[0].name} of stream {group.stream!r} keeps a value that no tombstone takes "
                "back; delete the whole row, without up_to"
            )
            raise ConfigError(setting="stream", value=group.stream, reason=f"{reason}; nothing was written")


def _limits(
    groups: Sequence[ColumnGroup], up_to: UpTo | Mapping[str, UpTo], what: str
) -> dict[str, tuple[str, ...]]:
    """Return SQL of the ordering values by the labels of the groups."""
    if not isinstance(up_to, Mapping):
        no_time = (one for one in groups if not _is_by_time(one))
        if len(groups) > 1 and (one := next(no_time, None)):
            every = "column groups" if any(group.name for group in groups) else "streams"
            reason = (
                f"{_called(one)} is ordered by {_ordering(one)}, so no one value is right for all {every}; "
                "give one for each"
            )
            raise _wrong(up_to, reason)
        return {group.label: ordering_values(group, up_to) for group in groups}
    labels = [group.label for group in groups]
    for label in up_to:
        if label not in labels:
            raise wrong("stream", label, unknown_name(label, labels))
    if missing := [label for label in labels if label not in up_to]:
        reason = f"{what} is deleted; give the ordering value of {', '.join(missing)} as well"
        raise _wrong(dict(up_to), reason)
    return {group.label: ordering_values(group, up_to[group.label]) for group in groups}


def ordering_values(group: ColumnGroup, up_to: UpTo) -> tuple[str, ...]:
    """Return SQL for the ordering values of a column group.

    Args:
        group: The group.
        up_to: The value, or its text: digits, a date or time by ISO 8601 (UTC unless it says otherwise). If
            several columns order the group, a list of their values.

    Raises:
        ConfigError: There are more or fewer values than columns, or one is not of the type of its column.
    """
    values = up_to if isinstance(up_to, list | tuple) else [up_to]
    if len(values) != len(group.orderings):
        reason = f"{_called(group)} is ordered by {_ordering(group)}; give "
        raise _wrong(up_to, reason + ("one value" if len(group.orderings) == 1 else "a list of their values"))
    found = []
    for column, value in zip(group.orderings, values, strict=True):
        sql = _SQL.get(column.type, _decimal)(column.type, value)
        if sql is None:
            reason = f"{_called(group)} is ordered by {_ordering(group)}, and this is no {column.type}"
            raise _wrong(value, reason)
        found.append(sql)
    return tuple(found)


def _is_by_time(group: ColumnGroup) -> bool:
    return len(group.orderings) == 1 and group.orderings[0].type in {"timestamp", "date"}


def _ordering(group: ColumnGroup) -> str:
    return ", ".join(f"{column.name} ({column.type})" for column in group.orderings)


def _called(group: ColumnGroup) -> str:
    return f"group {group.label!r}" if group.name else f"stream {group.label!r}"


def _whole(kind: str, value: Value) -> str | None:
    if isinstance(value, str):
        value = int(value) if _INTEGER.fullmatch(value) else value
    if type(value) is not int:
        return None
    limit = 1 << (_BITS[kind] - 1)
    return f"CAST('{value}' AS {kind})" if -limit <= value < limit else None


def _moment(value: Value) -> dt.datetime | None:
    if isinstance(value, str):
        try:
            value = dt.datetime.fromisoformat(value)
        except ValueError:
            return None
    if isinstance(value, dt.datetime):
        return value if value.tzinfo else value.replace(tzinfo=dt.UTC)
    if isinstance(value, dt.date):
        return dt.datetime(value.year, value.month, value.day, tzinfo=dt.UTC)
    return None


def _timestamp(_kind: str, value: Value) -> str | None:
    moment = _moment(value)
    micros = moment and (moment - _EPOCH) // dt.timedelta(microseconds=1)
    return None if micros is None else f"timestamp_micros({micros}L)"


def _date(_kind: str, value: Value) -> str | None:
    moment = _moment(value)
    return None if moment is None else f"date_from_unix_date({(moment - _EPOCH).days})"


def _text(_kind: str, value: Value) -> str | None:
    # In hexadecimal, because a session setting decides what a backslash means in SQL text.
    return f"CAST(X'{value.encode().hex()}' AS STRING)" if isinstance(value, str) else None


def _real(kind: str, value: Value) -> str | None:
    try:
        return sql_literal(float(value) if isinstance(value, str) else value, kind)
    except ValueError:
        return None


def _decimal(kind: str, value: Value) -> str | None:
    try:
        return sql_literal(str(value) if isinstance(value, Decimal) else value, kind)
    except (ValueError, InvalidOperation):
        return None


_SQL: Final = {
    "int": _whole,
    "bigint": _whole,
    "float": _real,
    "double": _real,
    "timestamp": _timestamp,
    "date": _date,
    "string": _text,
}


def _alive_name(group: ColumnGroup) -> str:
    return f"_asynclock_alive_{group.stored_orderings[0]}"


def _newest_name(stored: str) -> str:
    return f"_asynclock_newest_{stored}"


def _newest(group: ColumnGroup, known: set[str]) -> list[Column]:
    return [
        F.col(name) if name in known else F.lit(None).cast(sql_type(column.type))
        for name, column in zip(group.stored_orderings, group.orderings, strict=True)
    ]


def _alive(group: ColumnGroup, known: set[str]) -> Column:
    tombstone = group.stored_tombstone
    dead = F.coalesce(F.col(tombstone), F.lit(False)) if tombstone in known else F.lit(False)
    return reduce(and_, (value.isNotNull() for value in _newest(group, known))) & ~dead


def _wrong(value: object, reason: str) -> ConfigError:
    return ConfigError(setting="up_to", value=value, reason=f"{reason}; nothing was written")
