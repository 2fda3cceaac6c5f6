"""Hudi's own view of a table, in the driver's JVM, and the reads through it."""

from __future__ import annotations

import json
import re
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from py4j.protocol import Py4JJavaError

from asynclock.errors import ConfigError
from asynclock.spark.faults import causes, is_passing, sentence
from asynclock.spark.hadoop import HadoopFiles
from asynclock.spark.jvm import classes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from pyspark.sql import SparkSession


_NO_TIMELINE: Final = re.compile(r"FileNotFoundException .*\.hoodie/timeline(?!/)")
"""A file in that folder may vanish while it is listed: archived meanwhile."""


def meta_client(spark: SparkSession, path: str) -> Any:  # noqa: ANN401  py4j objects have no types
    """Return Hudi's ``HoodieTableMetaClient`` of the table at a path; None if there is no table.

    Raises:
        ConfigError: The table's properties are damaged. Nothing was written.
    """
    jvm = classes(spark)
    # While the properties are rewritten, only their copy exists, which Hudi then reads.
    names = ("hoodie.properties", "hoodie.properties.backup")
    if not any(HadoopFiles(spark).exists(f"{path}/.hoodie/{name}") for name in names):
        return None
    builder = jvm.org.apache.hudi.common.table.HoodieTableMetaClient.builder()
    try:
        with _own_files(path):
            return builder.setConf(storage_configuration(spark)).setBasePath(path).build()
    except Py4JJavaError as error:
        if not error.java_exception.getClass().getName().endswith(".TableNotFoundException"):
            raise
        return None  # the file exists, but its first writer has not filled it yet


def active_timeline(meta: Any) -> Any:  # noqa: ANN401  py4j objects have no types
    """Read the active timeline of a ``HoodieTableMetaClient`` again, and return it.

    Raises:
        ConfigError: Its folder is gone, or Hudi cannot read it. Nothing was written.
    """
    with _own_files(str(meta.getBasePath())):
        return meta.reloadActiveTimeline()


@contextmanager
def _own_files(path: str) -> Iterator[None]:
    """Turn Hudi's errors about its own damaged files into a ConfigError; a failing store may recover."""
    try:
        yield
    except Py4JJavaError as error:
        found = [f"{cause.getClass().getSimpleName()} {cause.getMessage()}" for cause in causes(error)]
        is_unborn = any(each.startswith("TableNotFoundException") for each in found)
        if is_unborn or (is_passing(error) and not any(map(_NO_TIMELINE.match, found))):
            raise
        reason = (
            f"Hudi cannot read its own files of the table: {sentence(error)}. Nothing was written; bring "
            "them back from a copy of the table, or remove the table with its checkpoints and locks, and "
            "splice into a new one"
        )
        raise ConfigError(setting="path", value=f"{path}/.hoodie", reason=reason) from None


def clear_unfinished(spark: SparkSession, path: str) -> None:
    """Remove the leftovers of an interrupted creation of the table: folders, and empty properties.

    Hudi mistakes them for a table and always fails at its properties. Do not call this while another process
    may create the table.
    """
    files, meta = HadoopFiles(spark), f"{path}/.hoodie"
    unfinished = files.exists(meta) and meta_client(spark, path) is None
    if unfinished and not any(files.size(each) for each in files.below(meta)):
        files.delete(meta)


def update_properties(spark: SparkSession, path: str, entries: Mapping[str, str]) -> None:
    """Put entries into a table's ``hoodie.properties``; nobody else may write them meanwhile.

    Hudi keeps a copy of the file while it is rewritten; readers use the copy meanwhile.
    """
    jvm: Any = classes(spark)
    properties = jvm.java.util.Properties()
    for name, value in entries.items():
        properties.setProperty(name, value)
    folder = jvm.org.apache.hudi.storage.StoragePath(f"{path}/.hoodie")
    storage = jvm.org.apache.hudi.storage.HoodieStorageUtils.getStorage(folder, storage_configuration(spark))
    jvm.org.apache.hudi.common.table.HoodieTableConfig.update(storage, folder, properties)


def storage_configuration(spark: SparkSession) -> Any:  # noqa: ANN401  py4j objects have no types
    """Return Hadoop's configuration of a session as Hudi has it."""
    configuration = spark._jsc.hadoopConfiguration()  # noqa: SLF001
    return classes(spark).org.apache.hudi.hadoop.fs.HadoopFSUtils.getStorageConf(configuration)


def dumped(write: Callable[[str], object]) -> Iterator[dict[str, Any]]:
    """Yield the objects that ``write``, given the path of a file, writes there as lines of JSON."""
    with tempfile.TemporaryDirectory(prefix="asynclock-timeline-") as folder:
        file = Path(folder) / "lines"
        write(str(file))
        with file.open(encoding="utf-8") as lines:
            yield from map(json.loads, lines)
