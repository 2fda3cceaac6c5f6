"""``file://`` where a disk, a folder or a permission is in the way: told at once, and nothing is torn."""

# ruff: noqa: ASYNC240  the tests themselves may block

from __future__ import annotations

import asyncio
import os
import resource
import socket
import stat
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import asynclock
from asynclock import AccessDeniedError, OutcomeUnknownError, UnsupportedBackendError
from asynclock.backend import Absent, Stored
from asynclock.backends._local import LocalBackend
from tests.unit.files import KEY, SIDE, run_alone

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


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


def test_a_full_disk_leaves_the_old_object(tmp_path: Path) -> None:
    """A write that the disk takes in part only changes nothing and leaves nothing."""
    run_alone(partial_write, tmp_path)


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


def test_a_missing_permission_is_an_error_at_once(tmp_path: Path) -> None:
    """Permission errors are AccessDeniedError: retrying would not help, hiding them would mislead."""
    folder = tmp_path / "locks"
    folder.mkdir(mode=0o000)
    tmp_path.chmod(0o711)
    for parent in tmp_path.parents[:2]:
        parent.chmod(parent.stat().st_mode | 0o011)
    run_alone(denied, folder)


async def test_a_read_only_file_system_is_an_error_at_once(
    backend: LocalBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """EROFS is a denial, not something to retry forever."""

    def refuse(*_: object, **__: object) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(os, "mkdir", refuse)

    with pytest.raises(AccessDeniedError, match="Read-only"):
        await backend.put_if_absent(KEY, b"x")


@pytest.mark.parametrize("length", [240, 300])
async def test_a_name_too_long_for_the_file_system_is_an_error_at_once(tmp_path: Path, length: int) -> None:
    """The error comes without waiting and says what to do; no lock file appears."""
    async with asynclock.connect(f"file://{tmp_path}") as client:
        with pytest.raises(UnsupportedBackendError, match="shorter name") as caught:
            await client.lock("x" * length).acquire(timeout=5)

    assert "x" * length in str(caught.value)
    assert list(tmp_path.glob("**/*.json")) == []


async def test_a_folder_in_the_place_of_a_lock_is_an_error_at_once(tmp_path: Path) -> None:
    """A directory named like a lock file is neither free nor held."""
    (tmp_path / KEY).mkdir()
    async with asynclock.connect(f"file://{tmp_path}") as client:
        with pytest.raises(UnsupportedBackendError, match=KEY):
            await client.lock("orders").acquire(timeout=5)


async def test_a_failed_sync_after_the_rename_is_an_unknown_outcome(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bytes are there for everybody to read, whatever kind of error the sync met."""
    backend, fsync = LocalBackend(tmp_path), os.fsync

    def refuse(descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise PermissionError(13, "Permission denied")
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", refuse)

    with pytest.raises(OutcomeUnknownError):
        await backend.put_if_absent(KEY, b"x")
    assert (tmp_path / KEY).read_bytes() == b"x"


def write_unreadable(folder: Path) -> None:
    """Write, as nobody, in a folder that nobody may write but not read."""
    os.setgid(65534)
    os.setuid(65534)

    async def main() -> None:
        with pytest.raises(AccessDeniedError, match=KEY) as caught:
            await LocalBackend(folder).put_if_absent(KEY, b"x")
        assert caught.value.written == "no"
        assert isinstance(await LocalBackend(folder).get(KEY), Absent)

    asyncio.run(main())


def test_a_folder_that_cannot_be_read_is_refused_before_anything_is_written(public: Path) -> None:
    """It could not be synced after the write."""
    folder = public / "locks"
    folder.mkdir()
    os.chown(folder, 65534, 65534)
    folder.chmod(0o300)

    run_alone(write_unreadable, folder)

    assert list(folder.iterdir()) == []


async def test_fifos_do_not_use_up_the_threads(backend_here: LocalBackend, tmp_path: Path) -> None:
    """However many are looked at, an unrelated lock is written."""
    keys = [f"fifo-{number}.json" for number in range(8)]
    for key in keys:
        os.mkfifo(tmp_path / key)
    looks = [asyncio.ensure_future(backend_here.get(key)) for key in keys]

    await asyncio.wait_for(backend_here.put_if_absent(KEY, b"x"), 2)

    outcomes = await asyncio.gather(*looks, return_exceptions=True)
    assert all(isinstance(outcome, UnsupportedBackendError) for outcome in outcomes)


def _make_link(path: Path) -> None:
    target = path.with_name("target")
    target.write_bytes(b"{}")
    path.symlink_to(target)


def _make_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))


IRREGULAR: dict[str, Callable[[Path], None]] = {
    "a FIFO": os.mkfifo,
    "a symbolic link": _make_link,
    "a symbolic link to nothing": lambda path: path.symlink_to(path.with_name("nothing")),
    "a device": lambda path: os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, 3)),
    "a socket": _make_socket,
    "a folder": Path.mkdir,
}


@pytest.fixture(
    params=[pytest.param(each, marks=[pytest.mark.root] if each == "a device" else []) for each in IRREGULAR]
)
def kind(request: pytest.FixtureRequest) -> str:
    """Return what stands in the place of a file."""
    return str(request.param)


def calls(backend: LocalBackend) -> Iterator[object]:
    """Begin each operation that reads or writes an object."""
    yield backend.get(KEY)
    yield backend.put_if_absent(KEY, b"x")
    yield backend.put_if_match(KEY, b"x", "v")
    yield backend.put(KEY, b"x")


async def test_only_a_regular_file_is_a_lock(backend_here: LocalBackend, tmp_path: Path, kind: str) -> None:
    """Anything else in a lock's place is named and left alone at once: a link would make two locks of one."""
    IRREGULAR[kind](tmp_path / KEY)
    before = os.lstat(tmp_path / KEY)

    for call in calls(backend_here):
        with pytest.raises(UnsupportedBackendError, match=kind.removesuffix(" to nothing")) as caught:
            await asyncio.wait_for(call, 2)  # type: ignore[call-overload]
        assert caught.value.written == "no"
    assert os.path.samestat(before, os.lstat(tmp_path / KEY))
    assert not (tmp_path / "nothing").exists()


async def test_only_a_regular_file_is_a_side_file(
    backend_here: LocalBackend, tmp_path: Path, kind: str
) -> None:
    """A link is not followed and its target is not created, so that a lock cannot create files elsewhere."""
    IRREGULAR[kind](tmp_path / SIDE)

    with pytest.raises(UnsupportedBackendError, match=kind.removesuffix(" to nothing")):
        await asyncio.wait_for(backend_here.put_if_absent(KEY, b"x"), 2)

    assert not (tmp_path / "nothing").exists()
    assert not (tmp_path / KEY).exists()
    assert not list(tmp_path.glob(".*.tmp"))


async def test_only_regular_files_are_listed(tmp_path: Path, kind: str) -> None:
    """One other file does not keep the locks beside it from being listed."""
    IRREGULAR[kind](tmp_path / "other.json")
    async with asynclock.connect(f"file://{tmp_path}") as client, client.lock("orders").hold():
        assert [status.name for status in await asyncio.wait_for(client.list(), 5)] == ["orders"]
