"""``file:///folder``: objects as files, exclusive across the processes of one machine.

An object is replaced by renaming a complete, synced temporary file over it, so that a process
killed at any instant leaves the old or the new bytes and never a torn or empty file. The
condition is checked and the rename made under the operating system's ``flock`` on a hidden side
file, which the kernel frees when its holder dies. Network file systems are refused: their
locks and renames do not keep these promises.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

from asynclock.backend import MAX_BODY, Entry, Stored, Written, note_date
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

_NETWORK: Final = frozenset({
    "9p", "afs", "beegfs", "ceph", "cifs", "gfs2", "glusterfs", "gpfs", "lustre", "ncpfs", "nfs", "nfs4",
    "ocfs2", "orangefs", "smb3", "smbfs",
})  # fmt: skip
_THREADS: Final = 4
_FLOCK_PATIENCE: Final = 1.0
"""Seconds to wait for another writer of the same object, who needs microseconds unless it was stopped."""
_ORPHAN_AGE: Final = 60.0
"""Seconds after which the temporary file of a process that is gone is removed."""
_TEMPORARY: Final = re.compile(r"\..+\.([0-9a-f]+)-[0-9a-f]{12}\.tmp")
_ESCAPED: Final = re.compile(r"\\([0-7]{3})")
_NANO: Final = 1_000_000_000


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
    versions_may_repeat = False

    def __init__(self, root: Path, *, fsync: bool = True, min_write_interval: float = 0.0) -> None:
        self.min_write_interval = min_write_interval
        self._root = root
        self._fsync = fsync
        self._workers = Workers("asynclock-file", _THREADS)
        self._checked = False
        self._swept: set[Path] = set()

    async def get(self, key: str) -> Stored | None:
        """Read an object; see ``Backend.get``."""
        found = await self._workers.run(lambda: self._get(key))
        if isinstance(found, Stored):
            return found
        note_date(found)
        return None

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

    def _get(self, key: str) -> Stored | float:
        with self._errors("get", key):
            self._refuse_network("get", key)
            try:
                with self._path(key).open("rb") as file:
                    body = file.read(MAX_BODY + 1)
                    facts = os.fstat(file.fileno())
            except FileNotFoundError:
                return time.time()
            return Stored(body, _version(facts), facts.st_mtime_ns / _NANO, time.time())

    def _put(self, operation: str, key: str, body: bytes, version: str | None) -> Written:
        path = self._path(key)
        with self._errors(operation, key):
            self._refuse_network(operation, key)
            path.parent.mkdir(parents=True, exist_ok=True)
            self._sweep(path.parent)
            temporary = _side(path, f"{os.getpid():x}-{os.urandom(6).hex()}.tmp")
            try:
                self._write(temporary, body)
                with _flock(_side(path, "lock")):
                    facts = _facts(path)
                    self._require(operation, key, facts, version)
                    # Never the same time twice: the version is made of it.
                    modified = max(time.time_ns(), facts.st_mtime_ns + 1 if facts else 0)
                    os.utime(temporary, ns=(modified, modified))
                    written = _version(temporary.stat())
                    temporary.rename(path)
            except BaseException:
                temporary.unlink(missing_ok=True)
                raise
            if self._fsync:
                _sync_folder(path.parent)
            return Written(written, time.time())

    def _write(self, temporary: Path, body: bytes) -> None:
        # Buffered: a bare write may take only a part of the bytes and not say why.
        with temporary.open("xb") as file:
            file.write(body)
            file.flush()
            if self._fsync:
                os.fsync(file.fileno())

    def _require(self, operation: str, key: str, facts: os.stat_result | None, version: str | None) -> None:
        """Raise unless the condition of a write holds."""
        if operation == "put_if_absent" and facts is not None:
            raise self._refused(operation, key, "it exists")
        if operation == "put_if_match" and (facts is None or _version(facts) != version):
            raise self._refused(operation, key, "another version" if facts else "no object")

    def _sweep(self, folder: Path) -> None:
        """Remove what killed writers left in ``folder``, once for each folder."""
        if folder in self._swept:
            return
        self._swept.add(folder)
        for path in folder.glob(".*.tmp"):
            found = _TEMPORARY.fullmatch(path.name)
            if found is not None and not _alive(int(found[1], 16)):
                with contextlib.suppress(OSError):
                    # Young ones stay: their process may live in another container.
                    if time.time() - path.stat().st_mtime > _ORPHAN_AGE:
                        path.unlink()

    def _delete(self, key: str) -> None:
        path = self._path(key)
        with self._errors("delete", key):
            self._refuse_network("delete", key)
            if path.parent.is_dir():
                side = _side(path, "lock")
                with _flock(side):
                    path.unlink(missing_ok=True)
                    side.unlink()

    def _list(self, prefix: str) -> builtins.list[Entry]:
        with self._errors("list", prefix):
            self._refuse_network("list", prefix)
            found = []
            for folder, folders, names in os.walk(self._root, onerror=_raise_unless_gone):
                folders[:] = [name for name in folders if not name.startswith(".")]
                for name in names:
                    path = Path(folder, name)
                    key = path.relative_to(self._root).as_posix()
                    if name.startswith(".") or not key.startswith(prefix):
                        continue
                    with contextlib.suppress(FileNotFoundError):
                        facts = path.stat()
                        found.append(Entry(key, facts.st_size, facts.st_mtime_ns / _NANO))
            return sorted(found, key=lambda entry: entry.key)

    def _path(self, key: str) -> Path:
        if "\0" in key or any(part in {"", ".", ".."} for part in key.split("/")):
            raise ConfigError(setting="key", value=key, reason="must be a relative path without '.' or '..'")
        return self._root / key

    def _refuse_network(self, operation: str, key: str) -> None:
        if self._checked:
            return
        kind = _file_system(self._root)
        if kind in _NETWORK or kind.startswith("fuse."):
            raise UnsupportedBackendError(
                backend=self.name,
                operation=operation,
                key=key,
                detail=f"{self._root} is on a network file system ({kind}); use a local disk or a store",
            )
        self._checked = True

    @contextlib.contextmanager
    def _errors(self, operation: str, key: str) -> Iterator[None]:
        """Turn errors of the operating system into ours."""
        try:
            yield
        except BackendError:
            raise
        except PermissionError as error:
            raise AccessDeniedError(
                backend=self.name, operation=operation, key=key, detail=str(error)
            ) from error
        except (FileExistsError, IsADirectoryError, NotADirectoryError) as error:
            raise UnsupportedBackendError(
                backend=self.name, operation=operation, key=key, detail=str(error)
            ) from error
        except BlockingIOError as error:
            raise BackendUnavailableError(
                backend=self.name,
                operation=operation,
                key=key,
                detail="another process has been stopped in the middle of a write",
            ) from error
        except OSError as error:
            if error.errno == errno.EROFS:
                raise AccessDeniedError(
                    backend=self.name, operation=operation, key=key, detail=str(error)
                ) from error
            if error.errno == errno.ENAMETOOLONG:
                raise UnsupportedBackendError(
                    backend=self.name,
                    operation=operation,
                    key=key,
                    detail=f"{error.strerror}; use a shorter name, or split it with '/'",
                ) from error
            # The rename may be done and only the sync of the folder have failed.
            kind = BackendUnavailableError if operation in {"get", "list"} else OutcomeUnknownError
            raise kind(backend=self.name, operation=operation, key=key, detail=str(error)) from error

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
    folder = unquote(parts.path)
    if parts.netloc not in {"", "localhost"} or not folder.strip("/") or "\0" in folder:
        raise ConfigError(setting="url", value=url, reason="use file:///absolute/folder")
    return LocalBackend(Path(folder), **take_options(options, fsync=bool, min_write_interval=float))


def _side(path: Path, ending: str) -> Path:
    return path.with_name(f".{path.name}.{ending}")


def _facts(path: Path) -> os.stat_result | None:
    try:
        return path.stat()
    except FileNotFoundError:
        return None


def _version(facts: os.stat_result) -> str:
    return f"{facts.st_mtime_ns:x}-{facts.st_ino:x}"


@contextlib.contextmanager
def _flock(path: Path) -> Iterator[None]:
    descriptor = _take_flock(path)
    try:
        yield
    finally:
        os.close(descriptor)


def _take_flock(path: Path) -> int:
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            _wait_for_flock(descriptor)
            # A deletion removes the side file: who waited for it must lock the one that is there now.
            facts = _facts(path)
            if facts is not None and os.path.samestat(facts, os.fstat(descriptor)):
                return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


def _wait_for_flock(descriptor: int) -> None:
    # Not a blocking call: behind a stopped process it would use up the backend's few threads.
    until = time.monotonic() + _FLOCK_PATIENCE
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


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _mounts() -> list[str]:
    """Return the lines of the kernel's table of mounts; empty where there is none."""
    try:
        return os.fsdecode(Path("/proc/self/mountinfo").read_bytes()).splitlines()
    except OSError:
        return []


def _file_system(folder: Path) -> str:
    """Return the kind of file system that ``folder`` is on, or will be once it is made; else ''.

    Source: proc_pid_mountinfo(5): the fifth field is the mount point, the one after `` - `` the kind.
    """
    folder = Path(os.path.realpath(folder))
    best, kind = -1, ""
    for line in _mounts():
        before, _, after = line.partition(" - ")
        point = _ESCAPED.sub(lambda code: chr(int(code[1], 8)), before.split(" ")[4])
        if folder.is_relative_to(point) and len(point) >= best:
            best, kind = len(point), after.split(" ")[0]
    return kind
