"""Files outside the buckets: leftovers of a write without the options of a splice table.

A bucket is one file group, whose id begins with the number of the bucket. On merge-on-read zeros follow, so
that writers which do not wait for each other agree about it. Hudi takes the number from the name of every
file, so a single file without one makes every later write fail.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from asynclock.spark.jvm import classes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import SparkSession

    from asynclock.spark.spec.kinds import TableType
    from asynclock.spark.spec.model import TableSpec

# A base file is `<file id>_<token>_<instant>.parquet`, a log `.<file id>_<instant>.log.<version>_<token>`.
_DATA: Final = re.compile(r"(?P<id>[^_.][^_]*)_[^_]*_\d+\.parquet|\.(?P<log>[^_]+)_\d+\.log\..*")
# io.asynclock.timeline.Commits has them too. A bulk insert, as of a rebucket, leaves the last part out.
_BUCKETS: Final[Mapping[TableType, re.Pattern[str]]] = {
    "mor": re.compile(r"\d{8}-0000-0000-0000-000000000000(-0)?"),
    "cow": re.compile(r"\d{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}(-0)?"),
}


def file_id(path: str) -> str | None:
    """Return Hudi's id of the file group of a file; None if it has no rows."""
    found = _DATA.fullmatch(path.rpartition("/")[2])
    return found and (found["id"] or found["log"])


def is_bucket(group: str, table: TableSpec) -> bool:
    """Return whether the file group with this id is a bucket of the table."""
    return bool(_BUCKETS[table.type].fullmatch(group)) and int(group[:8]) < table.buckets


def listed_strays(spark: SparkSession, table: TableSpec) -> list[str]:
    """Return every file outside the buckets, below the table, by a listing of the whole table."""
    jvm: Any = classes(spark)
    root = jvm.org.apache.hadoop.fs.Path(table.path)
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
            elif (group := file_id(path.getName())) and not is_bucket(group, table):
                strays.append(path.toString().removeprefix(base).lstrip("/"))
    return sorted(strays)
