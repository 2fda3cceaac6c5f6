"""``file://``: exclusive, never torn, version never repeats, network file systems refused."""

# ruff: noqa: ASYNC220, ASYNC240  the tests themselves may block

from __future__ import annotations

import asyncio
import fcntl
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import asynclock
from asynclock import (
    AccessDeniedError,
    BackendUnavailableError,
    ConfigError,
    OutcomeUnknownError,
    PreconditionFailedError,
    UnsupportedBackendError,
)
from asynclock.backend import MAX_BODY, Absent, Stored
from asynclock.backends import _folder, _mounts, local
from asynclock.backends.local import LocalBackend
from asynclock.record import parse_record
from tests.unit.kit import our_record

KEY = "orders.json"


@pytest.fixture
def backend(tmp_path: Path) -> LocalBackend:
    """Return a backend in a folder that does not exist yet."""
    return LocalBackend(tmp_path / "locks", fsync=False)


async def test_reading_creates_nothing(backend: LocalBackend, tmp_path: Path) -> None:
    """A look at a lock that is not there leaves no folder behind."""
    assert isinstance(await backend.get(KEY), Absent)
    assert [entry async for entry in backend.list("")] == []
    assert not (tmp_path / "locks").exists()


async def test_of_two_creators_one_wins(tmp_path: Path) -> None:
    """Creation is exclusive between backends of one folder."""
    backends = [LocalBackend(tmp_path) for _ in range(8)]

    outcomes = await asyncio.gather(
        *(each.put_if_absent(KEY, b"%d" % number) for number, each in enumerate(backends)),
        return_exceptions=True,
    )

    assert sum(not isinstance(each, BaseException) for each in outcomes) == 1
    assert sum(isinstance(each, PreconditionFailedError) for each in outcomes) == 7


async def test_of_two_writers_on_one_version_one_wins(tmp_path: Path) -> None:
    """A version can be replaced once, whoever tries."""
    backends = [LocalBackend(tmp_path) for _ in range(8)]
    version = (await backends[0].put_if_absent(KEY, b"{}")).version

    outcomes = await asyncio.gather(
        *(each.put_if_match(KEY, b"%d" % number, version) for number, each in enumerate(backends)),
        return_exceptions=True,
    )

    assert sum(not isinstance(each, BaseException) for each in outcomes) == 1


async def test_a_write_on_a_missing_object_is_refused(backend: LocalBackend) -> None:
    """``put_if_match`` never creates."""
    with pytest.raises(PreconditionFailedError) as caught:
        await backend.put_if_match(KEY, b"x", "v")

    assert caught.value.written == "no"
    assert isinstance(await backend.get(KEY), Absent)


async def test_a_refused_write_leaves_no_temporary_file(backend: LocalBackend, tmp_path: Path) -> None:
    """Only the object and one hidden lock file stay."""
    await backend.put_if_absent(KEY, b"x")
    for _ in range(3):
        with pytest.raises(PreconditionFailedError):
            await backend.put_if_absent(KEY, b"y")

    assert sorted(path.name for path in (tmp_path / "locks").iterdir()) == [f".{KEY}.lock", KEY]


