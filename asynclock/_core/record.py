"""The lock record and its bytes: the wire format shared with Hudi's ``StorageBasedLockProvider``.

Hudi's three fields come first; Hudi ignores our four and drops them on its next write. Reading is
strict: anything that is not exactly a record is corrupt, and a corrupt lock is neither held nor free
(``protocol.md`` rule 9).

Source: Apache Hudi RFC-91 and ``StorageLockFile.java``.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any, Final, NamedTuple, NoReturn

import orjson

from asynclock.backend import MAX_BODY
from asynclock.errors import RecordCorruptError

MAX_INTEGER: Final = 2**53
MIN_LEASE_MS: Final = 100
MAX_LEASE_MS: Final = 7 * 86_400_000
MAX_VALID_AHEAD: Final = 8 * 86_400.0
MAX_EPOCH_AHEAD: Final = 86_400.0
_MAX_DIGITS: Final = 20
_HUDI_FIELDS: Final = ("expired", "validUntil", "owner")
_OUR_FIELDS: Final = ("nonce", "epoch", "leaseMs", "holder")
_KEPT: Final = "kept"
_FENCED: Final = rb'\{"fencingToken":\d+\}\n'
_NONCE: Final = r"[0-9a-f]{32}"


class LockRecord(NamedTuple):
    """The content of a lock object.

    Attributes:
        expired: The lock was released or broken.
        valid_until_ms: Epoch ms by the store's clock, an upper bound; Hudi's readers judge by it.
        owner: Fresh for each acquisition.
        nonce: Fresh for each write attempt, 32 hex digits; None in a Hudi record.
        epoch: The fencing token, in microseconds; None in a Hudi record.
        lease_ms: Validity of the writer, in milliseconds; None in a Hudi record.
        holder: ``host:pid:program`` or the user's text; None in a Hudi record.
        is_kept: Its holder has released it, and it stays held until its time is up (rule 21). Only for
            people: no decision depends on it, and readers that do not know the field ignore it.
    """

    expired: bool
    valid_until_ms: int
    owner: str
    nonce: str | None = None
    epoch: int | None = None
    lease_ms: int | None = None
    holder: str | None = None
    is_kept: bool = False

    @property
    def is_ours(self) -> bool:
        """Whether asynclock wrote the record (it has our four fields) and not a Hudi writer."""
        return self.nonce is not None

    def encode(self) -> bytes:
        """Return the bytes of the record: compact UTF-8 JSON, Hudi's fields first."""
        fields: dict[str, Any] = {
            "expired": self.expired,
            "validUntil": self.valid_until_ms,
            "owner": self.owner,
        }
        if self.nonce is not None:
            fields |= {
                "nonce": self.nonce,
                "epoch": self.epoch,
                "leaseMs": self.lease_ms,
                "holder": self.holder,
            }
            if self.is_kept:
                fields[_KEPT] = True
        return orjson.dumps(fields)

    def released(self, *, nonce: str | None) -> LockRecord:
        """Return the record that frees this one: the same owner, ``validUntil`` and token.

        Args:
            nonce: A fresh nonce; None drops our four fields, token included, as a Hudi writer does.
        """
        if nonce is None or not self.is_ours:
            return LockRecord(expired=True, valid_until_ms=self.valid_until_ms, owner=self.owner)
        return self._replace(expired=True, nonce=nonce, is_kept=False)

    def kept(
        self, *, nonce: str, valid_until_ms: int, seconds: float, owner: str | None = None
    ) -> LockRecord:
        """Return the record that keeps the lock held after its release, believed by nobody (rule 21).

        With another ``owner`` it is an offer, which a ticket names (rule 29).
        """
        kept = self._replace(nonce=nonce, valid_until_ms=valid_until_ms, is_kept=True).lasting(seconds)
        return kept if owner is None else kept._replace(owner=owner)

    def lasting(self, seconds: float) -> LockRecord:
        """Return the same record with a promise of that many seconds, within what a record may promise."""
        return self._replace(lease_ms=min(max(math.ceil(seconds * 1000), MIN_LEASE_MS), MAX_LEASE_MS))


def parse_record(
    body: bytes, *, key: str = "", version: str | None = None, store_time: float | None = None
) -> LockRecord:
    """Read a lock object strictly.

    Args:
        body: The bytes of the object.
        key: Key of the object, for the error.
        version: Its version, for the error.
        store_time: The latest time that the store's clock may show, in epoch seconds; None skips
            the checks against times in the far future.

    Raises:
        RecordCorruptError: The object is not a record of asynclock or Hudi.
    """
    try:
        return _parse(body, store_time)
    except _Corrupt as reason:
        raise RecordCorruptError(key=key, reason=str(reason), version=version) from None


