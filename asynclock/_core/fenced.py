"""What both handles of a fenced object wrap."""

from __future__ import annotations

import asyncio
import re
from copy import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from asynclock._core.protocol.refusals import Refusals
from asynclock._text import SUFFIX
from asynclock.backend import MAX_BODY, Absent
from asynclock.errors import (
    BackendError,
    ConfigError,
    LeaseLostError,
    PreconditionFailedError,
    RecordCorruptError,
    StaleTokenError,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from asynclock._core.client import Core
    from asynclock._core.handles import LeaseHandle
    from asynclock._core.protocol.refusals import Shown
    from asynclock.backend import Stored

_HEADER: Final = re.compile(rb'\{"fencingToken":(0|[1-9][0-9]{0,15})\}\n')
_ROUNDS: Final = 100
_PAUSE: Final = 0.05
_SHOWN: Final = 16


@dataclass(frozen=True, slots=True)
class FencedValue:
    """The content of a fenced object.

    Attributes:
        body: The user's bytes, without the line with the token.
        fencing_token: Token of the lease that wrote it.
        version: Version of the object.
    """

    body: bytes
    fencing_token: int
    version: str


class Fenced:
    """A fenced object, shared by its async and its blocking handle."""

    def __init__(self, core: Core, key: str) -> None:
        if not key or key.endswith(SUFFIX):
            raise ConfigError(setting="key", value=key, reason=f"must not end in {SUFFIX}: those are locks")
        self.key = key
        self._core = core

    async def read(self) -> FencedValue | None:
        """See ``asynclock.FencedObject.read``."""
        return await self._core.run(self._read)

    async def update(self, change: Callable[[bytes | None], bytes], lease: LeaseHandle) -> FencedValue:
        """See ``asynclock.FencedObject.update``."""
        return await self._core.run(lambda: self._in_turn(change, lease))

    async def _read(self) -> FencedValue | None:
        return self.parsed(await self._core.request("get", self.key, self._core.backend.get(self.key)))

    def parsed(self, stored: Stored | Absent) -> FencedValue | None:
        """Return what an answer shows; None if there is no object.

        Raises:
            RecordCorruptError: The object is not a fenced object.
        """
        if isinstance(stored, Absent):
            return None
        if len(stored.body) > MAX_BODY:
            raise RecordCorruptError(key=self.key, reason="larger than 64 KiB", version=stored.version)
        header = _HEADER.match(stored.body)
        if header is None:
            raise RecordCorruptError(key=self.key, reason="no fencingToken line", version=stored.version)
        return FencedValue(stored.body[header.end() :], int(header[1]), stored.version)

    async def _in_turn(self, change: Callable[[bytes | None], bytes], lease: LeaseHandle) -> FencedValue:
        # One update at a time under one lease, through any client: then an object with our token and
        # our body is the result of this update.
        async with lease._held.body.updating:
            began = self._core.monotonic()
            written = await self._update(change, lease)
            self._core.note_update(self.key, lease._held.tenure, began)
            return written

    async def _update(self, change: Callable[[bytes | None], bytes], lease: LeaseHandle) -> FencedValue:
        token = lease.fencing_token
        attempted: set[bytes] = set()
        refusals = Refusals()
        before = await self._read()
        error: BackendError | None = None
        open_write: BackendError | None = None
        for _ in range(_ROUNDS):
            _check(lease, open_write)
            if before is not None and before.fencing_token > token:
                stored = before.fencing_token
                raise StaleTokenError(key=self.key, fencing_token=token, stored_token=stored) from open_write
            body = change(None if before is None else before.body)
            _check(lease, open_write)
            attempted.add(body)
            try:
                return await self._put(body, token, before)
            except PreconditionFailedError as refused:
                error = refused
            except BackendError as failed:
                error = failed
                if failed.written != "no":
                    open_write = failed
                await asyncio.sleep(_PAUSE)
            after = await self._read_back(error, open_write)
            if (
                after is not None
                and (before is None or after.version != before.version)
                and after.fencing_token == token
                and after.body in attempted
            ):
                return after  # one of our attempts landed
            if not isinstance(error, PreconditionFailedError) and not error.transient:
                raise open_write or error
            if isinstance(error, PreconditionFailedError) and refusals.note(_shown(before), _shown(after)):
                error = refusals.error(error, url=self._core.url)
                if refusals.final:
                    raise error
                await asyncio.sleep(_PAUSE)
            # The next attempt is conditional on exactly this version, so an earlier attempt that
            # lands in the meantime is noticed and not applied twice.
            before = after
        assert error is not None  # noqa: S101  every round that goes on has set it
        raise open_write or error

    async def _read_back(self, error: BackendError, open_write: BackendError | None) -> FencedValue | None:
        """Read the object after a failed write; if that fails too, a write that may stand matters more."""
        try:
            return await self._read()
        except BackendError:
            raise open_write or error from None
        except RecordCorruptError:
            if open_write is None:
                raise
            raise open_write from None

    async def _put(self, body: bytes, token: int, before: FencedValue | None) -> FencedValue:
        data = b'{"fencingToken":%d}\n%b' % (token, body)
        if len(data) > MAX_BODY:
            raise ConfigError(
                setting="body",
                value=body[:_SHOWN],
                reason=f"{len(data)} bytes with the token; at most 64 KiB can be read; nothing was written",
            )
        backend = self._core.backend
        if before is None:
            operation, put = "put_if_absent", backend.put_if_absent(self.key, data)
        else:
            operation, put = "put_if_match", backend.put_if_match(self.key, data, before.version)
        written = await self._core.request(operation, self.key, put)
        return FencedValue(body, token, written.version)


def _check(lease: LeaseHandle, open_write: BackendError | None) -> None:
    """Raise if the lease is lost; the cause is the error of a write that may have been applied."""
    try:
        lease.check()
    except LeaseLostError as lost:
        if open_write is None:
            raise
        raise copy(lost) from open_write  # the lease raises the same object to others


def _shown(value: FencedValue | None) -> Shown:
    return (None if value is None else value.version), None
