"""A mounted file system that the kernel asks this process about, as those of sshfs and other shares do.

The numbers and layouts are those of ``include/uapi/linux/fuse.h``.
"""

from __future__ import annotations

import errno
import os
import stat
import struct
import subprocess
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_HEADER: Final = struct.Struct("<IIQQIIIHH")
_ANSWER: Final = struct.Struct("<IiQ")
_LOOKUP, _GETATTR, _STATFS, _INIT, _OPENDIR, _READDIR, _RELEASEDIR = 1, 3, 17, 26, 27, 28, 29
_BODIES: Final = {
    _INIT: struct.pack("<IIIIHHI", 7, 31, 0, 0, 0, 0, 4096).ljust(64, b"\0"),
    # An empty folder that everyone may use: valid for no time, then inode 1.
    _GETATTR: struct.pack("<QII 6Q 10I", 0, 0, 0, 1, *[0] * 8, stat.S_IFDIR | 0o777, 2, *[0] * 5),
    _STATFS: bytes(80),
    _OPENDIR: bytes(16),
    _READDIR: b"",
    _RELEASEDIR: b"",
}


@contextmanager
def mounted_share(folder: Path, kind: str, *, dead: bool = False) -> Iterator[None]:
    """Mount an empty file system of the kind ``fuse.<kind>`` at a folder.

    Args:
        folder: Where.
        kind: What comes behind ``fuse.``.
        dead: Nobody answers, as for a share whose server is gone: who asks waits until the end.
    """
    device = os.open("/dev/fuse", os.O_RDWR)
    options = f"fd={device},rootmode=40000,user_id=0,group_id=0,allow_other"
    subprocess.run(
        ["mount", "-i", "-t", f"fuse.{kind}", "-o", options, kind, str(folder)],
        check=True,
        pass_fds=(device,),
    )
    server = threading.Thread(target=_serve, args=(device,))
    if not dead:
        server.start()
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)
        if not dead:
            server.join()
        os.close(device)


def _serve(device: int) -> None:
    """Answer until the file system is no longer mounted."""
    while True:
        try:
            request = os.read(device, 1 << 20)
        except OSError:
            return
        _, operation, number, *_ = _HEADER.unpack_from(request)
        body = _BODIES.get(operation, b"")
        error = 0
        if operation not in _BODIES:
            error = -(errno.ENOENT if operation == _LOOKUP else errno.ENOSYS)
        try:
            os.write(device, _ANSWER.pack(_ANSWER.size + len(body), error, number) + body)
        except FileNotFoundError:
            # The client was interrupted, or the request wants no answer.
            continue
