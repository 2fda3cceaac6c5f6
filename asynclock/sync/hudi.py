"""Blocking twins of ``asynclock.hudi``."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

import asynclock.hudi
from asynclock.hudi import AuditCleanup, AuditHold, AuditReport, AuditStatus, TableLockStatus, write_options
from asynclock.sync._blocking import block
from asynclock.sync._facade import Lease

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

__all__ = [
    "AuditCleanup",
    "AuditHold",
    "AuditReport",
    "AuditStatus",
    "TableLock",
    "TableLockStatus",
    "audit_cleanup",
    "audit_disable",
    "audit_enable",
    "audit_history",
    "audit_status",
    "audit_validate",
    "table_lock",
    "write_options",
]


def table_lock(
    base_path: str,
    options: Mapping[str, str] | None = None,
    *,
    timeout: float | None = None,
    fencing: bool = False,
) -> TableLock:
    """Return the lock of a Hudi table, for ``with``; see ``asynclock.hudi.table_lock``."""
    return TableLock(asynclock.hudi.table_lock(base_path, options, timeout=timeout, fencing=fencing))


class TableLock:
    """The lock of one Hudi table; see ``asynclock.hudi.TableLock``.

    Nothing can interrupt the body of ``with``: call ``lease.check()`` in it.

    Attributes:
        base_path: The table, without trailing slashes.
    """

    def __init__(self, lock: asynclock.hudi.TableLock) -> None:
        self._lock = lock
        self.base_path: str = lock.base_path

    @property
    def lease(self) -> Lease | None:
        """The lease; see ``asynclock.hudi.TableLock.lease``."""
        lease = self._lock.lease
        return None if lease is None else Lease(lease._held, lease._engine, of=lease)

    def try_lock(self, timeout: float | None = None) -> bool:
        """Hudi's ``tryLock``; see ``asynclock.hudi.TableLock.try_lock``."""
        return block("hudi.TableLock.try_lock", lambda: self._lock.try_lock(timeout), undo=self._undo)

    def renew_lock(self) -> bool:
        """Hudi's ``renewLock``; see ``asynclock.hudi.TableLock.renew_lock``."""
        return block("hudi.TableLock.renew_lock", self._lock.renew_lock)

    def unlock(self) -> None:
        """Hudi's ``unlock``; see ``asynclock.hudi.TableLock.unlock``."""
        block("hudi.TableLock.unlock", self._lock.unlock)

    def status(self) -> TableLockStatus:
        """Read the lock; see ``asynclock.hudi.TableLock.status``."""
        return block("hudi.TableLock.status", self._lock.status)

    def aclose(self) -> None:
        """Release the lock and close; see ``asynclock.hudi.TableLock.aclose``."""
        block("hudi.TableLock.aclose", self._lock.aclose)

    close = aclose
    """The name that ``contextlib.closing`` calls."""

    async def _undo(self, locked: bool) -> None:  # noqa: FBT001  the result of an interrupted call
        if locked:
            await self._lock.unlock()

    def __enter__(self) -> Lease:
        async def enter() -> Lease:
            lease = await self._lock.enter(cancel_body=False)
            return Lease(lease._held, lease._engine, of=lease)

        async def leave(_: object) -> None:
            await self._lock.leave(None, None, None)

        return block("hudi.TableLock.__aenter__", enter, undo=leave)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        block("hudi.TableLock.__aexit__", lambda: self._lock.leave(kind, error, trace))

    def __reduce__(self) -> NoReturn:
        raise TypeError("a TableLock cannot be pickled: make one in the other process")

    def __repr__(self) -> str:
        return f"<sync.{repr(self._lock)[1:]}"


def audit_enable(base_path: str, options: Mapping[str, str] | None = None) -> None:
    """Make new holders write audit files; see ``asynclock.hudi.audit_enable``."""
    block("hudi.audit_enable", lambda: asynclock.hudi.audit_enable(base_path, options))


def audit_disable(
    base_path: str, options: Mapping[str, str] | None = None, *, keep_files: bool = True
) -> None:
    """Stop new holders from writing audit files; see ``asynclock.hudi.audit_disable``."""
    block(
        "hudi.audit_disable",
        lambda: asynclock.hudi.audit_disable(base_path, options, keep_files=keep_files),
    )


def audit_status(base_path: str, options: Mapping[str, str] | None = None) -> AuditStatus:
    """Return whether the lock is audited; see ``asynclock.hudi.audit_status``."""
    return block("hudi.audit_status", lambda: asynclock.hudi.audit_status(base_path, options))


def audit_history(base_path: str, options: Mapping[str, str] | None = None) -> tuple[AuditHold, ...]:
    """Return the holds in the audit files; see ``asynclock.hudi.audit_history``."""
    return block("hudi.audit_history", lambda: asynclock.hudi.audit_history(base_path, options))


def audit_validate(base_path: str, options: Mapping[str, str] | None = None) -> AuditReport:
    """Check the audit files; see ``asynclock.hudi.audit_validate``."""
    return block("hudi.audit_validate", lambda: asynclock.hudi.audit_validate(base_path, options))


def audit_cleanup(
    base_path: str,
    options: Mapping[str, str] | None = None,
    *,
    age_days: float = 7,
    dry_run: bool = False,
) -> AuditCleanup:
    """Delete old audit files; see ``asynclock.hudi.audit_cleanup``."""
    return block(
        "hudi.audit_cleanup",
        lambda: asynclock.hudi.audit_cleanup(base_path, options, age_days=age_days, dry_run=dry_run),
    )
