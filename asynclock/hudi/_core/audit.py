"""Hudi's audit trail of a table's lock: switch it on and off, list, check and clean it up.

Source: Hudi's ``StorageLockProviderAuditService`` and ``ValidateAuditLockProcedure``.
"""

from __future__ import annotations

import time
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

import anyio
import orjson

from asynclock._text import escaped
from asynclock.backend import MAX_BODY, Absent
from asynclock.backends import open_backend
from asynclock.errors import AsyncLockError, ConfigError
from asynclock.hudi._core.audit_records import SUFFIX, AuditHold, holds
from asynclock.hudi._core.lock_options import LockOptions
from asynclock.hudi._core.paths import AUDIT_FOLDER, AUDIT_SWITCH, TablePath
from asynclock.hudi._core.properties import read_table

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence

    from asynclock.backend import Backend, Entry

_FIELD: Final = "STORAGE_LOCK_AUDIT_SERVICE_ENABLED"
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
    """The findings in a table's audit trail.

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
    """The files that a clean-up deleted, or would delete.

    Attributes:
        files: Names of the files.
        dry_run: True if nothing was deleted.
    """

    files: tuple[str, ...]
    dry_run: bool


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
    """Make every new holder of the table's lock write an audit file, Hudi's writers and asynclock's.

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
    """Stop new holders from writing audit files. Current holders continue theirs.

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

    The times come from the holders' own clocks, so a skewed clock can look like an overlap.

    Args:
        base_path: The table.
        options: Options of the Hudi writers, as for ``table_lock``.

    Raises:
        ConfigError: There is no Hudi table there, or an option is wrong.
        BackendError: The store could not be read.
    """
    async with _table(base_path, options) as backend:
        return await validate(backend)


async def audit_history(base_path: str, options: Mapping[str, str] | None = None) -> tuple[AuditHold, ...]:
    """Return the holds in the table's audit files, oldest first; writes nothing.

    Files that ``audit_validate`` reports as unreadable are left out.

    Args:
        base_path: The table.
        options: Options of the Hudi writers, as for ``table_lock``.

    Raises:
        ConfigError: There is no Hudi table there, or an option is wrong.
        BackendError: The store could not be read.
    """
    async with _table(base_path, options) as backend:
        found, _, _ = await read_trail(backend)
        return tuple(found)


async def audit_cleanup(
    base_path: str,
    options: Mapping[str, str] | None = None,
    *,
    age_days: float = 7,
    dry_run: bool = False,
) -> AuditCleanup:
    """Delete old audit files. The age is the time since the last write, by the store's clock.

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
    windows, unreadable, too_long = await read_trail(backend)
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


async def read_trail(backend: Backend) -> tuple[list[AuditHold], list[str], list[str]]:
    """Return all holds in the order of their start, the unreadable files, and those that are too long."""
    found: list[AuditHold] = []
    unreadable: list[str] = []
    too_long: list[str] = []

    async def read(key: str) -> None:
        stored = await backend.get(key)
        if isinstance(stored, Absent):
            return  # deleted in the meantime
        name, body = key.removeprefix(AUDIT_FOLDER), stored.body
        if len(body) > MAX_BODY:
            too_long.append(name)
            body = body[: body.rfind(b"\n") + 1]
        try:
            found.extend(holds(name, body))
        except ValueError:
            unreadable.append(name)

    await _each([entry.key async for entry in _files(backend)], read)
    return sorted(found, key=lambda hold: (hold.start_ms, hold.file)), unreadable, too_long


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
    """Return the store's time to measure the age of files; without a Date, this machine's time."""
    stored = await backend.get(AUDIT_SWITCH)
    return time.time() if stored.server_time is None else stored.server_time


def _overlaps(windows: Sequence[AuditHold]) -> tuple[tuple[str, str], ...]:
    """Return the files of each window that overlaps the earlier one with the latest end."""
    found: list[tuple[str, str]] = []
    last: AuditHold | None = None
    for window in windows:
        if last is not None and window.start_ms < last.end_ms:
            found.append((last.file, window.file))
        if last is None or window.end_ms > last.end_ms:
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
