"""A folder of regular files: never through links, never waiting, replaced under a lock, shared by its mode.

Who may write in a folder takes part in its locks and is trusted: nobody can be kept from deleting
or replacing files there. Who may not must be unable to disturb. The operating system grants a
``flock`` to everyone who can open the file, for reading too; therefore the side file that writers
lock is open to those only who may write in the folder, whatever the umask. For the same reason
all who may write there can read the objects, else they could neither judge nor take over a lock.
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
"""Seconds to wait for another writer of the same object, who needs microseconds unless it was stopped."""
_SAFE: Final = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_GRAINS: Final = (10**3, 10**7, 10**9, 2 * 10**9)
"""Nanoseconds by which file systems cut time stamps, at most: NTFS, exFAT, ext3 and HFS+, FAT."""
_KINDS: Final = {
    stat.S_IFBLK: "a device",
    stat.S_IFCHR: "a device",
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a FIFO",
    stat.S_IFLNK: "a symbolic link",
    stat.S_IFSOCK: "a socket",
}


class IrregularFileError(OSError):
    """A folder, link, FIFO, socket or device stands where a regular file should; it was not touched."""


class Folder:
    """A folder held open: all steps of one write happen in it, whatever becomes of its path meanwhile.

    Args:
        path: The folder; must exist, and be readable (its descriptor is what syncs it).
    """

    __slots__ = ("_descriptor", "_facts", "_path")

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._facts = os.fstat(self._descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def device(self) -> int:
        """Number of the mounted file system."""
        return self._facts.st_dev

    def close(self) -> None:
        """Close the folder's descriptor."""
        os.close(self._descriptor)

    def names(self) -> list[str]:
        """Return the names of all that is in the folder."""
        return os.listdir(self._descriptor)  # noqa: PTH208  of the descriptor

    def read(self, name: str, limit: int) -> tuple[bytes, os.stat_result]:
        """Return the first bytes of a file and what it is like; see ``read_regular``."""
        return read_regular(name, limit, folder=self._descriptor)

    @contextlib.contextmanager
    def temporary(self, name: str, body: bytes, *, fsync: bool) -> Iterator[int]:
        """Write a file that all who may write in the folder can read; give its descriptor.

        The caller renames it; after an error the name is removed.
        """
        descriptor = self._create(name, 0o644)
        try:
            self._share(descriptor, stat.S_IRUSR)
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
        """Put a file in the place of another, or of nothing."""
        try:
            os.rename(old, new, src_dir_fd=self._descriptor, dst_dir_fd=self._descriptor)
        except PermissionError as error:
            if self._facts.st_mode & stat.S_ISVTX:
                reason = (
                    "in a folder with the sticky bit only the owner of a file may replace it; to share locks "
                    "between users, take a folder without that bit"
                )
                raise PermissionError(error.errno, reason, str(self._path / new)) from error
            raise

    def remove(self, name: str) -> None:
        """Remove a name; a missing one is no error."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name, dir_fd=self._descriptor)

    def modified(self, name: str) -> float:
        """Return when a file was last written, in epoch seconds."""
        return self._look(name).st_mtime

    def sync(self) -> None:
        """Bring the folder's names to the disk."""
        os.fsync(self._descriptor)

    @contextlib.contextmanager
    def locked(self, name: str) -> Iterator[None]:
        """Hold the operating system's lock on a side file, which the kernel frees when the process dies.

        Raises:
            BlockingIOError: Another process holds it for longer than a write takes.
        """
        descriptor = self._take(name)
        try:
            yield
        finally:
            _release(descriptor)

    def _take(self, name: str) -> int:
        while True:
            descriptor = self._open_side_file(name)
            try:
                if os.fstat(descriptor).st_uid == os.geteuid():
                    # The mode of the folder may have been changed since.
                    self._share(descriptor, stat.S_IRUSR | stat.S_IWUSR, mode=0)
                _wait_for_flock(descriptor)
                # A deletion removes the side file: who waited for it must lock the one that is there now.
                with contextlib.suppress(FileNotFoundError):
                    if os.path.samestat(self._look(name), os.fstat(descriptor)):
                        return descriptor
            except BaseException:
                _release(descriptor)
                raise
            _release(descriptor)

    def _open_side_file(self, name: str) -> int:
        while True:
            # Not O_CREAT: Linux refuses it for files of other users in some shared folders.
            with contextlib.suppress(FileNotFoundError), _fork_waits:
                descriptor = open_regular(name, folder=self._descriptor)
                _locks.add(descriptor)
                break
            self._make_side_file(name)
        return descriptor

    def _make_side_file(self, name: str) -> None:
        # Made under another name: nobody can open it before it has its mode, nor a mode that is too wide.
        draft = f"{name}.{os.getpid():x}-{os.urandom(6).hex()}.tmp"
        descriptor = self._create(draft, 0o600)
        try:
            self._share(descriptor, stat.S_IRUSR | stat.S_IWUSR, mode=0)
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
            # No hard links: FAT, which has no modes of files either.
            os.close(self._create(name, 0o600))

    def _create(self, name: str, mode: int) -> int:
        return os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _SAFE, mode, dir_fd=self._descriptor)

    def _look(self, name: str) -> os.stat_result:
        return os.stat(name, dir_fd=self._descriptor, follow_symlinks=False)

    def _share(self, descriptor: int, bits: int, mode: int | None = None) -> None:
        """Give each class of users that may write in the folder the permissions ``bits`` on a file.

        Args:
            descriptor: The file; gets the folder's owner and group, too, as far as this process may.
            bits: The permissions, as those of a file's owner.
            mode: What else the file's mode has; default what it is.
        """
        facts, folder = os.fstat(descriptor), self._facts
        mode = stat.S_IMODE(facts.st_mode) if mode is None else mode
        mode |= bits
        if folder.st_mode & stat.S_IWGRP:
            mode |= bits >> 3
        if folder.st_mode & stat.S_IWOTH:
            mode |= bits >> 6
        with contextlib.suppress(PermissionError):
            if facts.st_uid != folder.st_uid and os.geteuid() == 0:
                os.fchown(descriptor, folder.st_uid, -1)
            if facts.st_gid != folder.st_gid and folder.st_mode & stat.S_IWGRP:
                os.fchown(descriptor, -1, folder.st_gid)
        if stat.S_IMODE(facts.st_mode) != mode:
            # Not every file system has modes.
            with contextlib.suppress(PermissionError):
                os.fchmod(descriptor, mode)


