"""``file://``: exclusive, never torn, and no version ever repeats."""

# ruff: noqa: ASYNC220, ASYNC240  the tests themselves may block

from __future__ import annotations

import asyncio
import fcntl
import os
import shutil
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

import asynclock
from asynclock import (
    BackendUnavailableError,
    ConfigError,
    LeaseTakenOverError,
    PreconditionFailedError,
    UnsupportedBackendError,
)
from asynclock.backend import MAX_BODY, Absent, Stored
from asynclock.backends import _folder
from asynclock.backends import _local as local
from asynclock.backends._local import LocalBackend
from tests.unit.files import KEY

if TYPE_CHECKING:
    from pathlib import Path


async def test_reading_creates_nothing(backend: LocalBackend, tmp_path: Path) -> None:
    """A look at a lock that is not there leaves no folder behind, and a list says that there is none."""
    assert isinstance(await backend.get(KEY), Absent)
    with pytest.raises(UnsupportedBackendError, match="does not exist"):
        [entry async for entry in backend.list("")]
    assert not (tmp_path / "locks").exists()


async def test_every_lock_that_can_be_taken_is_listed(backend: LocalBackend) -> None:
    """Names and folders that begin with a dot are listed too; side files and temporary files are not."""
    for key in (".hidden.json", ".folder/orders.json", ".x.lock.json", KEY):
        await backend.put_if_absent(key, b"{}")

    assert [entry.key async for entry in backend.list("")] == sorted(
        [".folder/orders.json", ".hidden.json", ".x.lock.json", KEY]
    )


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
    """A version can be replaced once, by any writer."""
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
    """What a read returns belongs to one write, and has a Date."""
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
    """One client creates an object and has it alone until it is deleted, however many wait."""

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


HOLDER = """
import sys, time
from asynclock import sync
with sync.connect(sys.argv[1]) as client, client.lock("orders").hold():
    print("held", flush=True)
    sys.stdin.read()
"""


async def test_two_processes_exclude_each_other(tmp_path: Path) -> None:
    """A lock held by another process cannot be acquired until that process releases it."""
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


async def test_a_folder_removed_under_a_holder_is_a_loss(tmp_path: Path) -> None:
    """The holder learns at its next write, and does not make the folder again."""
    folder = tmp_path / "locks"
    async with asynclock.connect(f"file://{folder}") as client:
        lease = await client.lock("orders").acquire()
        shutil.rmtree(folder)

        with pytest.raises(LeaseTakenOverError):
            await lease.confirm()

        assert lease.lost is not None
        assert not folder.exists()


async def test_a_folder_removed_in_the_middle_of_a_write_is_no_unknown_outcome(
    backend_here: LocalBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rename, the only step that shows, has failed."""
    version = (await backend_here.put_if_absent(KEY, b"x")).version
    utime = os.utime

    def remove(descriptor: int, *, ns: tuple[int, int]) -> None:
        utime(descriptor, ns=ns)
        shutil.rmtree(tmp_path)

    monkeypatch.setattr(os, "utime", remove)

    with pytest.raises(PreconditionFailedError) as caught:
        await backend_here.put_if_match(KEY, b"y", version)
    assert caught.value.written == "no"


@pytest.mark.parametrize("path", ["/a/..%2f..%2fetc/x", "/a%2Fb", "/a/%2e%2e/b", "/..", "/a/../b", "/a%00b"])
def test_a_url_cannot_leave_its_folder(path: str) -> None:
    """Encoded or not, a step upwards is refused before anything is opened."""
    with pytest.raises(ConfigError):
        asynclock.connect(f"file://{path}")


async def test_a_url_names_a_folder_by_its_bytes(tmp_path: Path) -> None:
    """A name that is no UTF-8 is not taken for another one."""
    async with asynclock.connect(f"file://{tmp_path}/%ff") as client, client.lock("orders").hold():
        assert [os.fsencode(path.name) for path in tmp_path.iterdir()] == [b"\xff"]


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
