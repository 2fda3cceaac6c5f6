"""The rows of a table's view for programs without Spark, as a table of PyArrow.

The package ``hudi`` (hudi-rs) reads the files. It has no merge for several streams, so its rows are right
only if their slice of the table is a base file alone. This module reads those, and refuses everything else.
"""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from functools import reduce
from typing import TYPE_CHECKING, Any, Final, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from asynclock.errors import ConfigError
from asynclock.spark import hoodie
from asynclock.spark.spec.column_groups import TOMBSTONE
from asynclock.spark.spec.load import misplaced
from asynclock.spark.spec.model import RECORD_KEY
from asynclock.spark.spec.place import same_table

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from asynclock.spark.spec.column_groups import ColumnGroup
    from asynclock.spark.spec.kinds import TableKind
    from asynclock.spark.spec.model import Spec

_TYPES: Final[Mapping[str, pa.DataType]] = {
    "string": pa.string(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
}
_REMEDY: Final = "let 'asynclock pipeline services' compact the table, or read it with asynclock.spark.read"

_WRONG_OPTIONS: Final = (
    (
        hoodie.READ_FILE_GROUP_READER_VERSION,
        "2",
        "another reader merges without asynclock's merger, and would show rows several times or lose columns",
    ),
    (
        hoodie.READ_USE_READ_OPTIMIZED_MODE,
        "false",
        "it hides the events that are not compacted yet, and shows no row before the first compaction",
    ),
)


class _Slice(Protocol):
    """A file slice, as ``hudi`` has it."""

    base_file_name: str
    log_file_names: list[str]

    def base_file_relative_path(self) -> str: ...


class _Reader(Protocol):
    """A reader of file slices, as ``hudi`` has it."""

    def read_file_slice_from_paths(
        self, base_file_path: str, log_file_paths: list[str]
    ) -> pa.RecordBatch: ...


class HudiTable(Protocol):
    """The part of ``hudi.HudiTable`` that is used here."""

    @property
    def base_url(self) -> str:
        """The URL of the table."""
        ...

    def hudi_options(self) -> dict[str, str]:
        """Return the options of the table and of its reader."""
        ...

    def get_file_slices(self) -> Sequence[_Slice]:
        """Return the newest file slices."""
        ...

    def create_file_group_reader_with_options(self) -> _Reader:
        """Return a reader of file slices."""
        ...


def view(spec: Spec, table: HudiTable, *, compacted: bool = False) -> pa.Table:
    """Return the rows of the table under the names of the view, as :func:`~asynclock.spark.read` shows them.

    Polars, DuckDB and pandas take the table as it is. All of it is in memory.

    Args:
        spec: The table and its streams.
        table: The table, as ``hudi.HudiTableBuilder.from_base_uri(url).build()`` gives it; 0.5 or newer.
        compacted: Return the rows of the last compaction, without later events. False: the rows of now, which
            only a table without a later event has.

    Raises:
        SpecError: ``table`` is another one than the spec's.
        ConfigError: The rows would be wrong: a slice has events that are not compacted yet, or no base file
            at all, or ``table`` has options that merge without asynclock's rules or leave rows out.
    """
    _refuse_options(table.hudi_options())
    _refuse_another(spec, table)
    slices = table.get_file_slices()
    with_logs = [one for one in slices if one.log_file_names]
    if with_logs and not compacted:
        reason = (
            f"{len(with_logs)} of {len(slices)} file slices have events that are not compacted yet, and only "
            f"asynclock's merger in Spark can merge them; {_REMEDY}, or take the rows of the last compaction "
            "with compacted=True"
        )
        raise ConfigError(setting="table", value=table.base_url, reason=reason)
    based = [one for one in slices if one.base_file_name]
    if len(based) < len(slices):
        reason = (
            f"{len(slices) - len(based)} of {len(slices)} file slices were never compacted, and their rows "
            f"would be missing; {_REMEDY}"
        )
        raise ConfigError(setting="table", value=table.base_url, reason=reason)
    reader = table.create_file_group_reader_with_options()
    batches = [reader.read_file_slice_from_paths(one.base_file_relative_path(), []) for one in based]
    parts = [pa.Table.from_batches([batch]) for batch in batches]
    stored = pa.concat_tables(parts, promote_options="permissive") if parts else pa.table({})
    if parts and RECORD_KEY not in stored.column_names:
        reason = f"there is no {spec.table.kind} table of asynclock at {table.base_url}"
        raise misplaced(spec, ("table", "path"), spec.table.path, reason)
    return _shown(spec, stored)


def _shown(spec: Spec, stored: pa.Table) -> pa.Table:
    """Return the rows of the view, given the merged rows with the columns that the table has."""
    types = spec.physical_types()
    shared = {name: _column(stored, name, types[name]) for name in spec.table.shared_columns}
    alive, groups = _LIVING[spec.table.kind](spec, stored)
    names, defaults = spec.view_names(), _defaults(spec)
    columns = dict(shared)
    for physical, name in names.items():
        column = _column(stored, physical, types[physical])
        if physical in groups:
            column = pc.if_else(groups[physical], column, pa.scalar(None, column.type))
        if physical in defaults:
            column = pc.fill_null(column, defaults[physical].cast(column.type))
        columns[name] = column
    undeleted = [
        _undeleted(stored, f"{stream.name}__{TOMBSTONE}")
        for stream in spec.streams
        if stream.deletes == "row"
    ]
    return pa.table(columns).filter(reduce(pc.and_, undeleted, reduce(pc.or_, alive)))


_Living = tuple[list[Any], dict[str, Any]]
"""Arrays of booleans: what of each row is alive, one or several; and for a column, where it is alive."""


def _living_groups(spec: Spec, stored: pa.Table) -> _Living:
    alive = [_alive(stored, group) for group in spec.column_groups()]
    living = zip(spec.column_groups(), alive, strict=True)
    return alive, {physical: one for group, one in living for physical in group.stored()}


def _living_rows(_: Spec, stored: pa.Table) -> _Living:
    return [_undeleted(stored, TOMBSTONE)], {}


_LIVING: Final[dict[TableKind, Callable[[Spec, pa.Table], _Living]]] = {
    "splice": _living_groups,
    "plain": _living_rows,
}
"""The layouts of tables, as ``asynclock.spark.hudi.layout`` has them for Spark."""


def _alive(stored: pa.Table, group: ColumnGroup) -> Any:  # noqa: ANN401  an array of PyArrow
    if not set(group.stored_orderings) <= set(stored.column_names):
        return pa.repeat(False, stored.num_rows)
    ordered = (pc.is_valid(stored[name]) for name in group.stored_orderings)
    return reduce(pc.and_, ordered, _undeleted(stored, group.stored_tombstone))


def _undeleted(stored: pa.Table, tombstone: str) -> Any:  # noqa: ANN401  an array of PyArrow
    if tombstone not in stored.column_names:
        return pa.repeat(True, stored.num_rows)
    return pc.invert(pc.fill_null(stored[tombstone], False))


def _column(stored: pa.Table, name: str, kind: str) -> Any:  # noqa: ANN401  an array of PyArrow
    """Return a column with the type that it has in the table; nulls if no stream has written it yet."""
    if name not in stored.column_names:
        return pa.nulls(stored.num_rows, _type(kind))
    return _floats(stored[name]) if kind == "float" else stored[name]


def _floats(column: Any) -> Any:  # noqa: ANN401  arrays of PyArrow
    """Return floats, which the table stores as doubles; doubles if a newer spec has made them doubles."""
    floats = column.cast(pa.float32(), safe=False)
    is_same = pc.or_(pc.equal(floats.cast(pa.float64()), column), pc.is_nan(column))
    return floats if pc.all(is_same).as_py() is not False else column


def _defaults(spec: Spec) -> dict[str, pa.Scalar]:
    return {
        stream.physical(column): _scalar(stream.default[column.name], column.type)
        for stream in spec.streams
        for column in stream.owned(spec.table)
        if column.name in stream.default
    }


def _scalar(value: Any, kind: str) -> pa.Scalar:  # noqa: ANN401  of TOML
    if kind.startswith("decimal"):
        return pa.scalar(Decimal(value), _type(kind))
    if isinstance(value, dt.datetime):
        value = value.astimezone(dt.UTC)
    return pa.scalar(value, _type(kind))


def _type(kind: str) -> pa.DataType:
    if kind in _TYPES:
        return _TYPES[kind]
    digits, scale = (int(part) for part in kind.removeprefix("decimal(").removesuffix(")").split(","))
    return pa.decimal128(digits, scale)


def _refuse_options(options: Mapping[str, str]) -> None:
    for option, right, wrong in _WRONG_OPTIONS:
        value = options.get(option, right).lower()
        if value != right:
            raise ConfigError(setting=option, value=value, reason=f"{wrong}; build the table without it")


def _refuse_another(spec: Spec, table: HudiTable) -> None:
    if not same_table(table.base_url, spec.table.path):
        reason = f"the given table is at {table.base_url}; build it from the path of the spec"
        raise misplaced(spec, ("table", "path"), spec.table.path, reason)
