"""The wire format: exact bytes out, strict reading in, also of hostile input (rule 9)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from asynclock import RecordCorruptError
from asynclock._core.record import LockRecord, parse_record
from asynclock.backend import MAX_BODY
from tests.laboratory.fuzz import bodies, run_fuzz

HUDI = b'{"expired":false,"validUntil":1700000000000,"owner":"3f1c0000-0000-4000-8000-000000000001"}'
NOW = 1_700_000_000.0
INPUTS = 100_000
MEASURED = 10_000
_field = st.sampled_from(["expired", "validUntil", "owner", "nonce", "epoch", "leaseMs", "holder"])


OURS = (
    b'{"expired":false,"validUntil":1700000000000,"owner":"3f1c0000-0000-4000-8000-000000000001",'
    b'"nonce":"0123456789abcdef0123456789abcdef","epoch":1700000000000000,"leaseMs":300000,'
    b'"holder":"host:12:job"}'
)


def record() -> LockRecord:
    """Return the record behind ``OURS``."""
    return LockRecord(
        expired=False,
        valid_until_ms=1_700_000_000_000,
        owner="3f1c0000-0000-4000-8000-000000000001",
        nonce="0123456789abcdef0123456789abcdef",
        epoch=1_700_000_000_000_000,
        lease_ms=300_000,
        holder="host:12:job",
    )


def test_our_record_has_exactly_these_bytes() -> None:
    """A lock is written as compact JSON, Hudi's three fields first."""
    assert record().encode() == OURS


def test_a_record_without_our_fields_has_exactly_hudis_bytes() -> None:
    """What Hudi's StorageBasedLockProvider writes is what we write for it."""
    hudi = LockRecord(
        expired=False, valid_until_ms=1_700_000_000_000, owner="3f1c0000-0000-4000-8000-000000000001"
    )

    assert hudi.encode() == HUDI


@pytest.mark.parametrize("body", [OURS, HUDI])
def test_reading_gives_back_what_was_written(body: bytes) -> None:
    """A record survives the way into the store and back."""
    assert parse_record(body).encode() == body


def changed(**fields: object) -> bytes:
    """Return our record with some fields set; an ellipsis leaves one out."""
    all_fields: dict[str, Any] = json.loads(OURS) | fields
    kept = {name: value for name, value in all_fields.items() if value is not ...}
    return json.dumps(kept, separators=(",", ":")).encode()


def test_fields_of_others_are_read_over_and_not_written_back() -> None:
    """A newer writer may add fields; we neither refuse nor repeat them."""
    assert parse_record(changed(extra={"a": [1, 2.5, None]})).encode() == OURS


def test_a_release_keeps_owner_token_and_validity() -> None:
    """Freeing a lock changes ``expired`` and the nonce, nothing else."""
    freed = record().released(nonce="f" * 32)

    assert json.loads(freed.encode()) == json.loads(OURS) | {"expired": True, "nonce": "f" * 32}


def test_a_release_without_token_looks_like_hudis() -> None:
    """A token from the future is dropped with all four of our fields."""
    assert record().released(nonce=None).encode() == HUDI.replace(b"false", b"true")


CORRUPT = {
    "empty": b"",
    "blank": b"  \n",
    "not JSON": b"{",
    "two values": OURS + OURS,
    "an array": b"[]",
    "a string": b'"lock"',
    "null": b"null",
    "not UTF-8": b'{"expired":false,"validUntil":1,"owner":"\xff"}',
    "byte order mark": b"\xef\xbb\xbf" + OURS,
    "NUL padding": OURS + b"\0\0",
    "nested without end": b"[" * 30_000,
    "over 64 KiB": changed(holder="x" * (MAX_BODY + 1)),
    "duplicate key": OURS.replace(b'"owner"', b'"expired":true,"owner"'),
    "duplicate key inside an unknown field": changed()[:-1] + b',"more":{"a":1,"a":2}}',
    "NaN": OURS.replace(b"1700000000000,", b"NaN,", 1),
    "infinity": OURS.replace(b"1700000000000,", b"-Infinity,", 1),
    "NaN in an unknown field": changed()[:-1] + b',"more":NaN}',
    "expired missing": changed(expired=...),
    "expired as a number": changed(expired=0),
    "expired as text": changed(expired="false"),
    "expired null": changed(expired=None),
    "validUntil missing": changed(validUntil=...),
    "validUntil as text": changed(validUntil="1700000000000"),
    "validUntil as a float": changed(validUntil=1.7e12),
    "validUntil as a bool": changed(validUntil=True),
    "validUntil negative": changed(validUntil=-1),
    "validUntil too large": changed(validUntil=2**53),
    "validUntil over-long": changed(validUntil=10**400),
    "validUntil wraps 64 bits": changed(validUntil=2**64 + 1_700_000_000_000),
    "owner missing": changed(owner=...),
    "owner null": changed(owner=None),
    "owner a number": changed(owner=7),
    "owner a lone surrogate": OURS.replace(b"3f1c", b"\\ud800"),
    "nonce missing": changed(nonce=...),
    "nonce null": changed(nonce=None),
    "nonce too short": changed(nonce="0" * 31),
    "nonce not hex": changed(nonce="g" * 32),
    "nonce with a line end": changed(nonce="0" * 32 + "\n"),
    "epoch missing": changed(epoch=...),
    "epoch negative": changed(epoch=-1),
    "epoch too large": changed(epoch=2**53),
    "epoch a float": changed(epoch=1.5),
    "leaseMs missing": changed(leaseMs=...),
    "leaseMs below 100 ms": changed(leaseMs=99),
    "leaseMs above 7 days": changed(leaseMs=7 * 86_400_000 + 1),
    "leaseMs a bool": changed(leaseMs=True),
    "holder missing": changed(holder=...),
    "holder a number": changed(holder=1),
    "only one field of ours": HUDI[:-1] + b',"epoch":1700000000000000}',
}


