"""A folder of regular files that several users and processes may replace, one at a time.

Symbolic links are never followed, and opening a file never blocks.

A user who may write in the folder takes part in its locks and must be trusted: the operating system lets such
a user delete and replace every file there. A user who may not write there must not be able to interfere. The
operating system grants a ``flock`` to every user who can open the file, even just for reading. So only users
who may write in the folder can open the side file that writers lock, whatever the umask. All of them can read
the objects, whatever the umask: a user who cannot read a lock can neither tell whether it is free nor take it
over.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
import threading
import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from typing import Self

FLOCK_PATIENCE: Final = 1.0
"""Seconds to wait for another writer of the same object. A write takes less unless its process is stopped."""
_SAFE: Final = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_TIME_STEPS: Final = (10**3, 10**7, 10**9, 2 * 10**9)
"""Largest steps of time stamps in nanoseconds: on NTFS; on exFAT; on ext3 and HFS+; on FAT."""
_KINDS: Final = {
    stat.S_IFBLK: "a device",
    stat.S_IFCHR: "a device",
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a FIFO",
    stat.S_IFLNK: "a symbolic link",
    stat.S_IFSOCK: "a socket",
}


class IrregularFileError(OSError):
    """There is a folder, link, FIFO, socket or device instead of a regular file. It was not changed."""


class Folder:
    """An open folder. All steps of one write happen in it, even if its path is renamed in the middle.

    Args:
        path: The folder. It must exist and be readable, because syncing it needs a descriptor for reading.

    Raises:
        OSError: See ``os.open``.
    """

    __slots__ = ("_descriptor", "_path", "_status")

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._status = os.fstat(self._descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def device(self) -> int:
        """Number of the file system that the folder is on."""
        return self._status.st_dev

    def close(self) -> None:
        """Close the folder's descriptor."""
        os.close(self._descriptor)

    def names(self) -> list[str]:
        """Return the names of everything in the folder."""
        return os.listdir(self._descriptor)  # noqa: PTH208  pathlib cannot list a descriptor

    def read(self, name: str, limit: int) -> tuple[bytes, os.stat_result]:
        """Return the first ``limit`` bytes of a file and its ``stat``; see ``read_regular``."""
        return read_regular(name, limit, folder=self._descriptor)

    @contextlib.contextmanager
    def temporary(self, name: str, body: bytes, *, fsync: bool) -> Iterator[int]:
        """Write a new file that all users who may write in the folder can read, and yield its descriptor.

        The caller renames the file in the ``with`` block. If the block fails, the file is removed.

        Args:
            name: Name of the new file.
            body: Its bytes.
            fsync: Whether to put the bytes on the disk before the block begins.
        """
        descriptor = self._create(name, 0o644)
        try:
            self._give_access(descriptor, os.fstat(descriptor), stat.S_IRUSR)
            rest = memoryview(body)
            while rest:
                rest = rest[os.write(descriptor, rest) :]
            if fsync:
                os.fsync(descriptor)
            yield descriptor
        except BaseException:
            self.remove(name)
            raise
        finally:
            os.close(descriptor)

    def rename(self, old: str, new: str) -> None:
        """Rename a file. A file that already has the new name is replaced.

        Raises:
            PermissionError: Another user owns that file, and the folder has the sticky bit.
        """
        try:
            os.rename(old, new, src_dir_fd=self._descriptor, dst_dir_fd=self._descriptor)
        except PermissionError as error:
            if self._status.st_mode & stat.S_ISVTX:
                reason = (
                    "in a folder with the sticky bit only the owner of a file may replace it; to share locks "
                    "between users, use a folder without that bit"
                )
                raise PermissionError(error.errno, reason, str(self._path / new)) from error
            raise

    def remove(self, name: str) -> None:
        """Remove a file. A missing one is not an error."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name, dir_fd=self._descriptor)

    def modified(self, name: str) -> float:
        """Return when a file was last written, in epoch seconds."""
        return self._stat(name).st_mtime

    def sync(self) -> None:
        """Write the folder itself to the disk, so that its new names survive a power failure."""
        os.fsync(self._descriptor)

    @contextlib.contextmanager
    def locked(self, name: str) -> Iterator[None]:
        """Hold the operating system's lock on a side file. The kernel frees it when the process dies.

        Args:
            name: Name of the side file. It is made if it is missing.

        Raises:
            BlockingIOError: Another process held the lock for ``FLOCK_PATIENCE`` seconds.
        """
        descriptor = self._lock_side_file(name)
        try:
            yield
        finally:
            _release(descriptor)

    def _lock_side_file(self, name: str) -> int:
        while True:
            descriptor, status = self._open_side_file(name)
            try:
                if status.st_uid == os.geteuid():
                    # The folder's mode may have changed since the file was made.
                    self._give_access(descriptor, status, stat.S_IRUSR | stat.S_IWUSR, mode=0)
                _wait_for_flock(descriptor)
                # Deleting an object removes its side file. A process that waited for the old file must then
                # lock the new one.
                with contextlib.suppress(FileNotFoundError):
                    if os.path.samestat(self._stat(name), status):
                        return descriptor
            except BaseException:
                _release(descriptor)
                raise
            _release(descriptor)

    def _open_side_file(self, name: str) -> tuple[int, os.stat_result]:
        while True:
            # Without O_CREAT, which Linux refuses for files of other users in some shared folders.
            with contextlib.suppress(FileNotFoundError), _fork_lock:
                descriptor, status = open_regular(name, folder=self._descriptor)
                _side_files.add(descriptor)
                break
            self._make_side_file(name)
        return descriptor, status

    def _make_side_file(self, name: str) -> None:
        # Made under another name and linked once its mode is set: otherwise a process might find the mode too
        # narrow, or get in because it is too wide.
        draft = f"{name}.{os.getpid():x}-{os.urandom(6).hex()}.tmp"
        descriptor = self._create(draft, 0o600)
        try:
            self._give_access(descriptor, os.fstat(descriptor), stat.S_IRUSR | stat.S_IWUSR, mode=0)
            with contextlib.suppress(FileExistsError):
                self._link(draft, name)
        finally:
            os.close(descriptor)
            self.remove(draft)

    def _link(self, draft: str, name: str) -> None:
        try:
            os.link(draft, name, src_dir_fd=self._descriptor, dst_dir_fd=self._descriptor)
        except FileExistsError:
            raise
        except OSError as error:
            if error.errno not in {errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS}:
                raise
            # A file system without hard links, such as FAT. It has no file modes either, so none must be set
            # first.
            os.close(self._create(name, 0o600))

    def _create(self, name: str, mode: int) -> int:
        return os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _SAFE, mode, dir_fd=self._descriptor)

    def _stat(self, name: str) -> os.stat_result:
        return os.stat(name, dir_fd=self._descriptor, follow_symlinks=False)

    def _give_access(
        self, descriptor: int, status: os.stat_result, bits: int, mode: int | None = None
    ) -> None:
        """Give each class of users that may write in the folder the permissions ``bits`` on a file.

        Args:
            descriptor: The file. It also gets the owner and group of the folder, if this process may do that.
            status: Its ``stat``.
            bits: The permissions, as bits of the owner (``S_IRUSR``, ``S_IWUSR``).
            mode: The mode that these permissions are added to. Default: the file's present mode.
        """
        folder = self._status
        mode = stat.S_IMODE(status.st_mode) if mode is None else mode
        mode |= bits
        if folder.st_mode & stat.S_IWGRP:
            mode |= bits >> 3
        if folder.st_mode & stat.S_IWOTH:
            mode |= bits >> 6
        with contextlib.suppress(PermissionError):
            if status.st_uid != folder.st_uid and os.geteuid() == 0:
                os.fchown(descriptor, folder.st_uid, -1)
            if status.st_gid != folder.st_gid and folder.st_mode & stat.S_IWGRP:
                os.fchown(descriptor, -1, folder.st_gid)
        if stat.S_IMODE(status.st_mode) != mode:
            # Some file systems have no modes.
            with contextlib.suppress(PermissionError):
                os.fchmod(descriptor, mode)


def open_regular(path: Path | str, *, folder: int | None = None) -> tuple[int, os.stat_result]:
    """Open a file for reading; return its descriptor and ``stat``. Never follows a link, never blocks.

    Raises:
        IrregularFileError: It is not a regular file.
        OSError: See ``os.open``.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | _SAFE, dir_fd=folder)
    except OSError as error:
        if error.errno not in {errno.ELOOP, errno.ENXIO, errno.ENODEV}:
            raise
        kind = stat.S_IFMT(os.stat(path, dir_fd=folder, follow_symlinks=False).st_mode)
    else:
        status = os.fstat(descriptor)
        kind = stat.S_IFMT(status.st_mode)
        if kind == stat.S_IFREG:
            return descriptor, status
        os.close(descriptor)
    found = _KINDS.get(kind, "something else")
    raise IrregularFileError(errno.EINVAL, f"{found} is in the place of a file; remove it", path)


