"""``file:///folder``: objects as files, exclusive across the processes of one machine.

An object is replaced by renaming a complete, synced temporary file over it, so that a process
killed at any instant leaves the old or the new bytes and never a torn or empty file. The
condition is checked and the rename made under the operating system's ``flock`` on a hidden side
file, which the kernel frees when its holder dies. Network and shared file systems are refused:
their locks and renames do not keep these promises.

A version is made of time, inode and a hash of the bytes. Where the file system keeps nanoseconds
no two writes have the same; where it cuts them only two writes of the same bytes may.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import re
import stat
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote_to_bytes

from asynclock.backend import MAX_BODY, Absent, Entry, Stored, Written
from asynclock.backends._folder import Folder, IrregularFileError, make_folder, read_regular, stamp
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
    import builtins
    from collections.abc import AsyncIterator, Iterator

_THREADS: Final = 4
_ORPHAN_AGE: Final = 60.0
"""Seconds after which the temporary file of a process that is gone is removed."""
_TEMPORARY: Final = re.compile(r"\..+\.([0-9a-f]+)-[0-9a-f]{12}\.tmp")
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
"""Nothing was written: the rename, the only step that shows, was not made or has failed."""
_DETAILS: Final = {
    errno.EAGAIN: "another process has been stopped in the middle of a write",
    errno.EBUSY: "the lock file is mounted by itself and cannot be replaced; mount its folder",
    errno.ENAMETOOLONG: "File name too long; use a shorter name, or split it with '/'",
    errno.ENOENT: "the folder was removed meanwhile",
}


class LocalBackend:
    """Files in a folder; the folder is made by the first write.

    Args:
        root: The folder.
        fsync: Whether a write is on the disk before it is confirmed; default True. Without it a
            power failure may lose the last writes, a crash of a process does not.
        min_write_interval: Seconds to leave between two writes of one object; default 0.
    """

    name = "file"
    clock_resolution = 0.0
    sends_dates = True
    versions_may_repeat = True

    def __init__(self, root: Path, *, fsync: bool = True, min_write_interval: float = 0.0) -> None:
        self.min_write_interval = min_write_interval
        self._root = root
        self._fsync = fsync
        self._workers = Workers("asynclock-file", _THREADS)
        self._local: set[int] = set()
        self._seen: set[Path] = set()
        self._swept: set[Path] = set()

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
        await self._workers.run(lambda: self._delete(key))

    async def list(self, prefix: str) -> AsyncIterator[Entry]:
        """Yield the objects under ``prefix``; see ``Backend.list``."""
        for entry in await self._workers.run(lambda: self._list(prefix)):
            yield entry

    async def aclose(self) -> None:
        """Let the backend's threads end."""
        self._workers.close()

    def _get(self, key: str) -> Stored | Absent:
        path = self._path(key)
        with self._errors("get", key):
            self._refuse_unseen("get", key, path.parent)
            try:
                body, facts = read_regular(path, MAX_BODY + 1)
            except FileNotFoundError:
                self._refuse_shared("get", key, path, _device(path))
                return Absent(time.time())
            self._refuse_shared("get", key, path, facts.st_dev)
            return Stored(body, _version(body, facts), facts.st_mtime_ns / _NANO, time.time())

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
        """Open the folder of an object for writing, and make it where an object may be created."""
        path = self._path(key).parent
        self._refuse_unseen(operation, key, path)
        try:
            folder = Folder(path)
        except FileNotFoundError:
            self._refuse_shared(operation, key, path, _device(path))
            if operation == "put_if_match":
                # The folder of a lock that is held was removed; it is not the holder's to make again.
                raise self._refused(operation, key, "no object") from None
            make_folder(path, self._root)
            folder = Folder(path)
        try:
            self._refuse_shared(operation, key, path, folder.device)
            self._sweep(path, folder)
        except BaseException:
            folder.close()
            raise
        return folder

    def _replace(self, folder: Folder, operation: str, key: str, body: bytes, version: str | None) -> str:
        """Write an object if the condition holds; return its version."""
        name = key.rpartition("/")[2]
        temporary = f".{name}.{os.getpid():x}-{os.urandom(6).hex()}.tmp"
        with folder.temporary(temporary, body, fsync=self._fsync) as descriptor, folder.locked(_side(name)):
            present, modified = self._present(folder, name)
            if operation == "put_if_absent" and present is not None:
                raise self._refused(operation, key, "it exists")
            if operation == "put_if_match" and present != version:
                raise self._refused(operation, key, "another version" if present else "no object")
            written = _version(body[: MAX_BODY + 1], stamp(descriptor, time.time_ns(), modified))
            folder.rename(temporary, name)
            return written

    def _present(self, folder: Folder, name: str) -> tuple[str | None, int]:
        """Return an object's version, or None, and when it was written, in epoch nanoseconds."""
        try:
            body, facts = folder.read(name, MAX_BODY + 1)
        except FileNotFoundError:
            return None, 0
        return _version(body, facts), facts.st_mtime_ns

    def _sweep(self, path: Path, folder: Folder) -> None:
        """Remove what killed writers left in a folder, once for each folder."""
        if path in self._swept:
            return
        self._swept.add(path)
        for name in folder.names():
            found = _TEMPORARY.fullmatch(name)
            if found is not None and not _alive(int(found[1], 16)):
                with contextlib.suppress(OSError):
                    # Young ones stay: their process may live in another container.
                    if time.time() - folder.modified(name) > _ORPHAN_AGE:
                        folder.remove(name)

    def _delete(self, key: str) -> None:
        path = self._path(key)
        with self._errors("delete", key):
            self._refuse_unseen("delete", key, path.parent)
            try:
                folder = Folder(path.parent)
            except FileNotFoundError:
                self._refuse_shared("delete", key, path, _device(path))
                return
            with folder:
                self._refuse_shared("delete", key, path, folder.device)
                with folder.locked(_side(path.name)):
                    folder.remove(path.name)
                    folder.remove(_side(path.name))

    def _list(self, prefix: str) -> builtins.list[Entry]:
        with self._errors("list", prefix):
            # Before anything is looked at: a share whose server is gone would block for good.
            below = shared_below(self._root)
            if below is not None:
                raise self._shared("list", prefix, *below)
            self._refuse_shared("list", prefix, self._root, _device(self._root))
            found = []
            for folder, folders, names in os.walk(self._root, onerror=_raise_unless_gone):
                folders[:] = [name for name in folders if not name.startswith(".")]
                for name in names:
                    path = Path(folder, name)
                    key = path.relative_to(self._root).as_posix()
                    if name.startswith(".") or not key.startswith(prefix):
                        continue
                    with contextlib.suppress(FileNotFoundError):
                        facts = path.lstat()
                        if stat.S_ISREG(facts.st_mode):
                            found.append(Entry(key, facts.st_size, facts.st_mtime_ns / _NANO))
            return sorted(found, key=lambda entry: entry.key)

    def _path(self, key: str) -> Path:
        if "\0" in key or any(part in {"", ".", ".."} for part in key.split("/")):
            raise ConfigError(setting="key", value=key, reason="must be a relative path without '.' or '..'")
        return self._root / key

    def _refuse_unseen(self, operation: str, key: str, folder: Path) -> None:
        """Refuse a share before it is touched: one whose server is gone would block for good."""
        if folder not in self._seen:
            kind = shared_kind(folder)
            if kind is not None:
                raise self._shared(operation, key, folder, kind)
            self._seen.add(folder)

    def _refuse_shared(self, operation: str, key: str, path: Path, device: int) -> None:
        """Refuse a network or shared file system, wherever it is mounted and whenever that happened."""
        if device in self._local:
            return
        kind = shared_kind(path)
        if kind is not None:
            raise self._shared(operation, key, path, kind)
        self._local.add(device)

    def _shared(self, operation: str, key: str, path: Path, kind: str) -> UnsupportedBackendError:
        return UnsupportedBackendError(
            backend=self.name,
            operation=operation,
            key=key,
            detail=f"{path} is on a network file system or a shared folder ({kind}), which other machines may"
            " write at the same time; use a local disk or a store",
        )

    @contextlib.contextmanager
    def _errors(self, operation: str, key: str) -> Iterator[None]:
        """Turn errors of the operating system into ours."""
        try:
            yield
        except OSError as error:
            kind, detail = _explained(error, operation)
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
    """Open ``file:///folder``.

    Raises:
        ConfigError: The URL names a host, no absolute folder, or an option is wrong.
    """
    parts = split_url(url)
    object_prefix(parts)
    if re.search("%2f", parts.path, re.IGNORECASE):
        raise ConfigError(setting="url", value=url, reason="a folder's name cannot contain a '/' (%2F)")
    folder = os.fsdecode(unquote_to_bytes(parts.path))
    if parts.netloc not in {"", "localhost"} or not folder.strip("/") or "\0" in folder:
        raise ConfigError(setting="url", value=url, reason="use file:///absolute/folder")
    return LocalBackend(Path(folder), **take_options(options, fsync=bool, min_write_interval=float))


def _explained(error: OSError, operation: str) -> tuple[type[BackendError], str]:
    """Return our kind of an error of the operating system, and what to say."""
    if isinstance(error, IrregularFileError):
        return UnsupportedBackendError, f"{error.filename}: {error.strerror}"
    if error.errno == errno.ENOENT and operation == "put_if_match":
        return PreconditionFailedError, _DETAILS[errno.ENOENT]
    # A disk that fails may have done what it was asked to.
    unclear = BackendUnavailableError if operation in {"get", "list"} else OutcomeUnknownError
    number = error.errno or 0
    return _ERRORS.get(number, unclear), _DETAILS.get(number, str(error))


def _side(name: str) -> str:
    return f".{name}.lock"


def _version(body: bytes, facts: os.stat_result) -> str:
    digest = hashlib.blake2b(body, digest_size=16).hexdigest()
    return f"{facts.st_mtime_ns:x}-{facts.st_ino:x}-{digest}"


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


def _raise_unless_gone(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError):
        raise error
