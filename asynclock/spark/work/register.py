"""Who may be at work on a table: the names of the locks of all its work, kept in the store.

A worker announces itself in three steps: it takes its lease, makes sure that the register has the lock's
name, and only then looks whether the table is reserved. A job takes ``reservation/table``, and only then
reads the register and each lock that it names. So one of the two sees the other, whatever a listing shows.
docs/concepts/reservation.md has the argument.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

import orjson

from asynclock import Absent
from asynclock._shared.internals import MAX_BODY, held_by, is_name
from asynclock._shared.words import SUFFIX
from asynclock.errors import ConfigError, PreconditionFailedError, RecordCorruptError

if TYPE_CHECKING:
    from asynclock import LockStatus
    from asynclock._shared.internals import Core

RESERVATION_LOCK: Final = "reservation/table"
RESERVATION_KEY: Final = f"{RESERVATION_LOCK}{SUFFIX}"
REGISTER: Final = "reservation/register"
"""Key of the object with the names; no lock's, so ``prune`` leaves it alone."""
WORK: Final = ("stream/", "service/", "delete/")
"""Prefixes of the locks under which work on the table runs."""
PARKED: Final = "parked/"
"""Prefix of the second lock of a worker that waits."""


class Register:
    """The names of the locks under which a table was ever worked on; they only become more.

    Its coroutines run on the loop of its client.

    Args:
        core: The client of the table's locks.
    """

    def __init__(self, core: Core) -> None:
        self._core = core
        self._objects = core.objects

    async def reserved(self) -> LockStatus | None:
        """Return the holder of the reservation, or None; one read.

        Raises:
            BackendError: The store did not answer.
        """
        status = await self._core.engine(RESERVATION_LOCK).status()
        return status if status.state == "held" else None

    async def announce(self, name: str) -> LockStatus | None:
        """Enter the name of a lock that the caller holds, then look: return what ``reserved`` does.

        This is one read more, and the first time one write; each name that comes at the same time costs a
        read and a write more.

        Raises:
            BackendError: The store did not answer, or refused a write over what it shows. The name may have
                been written, which is harmless.
            RecordCorruptError: The object is not a register; nothing was written.
            ConfigError: It has no room for another name; nothing was written.
        """
        await self._enter(name)
        return await self.reserved()  # not before the name is known to be in the register

    async def _enter(self, name: str) -> None:
        names, version = await self._stored()
        while name not in names:
            try:
                await self._objects.put(REGISTER, _body(names | {name}), version)
            except PreconditionFailedError:
                # Another name may have come first, and ours may have landed: only a read tells. A late write
                # can overwrite nothing: names are never taken out, so no version comes twice.
                refused = version
                names, version = await self._stored()
                if version == refused:
                    raise
            else:
                return

    async def at_work(self) -> dict[str, LockStatus]:
        """Return the locks of all workers who may be at work: held and not parked, or expired.

        Raises:
            BackendError: The store did not answer.
            RecordCorruptError: The object is not a register.
        """
        names, _ = await self._stored()
        # Versions without a register do not enter their names: a listing that is right finds them.
        listed = {status.name: status for status in await self._core.list_all("")}
        names |= {name for name in listed if name.startswith(WORK)}

        async def read(name: str) -> LockStatus:
            return listed.get(name) or await self._core.engine(name).status()

        found = {}
        for name in sorted(names):
            status = await read(name)
            if status.state == "held":
                parked = await read(PARKED + name)
                # The leftover of another lease, perhaps of a dead worker, does not count.
                waits = parked.state == "held" and parked.holder == status.owner
            else:
                waits = status.state != "expired"
            if not waits:
                found[name] = status
        return found

    async def _stored(self) -> tuple[frozenset[str], str | None]:
        stored = await self._objects.fetch(REGISTER)
        if isinstance(stored, Absent):
            return frozenset(), None
        try:
            names = orjson.loads(stored.body)["names"] if len(stored.body) <= MAX_BODY else None
            if isinstance(names, list) and all(map(is_name, names)):
                return frozenset(names), stored.version
        except (ValueError, KeyError, TypeError):
            pass
        reason = "it is no register of a table's locks"
        raise RecordCorruptError(key=REGISTER, reason=reason, version=stored.version)


def _body(names: frozenset[str]) -> bytes:
    body = orjson.dumps({"names": sorted(names)}) + b"\n"
    if len(body) > MAX_BODY:
        reason = f"has no room for another name after {len(names) - 1}; nothing was written"
        raise ConfigError(setting=REGISTER, value=len(names), reason=reason)
    return body


def said_of(status: LockStatus) -> str:
    """Return a phrase that says who holds a lock, since when, and for how long at most."""
    return held_by(
        holder=status.holder,
        owner=status.owner,
        token=status.fencing_token,
        remaining=status.remaining,
        now=time.time(),
    )
