"""Hudi's audit trail of a table's lock: one JSON-lines file per holder, off by default.

Hudi's reader rejects unknown keys, so a record has exactly these six:
``ownerId``, ``transactionStartTime``, ``timestamp``, ``state``, ``lockExpiration``, ``lockHeld``.

Source: Hudi's ``StorageLockProviderAuditService`` and ``ValidateAuditLockProcedure``.
"""

from __future__ import annotations

import time
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

import anyio
import orjson

from asynclock._text import escaped
from asynclock.backend import MAX_BODY, Absent
from asynclock.backends import open_backend
from asynclock.errors import AsyncLockError, ConfigError
from asynclock.hudi.options import LockOptions
from asynclock.hudi.paths import AUDIT_FOLDER, AUDIT_SWITCH, TablePath
from asynclock.hudi.table import read_table

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence

    from asynclock.backend import Backend, Entry

State = Literal["START", "RENEW", "END"]
SUFFIX: Final = ".jsonl"
_FIELD: Final = "STORAGE_LOCK_AUDIT_SERVICE_ENABLED"
_STATES: Final = frozenset({"START", "RENEW", "END"})
_TYPES: Final = {
    "ownerId": str,
    "transactionStartTime": int,
    "timestamp": int,
    "state": str,
    "lockExpiration": int,
    "lockHeld": bool,
}
_AT_ONCE: Final = 16
_DAY: Final = 86_400.0


@dataclass(frozen=True, slots=True)
class AuditStatus:
    """Whether a table's lock is audited.

    Attributes:
        enabled: Whether new holders write audit files.
        switch: URL of the object that enables auditing.
        folder: URL of the folder of audit files.
        files: Number of audit files.
    """

    enabled: bool
    switch: str
    folder: str
    files: int


@dataclass(frozen=True, slots=True)
class AuditReport:
    """What a table's audit trail says.

    Attributes:
        result: ``FAILED`` if two holders overlap or no file can be read; ``WARNING`` if a file has no
            END or cannot be read completely; else ``PASSED``.
        transactions: Number of holds in the readable files, each from a START to its END.
        overlaps: Pairs of files whose holders held the lock at the same time, the earlier one first.
        unended: Files without an END, whose holders died, lost the lock, or hold it now.
        unreadable: Files that are not audit files.
        too_long: Files longer than 64 KiB, of which only the beginning was checked.
    """

    result: Literal["PASSED", "WARNING", "FAILED"]
    transactions: int
    overlaps: tuple[tuple[str, str], ...]
    unended: tuple[str, ...]
    unreadable: tuple[str, ...]
    too_long: tuple[str, ...]

    @property
    def findings(self) -> tuple[str, ...]:
        """One sentence for each overlap and each incomplete or unreadable file."""
        found = [
            f"{one} and {other}: both held the lock at once, by their clocks" for one, other in self.overlaps
        ]
        for names, said in (
            (self.unreadable, "is not an audit file and was left out; inspect it, or delete it"),
            (self.too_long, "is longer than 64 KiB; only its beginning was checked"),
            (self.unended, "has no END: its holder died, lost the lock, or holds it now"),
        ):
            found += [f"{name}: {said}" for name in names]
        # Anyone who may write to the folder chooses the names of its files, so they may be hostile.
        return tuple(escaped(sentence) for sentence in found)


@dataclass(frozen=True, slots=True)
class AuditCleanup:
    """What a clean-up has deleted, or would delete.

    Attributes:
        files: Names of the files.
        dry_run: True if nothing was deleted.
    """

    files: tuple[str, ...]
    dry_run: bool


@dataclass(frozen=True, slots=True)
class _Window:
    file: str
    start: int
    end: int
    ended: bool


def encode(owner: str, start_ms: int, state: State, timestamp_ms: int, expiration_ms: int) -> bytes:
    """Return one record as a line of an audit file."""
    record = {
        "ownerId": owner,
        "transactionStartTime": start_ms,
        "timestamp": timestamp_ms,
        "state": state,
        "lockExpiration": expiration_ms,
        "lockHeld": True,
    }
    return orjson.dumps(record) + b"\n"


def file_name(owner: str, start_ms: int) -> str:
    """Return the key of a holder's audit file."""
    return f"{AUDIT_FOLDER}{start_ms}_{owner}{SUFFIX}"