def read_regular(path: Path | str, limit: int, *, folder: int | None = None) -> tuple[bytes, os.stat_result]:
    """Return the first ``limit`` bytes of a file and its ``stat``; raises as ``open_regular`` does."""
    descriptor, status = open_regular(path, folder=folder)
    try:
        body = b""
        while len(body) < limit and (more := os.read(descriptor, limit - len(body))):
            body += more
        return body, status
    finally:
        os.close(descriptor)


def make_folder(path: Path, root: Path) -> None:
    """Make a folder and its parents. Below ``root``, a new folder gets the group and mode of its parent.

    Only if its group or everybody may write in the parent; otherwise the umask decides.
    """
    if path == root or root not in path.parents:
        path.mkdir(parents=True, exist_ok=True)
        return
    make_folder(path.parent, root)
    try:
        path.mkdir()
    except FileExistsError:
        if not path.is_dir():
            raise
        return
    above = path.parent.stat()
    if above.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        with contextlib.suppress(PermissionError):
            os.chown(path, -1, above.st_gid)
        path.chmod(stat.S_IMODE(above.st_mode))


def set_modified(descriptor: int, now: int, after: int) -> os.stat_result:
    """Set a file's time of last modification to the present or a little later, and return its ``stat``.

    A file system that rounds time stamps down would make a lease look older than it is. On such a file system
    this sets the next time that can be stored, at most 2 s ahead.

    Args:
        descriptor: The file.
        now: The present, in epoch nanoseconds.
        after: If the file system stores nanoseconds, the new time is later than this.

    Raises:
        OSError: The file system cannot store the present time.
    """
    for modified in (max(now, after + 1), *(now + step for step in _TIME_STEPS)):
        os.utime(descriptor, ns=(now, modified))
        status = os.fstat(descriptor)
        if status.st_mtime_ns >= now:
            return status
    raise OSError(errno.EOVERFLOW, "the file system cannot keep the present time")


# Descriptors of the open side files. A forked child inherits copies of them. If the parent were killed before
# it unlocks, such a copy would keep the lock held, so the child closes its copies at once.
_side_files: Final[set[int]] = set()
_fork_lock: Final = threading.RLock()  # a signal handler may fork in the middle of a fork


def _close_in_child() -> None:
    for descriptor in _side_files:
        os.close(descriptor)
    _side_files.clear()
    _fork_lock.release()


os.register_at_fork(
    before=_fork_lock.acquire, after_in_parent=_fork_lock.release, after_in_child=_close_in_child
)


def _release(descriptor: int) -> None:
    # Closing the descriptor does not unlock the file while a forked child has a copy of it.
    fcntl.flock(descriptor, fcntl.LOCK_UN)
    with _fork_lock:
        _side_files.discard(descriptor)
        os.close(descriptor)


def _wait_for_flock(descriptor: int) -> None:
    # Does not block in flock: calls waiting for a stopped process would occupy all of the backend's threads.
    until = time.monotonic() + FLOCK_PATIENCE
    pause = 0.0005
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= until:
                raise
            time.sleep(pause)
            pause = min(2 * pause, 0.02)
        else:
            return
