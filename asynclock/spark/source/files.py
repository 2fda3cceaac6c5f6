"""List the files that match a source pattern now."""

from __future__ import annotations

import json
import re
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  the name everybody uses

from asynclock.spark.jvm import classes

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql import Column, SparkSession


_LOCAL: Final = re.compile("^file:/+")
_LONGEST: Final = 1 << 20  # characters


@dataclass(frozen=True, kw_only=True, slots=True)
class SourceFile:
    """One file.

    Attributes:
        url: Its URL as Spark writes it, ``file:///`` for a local one.
        modified_ms: Time of the last write, in milliseconds since 1970.
        size: Bytes.
    """

    url: str
    modified_ms: int
    size: int

    @contextmanager
    def local(self, spark: SparkSession, folder: Path) -> Iterator[Path]:
        """Yield the file, or a copy of a remote one that exists while the context lasts."""
        if _LOCAL.match(self.url):
            yield Path(unquote(_LOCAL.sub("/", self.url)))
            return
        name = unquote(self.url.rpartition("/")[2])
        copy = folder / f"copy{''.join(Path(name).suffixes)}"
        jvm = classes(spark)
        path = jvm.org.apache.hadoop.fs.Path(jvm.java.net.URI(self.url))
        system = path.getFileSystem(spark._jsc.hadoopConfiguration())  # noqa: SLF001
        try:
            system.copyToLocalFile(False, path, jvm.org.apache.hadoop.fs.Path(str(copy)), True)
            yield copy
        finally:
            copy.unlink(missing_ok=True)


def source_files(spark: SparkSession, source: str) -> list[SourceFile]:
    """Return the matching files and those in matching folders, without the hidden ones that Spark skips."""
    path = classes(spark).org.apache.hadoop.fs.Path(source)
    system = path.getFileSystem(spark._jsc.hadoopConfiguration())  # noqa: SLF001
    statuses: list[Any] = []
    for status in system.globStatus(path) or []:
        statuses += system.listStatus(status.getPath()) if status.isDirectory() else [status]
    return [
        SourceFile(
            url=plain_url(status.getPath().toUri().toString()),
            modified_ms=status.getModificationTime(),
            size=status.getLen(),
        )
        for status in statuses
        if not status.isDirectory() and not status.getPath().getName().startswith(("_", "."))
    ]


def listed(spark: SparkSession, files: Sequence[tuple[str, int]]) -> DataFrame:
    """Return a frame of some files, spread over the tasks: ``file`` and ``modified``, in microseconds."""
    jvm: Any = classes(spark)
    urls, times = [url for url, _ in files], [time for _, time in files]
    frame = jvm.io.asynclock.source.SourceFiles.listed(spark._jsparkSession, urls, times)  # noqa: SLF001
    return DataFrame(frame, spark)


def frame_of(spark: SparkSession, rows: Sequence[Sequence[object]], schema: str) -> DataFrame:
    """Return a frame of a few rows; unlike ``createDataFrame`` it needs no Python on the executors.

    Args:
        spark: The session.
        rows: Texts, whole numbers and nulls.
        schema: Names and types, such as ``a string, b bigint``.
    """
    names = [column.split()[0].strip("`") for column in schema.split(",")]
    text = json.dumps([dict(zip(names, row, strict=True)) for row in rows])
    array = F.from_json(F.lit(text), f"array<struct<{schema}>>")
    return spark.range(1).select(F.inline(array))


def plain_path(url: Column) -> Column:
    """Return a column with the :func:`plain_url` of each URL."""
    has_one_slash = url.startswith("file:/") & ~url.startswith("file://")
    # A regular expression for every row would take as long as all the rest of the reading.
    longer = F.concat(F.lit("file:///"), url.substr(len("file:/") + 1, _LONGEST))
    return F.when(has_one_slash, longer).otherwise(url)


def plain_url(url: str) -> str:
    """Return a URL in one spelling: Spark writes a local file as ``file:/x`` or as ``file:///x``."""
    return _LOCAL.sub("file:///", url)
