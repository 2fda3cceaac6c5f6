"""One place of locks for one table, known to every driver.

Two drivers that keep their locks in two places do not exclude each other, and two tables that share locks
wait for each other. So every commit carries the URL of the locks that it was written under. Next to the locks
a small object, :data:`MARK`, names their table. A driver whose spec disagrees with one of them is refused.
The mark also detects one URL that means two places, on two machines or at two endpoints.
"""

from __future__ import annotations

import json
import uuid
from typing import TYPE_CHECKING, Any, Final

from asynclock import sync
from asynclock.spark.spec.load import misplaced
from asynclock.spark.spec.place import same_locks, same_table

if TYPE_CHECKING:
    from collections.abc import Callable

    from asynclock.errors import SpecError
    from asynclock.spark.hudi.instants import BatchCommit
    from asynclock.spark.spec.model import Spec

MARK: Final = "table"
CREATION_LOCK: Final = "service/creation"


def check_locks(spec: Spec, commit: BatchCommit | None, exists: Callable[[str], bool]) -> bool:
    """Make sure that the locks of a spec are those of its table, and of no other; nothing is written.

    Args:
        spec: The spec.
        commit: The newest commit of the table; None: no commit.
        exists: Whether there is a table at a path; asked about the path at which the locks know the table.

    Returns:
        Whether the mark exists and names the table; if not, a writer calls ``claim_locks``.

    Raises:
        SpecError: The table was written under other locks, or the locks belong to another table.
    """
    check_url(spec, commit)
    with spec.locks.connect() as client:
        mark = sync.FencedObject(client, MARK).read()
    if mark is None:
        if commit is not None and not _moved(spec, commit):
            raise _unmarked(spec)
        return False
    return _check_mark(spec, commit, mark.body, exists)


def check_url(spec: Spec, commit: BatchCommit | None) -> None:
    """Refuse a table that was written under other locks; see ``check_locks``."""
    if commit is None or same_locks(commit.locks, spec.locks.url) or _moved(spec, commit):
        return
    reason = (
        f"the table at {spec.table.path} was written under the locks at {commit.locks}, this spec has them "
        f"at {spec.locks.url}: writers under different locks do not exclude each other. Nothing was written; "
        f'set [locks] url = "{commit.locks}", or, if the table was moved or copied here and nobody writes to '
        f'it under those locks, [locks] moved_from = "{commit.locks}"'
    )
    raise misplaced(spec, ("locks", "url"), spec.locks.url, reason)


def claim_locks(
    spec: Spec,
    commit: BatchCommit | None,
    exists: Callable[[str], bool],
    *,
    client: sync.LockClient,
    lease: sync.Lease,
) -> str:
    """Record that the locks belong to the table, and return the table's id.

    Args:
        spec: The spec.
        commit: As for ``check_locks``, read under the lease.
        exists: As for ``check_locks``.
        client: A client of the locks.
        lease: A lease on ``CREATION_LOCK``.

    Raises:
        SpecError: As for ``check_locks``; nothing was written.
    """
    check_url(spec, commit)
    # A new table has a new id, even at the place of an earlier one, whose checkpoints must not fit.
    table_id = commit.table_id if commit else str(uuid.uuid4())
    body = json.dumps({"table_id": table_id, "path": spec.table.path}).encode()

    def replace(found: bytes | None) -> bytes:
        if found is not None:
            _check_mark(spec, commit, found, exists)
        return body

    sync.FencedObject(client, MARK).update(replace, lease=lease)
    return table_id


def _check_mark(spec: Spec, commit: BatchCommit | None, body: bytes, exists: Callable[[str], bool]) -> bool:
    mark: dict[str, Any] = json.loads(body)
    here = same_table(mark["path"], spec.table.path)
    if commit is None:
        if here:
            return False  # a new table, even if another one was at its path before
    elif commit.table_id == mark["table_id"]:
        if here:
            return True
        if not exists(mark["path"]):
            return False  # it was moved here; a copy would have left the table there
    if _moved(spec, commit):
        return False
    this = f"{commit.table_id} at {spec.table.path}" if commit else f"at {spec.table.path}"
    reason = (
        f"the locks at {spec.locks.url} belong to the table {mark['table_id']} at {mark['path']}, and this "
        f"spec is of the table {this}: two tables never share their locks. Nothing was written; name another "
        "place as [locks] url, or leave it out: then the locks are next to the table"
    )
    raise misplaced(spec, ("locks", "url"), spec.locks.url, reason)


def _moved(spec: Spec, commit: BatchCommit | None) -> bool:
    """Return whether the spec says that the table has moved away from its former locks."""
    before = spec.locks.moved_from
    return bool(before and commit and same_locks(before, commit.locks))


def _unmarked(spec: Spec) -> SpecError:
    reason = (
        f"the table at {spec.table.path} was written under the locks at {spec.locks.url}, but nothing there "
        "says so: on this machine or endpoint the URL means another place, or somebody removed the locks. "
        "Nothing was written; correct the URL, or, if no writer of the table is running, set [locks] "
        f'moved_from = "{spec.locks.url}"'
    )
    return misplaced(spec, ("locks", "url"), spec.locks.url, reason)
