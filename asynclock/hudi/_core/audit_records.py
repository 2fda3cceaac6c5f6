"""The files of Hudi's audit trail: JSON lines, one file per holder.

Hudi's reader rejects unknown keys, so a record has exactly these six:
``ownerId``, ``transactionStartTime``, ``timestamp``, ``state``, ``lockExpiration``, ``lockHeld``.

Source: Hudi's ``StorageLockProviderAuditService`` and ``ValidateAuditLockProcedure``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Literal

import orjson

from asynclock.hudi._core.paths import AUDIT_FOLDER

State = Literal["START", "RENEW", "END"]
SUFFIX: Final = ".jsonl"
_STATES: Final = frozenset({"START", "RENEW", "END"})
_TYPES: Final = {
    "ownerId": str,
    "transactionStartTime": int,
    "timestamp": int,
    "state": str,
    "lockExpiration": int,
    "lockHeld": bool,
}


@dataclass(frozen=True, slots=True)
class AuditHold:
    """One hold of a table's lock according to its audit file. Times are by the holder's own clock.

    Attributes:
        file: Name of the audit file.
        owner: Id of the holder.
        start_ms: When it acquired the lock, in epoch ms.
        end_ms: When it released the lock; without an END, when its last promise expires.
        renewals: How often it renewed the lock.
        ended: False if there is no END: the holder died, lost the lock, or holds it now.
    """

    file: str
    owner: str
    start_ms: int
    end_ms: int
    renewals: int
    ended: bool


def encode(owner: str, start_ms: int, state: State, timestamp_ms: int, expiration_ms: int) -> bytes:
    """Return one record as a line of an audit file."""
    record = {
        "ownerId": owner,
        "transactionStartTime": start_ms,
        "timestamp": timestamp_ms,
        "state": state,
        "lockExpiration": expiration_ms,
        "lockHeld": True,
    }
    return orjson.dumps(record) + b"\n"


def file_name(owner: str, start_ms: int) -> str:
    """Return the key of a holder's audit file."""
    return f"{AUDIT_FOLDER}{start_ms}_{owner}{SUFFIX}"


def start_of(name: str, owner: str) -> int | None:
    """Return when ``owner`` acquired the lock, in epoch ms, if ``name`` is its audit file; else None."""
    start = name.rpartition("/")[2].removesuffix(f"_{owner}{SUFFIX}")
    return int(start) if start.isdecimal() and start.isascii() else None


def holds(name: str, body: bytes) -> list[AuditHold]:
    """Return the holds in one file. It may have several: a reused Hudi provider appends to its file.

    Raises:
        ValueError: It is not an audit file.
    """
    records = [_record(line) for line in body.splitlines() if line.strip()]
    if not records:
        raise ValueError(name)
    owner = records[0]["ownerId"]
    found: list[AuditHold] = []
    start: int | None = records[0]["transactionStartTime"]
    renewals = 0
    for record in records:
        if start is None or (record["state"] == "START" and not found):
            start = record["timestamp"]
        renewals += record["state"] == "RENEW"
        if record["state"] == "END":
            found.append(AuditHold(name, owner, start, record["timestamp"], renewals, ended=True))
            start, renewals = None, 0
    if start is not None:
        found.append(AuditHold(name, owner, start, records[-1]["lockExpiration"], renewals, ended=False))
    return found


def _record(line: bytes) -> dict[str, Any]:
    record = orjson.loads(line)
    if not isinstance(record, dict) or record.keys() != _TYPES.keys():
        raise ValueError("not the six keys of an audit record")
    if any(type(record[key]) is not kind for key, kind in _TYPES.items()):
        raise ValueError("a value of the wrong type")
    if record["state"] not in _STATES:
        raise ValueError("an unknown state")
    return record
