"""Defects of a table: files that are missing, cut, late or in the wrong place."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from asynclock.spark.hudi.meta import active_timeline, dumped
from asynclock.spark.jvm import classes, items
from asynclock.spark.retry import READ, retry

if TYPE_CHECKING:
    from asynclock.spark.hudi.timeline import Timeline


def cleaned_by_versions(timeline: Timeline) -> list[str]:
    """Return the cleans that removed files without regard to commits, as another session may run them."""
    meta = timeline.meta()
    if meta is None:
        return []
    cleaner = classes(timeline.spark).org.apache.hudi.common.util.CleanerUtils
    cleans = active_timeline(meta).getCleanerTimeline().filterCompletedInstants().getInstants()
    done = ((clean.requestedTime(), cleaner.getCleanerMetadata(meta, clean)) for clean in items(cleans))
    return [
        requested
        for requested, metadata in done
        if metadata.getTotalFilesDeleted() and not metadata.getEarliestCommitToRetain()
    ]


def cut_files(timeline: Timeline) -> list[str]:
    """Return the files that are shorter than their commits say: path below the table and both sizes."""
    meta = timeline.meta()
    return [] if meta is None else list(classes(timeline.spark).io.asynclock.timeline.CutFiles.of(meta))


def unseen(timeline: Timeline) -> list[dict[str, Any]]:
    """Return the commits of the active timeline that no read shows; see the Java class ``Unseen``."""
    meta = timeline.meta()
    if meta is None:
        return []
    java = classes(timeline.spark).io.asynclock.timeline.Unseen
    return retry(lambda: list(dumped(lambda file: java.dump(meta, file))), READ)


def leftovers(timeline: Timeline) -> list[str]:
    """Return the paths of markers and heartbeats, of running and of dead writes."""
    jvm = classes(timeline.spark)
    configuration = timeline.spark._jsc.hadoopConfiguration()  # noqa: SLF001
    found: list[str] = []
    for folder in (".temp", ".heartbeat"):
        path = jvm.org.apache.hadoop.fs.Path(f"{timeline.path}/.hoodie/{folder}")
        system = path.getFileSystem(configuration)
        if system.exists(path):
            found += [status.getPath().toString() for status in system.listStatus(path)]
    return found
