"""Deletes the objects of locks that have been free for a long time (protocol rule 22).

The next acquisition creates a deleted lock again. Its fencing token is higher, because tokens come from the
store's time. An object is deleted only if no late write can touch it any more, and only in the version that
was judged.
"""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from asynclock._core.names import in_hudi_table
from asynclock._core.protocol.decisions import LEAST_FREE_TO_PRUNE
from asynclock._text import SUFFIX
from asynclock.backend import Absent, ConditionalDelete
from asynclock.errors import BackendError, ConfigError, PreconditionFailedError, UnsupportedBackendError

if TYPE_CHECKING:
    from collections.abc import Callable

    from asynclock._core.client import Core


@dataclass(frozen=True, slots=True)
class PruneReport:
    """The locks that a prune deleted, or would delete.

    Attributes:
        deleted: Names of the locks, in their order.
        kept: Number of the locks that are too young, held, corrupt or Hudi's, or have changed in the
            meantime.
        dry_run: True if nothing was deleted.
    """

    deleted: tuple[str, ...]
    kept: int
    dry_run: bool


async def prune(
    core: Core,
    *,
    older_than: float,
    dry_run: bool = False,
    on_delete: Callable[[str], object] = lambda _: None,
) -> PruneReport:
    """Delete the objects of a client's locks that have been free for a long time.

    A lock that was not released counts as free from when others could take it over. Locks of Hudi tables
    (even if asynclock wrote them last), corrupt objects and objects that are not locks are never deleted.

    Args:
        core: The client of the locks.
        older_than: Seconds that a lock must have been free, by the store's clock; a day or more.
        dry_run: Delete nothing, only find the locks.
        on_delete: Called with the name of each lock that was deleted, or would be.

    Raises:
        ConfigError: ``older_than`` is less than a day; nothing was deleted.
        UnsupportedBackendError: The store cannot delete an object on condition; nothing was deleted.
        BackendError: The store failed; the locks that ``on_delete`` got are deleted.
    """
    if not isinstance(older_than, int | float) or not older_than >= LEAST_FREE_TO_PRUNE:
        raise ConfigError(
            setting="older_than",
            value=older_than,
            reason=f"must be a day ({LEAST_FREE_TO_PRUNE:.0f} s) or more",
        )
    return await core.run(lambda: _prune(core, older_than, on_delete, dry_run=dry_run))


async def _prune(
    core: Core, older_than: float, on_delete: Callable[[str], object], *, dry_run: bool
) -> PruneReport:
    deleted: list[str] = []
    seen, tried = 0, False
    scan = core.scanning("")
    while some := await scan.names():
        seen += len(some)
        ours = [name for name in some if not in_hudi_table(f"{core.url}/{name}")]
        versions = await asyncio.gather(*(scan.engine(name).inspection.prunable(older_than) for name in ours))
        for name, version in zip(ours, versions, strict=True):
            if version is None:
                continue
            if not dry_run:
                if not tried:
                    await _try_out(core)
                    tried = True
                if not await _delete(core, f"{name}{SUFFIX}", version):
                    continue
            deleted.append(name)
            on_delete(name)
    return PruneReport(tuple(deleted), seen - len(deleted), dry_run)


async def _delete(core: Core, key: str, version: str) -> bool:
    """Delete one version of an object; return False if it has changed."""
    backend: Any = core.backend
    try:
        await core.request("delete_if_match", key, backend.delete_if_match(key, version))
    except PreconditionFailedError:
        return False
    return True


async def _try_out(core: Core) -> None:
    """Check with an object of our own that the store respects the condition of a delete.

    Raises:
        UnsupportedBackendError: It does not, or has no such delete.
    """
    backend, key = core.backend, f".asynclock-prune-{uuid.uuid4()}"  # no lock, so no list shows it
    reason: str | None = "the backend has no delete on condition"
    if isinstance(backend, ConditionalDelete):
        try:
            reason = await _objection(core, key)
        finally:
            with contextlib.suppress(BackendError):
                await core.request("delete", key, backend.delete(key))
    if reason is not None:
        raise UnsupportedBackendError(
            backend=backend.name,
            operation="delete_if_match",
            key=key,
            detail=f"{reason}, so a lock that is taken meanwhile could be deleted; no lock was deleted",
        )


async def _objection(core: Core, key: str) -> str | None:
    """Write and delete an object; return why no lock may be deleted, or None."""
    backend = core.backend
    old = await core.request("put_if_absent", key, backend.put_if_absent(key, b"1"))
    await asyncio.sleep(backend.min_write_interval)
    new = await core.request("put_if_match", key, backend.put_if_match(key, b"2", old.version))
    if await _delete(core, key, old.version):
        return "the store ignores the condition of a delete"
    if not await _delete(core, key, new.version):
        return "the store refuses a delete whose condition is met"
    gone = isinstance(await core.request("get", key, backend.get(key)), Absent)
    return None if gone else "the store does not delete"
