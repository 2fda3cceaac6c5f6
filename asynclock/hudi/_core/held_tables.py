"""The tables whose locks this process holds, so that its own Spark writes never deadlock with them.

A Spark write takes Hudi's lock at its commit. If its process holds the same lock through Python, the two wait
for each other until one times out. Locks of other processes are not listed here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from weakref import ref

from asynclock.errors import ConfigError
from asynclock.hudi._core.paths import TablePath

if TYPE_CHECKING:
    from asynclock._core.protocol.held import HeldLock

_tables: Final[dict[ref[HeldLock], str]] = {}
"""The identity of the table by lock. No mutex, because a signal handler may interrupt any use of this."""


def add(table: TablePath, held: HeldLock) -> None:
    """Note that a lease holds a table's lock. You need not remove it when the lease ends."""
    _tables[ref(held, _forget)] = table.identity


def _forget(gone: ref[HeldLock]) -> None:
    _tables.pop(gone, None)


def held_here(base_path: str) -> bool:
    """Return whether this process holds the table's lock, under any spelling of its base path."""
    try:
        table = TablePath.parse(base_path)
    except ConfigError:
        return False  # no lock can exist for such a path
    locks = [found() for found, identity in list(_tables.items()) if identity == table.identity]
    return any(held is not None and held.belief.end_if_due() > 0 for held in locks)


def refuse_if_held(base_path: str) -> None:
    """Return only if a Spark write to the table may start.

    Raises:
        ConfigError: This process holds the table's lock; nothing was written.
    """
    if held_here(base_path):
        raise ConfigError(
            setting="base_path",
            value=base_path,
            reason="this process holds the table's lock (asynclock.hudi.table_lock), and the write needs it "
            "at its commit: they would block each other; nothing was written. Release it first: Hudi takes "
            "the lock itself; to keep other jobs out, use another lock",
        )
