"""Splice several PySpark writers into one wide Apache Hudi table.

Each stream appends its own columns of the table. When two records of a key meet, a merger inside Hudi picks,
for each stream, the event with that stream's newer ordering value. Importing this package imports
neither Spark nor pydantic.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from asynclock.spark.check.validation import validate as validate
    from asynclock.spark.errors import BadRowsError as BadRowsError
    from asynclock.spark.errors import ChangesLostError as ChangesLostError
    from asynclock.spark.errors import ClusteringPlanError as ClusteringPlanError
    from asynclock.spark.errors import CutFilesError as CutFilesError
    from asynclock.spark.errors import StrayFilesError as StrayFilesError
    from asynclock.spark.errors import StreamFailedError as StreamFailedError
    from asynclock.spark.errors import TableBusyError as TableBusyError
    from asynclock.spark.errors import TimelineAheadError as TimelineAheadError
    from asynclock.spark.errors import UnfinishedRebucketError as UnfinishedRebucketError
    from asynclock.spark.errors import UnfinishedRestoreError as UnfinishedRestoreError
    from asynclock.spark.hudi.instants import Instant as Instant
    from asynclock.spark.hudi.options.explanation import Explanation as Explanation
    from asynclock.spark.hudi.options.explanation import explain as explain
    from asynclock.spark.hudi.running import session_for as session_for
    from asynclock.spark.hudi.session import session as session
    from asynclock.spark.hudi.session import session_conf as session_conf
    from asynclock.spark.reader.changes import Changes as Changes
    from asynclock.spark.reader.changes import changes as changes
    from asynclock.spark.reader.snapshot import read as read
    from asynclock.spark.reader.sql import register as register
    from asynclock.spark.reader.table_history import timeline as timeline
    from asynclock.spark.runs.run import run as run
    from asynclock.spark.runs.run import run_services as run_services
    from asynclock.spark.services.rebucket import rebucket as rebucket
    from asynclock.spark.services.repair import repair as repair
    from asynclock.spark.services.savepoints import delete_savepoint as delete_savepoint
    from asynclock.spark.services.savepoints import restore as restore
    from asynclock.spark.services.savepoints import savepoint as savepoint
    from asynclock.spark.services.zone import to_utc as to_utc
    from asynclock.spark.spec.load import load_spec as load_spec
    from asynclock.spark.spec.model import Spec as Spec
    from asynclock.spark.work.reservation import reserve as reserve
    from asynclock.spark.writer.splice import Splice as Splice

__all__ = [
    "BadRowsError",
    "Changes",
    "ChangesLostError",
    "ClusteringPlanError",
    "CutFilesError",
    "Explanation",
    "Instant",
    "Spec",
    "Splice",
    "StrayFilesError",
    "StreamFailedError",
    "TableBusyError",
    "TimelineAheadError",
    "UnfinishedRebucketError",
    "UnfinishedRestoreError",
    "changes",
    "delete_savepoint",
    "explain",
    "load_spec",
    "read",
    "rebucket",
    "register",
    "repair",
    "reserve",
    "restore",
    "run",
    "run_services",
    "savepoint",
    "session",
    "session_conf",
    "session_for",
    "timeline",
    "to_utc",
    "validate",
]

_HOMES: Final = {
    "BadRowsError": "errors",
    "Changes": "reader.changes",
    "ChangesLostError": "errors",
    "ClusteringPlanError": "errors",
    "CutFilesError": "errors",
    "Explanation": "hudi.options.explanation",
    "Instant": "hudi.instants",
    "Spec": "spec.model",
    "Splice": "writer.splice",
    "StrayFilesError": "errors",
    "StreamFailedError": "errors",
    "TableBusyError": "errors",
    "TimelineAheadError": "errors",
    "UnfinishedRebucketError": "errors",
    "UnfinishedRestoreError": "errors",
    "changes": "reader.changes",
    "delete_savepoint": "services.savepoints",
    "explain": "hudi.options.explanation",
    "load_spec": "spec.load",
    "read": "reader.snapshot",
    "rebucket": "services.rebucket",
    "register": "reader.sql",
    "repair": "services.repair",
    "reserve": "work.reservation",
    "restore": "services.savepoints",
    "run": "runs.run",
    "run_services": "runs.run",
    "savepoint": "services.savepoints",
    "session": "hudi.session",
    "session_conf": "hudi.session",
    "session_for": "hudi.running",
    "timeline": "reader.table_history",
    "to_utc": "services.zone",
    "validate": "check.validation",
}
"""The module of each name, which its first use imports."""


def __getattr__(name: str) -> Any:  # noqa: ANN401  the attribute of the module
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