def start_of(name: str, owner: str) -> int | None:
    """Return when ``owner`` acquired the lock, in epoch ms, if ``name`` is its audit file; else None."""
    start = name.rpartition("/")[2].removesuffix(f"_{owner}{SUFFIX}")
    return int(start) if start.isdecimal() and start.isascii() else None


async def is_enabled(backend: Backend) -> bool:
    """Return whether auditing is on. A switch that cannot be parsed counts as off, as in Hudi."""
    stored = await backend.get(AUDIT_SWITCH)
    if isinstance(stored, Absent):
        return False
    try:
        switch = orjson.loads(stored.body)
    except ValueError:
        return False
    return isinstance(switch, dict) and switch.get(_FIELD) is True


async def audit_enable(base_path: str, options: Mapping[str, str] | None = None) -> None:
    """Make every new holder of the table's lock, Hudi's and ours, write an audit file.

    Args:
        base_path: The table.
        options: Options of the Hudi writers, as for ``table_lock``.

    Raises:
        ConfigError: There is no Hudi table there, or an option is wrong; nothing was written.
        BackendError: The store failed; the error says whether it was written.
    """
    async with _table(base_path, options) as backend:
        await backend.put(AUDIT_SWITCH, orjson.dumps({_FIELD: True}))


async def audit_disable(
    base_path: str, options: Mapping[str, str] | None = None, *, keep_files: bool = True
) -> None:
    """Stop new holders from writing audit files; current holders go on with theirs.

    Args:
        base_path: The table.
        options: Options of the Hudi writers, as for ``table_lock``.
        keep_files: False also deletes the audit files.

    Raises:
        ConfigError: There is no Hudi table there, or an option is wrong; nothing was written.
        BackendError: The store failed; the error says whether it was written.
    """
    async with _table(base_path, options) as backend:
        await backend.put(AUDIT_SWITCH, orjson.dumps({_FIELD: False}))
        if not keep_files:
            files = [entry.key async for entry in _files(backend)]
            await _each(files, backend.delete)


async def audit_status(base_path: str, options: Mapping[str, str] | None = None) -> AuditStatus:
    """Return whether the table's lock is audited; writes nothing.

    Args:
        base_path: The table.
        options: Options of the Hudi writers, as for ``table_lock``.

    Raises:
        ConfigError: There is no Hudi table there, or an option is wrong.
        BackendError: The store could not be read.
    """
    async with _table(base_path, options) as backend:
        url = TablePath.parse(base_path).url
        return AuditStatus(
            enabled=await is_enabled(backend),
            switch=f"{url}/{AUDIT_SWITCH}",
            folder=f"{url}/{AUDIT_FOLDER}",
            files=len([entry async for entry in _files(backend)]),
        )


async def audit_validate(base_path: str, options: Mapping[str, str] | None = None) -> AuditReport:
    """Check that no two audit files show the lock held at the same time; writes nothing.

    Times are by the holders' own clocks, so a skewed clock can look like an overlap.

    Args:
        base_path: The table.
        options: Options of the Hudi writers, as for ``table_lock``.

    Raises:
        ConfigError: There is no Hudi table there, or an option is wrong.
        BackendError: The store could not be read.
    """
    async with _table(base_path, options) as backend:
        return await validate(backend)


async def audit_cleanup(
    base_path: str,
    options: Mapping[str, str] | None = None,
    *,
    age_days: float = 7,
    dry_run: bool = False,
) -> AuditCleanup:
    """Delete old audit files, by their last write and the store's clock.

    Args:
        base_path: The table.
        options: Options of the Hudi writers, as for ``table_lock``.
        age_days: Least age of a file to delete, in days since its last write.
        dry_run: Only list them.

    Raises:
        ConfigError: There is no Hudi table there, or an option is wrong; nothing was deleted.
        BackendError: The store failed; some files may have been deleted.
    """
    if not age_days >= 0:
        raise ConfigError(setting="age_days", value=age_days, reason="must be 0 or more")
    async with _table(base_path, options) as backend:
        return await cleanup(backend, older_than=age_days * _DAY, dry_run=dry_run)


