"""The record parser under 100,000 hostile inputs: RecordCorruptError or a record, nothing else."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from asynclock.errors import RecordCorruptError
from asynclock.record import LockRecord, parse_record
from tests.laboratory.fuzz import bodies, run_fuzz

INPUTS = 100_000
MEASURED = 10_000
NOW = 1_700_000_000.0


def parsed(body: bytes) -> LockRecord | None:
    """Return the record, or None for a corrupt one; every other exception goes through."""
    try:
        return parse_record(body, key="fuzz.json", store_time=NOW)
    except RecordCorruptError as corrupt:
        text = str(corrupt)
    assert text.isprintable(), "hostile bytes must not reach a terminal"
    return None


@pytest.mark.timeout(600)
def test_only_record_corrupt_error() -> None:
    """Whatever the bytes, there is a record or RecordCorruptError, soon, in 1 MiB, and both occur."""
    result = run_fuzz(seed=1, count=INPUTS, measure_every=INPUTS // MEASURED)

    assert result.failures == []
    assert result.inputs == INPUTS
    assert result.measured == MEASURED
    assert 0 < result.records < INPUTS


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
_field = st.sampled_from(["expired", "validUntil", "owner", "nonce", "epoch", "leaseMs", "holder"])


@settings(max_examples=500, deadline=None)
@given(st.dictionaries(_field, _json, max_size=8))
def test_any_values_of_our_fields(fields: dict[str, object]) -> None:
    """Fields of any JSON type and value are a record or corrupt."""
    parsed(json.dumps(fields).encode("utf-8", errors="surrogatepass"))