@pytest.mark.parametrize("body", CORRUPT.values(), ids=CORRUPT.keys())
def test_what_is_not_exactly_a_record_is_corrupt(body: bytes) -> None:
    """Anything but a record is neither held nor free, and the error names object and version."""
    with pytest.raises(RecordCorruptError) as caught:
        parse_record(body, key="orders.json", version="v7", store_time=NOW)

    assert (caught.value.key, caught.value.version) == ("orders.json", "v7")
    assert "orders.json" in str(caught.value)
    assert "break_lock()" in str(caught.value)
    assert "nothing was written" in str(caught.value)


@pytest.mark.parametrize(
    "body",
    [
        changed(leaseMs=100),
        changed(leaseMs=7 * 86_400_000),
        changed(epoch=0),
        changed(validUntil=0),
        changed(holder="x" * 60_000),
        changed(holder="Zoë 🔒"),
    ],
    ids=["least lease", "longest lease", "token 0", "validUntil 0", "long holder", "unicode holder"],
)
def test_values_at_the_bounds_are_no_corruption(body: bytes) -> None:
    """Each bound itself is allowed."""
    parse_record(body, store_time=NOW)


def test_the_largest_body_is_read() -> None:
    """64 KiB are allowed, one byte more is not."""
    body = changed(holder="") + b" " * (MAX_BODY - len(changed(holder="")))
    parse_record(body)

    with pytest.raises(RecordCorruptError, match="64 KiB"):
        parse_record(body + b" ")


def test_valid_until_more_than_8_days_ahead_is_corrupt() -> None:
    """A record that would block everybody for weeks is not believed."""
    limit = round((NOW + 8 * 86_400) * 1000)
    parse_record(changed(validUntil=limit), store_time=NOW)

    with pytest.raises(RecordCorruptError, match=r"validUntil is 8\.0 days ahead"):
        parse_record(changed(validUntil=limit + 1), store_time=NOW)


def test_a_token_more_than_a_day_ahead_is_corrupt() -> None:
    """A token far in the future would shut out every later holder."""
    limit = round((NOW + 86_400) * 1_000_000)
    parse_record(changed(epoch=limit), store_time=NOW)

    with pytest.raises(RecordCorruptError, match=r"epoch is 1\.0 days ahead"):
        parse_record(changed(epoch=limit + 1), store_time=NOW)


def test_without_store_time_the_future_is_not_judged() -> None:
    """Without store time no record is called too far ahead."""
    parse_record(changed(validUntil=2**53 - 1, epoch=2**53 - 1))


@pytest.mark.timeout(600)
def test_only_record_corrupt_error() -> None:
    """Whatever the bytes, there is a record or RecordCorruptError, soon, in 1 MiB, and both occur."""
    result = run_fuzz(seed=1, count=INPUTS, measure_every=INPUTS // MEASURED)

    assert result.failures == []
    assert result.inputs == INPUTS
    assert result.measured == MEASURED
    assert 0 < result.records < INPUTS


def parsed(body: bytes) -> LockRecord | None:
    """Return the record, or None for a corrupt one; every other exception goes through."""
    try:
        return parse_record(body, key="fuzz.json", store_time=NOW)
    except RecordCorruptError as corrupt:
        text = str(corrupt)
    assert text.isprintable(), "hostile bytes must not reach a terminal"
    return None


@pytest.mark.timeout(600)
def test_a_record_is_written_back_as_it_was_read() -> None:
    """What is accepted survives encoding and parsing unchanged."""
    for body in bodies(seed=2, count=MEASURED):
        record = parsed(body)
        if record is not None:
            assert parse_record(record.encode()) == record


@settings(max_examples=500, deadline=None)
@given(st.binary(max_size=300))
def test_any_bytes(body: bytes) -> None:
    """Arbitrary bytes are a record or corrupt."""
    parsed(body)


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)


@settings(max_examples=500, deadline=None)
@given(st.dictionaries(_field, _json, max_size=8))
def test_any_values_of_our_fields(fields: dict[str, object]) -> None:
    """Fields of any JSON type and value are a record or corrupt."""
    parsed(json.dumps(fields).encode("utf-8", errors="surrogatepass"))


def test_a_kept_record_is_marked_and_its_release_is_not() -> None:
    """One field more, last, which Hudi and older readers pass over; whatever frees the lock drops it."""
    record = parse_record(OURS)
    kept = record.kept(nonce="1" * 32, valid_until_ms=7, seconds=5.0)

    assert kept.encode().endswith(b',"kept":true}')
    assert parse_record(kept.encode()) == kept
    assert kept.released(nonce="2" * 32).encode().count(b"kept") == 0
    assert kept.released(nonce=None).encode().count(b"kept") == 0


@pytest.mark.parametrize("value", [b"false", b"1", b'"yes"', b"null", b"[]"])
def test_another_value_of_the_mark_means_nothing(value: bytes) -> None:
    """Nothing is decided by the mark, so a wrong one makes no lock corrupt."""
    assert parse_record(OURS[:-1] + b',"kept":' + value + b"}") == parse_record(OURS)
