"""Semaphore and RWLock: locks that several may hold."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from asynclock._core.handles import RWLockHandle, SemaphoreHandle
from asynclock._core.portal import current_task, run_on
from asynclock._core.semaphore import checked_slots
from asynclock.lock import Holdable

if TYPE_CHECKING:
    from asynclock.lease import Lease


class Semaphore(SemaphoreHandle, Holdable):
    """At most ``slots`` leases at a time, each on a slot of its own: ``lease.slot``, from 0.

    Used like a ``Lock``. A slot is a lock, ``NAME/slot=0`` and so on, with a fencing token of its own that
    says nothing of other slots. The store keeps the number of slots, in ``NAME/slots``. After a ``resize`` by
    anybody, this client uses the new number from its next acquisition on. A task may hold several slots, but
    tasks that wait for one while they hold another can wait for each other without end.

    ``status`` reads all slots, and returns that of a free one, or of the one that may be free first.
    ``break_lock`` frees the slot of a status.

    Attributes:
        name: Of the semaphore.
        key: The object with the number of slots, under the client's URL.
    """

    async def resize(self, slots: int) -> None:
        """Change the number of slots, for all clients; one conditional write.

        Once this has returned, no slot from ``slots`` on is acquired any more. A holder of one keeps it to
        the end of the lease. Running clients follow; a client that connects later has to name the new number.

        Args:
            slots: 1 to 64.

        Raises:
            ConfigError: The number is out of that range; nothing was written.
            RecordCorruptError: ``NAME/slots`` is something else; nothing was written.
            BackendError: The store did not answer; the number may have been changed.
        """
        engine, count = self._engine, checked_slots(slots)
        await run_on(engine.home(), lambda: engine.resize(count))


class _Side(Holdable):
    """One side of a reader-writer lock."""

    async def acquire(self, **options: Any) -> Lease:  # noqa: ANN401  of ``Holdable``
        """Like ``Lock.acquire``, but refuse a task that has the other side."""
        task = current_task()
        self._engine.refuse_upgrade(task)
        lease = await super().acquire(**options)
        self._engine.note_body(task, lease._held)
        return lease

    async def try_acquire(self) -> Lease | None:
        """Like ``Lock.try_acquire``; also None if the task has the other side."""
        lease = await super().try_acquire()
        if lease is not None:
            self._engine.note_body(current_task(), lease._held)
        return lease


class RWLock(RWLockHandle[Holdable]):
    """Readers share it, and a writer has it alone. Each side is used like a ``Lock``.

    A writer that waits keeps new readers out, so readers do not starve it. There may be 64 readers at a time,
    in all processes together; one more waits. A task that has one side and asks for the other would wait for
    itself: ``RuntimeError``.

    The token rises with every writer, so ``FencedObject`` refuses an earlier writer. A reader's token says
    nothing beyond its slot: write nothing under it.

    Attributes:
        name: Name of the lock.
    """

    _side = _Side
