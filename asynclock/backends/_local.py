"""``file:///folder``: one file for each object, for locks between the processes of one machine.

A write makes a complete temporary file, syncs it to the disk and renames it over the object. A process
that is killed at any instant therefore leaves the old bytes or the new ones, never a part of them. The
process checks the condition of a write and renames the file while it holds the operating system's ``flock``
on a hidden side file. The kernel frees that lock when the process dies. Network and shared file systems are
refused, because their locks and renames do not give these guarantees.

A version combines the file's time of modification, its inode and a hash of its bytes. On a file system that
stores nanoseconds, no two writes get the same version. On one that rounds time stamps, two writes of the same
bytes may get the same one, but two lock records never have the same bytes.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import re
import stat
import time
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote_to_bytes

from asynclock.backend import MAX_BODY, Absent, Entry, Stored, Written
from asynclock.backends._folder import Folder, IrregularFileError, make_folder, read_regular, set_modified
from asynclock.backends._mounts import shared_below, shared_kind
from asynclock.backends._offload import Workers
from asynclock.backends._url import object_prefix, split_url, take_options
from asynclock.errors import (
    AccessDeniedError,
    BackendError,
    BackendUnavailableError,
    ConfigError,
    OutcomeUnknownError,
    PreconditionFailedError,
    UnsupportedBackendError,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

_THREADS: Final = 4
_LISTED_AT_ONCE: Final = 256
_MOST_FOLDERS: Final = 4096
_ORPHAN_AGE: Final = 60.0
"""Temporary files of dead processes are removed once they are this many seconds old."""
_TEMPORARY: Final = re.compile(r"\..+\.([0-9a-f]+)-[0-9a-f]{12}\.tmp")
_SIDE_FILE: Final = re.compile(r"\.(.+)\.lock", re.DOTALL)
_NANO: Final = 1_000_000_000
_ERRORS: Final[dict[int, type[BackendError]]] = {
    errno.EACCES: AccessDeniedError,
    errno.EPERM: AccessDeniedError,
    errno.EROFS: AccessDeniedError,
    errno.EEXIST: UnsupportedBackendError,
    errno.EISDIR: UnsupportedBackendError,
    errno.ENAMETOOLONG: UnsupportedBackendError,
    errno.ENOTDIR: UnsupportedBackendError,
    errno.EOVERFLOW: UnsupportedBackendError,
    errno.EBUSY: UnsupportedBackendError,
    errno.EAGAIN: BackendUnavailableError,
    errno.ENOENT: BackendUnavailableError,
}
"""The error for each error of the operating system. All of these say that nothing was written: the rename,
the only step that changes an object, did not happen or failed."""
_DETAILS: Final = {
    errno.EAGAIN: "another process was stopped in the middle of a write",
    errno.EBUSY: "the lock file is mounted by itself and cannot be replaced; mount its folder",
    errno.ENAMETOOLONG: "File name too long; use a shorter name, or split it with '/'",
    errno.ENOENT: "the folder was removed in the meantime",
}


class LocalBackend:
    """Files in a folder. The first write makes the folder.

    Args:
        root: The folder.
        fsync: Whether to put a write on the disk before confirming it; default True. With False, a power
            failure may undo the last writes; a crash of the process cannot.
        min_write_interval: Seconds that a lock leaves between two writes of one object; default 0.
    """

    name = "file"
    clock_resolution: float = 0.0
    sends_dates = True
    versions_may_repeat = True

    def __init__(self, root: Path, *, fsync: bool = True, min_write_interval: float = 0.0) -> None:
        self.min_write_interval = min_write_interval
        self._root = root
        self._fsync = fsync
        self._workers = Workers("asynclock-file", _THREADS)
        self._local_devices: set[int] = set()
        self._checked_folders: set[Path] = set()
        self._swept_folders: set[Path] = set()

    async def get(self, key: str) -> Stored | Absent:
        """Read an object; see ``Backend.get``."""
        return await self._workers.run(lambda: self._get(key))

    async def put_if_absent(self, key: str, body: bytes) -> Written:
        """Create an object; see ``Backend.put_if_absent``."""
        return await self._workers.run(lambda: self._put("put_if_absent", key, body, None))

    async def put_if_match(self, key: str, body: bytes, version: str) -> Written:
        """Replace one version of an object; see ``Backend.put_if_match``."""
        return await self._workers.run(lambda: self._put("put_if_match", key, body, version))

    async def put(self, key: str, body: bytes) -> Written:
        """Write without a condition; see ``Backend.put``."""
        return await self._workers.run(lambda: self._put("put", key, body, None))

    async def delete(self, key: str) -> None:
        """Delete an object; see ``Backend.delete``."""
        await self._workers.run(lambda: self._delete("delete", key, None))

    async def delete_if_match(self, key: str, version: str) -> None:
        """Delete one version of an object; see ``ConditionalDelete``."""
        await self._workers.run(lambda: self._delete("delete_if_match", key, version))

    async def list(self, prefix: str) -> AsyncIterator[Entry]:
        """Yield the objects under ``prefix``; see ``Backend.list``."""
        entries = self._walk(prefix)
        while some := await self._workers.run(lambda: tuple(islice(entries, _LISTED_AT_ONCE))):
            for entry in some:
                yield entry

    async def aclose(self) -> None:
        """End the backend's threads once the running calls are done."""
        self._workers.close()

    def _get(self, key: str) -> Stored | Absent:
        path = self._path(key)
        with self._errors("get", key):
            self._refuse_share_by_path("get", key, path.parent)
            try:
                body, status = read_regular(path, MAX_BODY + 1)
            except FileNotFoundError:
                self._refuse_share_by_device("get", key, path, _device(path))
                return Absent(time.time())
            self._refuse_share_by_device("get", key, path, status.st_dev)
            return Stored(body, _version(body, status), status.st_mtime_ns / _NANO, time.time())

    def _put(self, operation: str, key: str, body: bytes, version: str | None) -> Written:
        with self._errors(operation, key), self._folder(operation, key) as folder:
            written = self._replace(folder, operation, key, body, version)
            if self._fsync:
                try:
                    folder.sync()
                except OSError as error:
                    raise OutcomeUnknownError(
                        backend=self.name, operation=operation, key=key, detail=str(error)
                    ) from error
            return Written(written, time.time())

    def _folder(self, operation: str, key: str) -> Folder:
        """Open the folder of an object for a write. Make it if the write may create the object."""
        path = self._path(key).parent
        self._refuse_share_by_path(operation, key, path)
        try:
            folder = Folder(path)
        except FileNotFoundError:
            self._refuse_share_by_device(operation, key, path, _device(path))
            if operation == "put_if_match":
                # The object was removed with its folder, so there is nothing to replace.
                raise self._refused(operation, key, "no object") from None
            make_folder(path, self._root)
            folder = Folder(path)
        try:
            self._refuse_share_by_device(operation, key, path, folder.device)
            self._sweep(path, folder)
        except BaseException:
            folder.close()
            raise
        return folder

    def _replace(self, folder: Folder, operation: str, key: str, body: bytes, version: str | None) -> str:
        """Write an object if the condition of the operation holds, and return its new version."""
        name = key.rpartition("/")[2]
        temporary = f".{name}.{os.getpid():x}-{os.urandom(6).hex()}.tmp"
        with (
            folder.temporary(temporary, body, fsync=self._fsync) as descriptor,
            folder.locked(_side_file(name)),
        ):
            present, modified = self._present(folder, name)
            if operation == "put_if_absent" and present is not None:
                raise self._refused(operation, key, "it exists")
            if operation == "put_if_match" and present != version:
                raise self._refused(operation, key, "another version" if present else "no object")
            written = _version(body[: MAX_BODY + 1], set_modified(descriptor, time.time_ns(), modified))
            folder.rename(temporary, name)
            return written

    def _present(self, folder: Folder, name: str) -> tuple[str | None, int]:
        """Return an object's version and its time in epoch nanoseconds; None and 0 if it is missing."""
        try:
            body, status = folder.read(name, MAX_BODY + 1)
        except FileNotFoundError:
            return None, 0
        return _version(body, status), status.st_mtime_ns

    def _sweep(self, path: Path, folder: Folder) -> None:
        """Remove the temporary files of killed writers, once for each folder."""
        if path in self._swept_folders:
            return
        _remember(path, self._swept_folders)
        for name in folder.names():
            found = _TEMPORARY.fullmatch(name)
            if found is not None and not _alive(int(found[1], 16)):
                with contextlib.suppress(OSError):
                    # A new file stays: its process may run in another container and not be visible here.
                    if time.time() - folder.modified(name) > _ORPHAN_AGE:
                        folder.remove(name)

    def _delete(self, operation: str, key: str, version: str | None) -> None:
        path = self._path(key)
        with self._errors(operation, key):
            self._refuse_share_by_path(operation, key, path.parent)
            try:
                folder = Folder(path.parent)
            except FileNotFoundError:
                self._refuse_share_by_device(operation, key, path, _device(path))
                return
            with folder:
                self._refuse_share_by_device(operation, key, path, folder.device)
                with folder.locked(_side_file(path.name)):
                    if version is not None and self._present(folder, path.name)[0] not in {None, version}:
                        raise self._refused(operation, key, "another version")
                    folder.remove(path.name)
                    folder.remove(_side_file(path.name))

    def _walk(self, prefix: str) -> Iterator[Entry]:
        """Yield the objects under ``prefix`` in the order of their keys, one folder at a time."""
        with self._errors("list", prefix):
            # Check first: touching a share whose server is gone blocks forever.
            below = shared_below(self._root)
            if below is not None:
                raise self._share_refused("list", prefix, *below)
            self._refuse_share_by_device("list", prefix, self._root, _device(self._root))
            if not self._root.exists():
                raise UnsupportedBackendError(
                    backend=self.name,
                    operation="list",
                    key=prefix,
                    detail=f"the folder {self._root} does not exist; the first lock taken there makes it",
                )
            yield from _entries(self._root, "", prefix)

    def _path(self, key: str) -> Path:
        if "\0" in key or any(part in {"", ".", ".."} for part in key.split("/")):
            raise ConfigError(setting="key", value=key, reason="must be a relative path without '.' or '..'")
        return self._root / key

    def _refuse_share_by_path(self, operation: str, key: str, folder: Path) -> None:
        """Refuse a share by its path before touching it: a share whose server is gone blocks forever."""
        if folder not in self._checked_folders:
            kind = shared_kind(folder)
            if kind is not None:
                raise self._share_refused(operation, key, folder, kind)
            _remember(folder, self._checked_folders)

    def _refuse_share_by_device(self, operation: str, key: str, path: Path, device: int) -> None:
        """Refuse a share by the file system that was opened, to catch one mounted in the meantime."""
        if device in self._local_devices:
            return
        kind = shared_kind(path)
        if kind is not None:
            raise self._share_refused(operation, key, path, kind)
        self._local_devices.add(device)

    def _share_refused(self, operation: str, key: str, path: Path, kind: str) -> UnsupportedBackendError:
        return UnsupportedBackendError(
            backend=self.name,
            operation=operation,
            key=key,
            detail=f"{path} is on a network file system or a shared folder ({kind}), which other machines can"
            " write to at the same time; use a local disk or a store",
        )

    @contextlib.contextmanager
    def _errors(self, operation: str, key: str) -> Iterator[None]:
        """Turn errors of the operating system into errors of this package."""
        try:
            yield
        except OSError as error:
            kind, detail = _translated(error, operation)
            raise kind(
                backend=self.name,
                operation=operation,
                key=key,
                detail=detail,
                written="no" if kind is PreconditionFailedError else None,
            ) from error

    def _refused(self, operation: str, key: str, detail: str) -> PreconditionFailedError:
        return PreconditionFailedError(
            backend=self.name, operation=operation, key=key, detail=detail, written="no"
        )


