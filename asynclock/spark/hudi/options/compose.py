"""Compose the layers into the options of a write, a read, a table service and a SQL statement."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from asynclock.errors import ConfigError
from asynclock.spark.hudi.options import merge as merge_layer
from asynclock.spark.hudi.options import table_layer
from asynclock.spark.hudi.options.concurrency import concurrency
from asynclock.spark.hudi.options.place_layer import place
from asynclock.spark.hudi.options.services_layer import services
from asynclock.spark.hudi.options.user_layer import user
from asynclock.spark.spec.environment import resolved

if TYPE_CHECKING:
    from collections.abc import Mapping

    from asynclock.spark.hudi.options.option import Option, QueryType, Use
    from asynclock.spark.spec.model import Spec

DEFAULT_TASKS: Final = 2


def compose(
    spec: Spec,
    use: Use,
    *,
    tasks: int | str = DEFAULT_TASKS,
    name: str | None = None,
    query_type: QueryType = "snapshot",
) -> list[Option]:
    """Return every option of one use, layer by layer; each key is set by one layer.

    Args:
        spec: The table, its streams and services.
        use: The use of the options.
        tasks: Spark tasks of each of Hudi's shuffles.
        name: Name of the existing table, which differs from its folder's if the folder was renamed.
        query_type: The kind of rows that a read returns.

    Raises:
        ConfigError: No lock provider works on the table's file system. Nothing was written.
    """
    return [
        *place(spec.table, use, str(tasks)),
        *table_layer.table(spec.table, use, name),
        *merge_layer.merge(spec, use, query_type),
        *concurrency(spec.table, use),
        *services(spec.services, spec.table, use),
        *user(spec.hudi, use),
    ]


def write_options(spec: Spec, *, tasks: int = DEFAULT_TASKS, name: str | None = None) -> dict[str, str]:
    """Return the options with which a stream writes a batch.

    They are for ``df.write.format("hudi").options(**...).mode("append").save(path)``, where ``df`` has one
    row per key and every column of the table, all of them nullable: the schema of the last commit becomes
    the table's.

    Args:
        spec: The table, its streams and services.
        tasks: Spark tasks of each of Hudi's shuffles.
        name: Name of the existing table; None: that of its folder.

    Returns:
        A new dict; change it freely.
    """
    return _plain(compose(spec, "write", tasks=tasks, name=name))


def sql_options(spec: Spec, *, tasks: int = DEFAULT_TASKS, name: str | None = None) -> dict[str, str]:
    """Return table properties with which INSERT, UPDATE and DELETE are merged like a stream's events.

    They differ from :func:`write_options` in two ways: a statement cannot promise one row per key, and it
    writes no commit metadata.
    """
    return _plain(compose(spec, "sql", tasks=tasks, name=name))


def read_options(spec: Spec, *, query_type: QueryType = "snapshot") -> dict[str, str]:
    """Return options for ``spark.read.format("hudi").options(**...).load(path)``.

    Args:
        spec: The table.
        query_type: ``snapshot`` merges the logs; ``read_optimized`` is the state of the last compaction;
            ``incremental`` has, for each key, only the values of the newest events.
    """
    return _plain(compose(spec, "read", query_type=query_type))


def compaction_options(spec: Spec, *, tasks: int = DEFAULT_TASKS) -> dict[str, str]:
    """Return options for Hudi's write client, or ``CALL run_compaction``, to compact the table."""
    return _plain(compose(spec, "compaction", tasks=tasks))


def clustering_options(spec: Spec, *, tasks: int = DEFAULT_TASKS) -> dict[str, str]:
    """Return options for Hudi's write client to cluster a plain table."""
    return _plain(compose(spec, "clustering", tasks=tasks))


def cleaning_options(spec: Spec, *, tasks: int = DEFAULT_TASKS) -> dict[str, str]:
    """Return options for Hudi's write client to clean, roll back dead writers and archive."""
    return _plain(compose(spec, "cleaning", tasks=tasks))


def sync_options(spec: Spec, *, name: str | None = None) -> dict[str, str]:
    """Return properties for Hudi's tools that make the table known to a catalog outside.

    Args:
        spec: The table, and the options of the sync in its ``[hudi]``.
        name: Name of the existing table; None: that of its folder.
    """
    return _plain(compose(spec, "sync", name=name))


def stored_properties(spec: Spec) -> dict[str, str]:
    """Return the ``hoodie.properties`` of the spec's table; an empty text stands for no entry."""
    return table_layer.stored_properties(spec.table) | merge_layer.stored_properties(spec)


def call_argument(options: Mapping[str, str]) -> str:
    """Return the ``options`` argument of a ``CALL``: ``k=v,k=v``, to be put between single quotes.

    Raises:
        ConfigError: A value has a comma or a quote, which that syntax cannot carry.
    """
    for name, value in options.items():
        if set(value) & {",", "'"}:
            raise ConfigError(setting=name, value=value, reason="a CALL cannot carry commas or quotes")
    return ",".join(f"{name}={value}" for name, value in options.items())


def _plain(options: list[Option]) -> dict[str, str]:
    return {key: str(value) for key, value in resolved({each.key: each.value for each in options}).items()}