def is_no_lock(body: bytes) -> bool:
    """Whether a body is clearly not a lock.

    It is a fenced object, or whole JSON without any field of a record.
    """
    if re.match(_FENCED, body):
        return True
    try:
        fields = json.loads(body)
    except (ValueError, RecursionError):
        return False  # perhaps a lock that was damaged
    return not isinstance(fields, dict) or not fields.keys() & {*_HUDI_FIELDS, *_OUR_FIELDS}


class _Corrupt(Exception):  # noqa: N818  never leaves this module
    pass


def _parse(body: bytes, store_time: float | None) -> LockRecord:
    if len(body) > MAX_BODY:
        raise _Corrupt("larger than 64 KiB")
    fields = _load(body)
    record = LockRecord(
        expired=_field(fields, "expired", bool),
        valid_until_ms=_integer(fields, "validUntil"),
        owner=_text(fields, "owner"),
        **_our_fields(fields),
    )
    if store_time is not None:
        if record.valid_until_ms > (store_time + MAX_VALID_AHEAD) * 1000:
            raise _Corrupt(_from_the_future("validUntil", record.valid_until_ms / 1000 - store_time))
        if record.epoch is not None and record.epoch > (store_time + MAX_EPOCH_AHEAD) * 1_000_000:
            raise _Corrupt(_from_the_future("epoch", record.epoch / 1_000_000 - store_time))
    return record


def _from_the_future(name: str, ahead: float) -> str:
    return (
        f"its {name} is {ahead / 86_400:.1f} days ahead of the store's clock: that clock (for file:// this "
        "machine's) was set back, or the writer's was wrong. With the clock right, the lock is what it was. "
        "If it is right already, break the lock"
    )


def _our_fields(fields: dict[str, Any]) -> dict[str, Any]:
    present = [name for name in _OUR_FIELDS if name in fields]
    if not present:
        return {}
    if len(present) != len(_OUR_FIELDS):
        missing = ", ".join(name for name in _OUR_FIELDS if name not in fields)
        raise _Corrupt(f"it has {', '.join(present)} but not {missing}")
    nonce = _text(fields, "nonce")
    if not re.fullmatch(_NONCE, nonce):
        raise _Corrupt("nonce is not 32 hex digits")
    lease_ms = _integer(fields, "leaseMs")
    if not MIN_LEASE_MS <= lease_ms <= MAX_LEASE_MS:
        raise _Corrupt("leaseMs is not within 100 ms to 7 days")
    return {
        "nonce": nonce,
        "epoch": _integer(fields, "epoch"),
        "lease_ms": lease_ms,
        "holder": _text(fields, "holder"),
        "is_kept": _KEPT in fields and fields[_KEPT] is True,
    }


def _load(body: bytes) -> dict[str, Any]:
    try:
        fields = orjson.loads(body)
        # orjson accepts duplicate keys and over-long integers. A body that it writes again byte for
        # byte has neither; any other body is read by a stricter reader.
        if orjson.dumps(fields) != body:
            fields = _load_strictly(body)
    except (orjson.JSONDecodeError, orjson.JSONEncodeError):
        fields = _load_strictly(body)
    if not isinstance(fields, dict):
        raise _Corrupt("not a JSON object")
    return fields


def _load_strictly(body: bytes) -> Any:  # noqa: ANN401  any JSON value
    try:
        return _STRICT.decode(body.decode("utf-8"))
    except UnicodeDecodeError:
        raise _Corrupt("not UTF-8") from None
    except RecursionError:
        raise _Corrupt("nested too deeply") from None
    except ValueError:
        raise _Corrupt("not JSON" if body.strip() else "empty") from None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise _Corrupt("duplicate keys")
    return fields


def _bounded_integer(digits: str) -> int:
    if len(digits) > _MAX_DIGITS:
        raise _Corrupt("an integer is too long")
    return int(digits)


def _refuse_constant(name: str) -> NoReturn:
    raise _Corrupt(f"{name} is not JSON")


_STRICT: Final = json.JSONDecoder(
    object_pairs_hook=_unique, parse_int=_bounded_integer, parse_constant=_refuse_constant
)


def _field(fields: dict[str, Any], name: str, kind: type) -> Any:  # noqa: ANN401  the caller names the type
    if name not in fields:
        raise _Corrupt(f"{name} is missing")
    value = fields[name]
    if type(value) is not kind:  # bool is an int, so isinstance would let it pass
        raise _Corrupt(f"{name} is not of type {kind.__name__}")
    return value


def _integer(fields: dict[str, Any], name: str) -> int:
    value: int = _field(fields, name, int)
    if not 0 <= value < MAX_INTEGER:
        raise _Corrupt(f"{name} is outside of 0 to 2**53")
    return value


def _text(fields: dict[str, Any], name: str) -> str:
    value: str = _field(fields, name, str)
    if not value.isascii():
        try:
            value.encode("utf-8")
        except UnicodeEncodeError:
            raise _Corrupt(f"{name} has a lone surrogate") from None
    return value
