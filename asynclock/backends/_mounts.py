"""Tells local file systems from network and shared ones with the kernel's table of mounts."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

_SHARED: Final = frozenset({
    "9p", "acfs", "afs", "auristorfs", "beegfs", "ceph", "cifs", "coda", "drvfs", "fuse", "gfs2", "glusterfs",
    "gpfs", "hostfs", "lustre", "ncpfs", "nfs", "nfs4", "ocfs2", "orangefs", "panfs", "prl_fs", "pvfs2",
    "smb3", "smbfs", "vboxsf", "virtiofs", "vmhgfs", "wekafs",
})  # fmt: skip
"""File systems shared with other machines or with a virtual machine's host, so other kernels write to
them."""
_ESCAPED: Final = re.compile(rb"\\([0-7]{3})")


def shared_kind(path: Path) -> str | None:
    """Return the kind of the network or shared file system that ``path`` is on, or will be once it exists.

    Returns:
        For example ``nfs4``. None: the file system is local, or this operating system has no table of
        mounts to look in.
    """
    mounts = list(_mounts())
    # Try the unresolved path first: resolving links on a share whose server is gone blocks.
    for plain in (os.path.abspath, os.path.realpath):
        kind = _kind(plain(path), mounts)
        if _is_shared(kind):
            return kind
    return None


def shared_below(folder: Path) -> tuple[Path, str] | None:
    """Return path and kind of a network or shared file system mounted below ``folder``, or None."""
    real = os.path.realpath(folder)
    visible = (
        (Path(point), kind)
        for point, kind in _mounts()
        if point != real and _is_within(point, real) and _is_shared(kind)
    )
    return next(visible, None)


def _kind(path: str, mounts: list[tuple[str, str]]) -> str:
    longest, kind = -1, ""
    for point, mounted in mounts:
        if _is_within(path, point) and len(point) >= longest:
            longest, kind = len(point), mounted
    return kind


def _is_shared(kind: str) -> bool:
    # "fuse.sshfs" and the like are shared; "fuseblk" is a local disk.
    return kind in _SHARED or kind.startswith("fuse.")


def _is_within(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def _mounts() -> Iterator[tuple[str, str]]:
    """Yield mount point and kind of each mounted file system, in the order in which they were mounted.

    Source: proc_pid_mountinfo(5): the fifth field is the mount point, the one after `` - `` the kind.
    """
    for line in _table():
        before, _, after = line.partition(b" - ")
        point = _ESCAPED.sub(lambda code: bytes([int(code[1], 8)]), before.split(b" ")[4])
        yield os.fsdecode(point), os.fsdecode(after.split(b" ")[0])


def _table() -> list[bytes]:
    """Return the lines of the kernel's table of mounts; an empty list on systems that have none."""
    try:
        return Path("/proc/self/mountinfo").read_bytes().splitlines()
    except OSError:
        return []
