"""``file://`` and writers that are killed or fork in the middle of a write."""

# ruff: noqa: ASYNC220, ASYNC240  the tests themselves may block

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from asynclock._core.record import parse_record
from asynclock.backend import Stored
from asynclock.backends._local import LocalBackend
from tests.unit.files import KEY, run_alone
from tests.unit.kit import our_record

if TYPE_CHECKING:
    from collections.abc import Callable


WRITER = """
import asyncio, pathlib, sys
from asynclock.backends._local import LocalBackend
from tests.unit.kit import our_record
async def main():
    backend = LocalBackend(pathlib.Path(sys.argv[1]), fsync=False)
    written = await backend.get("orders.json")
    version = written.version
    print("go", flush=True)
    number = 0
    while True:
        number += 1
        body = our_record(valid_until=number, owner="w" * (number * 997 % 20_000))
        version = (await backend.put_if_match("orders.json", body, version)).version
asyncio.run(main())
"""


async def test_a_writer_killed_at_any_instant_leaves_a_whole_record(tmp_path: Path) -> None:
    """After each ``kill -9`` the object is a record, old or new, never torn or empty."""
    backend = LocalBackend(tmp_path, fsync=False)
    await backend.put_if_absent(KEY, our_record(valid_until=0))
    versions = set()
    for number in range(12):
        writer = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(tmp_path)], stdout=subprocess.PIPE, text=True
        )
        assert writer.stdout is not None
        with writer.stdout:
            assert await asyncio.to_thread(writer.stdout.readline) == "go\n"
            await asyncio.sleep(0.003 * number)
            writer.send_signal(signal.SIGKILL)
            writer.wait()
        stored = await backend.get(KEY)
        assert isinstance(stored, Stored)
        parse_record(stored.body)
        versions.add(stored.version)

    assert len(versions) > 6  # the writers did write


def orphan(folder: Path, *, process: int, age: float) -> Path:
    """Leave a temporary file as a killed writer does."""
    path = folder / f".{KEY}.{process:x}-0123456789ab.tmp"
    path.write_bytes(b"x")
    os.utime(path, (time.time() - age, time.time() - age))
    return path


def dead_process() -> int:
    """Return the id of a process that has ended."""
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    return child.pid


async def test_orphans_of_killed_writers_are_swept(tmp_path: Path) -> None:
    """The first write into a folder removes temporary files of processes that are gone."""
    left = orphan(tmp_path, process=dead_process(), age=120)
    await LocalBackend(tmp_path).put(KEY, b"x")

    assert not left.exists()


async def test_temporary_files_in_use_are_not_swept(tmp_path: Path) -> None:
    """A living process's file stays, and so does a young one: it may be another container's."""
    mine = orphan(tmp_path, process=os.getpid(), age=120)
    young = orphan(tmp_path, process=dead_process(), age=5)
    other = tmp_path / ".notes.tmp"
    other.write_bytes(b"x")
    await LocalBackend(tmp_path).put(KEY, b"x")

    assert mine.exists()
    assert young.exists()
    assert other.exists()


def fork_in_the_middle_of_a_write(fork: Callable[[], object]) -> None:
    """Have the next rename, which is made under the lock of the side file, fork a child that stays."""
    rename = os.rename

    def rename_and_fork(*arguments: object, **options: object) -> None:
        os.rename = rename
        fork()
        rename(*arguments, **options)  # type: ignore[arg-type]

    os.rename = rename_and_fork  # type: ignore[assignment]


def _fork_a_child_that_stays() -> int:
    child = os.fork()
    if child == 0:
        signal.pause()
    return child


def write_after_a_fork(folder: Path, fork: Callable[[], int]) -> None:
    """Write twice, with a child forked in the middle of the first time."""
    backend, children = LocalBackend(folder, fsync=False), []

    async def main() -> None:
        fork_in_the_middle_of_a_write(lambda: children.append(fork()))
        written = await backend.put_if_absent(KEY, b"first")
        assert Path(f"/proc/{children[0]}").exists()
        await backend.put_if_match(KEY, b"second", written.version)

    try:
        asyncio.run(main())
    finally:
        for child in children:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)


def fork_of_python(folder: Path) -> None:
    """Fork as multiprocessing does."""
    write_after_a_fork(folder, _fork_a_child_that_stays)


def fork_of_a_library(folder: Path) -> None:
    """Fork as a C library does: Python's hooks do not run in the child."""
    libc = ctypes.PyDLL(None)

    def fork() -> int:
        child = libc.fork()
        if child == 0:
            libc.pause()
        return int(child)

    write_after_a_fork(folder, fork)


@pytest.mark.parametrize("call", [fork_of_python, fork_of_a_library])
def test_a_child_forked_in_the_middle_of_a_write_does_not_lock_the_object(
    tmp_path: Path, call: Callable[[Path], None]
) -> None:
    """A child that lives on with a copy of the descriptor keeps nobody from writing."""
    run_alone(call, tmp_path)


def fork_and_die(folder: Path) -> None:
    """Fork a child that stays in the middle of a write, tell its id, and be killed there."""

    def fork() -> None:
        print(_fork_a_child_that_stays(), flush=True)  # noqa: T201  the test reads it
        os.kill(os.getpid(), signal.SIGKILL)

    fork_in_the_middle_of_a_write(fork)
    asyncio.run(LocalBackend(folder, fsync=False).put_if_absent(KEY, b"x"))  # type: ignore[arg-type]


async def test_a_child_of_a_writer_killed_in_the_middle_of_a_write_does_not_lock_the_object(
    backend_here: LocalBackend, tmp_path: Path
) -> None:
    """The parent could not unlock; the child closed its copy when it was forked."""
    program = f"import pathlib, {__name__} as t; t.fork_and_die(pathlib.Path({str(tmp_path)!r}))"
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        child = int(await asyncio.to_thread(writer.stdout.readline))
        try:
            assert await asyncio.to_thread(writer.wait) == -signal.SIGKILL
            await backend_here.put_if_absent(KEY, b"x")
        finally:
            os.kill(child, signal.SIGKILL)