def open_local(url: str, **options: object) -> LocalBackend:
    """Return the backend for ``file:///folder``. The folder is not touched before the first request.

    Args:
        url: The URL.
        options: ``fsync`` (default True) and ``min_write_interval`` (seconds; default 0).

    Raises:
        ConfigError: The URL names a host or no absolute folder, or an option is wrong.
    """
    parts = split_url(url)
    object_prefix(parts)
    if re.search("%2f", parts.path, re.IGNORECASE):
        raise ConfigError(setting="url", value=url, reason="a folder's name cannot contain a '/' (%2F)")
    folder = os.fsdecode(unquote_to_bytes(parts.path))
    if parts.netloc not in {"", "localhost"} or not folder.strip("/") or "\0" in folder:
        raise ConfigError(setting="url", value=url, reason="use file:///absolute/folder")
    return LocalBackend(Path(folder), **take_options(options, fsync=bool, min_write_interval=float))


def _translated(error: OSError, operation: str) -> tuple[type[BackendError], str]:
    """Return class and text of the backend error for an error of the operating system."""
    if isinstance(error, IrregularFileError):
        return UnsupportedBackendError, f"{error.filename}: {error.strerror}"
    if error.errno == errno.ENOENT and operation == "put_if_match":
        return PreconditionFailedError, _DETAILS[errno.ENOENT]
    # For any other error: a failing disk may have written nevertheless.
    unclear = BackendUnavailableError if operation in {"get", "list"} else OutcomeUnknownError
    number = error.errno or 0
    return _ERRORS.get(number, unclear), _DETAILS.get(number, str(error))


