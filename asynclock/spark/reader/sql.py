"""Put a splice table into Spark's catalog: views to read, and the stored table to change."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from asynclock.errors import ConfigError
from asynclock.spark import hoodie
from asynclock.spark.hudi.layout import layout_of
from asynclock.spark.hudi.locks import CREATION_LOCK
from asynclock.spark.hudi.options import sql_options
from asynclock.spark.hudi.options.table_layer import folder_name
from asynclock.spark.hudi.session import SQL_EXTENSION
from asynclock.spark.hudi.table import Table
from asynclock.spark.reader.presence import NO_TABLE, refuse_missing, unread
from asynclock.spark.reader.snapshot import NOT_YET
from asynclock.spark.spec.column import sql_type
from asynclock.spark.spec.column_groups import TOMBSTONE
from asynclock.spark.spec.joins import ViewSpec
from asynclock.spark.spec.load import misplaced
from asynclock.spark.work.worker import working

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from pyspark.sql import SparkSession

    from asynclock.spark.spec.column_groups import ColumnGroup
    from asynclock.spark.spec.model import Spec, StreamSpec

STORED: Final = "_stored"
_STORED_TABLE: Final = "asynclock.stored"  # properties of a view, as WritableViews.java has them
_STORED_COLUMNS: Final = "asynclock.columns"
_RANK: Final = "_asynclock_rank"

_NAME: Final = re.compile(r"[A-Za-z0-9_]+")
_ENCODED: Final = re.compile(r"""[\s%<>\[\]{}|\\^`"#?]""")
# Hudi takes these from the existing table or from the statement. With "upsert", an INSERT OVERWRITE in a
# session without our extension would remove the whole table.
_NOT_STATED: Final = frozenset({
    hoodie.TABLE_NAME,
    hoodie.DATASOURCE_WRITE_TABLE_NAME,
    hoodie.DATASOURCE_WRITE_OPERATION,
    hoodie.SPARK_SQL_INSERT_INTO_OPERATION,
})  # fmt: skip


def register(spec: Spec, spark: SparkSession, *, name: str | None = None) -> None:
    """Put the table into the catalog of the session, in its current database.

    The view ``<name>`` has the rows and names of :func:`~asynclock.spark.read`, and each of the spec's views
    is ``<name>_<its name>``. The table ``<name>_stored`` has the physical columns; INSERT, UPDATE, MERGE and
    DELETE of it append to the logs and are merged like a stream's events, while streams run. INSERT also
    takes the view, and the names of its columns. After a change of the spec register it again.

    Args:
        spec: The table and its streams.
        spark: A session with Hudi, the merger and our extension, as ``asynclock.spark.session`` makes it.
        name: Name of the view: letters, digits and ``_``; default: that of the table's folder.

    Raises:
        ConfigError: The session lacks the extension, or the catalog has another table of that name, or the
            name is Hudi's own for the table. Nothing was changed.
        SpecError: The table is a plain one, nothing is committed to it yet, or its path has a character
            that the catalog cannot name.
    """
    view = _view_name(spec, name)
    ddl(spec, name=name)  # refuses what cannot be registered
    if SQL_EXTENSION not in spark.conf.get("spark.sql.extensions", ""):
        raise ConfigError(
            setting="spark.sql.extensions",
            value=spark.conf.get("spark.sql.extensions", ""),
            reason=f"a session without {SQL_EXTENSION} would write rows that the table cannot merge; start "
            "it with asynclock.spark.session, or with the settings of session_conf()",
        )
    table = Table(spec, spark)
    refuse_missing(table)
    if table.commits.newest() is None:
        raise unread(spec, NOT_YET if table.timeline.exists() else NO_TABLE)
    # Hudi looks its table up in the catalog by name; it would find our view of the same name instead.
    if table.name() == view:
        reason = "the table itself has this name, and could not be read next to a view of it; choose another"
        raise ConfigError(setting="name", value=view, reason=reason)
    table.refuse_other_locks()
    if not table.is_guarded():
        with working(table, CREATION_LOCK, "a registration"):
            table.guard()
    stored = view + STORED
    if spark.catalog.tableExists(stored):
        _refuse_another(table, stored)
    for shown in (view, *(f"{view}_{joined.name}" for joined in spec.views)):
        if spark.catalog.tableExists(shown) and f"`{stored}`" not in _described(spark, shown, "View Text"):
            reason = "the catalog has something else of this name; choose another name"
            raise ConfigError(setting="name", value=shown, reason=reason)
    statements = ddl(spec, name=name, columns=table.commits.columns().keys())
    spark.sql(f"DROP TABLE IF EXISTS `{stored}`")  # the catalog keeps columns and options; the data stays
    for statement in statements:
        spark.sql(statement)


def ddl(spec: Spec, *, name: str | None = None, columns: Collection[str] | None = None) -> tuple[str, ...]:
    """Return the statements that put the table, its view and the spec's views into a catalog, in this order.

    Args:
        spec: The table and its streams.
        name: Name of the view; default: that of the table's folder.
        columns: Stored columns that the table has; those of the spec that it lacks are null in the view.
            None: it has all of them.

    Raises:
        ConfigError: The name has characters other than letters, digits and ``_``.
        SpecError: The table is a plain one, or its path has a character that the catalog cannot name.
    """
    view = _view_name(spec, name)
    layout_of(spec).refuse_views()
    if wrong := _ENCODED.search(spec.table.path):
        reason = (
            f"the path has {wrong[0]!r}, which Hudi looks for percent-encoded when Spark's catalog names the "
            "table; the pipeline can read and write a table there, but SQL cannot"
        )
        raise misplaced(spec, ("table", "path"), spec.table.path, reason)
    properties = {**sql_options(spec), hoodie.ASYNCLOCK_KEY: ",".join(spec.table.key)}
    stated = ",\n".join(
        f"  {_literal(key)} = {_literal(value)}"
        for key, value in properties.items()
        if key not in _NOT_STATED
    )
    create_table = (
        f"CREATE TABLE IF NOT EXISTS `{view}{STORED}` USING hudi TBLPROPERTIES (\n{stated}\n)\n"
        f"LOCATION {_literal(spec.table.path)}"
    )
    present = spec.physical_types().keys() if columns is None else columns
    view_of_all = ViewSpec(name="all", streams=tuple(stream.name for stream in spec.streams))
    create_view = (
        f"CREATE OR REPLACE VIEW `{view}` TBLPROPERTIES (\n"
        f"  '{_STORED_TABLE}' = '{view}{STORED}',\n  '{_STORED_COLUMNS}' = '{_stored_columns(spec)}'\n)\n"
        f"AS {_select(spec, view_of_all, present, f'{view}{STORED}')}"
    )
    return (
        create_table,
        create_view,
        *(
            f"CREATE OR REPLACE VIEW `{view}_{one.name}` AS {_select(spec, one, present, f'{view}{STORED}')}"
            for one in spec.views
        ),
    )


def _stored_columns(spec: Spec) -> str:
    """Return the view's columns with their names in the table, in order, for an INSERT into the view."""
    shared = {name: name for name in spec.table.shared_columns}
    stored = shared | {shown: physical for physical, shown in spec.view_names().items()}
    return ",".join(f"{shown}={physical}" for shown, physical in stored.items())


def _view_name(spec: Spec, name: str | None) -> str:
    view = folder_name(spec.table.path) if name is None else name
    if not _NAME.fullmatch(view):
        reason = "a name in the catalog has letters, digits and _ only; give another one"
        raise ConfigError(setting="name", value=view, reason=reason)
    return view


def _select(spec: Spec, view: ViewSpec, present: Collection[str], stored: str) -> str:
    """Return the query of a view, which joins its streams over the key: the table is their full join."""
    streams = [spec.stream(name) for name in view.streams]
    columns = dict(_view_columns(spec, streams, present))
    alive = [_is_present(spec, stream, present) for stream in streams]
    rows = {"full": " OR ".join(alive), "inner": " AND ".join(alive), "left": alive[0], "right": alive[-1]}
    shown = [f"  {value} AS `{name}`" for name, value in columns.items()]
    if view.top is not None:
        # By their values, because the alias of a column may be the name of another one in the table.
        groups = ", ".join(columns[name] for name in view.top.per)
        first = f"{columns[view.top.by]} {'ASC' if view.top.ascending else 'DESC'} NULLS LAST"
        order = ", ".join([first, *(f"`{name}`" for name in spec.table.shared_columns)])
        window = f"OVER ({f'PARTITION BY {groups} ' if groups else ''}ORDER BY {order})"
        shown.append(f"  row_number() {window} AS {_RANK}")
    tombstones = [f"{one.name}__{TOMBSTONE}" for one in spec.streams if one.deletes == "row"]
    undeleted = [f"NOT coalesce(`{name}`, false)" for name in tombstones if name in present]
    where = " AND ".join([f"({rows[view.join]})", *undeleted]) if undeleted else rows[view.join]
    select = "SELECT\n" + ",\n".join(shown) + f"\nFROM `{stored}`\nWHERE {where}"
    if view.top is None:
        return select
    names = ", ".join(f"`{name}`" for name in columns)
    return f"SELECT {names} FROM (\n{select}\n)\nWHERE {_RANK} <= {view.top.n}"  # noqa: S608  checked names


def _view_columns(
    spec: Spec, streams: Iterable[StreamSpec], present: Collection[str]
) -> Iterator[tuple[str, str]]:
    """Yield the names of a view's columns and their values as SQL."""
    types = spec.physical_types()
    names, defaults = spec.view_names(), spec.view_defaults()
    yield from ((name, f"`{name}`") for name in spec.table.shared_columns)
    for stream in streams:
        groups = stream.column_groups(spec.table)
        alive = {physical: _alive(group, present) for group in groups for physical in group.stored()}
        for physical in map(stream.physical, stream.owned(spec.table)):
            if physical in names:
                value = (
                    f"`{physical}`" if physical in present else f"CAST(NULL AS {sql_type(types[physical])})"
                )
                shown = f"CASE WHEN {alive[physical]} THEN {value} END"
                default = defaults.get(physical)
                yield names[physical], shown if default is None else f"coalesce({shown}, {default})"


def _is_present(spec: Spec, stream: StreamSpec, present: Collection[str]) -> str:
    alive = [_alive(group, present) for group in stream.column_groups(spec.table)]
    return alive[0] if len(alive) == 1 else f"({' OR '.join(alive)})"


def _alive(group: ColumnGroup, present: Collection[str]) -> str:
    tombstone = group.stored_tombstone
    if not set(group.stored_orderings) <= set(present):
        return "false"
    alive = " AND ".join(f"`{name}` IS NOT NULL" for name in group.stored_orderings)
    return f"({alive} AND NOT coalesce(`{tombstone}`, false))" if tombstone in present else alive


def _refuse_another(table: Table, stored: str) -> None:
    location = _described(table.spark, stored, "Location")
    if _comparable(location) != _comparable(table.path):
        reason = (
            f"the catalog has {stored} at {location or 'no location'}, and the table of the spec is at "
            f"{table.path}; choose another name"
        )
        raise ConfigError(setting="name", value=stored, reason=reason)
    # A registration drops the table from the catalog, and with a managed one its data.
    if (kind := _described(table.spark, stored, "Type")) != "EXTERNAL":
        reason = (
            f"the catalog has {stored} as a {kind.lower()} table, whose data it would delete with the table; "
            "choose another name"
        )
        raise ConfigError(setting="name", value=stored, reason=reason)


def _described(spark: SparkSession, name: str, what: str) -> str:
    described = spark.sql(f"DESCRIBE TABLE EXTENDED `{name}`").collect()
    return next((row.data_type for row in described if row.col_name == what), "")


def _comparable(path: str) -> str:
    # Hadoop writes file:/data for file:///data.
    return re.sub(r"^file:/+", "/", path).rstrip("/")


def _literal(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
