"""Files outside of the buckets: what a write without the table's options leaves in a splice table.

A bucket is one file group, whose id is the number of the bucket. Hudi takes the number from the name of every
file, so one file that has none makes every later write fail.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql import SparkSession

_BUCKET: Final = re.compile(r"\d{8}-0000-0000-0000-000000000000-0")
# A base file is `<file id>_<token>_<instant>.parquet`, a log `.<file id>_<instant>.log.<version>_<token>`.
_BASE: Final = re.compile(r"(?P<id>[^_.][^_]*)_[^_]*_(?P<instant>\d+)\.parquet")
_LOG: Final = re.compile(r"\.(?P<id>[^_]+)_(?P<instant>\d+)\.log\..*")


@dataclass(frozen=True, kw_only=True, slots=True)
class StrayFile:
    """A file outside of the buckets.

    Attributes:
        path: Its path below the table.
        file_id: Hudi's id of its file group.
        instant: Instant time of the commit that wrote it.
    """

    path: str
    file_id: str
    instant: str


def is_bucket(file_id: str) -> bool:
    """Return whether a file group is a bucket."""
    return _BUCKET.fullmatch(file_id) is not None


def stray_files(metadata: Any, instant: str) -> list[StrayFile]:  # noqa: ANN401  py4j objects have no types
    """Return the files outside of the buckets that a commit wrote."""
    groups = metadata.getFileIdAndRelativePaths()
    # One call to the JVM for a commit of many files, of which usually none is astray.
    if len(_BUCKET.findall(groups.keySet().toString())) == groups.size():
        return []
    return [
        StrayFile(path=stat.getPath(), file_id=stat.getFileId(), instant=instant)
        for stat in metadata.getWriteStats()
        if stat.getPath() and not is_bucket(stat.getFileId())
    ]


def existing(spark: SparkSession, table: str, strays: Iterable[StrayFile]) -> list[StrayFile]:
    """Return those that still exist: a repair, a rollback and a cleaning remove files, not commits."""
    found = []
    for stray in strays:
        path = spark._jvm.org.apache.hadoop.fs.Path(f"{table}/{stray.path}")  # noqa: SLF001  no public way
        if path.getFileSystem(spark._jsc.hadoopConfiguration()).exists(path):  # noqa: SLF001
            found.append(stray)
    return found


def listed_strays(spark: SparkSession, table: str) -> list[StrayFile]:
    """Return every file outside of the buckets, by a listing of the whole table."""
    jvm: Any = spark._jvm  # noqa: SLF001  no public way
    root = jvm.org.apache.hadoop.fs.Path(table)
    system = root.getFileSystem(spark._jsc.hadoopConfiguration())  # noqa: SLF001
    base = system.makeQualified(root).toString().rstrip("/")
    strays = []
    folders = [root]
    while folders:
        for status in system.listStatus(folders.pop()):
            path = status.getPath()
            if status.isDirectory():
                if path.getName() != ".hoodie":
                    folders.append(path)
                continue
            name = _BASE.fullmatch(path.getName()) or _LOG.fullmatch(path.getName())
            if name and not is_bucket(name["id"]):
                below = path.toString().removeprefix(base).lstrip("/")
                strays.append(StrayFile(path=below, file_id=name["id"], instant=name["instant"]))
    return sorted(strays, key=lambda stray: stray.path)
