"""``file://`` on file systems with coarse time stamps or without hard links."""

# ruff: noqa: ASYNC240  the tests themselves may block

from __future__ import annotations

import errno
import os
import time
from typing import TYPE_CHECKING

import pytest

import asynclock
from asynclock import PreconditionFailedError, RecordCorruptError, SystemClock, UnsupportedBackendError
from asynclock._core.probing import probe
from asynclock.backend import Stored
from tests.unit.files import KEY, SIDE

if TYPE_CHECKING:
    from pathlib import Path

    from asynclock.backends._local import LocalBackend


@pytest.fixture
def seconds(monkeypatch: pytest.MonkeyPatch) -> int:
    """A file system that cuts time stamps to two seconds, as FAT does (ext3 and HFS+: one)."""
    utime, grain = os.utime, 2

    def cut(path: int, *, ns: tuple[int, int]) -> None:
        utime(path, ns=(ns[0], ns[1] - ns[1] % (grain * 10**9)))

    monkeypatch.setattr(os, "utime", cut)
    return grain


@pytest.mark.usefixtures("seconds")
async def test_two_writes_in_one_grain_have_two_versions(backend_here: LocalBackend) -> None:
    """A version is no matter of time stamps: a writer that comes late with an old one is refused."""
    versions = [(await backend_here.put_if_absent(KEY, b"0")).version]
    for number in range(1, 40):
        versions.append((await backend_here.put_if_match(KEY, b"%d" % number, versions[-1])).version)

    assert len(set(versions)) == len(versions)
    for version in versions[:-1]:
        with pytest.raises(PreconditionFailedError):
            await backend_here.put_if_match(KEY, b"late", version)


async def test_a_write_never_seems_older_than_it_is(backend_here: LocalBackend, seconds: int) -> None:
    """A lease judged by a time that was cut would be free too early; a grain too late does no harm."""
    version = (await backend_here.put_if_absent(KEY, b"0")).version
    for number in range(1, 40):
        before = time.time()
        version = (await backend_here.put_if_match(KEY, b"%d" % number, version)).version
        stored = await backend_here.get(KEY)

        assert isinstance(stored, Stored)
        assert stored.last_modified is not None
        assert stored.version == version
        assert before <= stored.last_modified <= time.time() + seconds


@pytest.mark.usefixtures("seconds")
async def test_a_probe_finds_a_folder_with_coarse_time_stamps_safe(tmp_path: Path) -> None:
    """Two writes of the same bytes may have one version there, as on S3; two writes of a lock never do."""
    report = await probe(f"file://{tmp_path}")

    assert report.safe, report.reasons


async def test_a_file_system_that_cannot_keep_the_time_is_refused(
    backend_here: LocalBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For example ext3 after 2038; nobody could judge how old a lease is."""
    utime = os.utime
    monkeypatch.setattr(os, "utime", lambda path, **_: utime(path, ns=(0, 2**31 * 10**6)))

    with pytest.raises(UnsupportedBackendError, match="present time"):
        await backend_here.put_if_absent(KEY, b"x")

    assert [path.name for path in tmp_path.iterdir()] == [SIDE]


async def test_a_file_system_without_hard_links_is_as_good(
    backend_here: LocalBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """FAT, for example: the side file, which is linked into its place elsewhere, is created there."""

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)

    version = (await backend_here.put_if_absent(KEY, b"x")).version
    await backend_here.put_if_match(KEY, b"y", version)

    assert sorted(path.name for path in tmp_path.iterdir()) == [SIDE, KEY]


async def test_a_clock_that_was_set_back_is_named_as_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such locks are what they were once the clock is right, and nothing is written until then."""
    clock, url = SystemClock(), f"file://{tmp_path}/locks"
    clock.wall = lambda: time.time()  # type: ignore[method-assign]  # noqa: PLW0108  looked up at each call
    present = time.time
    async with asynclock.connect(url, renewal="loop") as before, before.lock("orders").hold():
        pass
    async with asynclock.connect(url, renewal="loop", clock=clock) as client:
        lock = client.lock("orders")
        with monkeypatch.context() as patch:
            patch.setattr(time, "time", lambda: present() - 3 * 86_400)
            with pytest.raises(RecordCorruptError, match=r"3\.0 days ahead .*this machine's\) was set back"):
                await lock.acquire(timeout=1.0)
            assert (await lock.status()).state == "corrupt"

        assert (await lock.status()).state == "free"
