"""What a store must be able to do: read, and write under a condition."""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol, runtime_checkable

from asynclock.record import MAX_BODY as MAX_BODY  # noqa: PLC0414  backends know this module only

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@dataclass(frozen=True, slots=True)
class Stored:
    """An object as one response showed it.

    Attributes:
        body: At most 64 KiB + 1 bytes; a longer object is cut there.
        version: Opaque; compare and hand back, nothing else.
        last_modified: Epoch seconds by the store, or None.
        server_time: The response's ``Date``, epoch seconds; None if missing or beside an ``Age``.
    """

    body: bytes
    version: str
    last_modified: float | None
    server_time: float | None


@dataclass(frozen=True, slots=True)
class Written:
    """A write that the store confirmed.

    Attributes:
        version: Version of the object just written.
        server_time: The response's ``Date``, epoch seconds, or None.
    """

    version: str
    server_time: float | None


@dataclass(frozen=True, slots=True)
class Entry:
    """One object of a listing: its key, size in bytes, and ``last_modified`` in epoch seconds."""

    key: str
    size: int
    last_modified: float | None


@runtime_checkable
class Backend(Protocol):
    """Objects in one bucket or folder, written only under a precondition.

    One request per call and no hidden retry: after any error but ``AccessDeniedError`` and
    ``UnsupportedBackendError`` the caller reads back. Methods may be cancelled; a cancelled
    write may still land.

    Attributes:
        name: For error texts, for example ``s3``.
        clock_resolution: Seconds by which ``server_time`` and ``last_modified`` may be cut
            short: 1 for HTTP dates, 0 for memory and file.
        min_write_interval: Seconds to leave between two writes of one object; GCS 1, else 0.
        sends_dates: Whether answers carry the store's Date; False only for a store that never sends
            one. Without Dates the first token and ``validUntil`` come from this machine's wall clock,
            and a dead holder's lock is freed by observation only.
        versions_may_repeat: Whether writing the same bytes again gives the same version again, as an
            ETag that is a hash of the body does. Lock records never repeat; other objects may.
    """

    name: str
    clock_resolution: float
    min_write_interval: float
    sends_dates: bool
    versions_may_repeat: bool

    async def get(self, key: str) -> Stored | None:
        """Read an object, body and version from one response; None if there is none.

        A backend that knows the Date of a "not found" response calls ``note_date`` with it.

        Raises:
            BackendError: Nothing is ever written.
        """
        ...

    async def put_if_absent(self, key: str, body: bytes) -> Written:
        """Create the object.

        Raises:
            PreconditionFailedError: It exists.
            OutcomeUnknownError: The answer was lost after the request was sent.
            BackendUnavailableError: Throttled, or failed before a byte was sent.

        Source: RFC 9110 section 13.1.2 (``If-None-Match: *``); GCS ``ifGenerationMatch=0``.
        """
        ...

    async def put_if_match(self, key: str, body: bytes, version: str) -> Written:
        """Write ``body`` only if the object is still the given ``version``.

        Args:
            key: Key of the object.
            body: The new bytes.
            version: From an earlier ``get`` or write of this key, verbatim.

        Raises:
            PreconditionFailedError: Another version is there, or the object is missing.
            OutcomeUnknownError: The answer was lost after the request was sent.
            BackendUnavailableError: Throttled, or failed before a byte was sent.

        Source: RFC 9110 section 13.1.1 (``If-Match``); GCS ``ifGenerationMatch=N``.
        """
        ...

    def list(self, prefix: str) -> AsyncIterator[Entry]:
        """Yield the objects whose key starts with ``prefix``, in key order."""
        ...

    async def put(self, key: str, body: bytes) -> Written:
        """Write without a condition. Maintenance only (audit, probe), never a lock."""
        ...

    async def delete(self, key: str) -> None:
        """Delete without a condition. Maintenance only, never a lock; missing is no error."""
        ...

    async def aclose(self) -> None:
        """Free connections and descriptors; twice is a no-op."""
        ...


bounded: Final[ContextVar[bool]] = ContextVar("asynclock_bounded", default=False)
"""Set while the caller bounds the call by a timeout of its own: a backend need not add another."""


class MissingDate:
    """Where the Date of a "not found" answer is left for the caller of ``get``."""

    __slots__ = ("server_time",)

    def __init__(self) -> None:
        self.server_time: float | None = None


missing_date: Final[ContextVar[MissingDate | None]] = ContextVar("asynclock_missing_date", default=None)


def note_date(server_time: float | None) -> None:
    """Tell the caller of ``get`` the Date of an answer that has no ``Stored`` to bear it.

    The first token and ``validUntil`` of a lock are made from it, so that the first
    acquisition needs no request more and never trusts this machine's clock. A backend with
    ``sends_dates`` must call it: without a Date a new lock is not created.
    """
    cell = missing_date.get()
    if cell is not None:
        cell.server_time = server_time
