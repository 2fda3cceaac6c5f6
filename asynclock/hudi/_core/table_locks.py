"""``table_lock``: the lock that a Hudi writer takes for its commit.

It is stricter than ``StorageBasedLockProvider``, within what Hudi allows:

- a lease ends *before* ``validUntil`` and is never revived, even if the store is silent for a long time;
- the store's clock, not this machine's, decides when another holder's lock is free, and
  ``max_clock_skew`` and the clock's resolution are added to Hudi's 500 ms;
- a 412 after a lost answer is settled by reading back; Hudi 1.2 mistakes the lock for another holder's;
- more kinds of damage to a lock file are errors (a number in quotes, duplicate keys, …);
- ``async with`` can be nested; ``try_lock`` and ``unlock`` are not counted, as in Hudi.

Source: Apache Hudi RFC-91 with its update of November 2025, ``StorageBasedLockProvider`` 1.2.0.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Literal, NoReturn

from asynclock._codes import Code, coded
from asynclock._core.handles import checked_timeout
from asynclock._core.status import LockStatus
from asynclock._log import log
from asynclock.client import connect
from asynclock.errors import (
    AcquireTimeoutError,
    BackendUnavailableError,
    LeaseLostError,
    OutcomeUnknownError,
    PreconditionFailedError,
)
from asynclock.hudi._core.audit_records import start_of
from asynclock.hudi._core.audit_writer import TableHooks
from asynclock.hudi._core.lock_options import LockOptions
from asynclock.hudi._core.paths import AUDIT_FOLDER, LOCK_NAME, TablePath
from asynclock.hudi._core.properties import read_table
from asynclock.lock import Hold, Lock

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import TracebackType

    from asynclock.client import LockClient
    from asynclock.events import Event
    from asynclock.hudi._core.properties import TableProperties
    from asynclock.lease import Lease

_NO_ANSWER = (BackendUnavailableError, OutcomeUnknownError, PreconditionFailedError)


@dataclass(frozen=True, slots=True)
class TableLockStatus(LockStatus):
    """A table's lock as one read showed it; see ``LockStatus``.

    Attributes:
        table_version: ``hoodie.table.version``, or None if it was not found.
        since_ms: When the holder acquired the lock, in epoch ms. If the holder has an audit file, the time is
            from there, by the holder's own clock; else it is from asynclock's record, as in ``LockStatus``.
            None for a Hudi writer without an audit file, because Hudi's lock file has no such time.
        warning: Why the holder may keep writing after it lost the lock, or None.
    """

    table_version: int | None
    warning: str | None


def table_lock(
    base_path: str,
    options: Mapping[str, str] | None = None,
    *,
    timeout: float | None = None,
    fencing: bool = False,
) -> TableLock:
    """Return the lock of a Hudi table, for ``async with``; no I/O.

    Use it to keep a table *unchanged* while you copy, maintain or inspect its files. While you hold it, never
    write to the table through Hudi: Hudi takes this lock at its commit, so the two would wait for each other.

    Args:
        base_path: The table, such as ``s3a://bucket/warehouse/orders``. Trailing slashes and the
            spelling of the scheme make no difference, but Hudi up to 1.1 locks another object if
            its own base path ends in a slash.
        options: The options of the Hudi writers, under Hudi's names. Validity, renew interval, wait time and
            credentials are used; all others are ignored. Options that Hudi does not have start with
            ``asynclock.``: those of the backend, such as ``asynclock.endpoint_url``, and
            ``asynclock.max_clock_skew`` and ``asynclock.poll_interval``.
        timeout: Seconds that ``async with`` waits; None: ``hoodie.write.lock.wait_time_ms``, 60 s.
        fencing: Provide a fencing token. A Hudi writer drops the token. After a Hudi writer, acquiring takes
            ``2 * max_clock_skew + 2`` s (6 s) longer; the lock is already held during that time.

    Raises:
        ConfigError: This lock cannot lock the base path, or an option breaks Hudi's rules.
    """
    table = TablePath.parse(base_path)
    return TableLock(
        table, LockOptions.read(table, options), timeout=checked_timeout(timeout), fencing=fencing
    )


class TableLock:
    """The lock of one Hudi table. Like a Hudi provider, it is one holder: each task needs its own.

    ``async with`` acquires, cancels the body if the lease is lost, releases and closes. A nested
    ``async with`` gives the same lease, and the outermost exit releases. ``try_lock`` and ``unlock``
    work as in Hudi: call ``aclose`` after them. The lock can be used again after that.

    Attributes:
        base_path: The table, without trailing slashes.
    """

    def __init__(
        self, table: TablePath, options: LockOptions, *, timeout: float | None, fencing: bool
    ) -> None:
        self.base_path: str = table.url
        self._table = table
        self._options = options
        self._wait = options.wait if timeout is None else timeout
        self._fencing = fencing
        # At most one entry. Each change is one dict operation, because a signal handler may run in between.
        self._opened: dict[Literal["table"], OpenedTable] = {}
        self._lease: Lease | None = None
        self._hold: Hold | None = None
        self._depth = 0
        self._seen = False

    async def __aenter__(self) -> Lease:
        return await self.enter(cancel_body=True)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.leave(kind, error, trace)

    async def enter(self, *, cancel_body: bool) -> Lease:
        """Acquire as ``async with`` does; for ``asynclock.sync``.

        Args:
            cancel_body: Cancel the calling task if the lease is lost.

        Raises:
            AcquireTimeoutError: Others held it until the timeout; the attempt has been cleaned up.
            ConfigError: There is no such Hudi table.
            RecordCorruptError: The lock file is damaged; nothing was written.
            LeaseLostError: The lease of the enclosing ``enter`` is lost.
        """
        lease = self._lease
        if lease is None or (self._depth == 0 and not lease.held):
            try:
                opened = await self._ready()
                self._hold = Hold(opened.lock, self._wait, cancel_body=cancel_body)
                lease = self._lease = await self._hold.__aenter__()
            except BaseException:
                await self.aclose()
                raise
        lease.check()
        self._depth += 1
        return lease

    async def leave(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Undo one ``enter``. The outermost exit releases the lease.

        Raises:
            LeaseLostError: The lease was lost before; nothing was written.
        """
        self._depth -= 1
        if self._depth > 0 or self._hold is None:
            return  # a lease of try_lock is released by unlock
        hold, self._hold, self._lease = self._hold, None, None
        try:
            await hold.__aexit__(kind, error, trace)
        finally:
            await self.aclose()

    @property
    def lease(self) -> Lease | None:
        """The lease from its acquisition until its release, or None. It may be lost."""
        return self._lease

    async def try_lock(self, timeout: float | None = None) -> bool:
        """Hudi's ``tryLock``: return whether this holds the lock; True without I/O if it already did.

        Args:
            timeout: Seconds to keep trying; None tries once; 0 does not try, as in Hudi.

        Raises:
            ConfigError: There is no such Hudi table.
            RecordCorruptError: The lock file is damaged; nothing was written.
            AccessDeniedError: The store denied access; nothing was written.
            BackendError: Waiting does not help; see ``BackendError.transient``.
        """
        wait = checked_timeout(timeout)
        if self._lease is not None and self._lease.held:
            return True
        if wait == 0:
            return False
        try:
            lock = (await self._ready()).lock
            self._lease = await (lock.try_acquire() if wait is None else lock.acquire(timeout=wait))
        except AcquireTimeoutError:
            return False
        except _NO_ANSWER as error:
            if not error.transient:
                raise
            log.info("%s: not acquired: %s", self.base_path, error)
            return False
        return self._lease is not None

    async def renew_lock(self) -> bool:
        """Hudi's ``renewLock``: renew now and return whether the lock is still held.

        As in Hudi, it also returns True if the store did not answer, but only until the lease's deadline.

        Raises:
            AccessDeniedError: The store denied access; nothing was written, and the lease lasts until
                its deadline.
        """
        if self._lease is None:
            return False
        try:
            await self._lease.confirm()
        except LeaseLostError:
            return False
        except _NO_ANSWER as error:
            log.info("%s: not renewed: %s", self.base_path, error)
        return self._lease.held

    async def unlock(self) -> None:
        """Hudi's ``unlock``: release the lock; a no-op without a lease.

        Raises:
            LeaseLostError: The lease was lost before; nothing was written.
        """
        lease, self._lease = self._lease, None
        if lease is not None:
            await lease.release()

    async def status(self) -> TableLockStatus:
        """Read the lock, the table's version and, if auditing is on, the time of acquisition; writes nothing.

        Raises:
            ConfigError: There is no such Hudi table.
            BackendError: It could not be read.
        """
        was_closed = not self._opened
        opened = self._open()
        client = opened.client
        try:
            status = await opened.lock.status()
            properties, since = await client._core.run(lambda: self._look_around(client, status.owner))
        finally:
            if was_closed:
                await self.aclose()
        warning = _warning(status, properties)
        if warning is not None:
            log.warning(coded(f"{self.base_path}: {warning}", Code.HUDI_LOCK))
        known = {field.name: getattr(status, field.name) for field in fields(LockStatus)}
        if since is not None:
            known["since_ms"] = since
        return TableLockStatus(
            **known,
            table_version=properties.version,
            warning=warning,
        )

    async def aclose(self) -> None:
        """Release the lock if it is held, and close the connections. A later call opens them again."""
        opened = self._opened.pop("table", None)
        lease, self._lease = self._lease, None
        try:
            if lease is not None and lease.held:
                await lease.release()
        finally:
            if opened is not None:
                await opened.aclose()

    def _open(self) -> OpenedTable:
        if (opened := self._opened.get("table")) is not None:
            return opened
        return self._opened.setdefault(
            "table", OpenedTable(self._table, self._options, fencing=self._fencing)
        )

    async def _ready(self) -> OpenedTable:
        """Open the client, and check once that the table exists."""
        opened = self._open()
        if not self._seen:
            try:
                await opened.client._core.run(lambda: read_table(opened.client.backend, self._table))
            except BaseException:
                await self.aclose()
                raise
            self._seen = True
        return opened

    async def _look_around(self, client: LockClient, owner: str | None) -> tuple[TableProperties, int | None]:
        properties = await read_table(client.backend, self._table)
        if owner is not None:
            async for entry in client.backend.list(AUDIT_FOLDER):
                if (since := start_of(entry.key, owner)) is not None:
                    return properties, since
        return properties, None

    def __reduce__(self) -> NoReturn:
        raise TypeError("a TableLock cannot be pickled: make one in the other process")

    def __repr__(self) -> str:
        state = "held" if self._lease is not None and self._lease.held else "not held"
        return f"<TableLock {self.base_path!r} {state}>"


