"""A spec of a splice table, whole and with changes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from asynclock.settings import LeaseSettings
from asynclock.spark.spec.column import Column
from asynclock.spark.spec.lock_settings import LocksSpec
from asynclock.spark.spec.model import Spec, StreamSpec, TableSpec
from asynclock.spark.spec.service_settings import ServicesSpec

if TYPE_CHECKING:
    from collections.abc import Sequence

SPEC = """\
[table]
path = "table"
key = ["tailnum"]
buckets = 2

[locks]
url = "locks"
validity = 20.0

[services]
compaction = { every_commits = 5 }
cleaning = { retain_commits = 3 }

[streams.departures]
source = "in/departures/*.csv"
format = "csv"
ordering = "departed_at"
checkpoint = "checkpoints/departures"
max_files_per_trigger = 2
on_bad_row = "quarantine"
columns = { departed_at = "timestamp", origin = "string", dep_delay = "double" }

[streams.arrivals]
source = "in/arrivals/*.csv"
format = "csv"
ordering = "arrived_at"
checkpoint = "checkpoints/arrivals"

[streams.arrivals.columns]
arrived_at = "timestamp"
landed_in = "string"
deleted = "boolean"
"""

TEN_LINES = """\
table.path = "fleet"
table.key = ["tailnum"]
[streams.departures]
source = "in/departures/*.csv"
ordering = "departed_at"
columns = { departed_at = "timestamp", origin = "string", delay = "int" }
[streams.arrivals]
source = "in/arrivals/*.csv"
ordering = "arrived_at"
columns = { arrived_at = "timestamp", dest = "string", delay = "int" }
"""


def table_spec(
    path: str,
    *,
    key: Sequence[str] = ("key",),
    services: ServicesSpec | None = None,
    **table: Any,  # noqa: ANN401  as TableSpec
) -> Spec:
    """A spec of one table, for tests that write and read it themselves; its one stream is never run."""
    stream = StreamSpec(
        name="a",
        source="/in",
        format="csv",
        ordering="at",
        checkpoint="/checkpoint",
        columns=(Column(name="at", type="bigint"),),
        whole_rows=table.get("kind") == "plain",
    )
    return Spec(
        path=Path("spec.toml"),
        table=TableSpec(path=path, key=tuple(key), **table),
        locks=LocksSpec(url="memory://", settings=LeaseSettings()),
        services=services or ServicesSpec(),
        streams=(stream,),
    )
