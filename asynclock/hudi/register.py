"""Which tables this process holds, so that it can be kept from waiting for itself.

A Spark write takes Hudi's lock at its commit. In a process that holds the same lock through
Python the two would wait for each other until one times out. Other processes cannot be seen.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final
from weakref import WeakSet

from asynclock.errors import ConfigError
from asynclock.hudi.paths import TablePath

if TYPE_CHECKING:
    from asynclock.lease import Lease

_mutex: Final = threading.Lock()
_leases: Final[dict[str, WeakSet[Lease]]] = {}


def note(table: TablePath, lease: Lease) -> None:
    """Remember a lease on a table; one that ends needs no word."""
    with _mutex:
        leases = _leases.setdefault(table.identity, WeakSet())
        leases.add(lease)


def held_here(base_path: str) -> bool:
    """Return whether this process holds the table's lock, under any spelling of its base path."""
    try:
        table = TablePath.parse(base_path)
    except ConfigError:
        return False  # not lockable, so not locked
    with _mutex:
        leases = list(_leases.get(table.identity, ()))
    return any(lease.held for lease in leases)


def refuse_if_held(base_path: str) -> None:
    """Return if a Spark write to the table may start.

    Raises:
        ConfigError: This process holds the table's lock; nothing was written.
    """
    if held_here(base_path):
        raise ConfigError(
            setting="base_path",
            value=base_path,
            reason="this process holds the table's lock (asynclock.hudi.table_lock), which the write "
            "would wait for at its commit: they would block each other; nothing was written. Release "
            "it first: Hudi takes the lock by itself, and to keep other jobs out use a lock of your own",
        )
