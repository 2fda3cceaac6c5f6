"""Files outside of the buckets: what a write without the table's options leaves in a splice table.

A bucket is one file group, whose id is the number of the bucket. Hudi takes the number from the name of every
file, so one file that has none makes every later write fail.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# A base file is `<file id>_<token>_<instant>.parquet`, a log `.<file id>_<instant>.log.<version>_<token>`.
_DATA: Final = re.compile(r"(?P<id>[^_.][^_]*)_[^_]*_\d+\.parquet|\.(?P<log>[^_]+)_\d+\.log\..*")
# io.asynclock.hudi.Commits has it too.
_BUCKET: Final = re.compile(r"\d{8}-0000-0000-0000-000000000000-0")


def file_id(path: str) -> str | None:
    """Return Hudi's id of the file group of a file; None if it has no rows."""
    found = _DATA.fullmatch(path.rpartition("/")[2])
    return found and (found["id"] or found["log"])


def listed_strays(spark: SparkSession, table: str) -> list[str]:
    """Return every file outside of the buckets, below the table, by a listing of the whole table."""
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
            elif (group := file_id(path.getName())) and not _BUCKET.fullmatch(group):
                strays.append(path.toString().removeprefix(base).lstrip("/"))
    return sorted(strays)