def open_regular(path: Path | str, *, folder: int | None = None) -> int:
    """Open a file for reading and return its descriptor; never follow a link, never wait.

    Raises:
        IrregularFileError: It is no regular file.
        OSError: As of ``os.open``.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | _SAFE, dir_fd=folder)
    except OSError as error:
        if error.errno not in {errno.ELOOP, errno.ENXIO, errno.ENODEV}:
            raise
        kind = stat.S_IFMT(os.stat(path, dir_fd=folder, follow_symlinks=False).st_mode)
    else:
        kind = stat.S_IFMT(os.fstat(descriptor).st_mode)
        if kind == stat.S_IFREG:
            return descriptor
        os.close(descriptor)
    found = _KINDS.get(kind, "no regular file")
    raise IrregularFileError(errno.EINVAL, f"{found} stands in the place of a file; remove it", path)


def read_regular(path: Path | str, limit: int, *, folder: int | None = None) -> tuple[bytes, os.stat_result]:
    """Return the first ``limit`` bytes of a file and what it is like; see ``open_regular``."""
    descriptor = open_regular(path, folder=folder)
    try:
        facts = os.fstat(descriptor)
        body = b""
        while len(body) < limit and (more := os.read(descriptor, limit - len(body))):
            body += more
        return body, facts
    finally:
        os.close(descriptor)


def make_folder(path: Path, root: Path) -> None:
    """Make a folder and those above it; below ``root`` each is shared as the one that it stands in."""
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


def stamp(descriptor: int, now: int, after: int) -> os.stat_result:
    """Set the time of a file to ``now`` or later, in epoch nanoseconds; return what the file is like then.

    Later than ``after`` where the file system keeps nanoseconds. Where it cuts them the time is the
    next that it can keep: a lease must never seem older than it is.
    """
    for modified in (max(now, after + 1), *(now + grain for grain in _GRAINS)):
        os.utime(descriptor, ns=(now, modified))
        facts = os.fstat(descriptor)
        if facts.st_mtime_ns >= now:
            return facts
    raise OSError(errno.EOVERFLOW, "the file system cannot keep the present time")


# The side files that are open. A forked child has copies of their descriptors, and a copy keeps the lock
# of a parent that is killed before it unlocks; therefore the child closes them at once.
_locks: Final[set[int]] = set()
_fork_waits: Final = threading.Lock()


def _close_in_child() -> None:
    for descriptor in _locks:
        os.close(descriptor)
    _locks.clear()
    _fork_waits.release()


os.register_at_fork(
    before=_fork_waits.acquire, after_in_parent=_fork_waits.release, after_in_child=_close_in_child
)


def _release(descriptor: int) -> None:
    # Closing alone would not unlock while a forked child has a copy.
    fcntl.flock(descriptor, fcntl.LOCK_UN)
    with _fork_waits:
        _locks.discard(descriptor)
        os.close(descriptor)


def _wait_for_flock(descriptor: int) -> None:
    # Not a blocking call: behind a stopped process it would use up the backend's few threads.
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
