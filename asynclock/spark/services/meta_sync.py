"""Make the table known to a catalog outside, such as Hive or Glue, after its commits."""

from __future__ import annotations

import logging
import math
import time
from typing import TYPE_CHECKING, Any, Final

from py4j.protocol import Py4JJavaError

from asynclock.spark import hoodie
from asynclock.spark.faults import sentence
from asynclock.spark.hudi.options import sync_options
from asynclock.spark.jvm import classes
from asynclock.spark.results import ServiceReport
from asynclock.spark.services.due import newest_commit

if TYPE_CHECKING:
    from collections.abc import Callable

    from asynclock.spark.hudi.table import Table

log = logging.getLogger(__name__)

_HIVE: Final = "org.apache.hudi.hive.HiveSyncTool"
_BASE_FILES: Final = "PARQUET"
_PAUSE: Final = 30.0  # seconds after a failure


class MetaSync:
    """Tells catalogs the columns, partitions and newest commit of the table.

    Writers never do: several that change one table of a catalog at once get in each other's way, and their
    batches would fail while the catalog is down.

    Attributes:
        rounds: Number of times that the catalogs were told.
        error: The error of the last attempt; None: it has worked.
    """

    name = "sync"

    def __init__(
        self,
        table: Table,
        on_event: Callable[[str], object] | None = None,
        on_work: Callable[[ServiceReport], object] | None = None,
    ) -> None:
        self.rounds = 0
        self.error: Exception | None = None
        self._table = table
        self._on_event = on_event
        self._on_work = on_work
        self._told = ""  # the newest commit that the catalogs know
        self._not_before = -math.inf  # after a failure

    def step(self, check: Callable[[], object]) -> None:
        """Tell the catalogs about commits that they do not know.

        If a catalog does not answer, the sync is tried again later, and all other work goes on.

        Args:
            check: Called before each tool runs; raises if this process must not do so any more.
        """
        newest = newest_commit(self._table.timeline.instants())
        if newest == self._told or time.monotonic() < self._not_before:
            return
        started = time.monotonic()
        try:
            self._sync(check)
        except Py4JJavaError as error:
            self.error = error
            self._not_before = time.monotonic() + _PAUSE
            failed = f"the meta sync failed: {sentence(error)}; it is tried again in {_PAUSE:.0f} s"
            self._tell(failed, logging.WARNING)
            return
        self.error, self._told = None, newest
        self.rounds += 1
        self._tell(f"told the catalog about the commits up to {newest}")
        if self._on_work is not None:
            seconds = time.monotonic() - started
            self._on_work(ServiceReport(service=self.name, instant=None, seconds=seconds))

    def _sync(self, check: Callable[[], object]) -> None:
        options = sync_options(self._table.spec, name=self._table.name())
        jvm: Any = classes(self._table.spark)
        configuration = self._table.spark._jsc.hadoopConfiguration()  # noqa: SLF001
        properties = jvm.org.apache.hudi.common.config.TypedProperties()
        for key, value in options.items():
            properties.setProperty(key, value)
        files = jvm.org.apache.hadoop.fs.Path(self._table.path).getFileSystem(configuration)
        for tool in _tools(options):
            check()
            jvm.org.apache.hudi.sync.common.util.SyncUtilHelpers.runHoodieMetaSync(
                tool, properties, configuration, files, self._table.path, _BASE_FILES
            )

    def _tell(self, what: str, level: int = logging.INFO) -> None:
        log.log(level, what)
        if self._on_event is not None:
            self._on_event(what)


def _tools(options: dict[str, str]) -> list[str]:
    """Return the classes of the tools: those that are named, or Hive's."""
    named = [name.strip() for name in options.get(hoodie.META_SYNC_CLIENT_TOOL_CLASS, _HIVE).split(",")]
    hive = [_HIVE] if options.get(hoodie.DATASOURCE_HIVE_SYNC_ENABLE) == "true" else []
    return list(dict.fromkeys((*named, *hive)))