async def test_a_version_never_repeats(backend: LocalBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same bytes give another version, even when the wall clock stands still or goes back."""
    frozen = time.time_ns()
    monkeypatch.setattr(local.time, "time_ns", lambda: frozen)
    versions = [(await backend.put_if_absent(KEY, b"x")).version]
    for number in range(200):
        if number == 100:
            frozen -= 10**12
        versions.append((await backend.put_if_match(KEY, b"x", versions[-1])).version)

    assert len(set(versions)) == len(versions)


async def test_a_read_shows_body_version_and_time_of_one_write(backend: LocalBackend) -> None:
    """What a read tells belongs together, and bears a Date."""
    before = time.time()
    written = await backend.put_if_absent(KEY, b"x")
    stored = await backend.get(KEY)

    assert isinstance(stored, Stored)
    assert (stored.body, stored.version) == (b"x", written.version)
    assert stored.last_modified is not None
    assert stored.server_time is not None
    assert before - 0.01 <= stored.last_modified <= stored.server_time


async def test_at_most_64_kib_and_a_byte_are_read(backend: LocalBackend) -> None:
    """An oversized object is not loaded whole."""
    await backend.put(KEY, b"x" * (MAX_BODY + 5_000))
    stored = await backend.get(KEY)

    assert isinstance(stored, Stored)
    assert len(stored.body) == MAX_BODY + 1


async def test_names_with_slashes_are_folders(tmp_path: Path) -> None:
    """``a/b`` is the file ``a/b.json``, and a listing shows it in order, without hidden files."""
    backend = LocalBackend(tmp_path)
    for key in ("b.json", "a/b.json", "a.json"):
        await backend.put_if_absent(key, b"x")

    assert [entry.key async for entry in backend.list("")] == ["a.json", "a/b.json", "b.json"]
    assert [entry.key async for entry in backend.list("a/")] == ["a/b.json"]


async def test_no_other_json_file_appears_beside_a_lock(tmp_path: Path) -> None:
    """Side files are hidden, so a glob for ``*.json`` shows exactly the locks."""
    async with asynclock.connect(f"file://{tmp_path}") as client, client.lock("orders").hold():
        names = [path.name for path in tmp_path.iterdir()]

    assert [name for name in names if not name.startswith(".")] == ["orders.json"]


@pytest.mark.parametrize("key", ["", "..", "../x.json", "a//b", "/etc/x", "a/./b", "a\0b"])
async def test_a_key_cannot_leave_the_folder(backend: LocalBackend, key: str) -> None:
    """Keys that would name a file elsewhere are refused."""
    for call in (backend.get(key), backend.put(key, b"x"), backend.delete(key)):
        with pytest.raises(ConfigError):
            await call


async def test_deleting_what_is_missing_is_no_error(backend: LocalBackend) -> None:
    """Delete is idempotent."""
    await backend.delete(KEY)
    await backend.put(KEY, b"x")
    await backend.delete(KEY)

    assert isinstance(await backend.get(KEY), Absent)


async def test_deleting_leaves_no_file(backend: LocalBackend, tmp_path: Path) -> None:
    """With the object goes the hidden file that its writers locked."""
    await backend.put(KEY, b"x")
    await backend.delete(KEY)

    assert list((tmp_path / "locks").iterdir()) == []


async def test_of_creators_among_deleters_one_wins(tmp_path: Path) -> None:
    """Who creates an object has it alone until it is deleted, however many wait at that moment."""

    async def create_and_delete(name: bytes) -> int:
        backend, won = LocalBackend(tmp_path, fsync=False), 0
        for _ in range(150):
            try:
                await backend.put_if_absent(KEY, name)
            except PreconditionFailedError:
                continue
            stored = await backend.get(KEY)
            assert isinstance(stored, Stored)
            assert stored.body == name, "two creators won"
            won += 1
            await backend.delete(KEY)
        await backend.aclose()
        return won

    wins = await asyncio.gather(*(create_and_delete(b"%d" % number) for number in range(6)))

    assert sum(wins) > len(wins)


# Failures of the disk


def partial_write(folder: Path) -> None:
    """Replace an object on a disk that takes 100 bytes only; the object must stay whole."""
    backend = LocalBackend(folder, fsync=False)

    async def main() -> None:
        version = (await backend.put_if_absent(KEY, b"old")).version
        resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
        with pytest.raises(OutcomeUnknownError):
            await backend.put_if_match(KEY, b"x" * 300, version)
        stored = await backend.get(KEY)
        assert isinstance(stored, Stored)
        assert stored.body == b"old"
        assert not list(folder.glob(".*.tmp"))

    asyncio.run(main())


def denied(folder: Path) -> None:
    """Read and write in a folder that belongs to somebody else."""
    backend = LocalBackend(folder)

    async def main() -> None:
        for call in (backend.get(KEY), backend.put_if_absent(KEY, b"x")):
            with pytest.raises(AccessDeniedError, match=KEY) as caught:
                await call
            assert caught.value.written == "no"
        with pytest.raises(AccessDeniedError):
            [entry async for entry in backend.list("")]

    if os.geteuid() == 0:
        os.setuid(65534)  # root may do anything
    asyncio.run(main())


def run_in_child(call: str, folder: Path) -> None:
    """Run a function of this module in a process of its own; its failure is the test's."""
    program = f"import pathlib, tests.unit.test_local as t; t.{call}(pathlib.Path({str(folder)!r}))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr


def test_a_full_disk_leaves_the_old_object(tmp_path: Path) -> None:
    """A write that the disk takes in part only changes nothing and leaves nothing."""
    run_in_child("partial_write", tmp_path)


def test_a_missing_permission_is_told_at_once(tmp_path: Path) -> None:
    """Permission errors are AccessDeniedError: retrying would not help, hiding them would lie."""
    folder = tmp_path / "locks"
    folder.mkdir(mode=0o000)
    tmp_path.chmod(0o711)
    for parent in tmp_path.parents[:2]:
        parent.chmod(parent.stat().st_mode | 0o011)
    run_in_child("denied", folder)


async def test_a_read_only_file_system_is_told_at_once(
    backend: LocalBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """EROFS is a denial, not something to try again for ever."""

    def refuse(*_: object, **__: object) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(os, "mkdir", refuse)

    with pytest.raises(AccessDeniedError, match="Read-only"):
        await backend.put_if_absent(KEY, b"x")


@pytest.mark.parametrize("length", [240, 300])
async def test_a_name_too_long_for_the_file_system_is_told_at_once(tmp_path: Path, length: int) -> None:
    """The error comes without waiting and says what to do; no lock file appears."""
    async with asynclock.connect(f"file://{tmp_path}") as client:
        with pytest.raises(UnsupportedBackendError, match="shorter name") as caught:
            await client.lock("x" * length).acquire(timeout=5)

    assert "x" * length in str(caught.value)
    assert list(tmp_path.glob("**/*.json")) == []


async def test_a_folder_in_the_place_of_a_lock_is_told_at_once(tmp_path: Path) -> None:
    """A directory named like a lock file is neither free nor held."""
    (tmp_path / KEY).mkdir()
    async with asynclock.connect(f"file://{tmp_path}") as client:
        with pytest.raises(UnsupportedBackendError, match=KEY):
            await client.lock("orders").acquire(timeout=5)


async def test_a_stopped_writer_blocks_only_its_own_object(
    backend: LocalBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process stopped in the middle of a write must not use up the backend's threads."""
    monkeypatch.setattr(_folder, "FLOCK_PATIENCE", 0.2)
    await backend.put(KEY, b"old")
    stopped = os.open(tmp_path / "locks" / f".{KEY}.lock", os.O_RDWR)
    fcntl.flock(stopped, fcntl.LOCK_EX)
    try:
        blocked = [asyncio.ensure_future(backend.put(KEY, b"new")) for _ in range(8)]
        await asyncio.wait_for(backend.put("other.json", b"x"), 5)
        outcomes = await asyncio.gather(*blocked, return_exceptions=True)
    finally:
        os.close(stopped)

    assert all(isinstance(each, BackendUnavailableError) for each in outcomes)
    assert "stopped" in str(outcomes[0])
    stored = await backend.get(KEY)
    assert isinstance(stored, Stored)
    assert stored.body == b"old"


# Network file systems

MOUNTS = [
    "21 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw",
    "30 21 0:40 / /mnt/share rw - nfs4 server:/export rw",
    "31 21 0:41 / /mnt/with\\040space rw master:2 - cifs //server/x rw",
    "32 21 0:42 / /mnt/Büro rw - nfs server:/b rw",
    "33 21 0:43 / /mnt/s3 rw - fuse.s3fs s3fs rw",
    "34 30 8:2 / /mnt/share/local rw - xfs /dev/sdb1 rw",
    "35 21 8:3 / /mnt/ntfs rw - fuseblk /dev/sdc1 rw",
    "36 21 0:44 / /mnt/over rw - ext4 /dev/sdd1 rw",
    "37 36 0:45 / /mnt/over rw - nfs4 server:/o rw",
]


@pytest.mark.parametrize(
    ("folder", "kind"),
    [
        ("/mnt/share/locks", "nfs4"),
        ("/mnt/share", "nfs4"),
        ("/mnt/with space/locks", "cifs"),
        ("/mnt/Büro/locks", "nfs"),
        ("/mnt/s3/locks", "fuse.s3fs"),
        ("/mnt/over/locks", "nfs4"),
    ],
)
async def test_a_network_file_system_is_refused(
    folder: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every operation is refused before anything is touched, and the error names folder and kind."""
    monkeypatch.setattr(_mounts, "_table", lambda: [line.encode() for line in MOUNTS])
    backend = LocalBackend(Path(folder))

    for call in (backend.get(KEY), backend.put_if_absent(KEY, b"x"), backend.put_if_match(KEY, b"x", "v")):
        with pytest.raises(UnsupportedBackendError, match="network file system") as caught:
            await call
        assert folder in str(caught.value)
        assert kind in str(caught.value)
    assert not Path(folder).exists()


@pytest.mark.parametrize("folder", ["/mnt/sharex", "/mnt/share/local/locks", "/mnt/ntfs/locks", "/data"])
async def test_a_local_disk_is_accepted(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neighbours of a share, and a disk mounted inside of one, are local."""
    monkeypatch.setattr(_mounts, "_table", lambda: [line.encode() for line in MOUNTS])

    assert isinstance(await LocalBackend(Path(folder)).get(KEY), Absent)


# Processes that are killed

WRITER = """
import asyncio, pathlib, sys
from asynclock.backends.local import LocalBackend
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


HOLDER = """
import sys, time
from asynclock import sync
with sync.connect(sys.argv[1]) as client, client.lock("orders").hold():
    print("held", flush=True)
    sys.stdin.read()
"""


async def test_two_processes_exclude_each_other(tmp_path: Path) -> None:
    """A lock held by another process is not to be had until that process releases it."""
    url = f"file://{tmp_path}"
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, url], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout is not None
    assert await asyncio.to_thread(holder.stdout.readline) == "held\n"
    async with asynclock.connect(url) as client:
        lock = client.lock("orders")
        assert await lock.try_acquire() is None
        assert (await lock.status()).state == "held"

        await asyncio.to_thread(holder.communicate, "")
        async with lock.hold(timeout=10) as lease:
            assert lease.held
