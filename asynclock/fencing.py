"""FencedObject: an object in the lock's store that refuses the writes of an older holder."""

from __future__ import annotations

from typing import TYPE_CHECKING

from asynclock._core.fenced import Fenced
from asynclock._core.fenced import FencedValue as FencedValue  # noqa: PLC0414  its users find it here

if TYPE_CHECKING:
    from collections.abc import Callable

    from asynclock.client import LockClient
    from asynclock.lease import Lease


class FencedObject:
    """A small object, changed only by conditional writes under a lease's token.

    The first write under a newer token makes every older holder's write fail. On stores whose
    version is a hash of the content (S3), bodies written under one token should not repeat.
    A body is at most 64 KiB less the line with the token.

    Args:
        client: Its store holds the object.
        key: Key of the object under the client's URL; not that of a lock.

    Attributes:
        key: Key of the object.
    """

    def __init__(self, client: LockClient, key: str) -> None:
        self._object = Fenced(client._core, key)
        self.key: str = key

    async def read(self) -> FencedValue | None:
        """Return the stored value; None if there is no object.

        Raises:
            RecordCorruptError: The object is not a fenced object.
            BackendError: It could not be read.
        """
        return await self._object.read()

    async def write(self, body: bytes, *, lease: Lease) -> FencedValue:
        """Replace the body.

        Raises:
            ConfigError: The body is too large; nothing was written.
            LeaseLostError: The lease is lost; nothing was written, unless the error has a cause: the
                BackendError of a write that may have been applied.
            StaleTokenError: A newer holder has written. As for LeaseLostError, its cause says if this call
                may have written before that.
            UnsupportedBackendError: The store has refused three times to write over what it goes on showing.
            BackendError: The store did not answer; it may have been written.
        """
        return await self.update(lambda _: body, lease=lease)

    async def update(self, change: Callable[[bytes | None], bytes], *, lease: Lease) -> FencedValue:
        """Replace the body with ``change(body)``. ``change`` is called again if another write came first.

        Args:
            change: Called with the body, or None if there is no object; must have no side effects.
            lease: Its token fences the write.

        Raises:
            ConfigError: The body is too large; nothing was written.
            LeaseLostError: The lease is lost; nothing was written, unless the error has a cause: the
                BackendError of a write that may have been applied.
            StaleTokenError: A newer holder has written. As for LeaseLostError, its cause says if this call
                may have written before that.
            UnsupportedBackendError: The store has refused three times to write over what it goes on showing.
            BackendError: The store did not answer; it may have been written.
        """
        return await self._object.update(change, lease)
