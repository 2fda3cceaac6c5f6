"""The options with their users and reasons: exactly those that writers, readers and services get."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from asynclock.spark.hudi.options.compose import compose
from asynclock.spark.hudi.options.option import LAYERS, USES
from asynclock.spark.spec.environment import FromEnvironment

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from asynclock.spark.hudi.options.option import Layer, Use
    from asynclock.spark.spec.model import Spec

TASKS: Final = "<cores of the Spark session>"


@dataclass(frozen=True, kw_only=True, slots=True)
class ExplainedOption:
    """One option of Hudi, as the pipeline uses it.

    Attributes:
        layer: The layer that sets it.
        key: Hudi's key.
        value: Its value.
        used_by: The users of this value.
        why: The reason for this value.
    """

    layer: Layer
    key: str
    value: str
    used_by: tuple[Use, ...]
    why: str


@dataclass(frozen=True, kw_only=True, slots=True)
class MappedColumn:
    """A column with another name in the files or records of a stream.

    Attributes:
        stream: The stream.
        column: The name of the column in the spec.
        source: Its name in the files or records.
    """

    stream: str
    column: str
    source: str


@dataclass(frozen=True, kw_only=True, slots=True)
class DerivedColumn:
    """A column that is computed from the time of each event.

    Attributes:
        column: Its name.
        rule: The function, the column with the time, and the time zone: ``date(at) in UTC``.
    """

    column: str
    rule: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Explanation:
    """Every option that the pipeline of a spec uses.

    Attributes:
        options: Layer by layer; a key that has several values is there once for each.
        columns: The columns whose values come from another name, stream by stream.
        derived: The columns that no source has.
    """

    options: tuple[ExplainedOption, ...]
    columns: tuple[MappedColumn, ...] = ()
    derived: tuple[DerivedColumn, ...] = ()


def explain(spec: Spec, *, spark: SparkSession | None = None) -> Explanation:
    """Return every option that a write, a read, a service and a SQL statement use, with layer and reason.

    Args:
        spec: The table, its streams and services; neither needs to exist.
        spark: The session, which decides the number of Hudi's tasks; None: they are ``TASKS``.

    Raises:
        ConfigError: No lock provider works on the table's file system.
    """
    tasks = TASKS if spark is None else spark.sparkContext.defaultParallelism
    found: dict[tuple[Layer, str, str, str], list[Use]] = {}
    for use in _uses(spec):
        for option in compose(spec, use, tasks=tasks):
            found.setdefault((option.layer, option.key, _shown(option.value), option.why), []).append(use)
    explained = [
        ExplainedOption(layer=layer, key=key, value=value, used_by=tuple(uses), why=why)
        for (layer, key, value, why), uses in found.items()
    ]
    mapped = (
        MappedColumn(stream=stream.name, column=name, source=source)
        for stream in spec.streams
        for name, source in stream.sources(spec.table).items()
        if source != name
    )
    options = sorted(explained, key=lambda option: LAYERS.index(option.layer))
    derived = (DerivedColumn(column=one.name, rule=one.text) for one in spec.table.derived)
    return Explanation(options=tuple(options), columns=tuple(mapped), derived=tuple(derived))


def _shown(value: str | FromEnvironment) -> str:
    return f'{{ env = "{value.variable}" }}' if isinstance(value, FromEnvironment) else value


def _uses(spec: Spec) -> Iterator[Use]:
    elected = spec.services.mode == "elected"
    there = {
        "compaction": elected and spec.table.type == "mor",
        "clustering": elected and spec.services.cluster_every_commits is not None,
        "cleaning": elected,
        "sync": spec.hudi.syncs,
    }
    return (use for use in USES if there.get(use, True))
