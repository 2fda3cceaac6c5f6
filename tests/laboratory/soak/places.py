"""Where the tables of a soak are: a disk of a few megabytes, or an S3 server behind a proxy that fails."""

from __future__ import annotations

import contextlib
import errno
import os
import subprocess
from typing import TYPE_CHECKING, Final

from pyarrow import fs

from tests.hudi.harness import compile_harness, lock_client_jar, s3a_jars
from tests.laboratory.servers import BUCKET

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from tests.laboratory.servers import Server

DISK_BYTES: Final = 512 << 20
_CHUNK: Final = bytes(1 << 20)
_LOCKS: Final = """\
endpoint_url = "{endpoint}"
region = "{region}"
path_style = true
allow_http = true
access_key_id = {{ env = "AWS_ACCESS_KEY_ID" }}
secret_access_key = {{ env = "AWS_SECRET_ACCESS_KEY" }}
"""


class Place:
    """A folder of a file system or of a bucket.

    Args:
        name: For messages.
        files: The file system, as pyarrow sees it.
        root: The folder, as pyarrow names it.
        url: The folder, as a spec names it.
        locks: What the spec of a driver says of the locks there.
        around: The part of it that leads to faults of the store, and what it is without them.
    """

    def __init__(
        self,
        name: str,
        files: fs.FileSystem,
        root: str,
        url: str,
        *,
        locks: str = "",
        around: tuple[str, str] = ("", ""),
    ) -> None:
        self.name = name
        self.url = url
        self.locks = locks
        self.around = around
        self._files = files
        self._root = root
        self.make("in")

    def put(self, path: str, body: bytes) -> None:
        """Write a file below the folder, so that a reader sees it whole or not at all."""
        folder, _, name = path.rpartition("/")
        target = f"{self._root}/{path}"
        if self.name != "file":
            with self._files.open_output_stream(target) as file:
                file.write(body)
            return
        hidden = f"{self._root}/{folder}/.{name}"
        with self._files.open_output_stream(hidden) as file:
            file.write(body)
        self._files.move(hidden, target)

    def get(self, url: str) -> bytes:
        """Return the content of a file."""
        with self._files.open_input_stream(f"{self._root}{url.removeprefix(self.url)}") as file:
            body: bytes = file.read()
        return body

    def make(self, path: str) -> None:
        """Make a folder below the folder, where there are any."""
        if self.name == "file":
            self._files.create_dir(f"{self._root}/{path}", recursive=True)

    def files(self, url: str) -> list[str]:
        """Return the files below a folder, without the folder."""
        folder = f"{self._root}{url.removeprefix(self.url)}"
        found = self._files.get_file_info(fs.FileSelector(folder, recursive=True, allow_not_found=True))
        return [each.path.removeprefix(f"{folder}/") for each in found if each.type == fs.FileType.File]


@contextlib.contextmanager
def small_disk(folder: Path) -> Iterator[bool]:
    """Put a file system of its own, in memory, at the folder; yield False where only root could do so."""
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(folder)]
    done = subprocess.run(command, capture_output=True, check=False)
    try:
        yield done.returncode == 0
    finally:
        if done.returncode == 0:
            subprocess.run(["umount", "--lazy", str(folder)], check=False)


def fill(ballast: Path) -> None:
    """Write a file until no byte of its disk is left; delete it to free them."""
    with ballast.open("wb", buffering=0) as file:
        for chunk in (_CHUNK, b"\0"):
            while True:
                try:
                    file.write(chunk)
                except OSError as error:
                    if error.errno != errno.ENOSPC:
                        raise
                    break


def on_server(server: Server, prefix: str, endpoint: str) -> Place:
    """Return a folder of a server's bucket; a spec reaches its locks through the endpoint."""
    options = server.options
    files = fs.S3FileSystem(
        endpoint_override=server.endpoint.partition("//")[2],
        scheme="http",
        region=options["region"],
        access_key=options["access_key_id"],
        secret_key=options["secret_access_key"],
    )
    locks = _LOCKS.format(endpoint=endpoint, region=options["region"])
    around = (endpoint, server.endpoint)
    return Place("s3a", files, f"{BUCKET}/{prefix}", f"s3a://{BUCKET}/{prefix}", locks=locks, around=around)


def on_disk(folder: Path) -> Place:
    """Return a folder of this machine."""
    return Place("file", fs.LocalFileSystem(), str(folder), folder.as_uri())


def s3a_conf(endpoint: str, lock_client: str) -> dict[str, str]:
    """Return the settings of a session; its keys are in the environment, where no other user sees them."""
    path = os.pathsep.join(s3a_jars())
    hadoop = {"endpoint": endpoint, "path.style.access": "true", "connection.ssl.enabled": "false"}
    # By default the commit lock of a killed writer is free after five minutes, longer than most soaks take.
    times = {"validity.timeout.secs": "20", "renew.interval.secs": "2"}
    return {
        "spark.jars": lock_client,
        "spark.driver.extraClassPath": path,
        "spark.executor.extraClassPath": path,
        **{f"spark.hadoop.fs.s3a.{name}": value for name, value in hadoop.items()},
        **{f"spark.hadoop.hoodie.write.lock.storage.{name}": value for name, value in times.items()},
    }


def s3a_environment(server: Server, endpoint: str) -> Mapping[str, str]:
    """Return the variables by which Hudi's client of its lock, and a spec, reach the server."""
    return {
        "AWS_ENDPOINT_URL_S3": endpoint,
        "AWS_REGION": server.options["region"],
        "AWS_ACCESS_KEY_ID": server.options["access_key_id"],
        "AWS_SECRET_ACCESS_KEY": server.options["secret_access_key"],
    }


def lock_client(folder: Path) -> str:
    """Compile the tests' client of Hudi's lock; return its jar."""
    classes = folder / "classes"
    classes.mkdir()
    return lock_client_jar(compile_harness(classes), folder)
