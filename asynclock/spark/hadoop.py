"""Files in any store that Hadoop reaches, through the classes in the driver's JVM."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from asynclock.spark.jvm import classes

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class HadoopFiles:
    """Reads, writes, copies, moves and deletes files and folders by their URLs.

    Args:
        spark: A session, whose settings say how stores are reached.

    Attributes:
        spark: The session.
    """

    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark
        self._jvm: Any = classes(spark)
        self._configuration: Any = spark._jsc.hadoopConfiguration()  # noqa: SLF001

    def exists(self, url: str) -> bool:
        """Return whether there is a file or folder."""
        path, system = self._open(url)
        found: bool = system.exists(path)
        return found

    def size(self, url: str) -> int:
        """Return the bytes of a file, which must exist."""
        path, system = self._open(url)
        found: int = system.getFileStatus(path).getLen()
        return found

    def names(self, folder: str) -> list[str]:
        """Return the names in a folder; none if there is no folder."""
        return sorted(self.written(folder))

    def sizes(self, folder: str) -> dict[str, int]:
        """Return the bytes of the files in a folder by name; as ``names``."""
        path, system = self._open(folder)
        if not system.exists(path):
            return {}
        listed = system.listStatus(path)
        return {one.getPath().getName(): one.getLen() for one in listed if one.isFile()}

    def written(self, folder: str) -> dict[str, float]:
        """Return the times of the last writes in a folder, in seconds since 1970, by name; as ``names``."""
        path, system = self._open(folder)
        if not system.exists(path):
            return {}
        listed = system.listStatus(path)
        return {status.getPath().getName(): status.getModificationTime() / 1000 for status in listed}

    def below(self, folder: str) -> list[str]:
        """Return the URLs of all files in a folder and its folders."""
        path, system = self._open(folder)
        found, files = [], system.listFiles(path, True)
        while files.hasNext():
            found.append(files.next().getPath().toString())
        return found

    def below_relative(self, folder: str) -> list[str]:
        """Return the paths of all files in a folder and its folders, from the folder on."""
        path, system = self._open(folder)
        start = len(system.makeQualified(path).toUri().getPath().rstrip("/")) + 1
        return [
            self._jvm.org.apache.hadoop.fs.Path(url).toUri().getPath()[start:] for url in self.below(folder)
        ]

    def is_local(self, url: str) -> bool:
        """Return whether a URL is of a disk of this machine, where a folder is renamed at once."""
        _, system = self._open(url)
        scheme: str = system.getUri().getScheme()
        return scheme == "file"

    def read(self, url: str) -> str | None:
        """Return the text of a file, or None if there is no file."""
        path, system = self._open(url)
        if not system.exists(path):
            return None
        opened = system.open(path)
        try:
            text: str = self._jvm.org.apache.commons.io.IOUtils.toString(opened, "UTF-8")
        finally:
            opened.close()
        return text

    def write(self, url: str, text: str) -> None:
        """Write a file at once: a reader sees the old content or the new."""
        path, _ = self._open(url)
        streaming = self._jvm.org.apache.spark.sql.execution.streaming
        manager = streaming.CheckpointFileManager.create(path.getParent(), self._configuration)
        manager.mkdirs(path.getParent())
        output = manager.createAtomic(path, True)
        try:
            output.write(text.encode())
        except BaseException:
            output.cancel()
            raise
        output.close()

    def copy(self, source: str, target: str) -> None:
        """Copy a folder; ``target`` must not exist."""
        source_path, source_system = self._open(source)
        target_path, target_system = self._open(target)
        target_system.mkdirs(target_path.getParent())
        self._jvm.org.apache.hadoop.fs.FileUtil.copy(
            source_system, source_path, target_system, target_path, False, True, self._configuration
        )

    def move(self, source: str, target: str) -> None:
        """Move a file or folder to another place of its store; ``target`` must not exist.

        On a disk of this machine it is moved at once or not at all, for a folder as well.

        Raises:
            OSError: It was not moved.
        """
        source_path, system = self._open(source)
        target_path, _ = self._open(target)
        system.mkdirs(target_path.getParent())
        if self.is_local(source):
            # Hadoop would copy a folder that cannot be renamed.
            Path(source_path.toUri().getPath()).rename(target_path.toUri().getPath())
        elif not system.rename(source_path, target_path):
            raise OSError(f"{source} could not be moved to {target}")

    def delete(self, url: str) -> None:
        """Delete a file, or a folder with its whole content, if it exists."""
        path, system = self._open(url)
        system.delete(path, True)

    def _open(self, url: str) -> tuple[Any, Any]:
        path = self._jvm.org.apache.hadoop.fs.Path(url)
        return path, path.getFileSystem(self._configuration)
