"""The interface of a backend: read an object, and write one under a condition."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

MAX_BODY: Final = 64 * 1024
"""Bytes of the longest object that a lock, or a fenced object, reads or writes."""


@dataclass(frozen=True, slots=True)
class Stored:
    """An object as one response showed it.

    Attributes:
        body: The object's bytes; of an object longer than 64 KiB its first 64 KiB + 1.
        version: Opaque text: equal or not equal to another version of the same key, and an
            argument of ``put_if_match``, nothing else.
        last_modified: When the object was written, in epoch seconds by the store's clock, or None.
        server_time: The response's ``Date`` in epoch seconds; None if it has none, or an ``Age`` says
            that a cache answered.
    """

    body: bytes
    version: str
    last_modified: float | None
    server_time: float | None


@dataclass(frozen=True, slots=True)
class Absent:
    """A response that says that there is no object under the key.

    Attributes:
        server_time: The response's ``Date``, as in ``Stored``. The first fencing token and the first
            ``validUntil`` of a new lock are computed from it. So creating a lock takes one read and one
            write, and never relies on this machine's clock.
    """

    server_time: float | None


@dataclass(frozen=True, slots=True)
class Written:
    """A write that the store confirmed.

    Attributes:
        version: Version of the object just written.
        server_time: The response's ``Date`` in epoch seconds, or None.
    """

    version: str
    server_time: float | None


@dataclass(frozen=True, slots=True)
class Entry:
    """One object of a listing.

    Attributes:
        key: Its key.
        size: Its length in bytes.
        last_modified: When it was written, in epoch seconds by the store's clock, or None.
    """

    key: str
    size: int
    last_modified: float | None


@runtime_checkable
class Backend(Protocol):
    """Objects in one bucket or folder; locks write them only under a precondition.

    Each call sends one request and never repeats it. After a write that failed, the caller reads the
    object to see what happened, except after ``AccessDeniedError`` and ``UnsupportedBackendError``:
    these say that nothing was written. A call may be cancelled; a cancelled write may still be applied.

    Attributes:
        name: Name of the backend in error texts, for example ``s3``.
        clock_resolution: Seconds by which the store may round ``server_time`` and ``last_modified`` down: 1
            for HTTP dates, 0 for memory and files.
        min_write_interval: Seconds to leave between two writes of one object: 1 for Cloud Storage, else 0.
        sends_dates: Whether every response has the store's Date: ``Stored``, ``Absent`` and ``Written``
            then have a ``server_time``. A new lock is created only with a Date, so a backend with
            ``sends_dates = True`` must give it in ``Absent`` too. False is only for a store that never
            sends one: the first token and ``validUntil`` then come from this machine's wall clock, and
            the lock of a dead holder is freed only after it has been watched for its whole validity.
        versions_may_repeat: Whether writing the same bytes again gives the same version again, as with
            an ETag that is a hash of the body. No two lock records have the same bytes; other objects may.

    A backend may have more, which no lock needs. ``opening``: True while nothing can be sent yet, because its
    SDK is still being imported; that time is not counted as the store's. ``verify = True`` with a coroutine
    ``place()``: the store may ignore conditions, so four writes test it before the first lock; ``place()``
    returns a text that identifies the bucket, or None if the store is known to keep its conditions.
    """

    name: str
    clock_resolution: float
    min_write_interval: float
    sends_dates: bool
    versions_may_repeat: bool

    async def get(self, key: str) -> Stored | Absent:
        """Read an object.

        Returns:
            Body, version and times from one response; or ``Absent`` with that response's Date.

        Raises:
            BackendError: The object could not be read. A read never writes anything.
        """
        ...

    async def put_if_absent(self, key: str, body: bytes) -> Written:
        """Create an object.

        Args:
            key: Key of the object.
            body: Its bytes.

        Raises:
            PreconditionFailedError: The object exists. If a layer below the backend repeated the request,
                its first copy may have created it: read it back.
            OutcomeUnknownError: The response was lost; the object may have been written.
            BackendUnavailableError: The store throttled the request, or there was no connection.
                Nothing was written.
            AccessDeniedError: The credentials do not allow it, or there are none. Nothing was written.
            UnsupportedBackendError: The store cannot do this, here or at all. Nothing was written.

        Source: RFC 9110 section 13.1.2 (``If-None-Match: *``); Cloud Storage: ``ifGenerationMatch=0``.
        """
        ...

    async def put_if_match(self, key: str, body: bytes, version: str) -> Written:
        """Replace an object only if it still has the given version.

        Args:
            key: Key of the object.
            body: The new bytes.
            version: As an earlier ``get`` or write of this key returned it.

        Raises:
            PreconditionFailedError: The object has another version or is missing. If a layer below the
                backend repeated the request, its first copy may have been written: read it back.
            OutcomeUnknownError: The response was lost; the object may have been written.
            BackendUnavailableError: As for ``put_if_absent``. Nothing was written.
            AccessDeniedError: As for ``put_if_absent``. Nothing was written.
            UnsupportedBackendError: As for ``put_if_absent``. Nothing was written.

        Source: RFC 9110 section 13.1.1 (``If-Match``); Cloud Storage: ``ifGenerationMatch=N``.
        """
        ...

    def list(self, prefix: str) -> AsyncIterator[Entry]:
        """Yield the objects whose key starts with ``prefix``, in key order.

        Raises:
            BackendError: The listing could not be read, perhaps after some objects were yielded.
        """
        ...

    async def put(self, key: str, body: bytes) -> Written:
        """Write an object without a condition. For maintenance (audit trail, probe), never for a lock.

        Raises:
            BackendError: As for ``put_if_absent``, but never ``PreconditionFailedError``.
        """
        ...

    async def delete(self, key: str) -> None:
        """Delete an object without a condition. A missing one is not an error. Never for a lock.

        Raises:
            BackendError: The object may still be there.
        """
        ...

    async def aclose(self) -> None:
        """Free connections and descriptors. A second call does nothing."""
        ...


@runtime_checkable
class ConditionalDelete(Protocol):
    """An optional ability of a backend: to delete one version. ``prune`` needs it, locks never do."""

    async def delete_if_match(self, key: str, version: str) -> None:
        """Delete an object only if it still has the given version.

        Raises:
            PreconditionFailedError: The object has another version; it was not deleted. Some stores also
                answer this for a missing object; for others that is not an error.
            BackendError: As for ``put_if_match``; after an ``OutcomeUnknownError`` it may be deleted.

        Source: RFC 9110 section 13.1.1 (``If-Match``); Cloud Storage: ``ifGenerationMatch=N``.
        """
        ...
