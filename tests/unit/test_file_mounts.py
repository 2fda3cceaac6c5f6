"""``file://`` on shares and mounts: what other machines write to is refused."""

# ruff: noqa: ASYNC240  the tests themselves may block

from __future__ import annotations

import asyncio
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from asynclock import UnsupportedBackendError
from asynclock.backend import Absent
from asynclock.backends import _mounts
from asynclock.backends._local import LocalBackend
from tests.share import mounted_share
from tests.unit.files import KEY, run_alone

if TYPE_CHECKING:
    from collections.abc import Callable

    from asynclock import Backend


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
    """Neighbours of a share, and a disk mounted in one, are local."""
    monkeypatch.setattr(_mounts, "_table", lambda: [line.encode() for line in MOUNTS])

    assert isinstance(await LocalBackend(Path(folder)).get(KEY), Absent)


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
    run_alone(mounted_file, tmp_path, inside=("unshare", "--mount", "--propagation", "private"))


async def _keys(backend: LocalBackend) -> list[str]:
    return [entry.key async for entry in backend.list("")]


@pytest.mark.root
async def test_a_share_whose_server_is_gone_does_not_use_up_the_threads(
    backend_here: LocalBackend, tmp_path: Path
) -> None:
    """Every access to it would wait for good; it is refused before it is touched."""
    (tmp_path / "share").mkdir()
    with mounted_share(tmp_path / "share", "gone", dead=True):
        looks = [asyncio.ensure_future(backend_here.get(f"share/{number}.json")) for number in range(8)]

        await asyncio.wait_for(backend_here.put_if_absent(KEY, b"x"), 2)

        outcomes = await asyncio.wait_for(asyncio.gather(*looks, return_exceptions=True), 2)
        with pytest.raises(UnsupportedBackendError, match=r"fuse\.gone"):
            await asyncio.wait_for(asyncio.ensure_future(_keys(backend_here)), 2)
    assert all(isinstance(outcome, UnsupportedBackendError) for outcome in outcomes)


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


@pytest.mark.root
@pytest.mark.parametrize("call", [share_below, share_over])
def test_a_share_is_refused_wherever_and_whenever_it_is_mounted(
    tmp_path: Path, call: Callable[[Path], None]
) -> None:
    """Below the root, behind a link, over a folder that is in use: before anything is touched there."""
    run_alone(call, tmp_path, inside=("unshare", "--mount", "--propagation", "private"))


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
    backend_here: LocalBackend, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of virtual machines, too: the host writes there, and its locks are not the guest's."""
    monkeypatch.setattr(_mounts, "_table", lambda: [b"21 1 8:1 / / rw - %s x rw" % kind.encode()])

    with pytest.raises(UnsupportedBackendError, match=kind):
        await backend_here.get(KEY)
