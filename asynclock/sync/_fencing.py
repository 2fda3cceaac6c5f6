"""The blocking handle of a fenced object."""

from __future__ import annotations

from typing import TYPE_CHECKING

from asynclock._core.fenced import Fenced
from asynclock.sync._blocking import block

if TYPE_CHECKING:
    from collections.abc import Callable

    from asynclock.fencing import FencedValue
    from asynclock.sync._facade import Lease, LockClient


class FencedObject:
    """An object that refuses the writes of an older holder; see ``asynclock.FencedObject``.

    Attributes:
        key: Key of the object.
    """

    def __init__(self, client: LockClient, key: str) -> None:
        self._object = Fenced(client._core, key)
        self.key: str = key

    def read(self) -> FencedValue | None:
        """Return the stored value; see ``asynclock.FencedObject.read``."""
        return block("FencedObject.read", self._object.read)

    def write(self, body: bytes, *, lease: Lease) -> FencedValue:
        """Replace the body; see ``asynclock.FencedObject.write``."""
        return block(
            "FencedObject.write",
            lambda: self._object.update(lambda _: body, lease),
        )

    def update(self, change: Callable[[bytes | None], bytes], *, lease: Lease) -> FencedValue:
        """Replace the body with ``change(body)``; see ``asynclock.FencedObject.update``."""
        return block(
            "FencedObject.update",
            lambda: self._object.update(change, lease),
        )
