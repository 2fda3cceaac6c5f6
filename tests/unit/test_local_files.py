"""``file://`` where folders are unkind: FIFOs, links, coarse time stamps, forks, shares, removal."""

# ruff: noqa: ASYNC220, ASYNC240  the tests themselves may block

from __future__ import annotations

import asyncio
import ctypes
import errno
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import asynclock
from asynclock import (
    AccessDeniedError,
    ConfigError,
    LeaseTakenOverError,
    OutcomeUnknownError,
    PreconditionFailedError,
    UnsupportedBackendError,
)
from asynclock.backend import Absent, Stored
from asynclock.backends import _mounts
from asynclock.backends.local import LocalBackend
from asynclock.probe import probe
from tests.share import mounted_share

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from asynclock import Backend

KEY = "orders.json"
SIDE = f".{KEY}.lock"


@pytest.fixture
def backend(tmp_path: Path) -> LocalBackend:
    """Return a backend in a folder that exists."""
    return LocalBackend(tmp_path, fsync=False)


def run(call: str, folder: Path, *, inside: tuple[str, ...] = ()) -> None:
    """Run a function of this module in a process of its own; its failure is the test's."""
    program = f"import pathlib, tests.unit.test_local_files as t; t.{call}(pathlib.Path({str(folder)!r}))"
    done = subprocess.run(
        [*inside, sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60
    )

    assert done.returncode == 0, done.stderr


# What is no regular file


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


async def test_only_a_regular_file_is_a_lock(backend: LocalBackend, tmp_path: Path, kind: str) -> None:
    """Anything else in a lock's place is named and left alone at once: a link would make two locks of one."""
    IRREGULAR[kind](tmp_path / KEY)
    before = os.lstat(tmp_path / KEY)

    for call in calls(backend):
        with pytest.raises(UnsupportedBackendError, match=kind.removesuffix(" to nothing")) as caught:
            await asyncio.wait_for(call, 2)  # type: ignore[call-overload]
        assert caught.value.written == "no"
    assert os.path.samestat(before, os.lstat(tmp_path / KEY))
    assert not (tmp_path / "nothing").exists()


async def test_only_a_regular_file_is_a_side_file(backend: LocalBackend, tmp_path: Path, kind: str) -> None:
    """A link is not followed, nor its target made: else a lock could be made to create files elsewhere."""
    IRREGULAR[kind](tmp_path / SIDE)

    with pytest.raises(UnsupportedBackendError, match=kind.removesuffix(" to nothing")):
        await asyncio.wait_for(backend.put_if_absent(KEY, b"x"), 2)

    assert not (tmp_path / "nothing").exists()
    assert not (tmp_path / KEY).exists()
    assert not list(tmp_path.glob(".*.tmp"))


async def test_what_is_no_regular_file_is_not_listed(tmp_path: Path, kind: str) -> None:
    """One such file does not keep the locks beside it from being listed."""
    IRREGULAR[kind](tmp_path / "other.json")
    async with asynclock.connect(f"file://{tmp_path}") as client, client.lock("orders").hold():
        assert [status.name for status in await asyncio.wait_for(client.list(), 5)] == ["orders"]


async def test_fifos_do_not_use_up_the_threads(backend: LocalBackend, tmp_path: Path) -> None:
    """However many are looked at, an unrelated lock is written."""
    keys = [f"fifo-{number}.json" for number in range(8)]
    for key in keys:
        os.mkfifo(tmp_path / key)
    looks = [asyncio.ensure_future(backend.get(key)) for key in keys]

    await asyncio.wait_for(backend.put_if_absent(KEY, b"x"), 2)

    outcomes = await asyncio.gather(*looks, return_exceptions=True)
    assert all(isinstance(outcome, UnsupportedBackendError) for outcome in outcomes)


# Forks


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


@pytest.mark.parametrize("call", ["fork_of_python", "fork_of_a_library"])
def test_a_child_forked_in_the_middle_of_a_write_does_not_lock_the_object(tmp_path: Path, call: str) -> None:
    """A child that lives on with a copy of the descriptor keeps nobody from writing."""
    run(call, tmp_path)


def fork_and_die(folder: Path) -> None:
    """Fork a child that stays in the middle of a write, tell its id, and be killed there."""

    def fork() -> None:
        print(_fork_a_child_that_stays(), flush=True)  # noqa: T201  the test reads it
        os.kill(os.getpid(), signal.SIGKILL)

    fork_in_the_middle_of_a_write(fork)
    asyncio.run(LocalBackend(folder, fsync=False).put_if_absent(KEY, b"x"))  # type: ignore[arg-type]


async def test_a_child_of_a_writer_killed_in_the_middle_of_a_write_does_not_lock_the_object(
    backend: LocalBackend, tmp_path: Path
) -> None:
    """The parent could not unlock; the child closed its copy when it was forked."""
    program = (
        f"import pathlib, tests.unit.test_local_files as t; t.fork_and_die(pathlib.Path({str(tmp_path)!r}))"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        child = int(await asyncio.to_thread(writer.stdout.readline))
        try:
            assert await asyncio.to_thread(writer.wait) == -signal.SIGKILL
            await backend.put_if_absent(KEY, b"x")
        finally:
            os.kill(child, signal.SIGKILL)


# Coarse time stamps


@pytest.fixture
def seconds(monkeypatch: pytest.MonkeyPatch) -> int:
    """A file system that cuts time stamps to two seconds, as FAT does (ext3 and HFS+: one)."""
    utime, grain = os.utime, 2

    def cut(path: int, *, ns: tuple[int, int]) -> None:
        utime(path, ns=(ns[0], ns[1] - ns[1] % (grain * 10**9)))

    monkeypatch.setattr(os, "utime", cut)
    return grain


@pytest.mark.usefixtures("seconds")
async def test_two_writes_in_one_grain_have_two_versions(backend: LocalBackend) -> None:
    """A version is no matter of time stamps: a writer that comes late with an old one is refused."""
    versions = [(await backend.put_if_absent(KEY, b"0")).version]
    for number in range(1, 40):
        versions.append((await backend.put_if_match(KEY, b"%d" % number, versions[-1])).version)

    assert len(set(versions)) == len(versions)
    for version in versions[:-1]:
        with pytest.raises(PreconditionFailedError):
            await backend.put_if_match(KEY, b"late", version)


async def test_a_write_never_seems_older_than_it_is(backend: LocalBackend, seconds: int) -> None:
    """A lease judged by a time that was cut would be free too early; a grain too late does no harm."""
    version = (await backend.put_if_absent(KEY, b"0")).version
    for number in range(1, 40):
        before = time.time()
        version = (await backend.put_if_match(KEY, b"%d" % number, version)).version
        stored = await backend.get(KEY)

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
    backend: LocalBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For example ext3 after 2038; nobody could judge how old a lease is."""
    utime = os.utime
    monkeypatch.setattr(os, "utime", lambda path, **_: utime(path, ns=(0, 2**31 * 10**6)))

    with pytest.raises(UnsupportedBackendError, match="present time"):
        await backend.put_if_absent(KEY, b"x")

    assert [path.name for path in tmp_path.iterdir()] == [SIDE]


async def test_a_file_system_without_hard_links_is_as_good(
    backend: LocalBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """FAT, for example: the side file, which is linked into its place elsewhere, is created there."""

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)

    version = (await backend.put_if_absent(KEY, b"x")).version
    await backend.put_if_match(KEY, b"y", version)

    assert sorted(path.name for path in tmp_path.iterdir()) == [SIDE, KEY]


# What was written and what was not


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

    run("write_unreadable", folder)

    assert list(folder.iterdir()) == []


# Folders that go


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
    backend: LocalBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rename, the only step that shows, has failed."""
    version = (await backend.put_if_absent(KEY, b"x")).version
    utime = os.utime

    def remove(descriptor: int, *, ns: tuple[int, int]) -> None:
        utime(descriptor, ns=ns)
        shutil.rmtree(tmp_path)

    monkeypatch.setattr(os, "utime", remove)

    with pytest.raises(PreconditionFailedError) as caught:
        await backend.put_if_match(KEY, b"y", version)
    assert caught.value.written == "no"


# Network and shared file systems, really mounted; only their kind is taken for another


def share_is_mounted(where: Path) -> None:
    """Mount a file system that counts as a share; this process has mounts of its own."""
    where.mkdir(exist_ok=True)
    subprocess.run(["mount", "-t", "ramfs", "none", str(where)], check=True)


async def _assert_refused(call: object, path: Path) -> None:
    with pytest.raises(UnsupportedBackendError, match="shared folder \\(ramfs\\)") as caught:
        await call  # type: ignore[misc]
    assert str(path) in str(caught.value)


def share_below(folder: Path) -> None:
    """Use locks beside and on a share below the root."""
    backend: Backend = LocalBackend(folder, fsync=False)
    _mounts._SHARED = frozenset({"ramfs"})  # type: ignore[misc]

    async def main() -> None:
        share_is_mounted(folder / "share")
        (folder / "linked").symlink_to(folder / "share")
        (folder / "share" / KEY).write_bytes(b"{}")
        for name in ("share", "linked"):
            await _assert_refused(backend.get(f"{name}/{KEY}"), folder / name)
            await _assert_refused(backend.get(f"{name}/missing.json"), folder / name)
            await _assert_refused(backend.put_if_absent(f"{name}/deep/{KEY}", b"x"), folder / name)
            await _assert_refused(backend.put_if_match(f"{name}/{KEY}", b"x", "v"), folder / name)
            await _assert_refused(backend.delete(f"{name}/{KEY}"), folder / name)
        with pytest.raises(UnsupportedBackendError, match="ramfs"):
            [entry async for entry in backend.list("")]
        await backend.put_if_absent(KEY, b"x")
        assert [path.name for path in (folder / "share").iterdir()] == [KEY]

    asyncio.run(main())


def share_over(folder: Path) -> None:
    """Mount a share over a folder that is in use."""
    backend: Backend = LocalBackend(folder, fsync=False)
    _mounts._SHARED = frozenset({"ramfs"})  # type: ignore[misc]

    async def main() -> None:
        await backend.put_if_absent(KEY, b"x")
        share_is_mounted(folder)
        await _assert_refused(backend.get(KEY), folder)
        await _assert_refused(backend.put_if_absent(KEY, b"x"), folder)
        assert list(folder.iterdir()) == []

    asyncio.run(main())


def mounted_file(folder: Path) -> None:
    """Mount a file over a lock, as containers do."""
    backend: Backend = LocalBackend(folder, fsync=False)

    async def main() -> None:
        version = (await backend.put_if_absent(KEY, b"x")).version
        subprocess.run(["mount", "--bind", folder / KEY, folder / KEY], check=True)  # noqa: ASYNC221
        with pytest.raises(UnsupportedBackendError, match="mount its folder"):
            await backend.put_if_match(KEY, b"y", version)
        assert (folder / KEY).read_bytes() == b"x"

    asyncio.run(main())


@pytest.mark.root
def test_a_lock_file_that_is_mounted_by_itself_is_refused(tmp_path: Path) -> None:
    """It cannot be replaced; to try until the timeout would not help."""
    run("mounted_file", tmp_path, inside=("unshare", "--mount", "--propagation", "private"))


@pytest.mark.root
async def test_a_share_whose_server_is_gone_does_not_use_up_the_threads(
    backend: LocalBackend, tmp_path: Path
) -> None:
    """Every access to it would wait for good; it is refused before it is touched."""
    (tmp_path / "share").mkdir()
    with mounted_share(tmp_path / "share", "gone", dead=True):
        looks = [asyncio.ensure_future(backend.get(f"share/{number}.json")) for number in range(8)]

        await asyncio.wait_for(backend.put_if_absent(KEY, b"x"), 2)

        outcomes = await asyncio.wait_for(asyncio.gather(*looks, return_exceptions=True), 2)
        with pytest.raises(UnsupportedBackendError, match=r"fuse\.gone"):
            await asyncio.wait_for(asyncio.ensure_future(_keys(backend)), 2)
    assert all(isinstance(outcome, UnsupportedBackendError) for outcome in outcomes)


async def _keys(backend: LocalBackend) -> list[str]:
    return [entry.key async for entry in backend.list("")]


@pytest.mark.root
@pytest.mark.parametrize("call", ["share_below", "share_over"])
def test_a_share_is_refused_wherever_and_whenever_it_is_mounted(tmp_path: Path, call: str) -> None:
    """Below the root, behind a link, over a folder that is in use: before anything is touched there."""
    run(call, tmp_path, inside=("unshare", "--mount", "--propagation", "private"))


@pytest.mark.parametrize(
    "kind",
    [
        "virtiofs",
        "vboxsf",
        "9p",
        "nfs4",
        "cifs",
        "prl_fs",
        "vmhgfs",
        "fuse",
        "fuse.sshfs",
        "fuse.vmhgfs-fuse",
    ],
)
async def test_folders_shared_with_other_machines_are_refused(
    backend: LocalBackend, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of virtual machines, too: the host writes there, and its locks are not the guest's."""
    monkeypatch.setattr(_mounts, "_table", lambda: [b"21 1 8:1 / / rw - %s x rw" % kind.encode()])

    with pytest.raises(UnsupportedBackendError, match=kind):
        await backend.get(KEY)


# URLs


@pytest.mark.parametrize("path", ["/a/..%2f..%2fetc/x", "/a%2Fb", "/a/%2e%2e/b", "/..", "/a/../b", "/a%00b"])
def test_a_url_cannot_leave_its_folder(path: str) -> None:
    """Encoded or not, a step upwards is refused before anything is opened."""
    with pytest.raises(ConfigError):
        asynclock.connect(f"file://{path}")


async def test_a_url_names_a_folder_by_its_bytes(tmp_path: Path) -> None:
    """A name that is no UTF-8 is not taken for another one."""
    async with asynclock.connect(f"file://{tmp_path}/%ff") as client, client.lock("orders").hold():
        assert [os.fsencode(path.name) for path in tmp_path.iterdir()] == [b"\xff"]