def _is_ours(name: str) -> bool:
    """Whether a file is a side file or a temporary file, not an object."""
    return name.startswith(".") and (name.endswith(".lock") or _TEMPORARY.fullmatch(name) is not None)


def _remember(path: Path, paths: set[Path]) -> None:
    if len(paths) >= _MOST_FOLDERS:
        paths.clear()  # each is then checked once more
    paths.add(path)


def _entries(folder: Path, above: str, prefix: str) -> Iterator[Entry]:
    """Yield the objects below a folder, whose keys begin with ``above``, in the order of their keys."""
    for name in sorted(_names(folder)):
        key = above + name
        if key.endswith("/"):
            if key.startswith(prefix) or prefix.startswith(key):
                yield from _entries(folder / name, key, prefix)
        elif key.startswith(prefix):
            with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                status = Path(folder, name).lstat()
                if stat.S_ISREG(status.st_mode):
                    yield Entry(key, status.st_size, status.st_mtime_ns / _NANO)


def _names(folder: Path) -> set[str]:
    """Return the names of objects and folders in a folder, those of folders with a slash at the end.

    If another process renames a file during a scan of several reads, the scan may miss its name: POSIX only
    promises the names that are neither added nor removed during the scan. The names of side files stay, so
    each side file also counts as the name of its object.
    """
    found: set[str] = set()
    for name, is_folder in _scan(folder):
        if is_folder:
            found.add(f"{name}/")  # sorts the keys below it into their place among those of files
            continue
        if _is_ours(name):
            if (side := _SIDE_FILE.fullmatch(name)) is None or _is_ours(side[1]):
                continue
            name = side[1]  # noqa: PLW2901  the object that it names
        found.add(name)
    return found


def _scan(folder: Path) -> Iterator[tuple[str, bool]]:
    """Yield each name that the kernel shows, and whether it is a folder."""
    with contextlib.suppress(FileNotFoundError), os.scandir(folder) as entries:
        for entry in entries:
            yield entry.name, entry.is_dir(follow_symlinks=False)


def _side_file(name: str) -> str:
    return f".{name}.lock"


def _version(body: bytes, status: os.stat_result) -> str:
    digest = hashlib.blake2b(body, digest_size=16).hexdigest()
    return f"{status.st_mtime_ns:x}-{status.st_ino:x}-{digest}"


def _device(path: Path) -> int:
    """Return the number of the file system that ``path`` is on, or will be once it exists."""
    while True:
        try:
            return path.stat().st_dev
        except FileNotFoundError:
            path = path.parent


def _alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        return True
    return True