class OpenedTable:
    """A client for the table's folder, and its lock with the hooks of each lease. The command uses it too.

    Args:
        table: The table.
        options: Options of its lock.
        fencing: As for ``table_lock``.
        events: As for ``asynclock.connect``.
    """

    def __init__(
        self,
        table: TablePath,
        options: LockOptions,
        *,
        fencing: bool,
        events: Callable[[Event], object] | None = None,
    ) -> None:
        self.client: LockClient = connect(
            table.url, settings=options.settings, events=self._on_event, **options.backend
        )
        self._events = events
        self._hooks = TableHooks(table, self.client.backend, timeout=options.settings.validity / 5)
        engine = self.client._core.engine(LOCK_NAME)
        engine.fencing, engine.hooks = fencing, self._hooks
        self.lock: Lock = Lock(engine)

    def _on_event(self, event: Event) -> None:
        if self._events is not None:
            self._events(event)
        if event.kind == "renewed":
            self._hooks.renewed()

    async def finish_audit(self) -> None:
        """Wait until the last audit record is written."""
        if (writer := self._hooks.take_writer()) is not None:
            await self.client._core.run(writer.stop)

    async def aclose(self) -> None:
        """Wait until the last audit record is written, and close the client."""
        await self.finish_audit()
        await self.client.aclose()


def _warning(status: LockStatus, properties: TableProperties) -> str | None:
    if status.state not in {"held", "expired"} or status.holder is not None:
        return None
    if not properties.writers_may_overrun:
        return None
    return (
        f"a Hudi writer holds the lock of a table of version {properties.version}: it may be Hudi 1.0 "
        "or older and keep writing after it lost the lock; stop it before you break the lock"
    )