async def validate(backend: Backend) -> AuditReport:
    """Check all audit files; see ``audit_validate``."""
    windows: list[_Window] = []
    unreadable: list[str] = []
    too_long: list[str] = []

    async def read(key: str) -> None:
        stored = await backend.get(key)
        if isinstance(stored, Absent):
            return  # deleted meanwhile
        name, body = key.removeprefix(AUDIT_FOLDER), stored.body
        if len(body) > MAX_BODY:
            too_long.append(name)
            body = body[: body.rfind(b"\n") + 1]
        try:
            windows.extend(_windows(name, body))
        except ValueError:
            unreadable.append(name)

    await _each([entry.key async for entry in _files(backend)], read)
    windows.sort(key=lambda window: (window.start, window.file))
    overlaps = _overlaps(windows)
    unended = tuple(dict.fromkeys(w.file for w in windows if not w.ended and w.file not in too_long))
    result: Literal["PASSED", "WARNING", "FAILED"] = "PASSED"
    if unended or unreadable or too_long:
        result = "WARNING"
    if overlaps or (unreadable and not windows):
        result = "FAILED"
    return AuditReport(
        result, len(windows), overlaps, unended, tuple(sorted(unreadable)), tuple(sorted(too_long))
    )


async def cleanup(backend: Backend, *, older_than: float, dry_run: bool) -> AuditCleanup:
    """Delete audit files older than ``older_than`` seconds; see ``audit_cleanup``."""
    # A Date is rounded down to the second; a Last-Modified may be exact.
    now = await _store_time(backend) + backend.clock_resolution
    old = [
        entry.key
        async for entry in _files(backend)
        if entry.last_modified is not None and now - entry.last_modified >= older_than
    ]
    if not dry_run:
        await _each(old, backend.delete)
    return AuditCleanup(tuple(key.removeprefix(AUDIT_FOLDER) for key in sorted(old)), dry_run)


async def _store_time(backend: Backend) -> float:
    """Return the store's time, which the age of a file is measured by; without a Date, this machine's."""
    stored = await backend.get(AUDIT_SWITCH)
    return time.time() if stored.server_time is None else stored.server_time


def _windows(name: str, body: bytes) -> list[_Window]:
    """Return the holds in one file; a Hudi provider that is used again appends to its file.

    Raises:
        ValueError: It is not an audit file.
    """
    records = [_record(line) for line in body.splitlines() if line.strip()]
    if not records:
        raise ValueError(name)
    found: list[_Window] = []
    start: int | None = records[0]["transactionStartTime"]
    for record in records:
        if start is None or (record["state"] == "START" and not found):
            start = record["timestamp"]
        if record["state"] == "END":
            found.append(_Window(name, start, record["timestamp"], ended=True))
            start = None
    if start is not None:
        found.append(_Window(name, start, records[-1]["lockExpiration"], ended=False))
    return found


def _record(line: bytes) -> dict[str, Any]:
    record = orjson.loads(line)
    if not isinstance(record, dict) or record.keys() != _TYPES.keys():
        raise ValueError("not the six keys of an audit record")
    if any(type(record[key]) is not kind for key, kind in _TYPES.items()):
        raise ValueError("a value of the wrong type")
    if record["state"] not in _STATES:
        raise ValueError("an unknown state")
    return record


def _overlaps(windows: Sequence[_Window]) -> tuple[tuple[str, str], ...]:
    """Return the files of each window that overlaps the earlier one with the latest end."""
    found: list[tuple[str, str]] = []
    last: _Window | None = None
    for window in windows:
        if last is not None and window.start < last.end:
            found.append((last.file, window.file))
        if last is None or window.end > last.end:
            last = window
    return tuple(found)


async def _files(backend: Backend) -> AsyncIterator[Entry]:
    async for entry in backend.list(AUDIT_FOLDER):
        name = entry.key.removeprefix(AUDIT_FOLDER)
        if name.endswith(SUFFIX) and "/" not in name:
            yield entry


async def _each(keys: Sequence[str], work: Callable[[str], Awaitable[None]]) -> None:
    """Run ``work`` for every key, several at a time, and raise the first failure."""
    waiting = iter(keys)
    errors: list[AsyncLockError] = []

    async def serve() -> None:
        for key in waiting:
            try:
                await work(key)
            except AsyncLockError as error:
                errors.append(error)
            if errors:
                return

    async with anyio.create_task_group() as tasks:
        for _ in range(min(_AT_ONCE, len(keys))):
            tasks.start_soon(serve)
    if errors:
        raise errors[0]


@asynccontextmanager
async def _table(base_path: str, options: Mapping[str, str] | None) -> AsyncIterator[Backend]:
    """Open the store of an existing table."""
    table = TablePath.parse(base_path)
    backend = open_backend(table.url, **LockOptions.read(table, options).backend)
    try:
        await read_table(backend, table)
        yield backend
    finally:
        await backend.aclose()
