"""Local files without the processes that Hadoop starts for each where it has no native library."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from py4j.protocol import Py4JJavaError

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

OURS = "io.asynclock.hudi.LocalFiles"
PROGRAM = """
import sys
from asynclock.spark.hudi.session import start
spark = start("files", master="local[1]", conf={conf!r})
context = spark.sparkContext
configuration = context._jsc.hadoopConfiguration()
print(context._jvm.org.apache.hadoop.fs.FileSystem.getLocal(configuration).getClass().getName())
{body}
spark.stop()
"""


class Files:
    """The session's local file system."""

    def __init__(self, spark: SparkSession) -> None:
        jvm: Any = spark._jvm
        self._hadoop = jvm.org.apache.hadoop.fs
        self._files = self._hadoop.FileSystem.getLocal(spark._jsc.hadoopConfiguration())

    def chmod(self, file: Path, bits: str) -> None:
        """Set the permission, given in octal digits."""
        self._files.setPermission(self._hadoop.Path(str(file)), self._hadoop.permission.FsPermission(bits))

    def target(self, file: Path) -> str | None:
        """Where a link leads; None of what is no link."""
        status = self._files.getFileLinkStatus(self._hadoop.Path(str(file)))
        return str(status.getSymlink().toUri().getPath()) if status.isSymlink() else None


@pytest.fixture
def files(spark: SparkSession) -> Files:
    """Those of this session."""
    return Files(spark)


def mode(file: Path) -> str:
    """The permission bits in octal digits."""
    return f"{stat.S_IMODE(file.stat().st_mode):03o}"


@pytest.mark.parametrize("bits", ["640", "755", "421", "000", "1777"])
def test_a_permission_is_set_as_chmod_sets_it(files: Files, tmp_path: Path, bits: str) -> None:
    """Each bit for itself, the sticky one too."""
    file = tmp_path / "file"
    file.touch()

    files.chmod(file, bits)

    assert mode(file) == bits


def test_the_permission_of_a_file_that_is_not_there_is_an_error(files: Files, tmp_path: Path) -> None:
    """As it is for chmod."""
    with pytest.raises(Py4JJavaError, match="NoSuchFileException"):
        files.chmod(tmp_path / "gone", "640")


def test_links_are_seen_as_links(files: Files, tmp_path: Path) -> None:
    """A link is told with its target, also where it leads nowhere; a file is none."""
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to(tmp_path / "file")
    (tmp_path / "broken").symlink_to(tmp_path / "gone")

    assert files.target(tmp_path / "file") is None
    assert files.target(tmp_path / "link") == str(tmp_path / "file")
    assert files.target(tmp_path / "broken") == str(tmp_path / "gone")


def test_a_session_of_ours_starts_no_process_for_a_file(tmp_path: Path) -> None:
    """Files written by tasks, and a stream's checkpoint: no chmod, no readlink."""
    shims = tmp_path / "bin"
    shims.mkdir()
    calls = tmp_path / "calls"
    for name in ("chmod", "readlink"):
        real = subprocess.run(["which", name], check=True, capture_output=True, text=True).stdout.strip()
        shim = shims / name
        shim.write_text(f'#!/bin/sh\necho {name} "$@" >> {calls}\nexec {real} "$@"\n')
        shim.chmod(0o755)
    calls.touch()
    body = f"""
import pathlib
calls = pathlib.Path({str(calls)!r})
before = len(calls.read_text().splitlines())
source, to = {str(tmp_path / "source")!r}, {str(tmp_path / "to")!r}
spark.range(4).write.parquet(source)
query = (spark.readStream.schema("id long").parquet(source).writeStream.trigger(availableNow=True)
    .option("checkpointLocation", {str(tmp_path / "checkpoint")!r}).format("parquet").start(to))
query.awaitTermination()
assert spark.read.parquet(to).count() == 4
print(*calls.read_text().splitlines()[before:], sep=chr(10))
"""
    code = PROGRAM.format(conf={"spark.sql.warehouse.dir": str(tmp_path / "warehouse")}, body=body)

    ended = subprocess.run(
        [sys.executable, "-c", code],
        check=False,
        capture_output=True,
        text=True,
        env={**os.environ, "PATH": f"{shims}{os.pathsep}{os.environ['PATH']}"},
    )

    assert ended.returncode == 0, ended.stderr[-2000:]
    assert ended.stdout.split() == [OURS]


def test_a_file_system_of_yours_is_kept() -> None:
    """The setting of Hadoop wins."""
    yours = "org.apache.hadoop.fs.LocalFileSystem"

    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(conf={"spark.hadoop.fs.file.impl": yours}, body="")],
        check=False,
        capture_output=True,
        text=True,
    )

    assert ended.returncode == 0, ended.stderr[-2000:]
    assert ended.stdout.split() == [yours]
