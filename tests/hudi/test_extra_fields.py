"""Fields beyond Hudi's three: our four, and those that neither side knows."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

import pytest

from asynclock import hudi
from asynclock._core.record import parse_record
from tests.hudi.conftest import LOCK_KEY

if TYPE_CHECKING:
    from tests.hudi.conftest import Table
    from tests.hudi.harness import Providers

OURS: Final = ["expired", "validUntil", "owner", "nonce", "epoch", "leaseMs", "holder"]
UNKNOWN: Final = b',"note":"x","nested":{"owner":"y","list":[1,null,{}]},"nothing":null,"number":1e3}'


def with_unknown(body: bytes) -> bytes:
    """The same record with fields that nobody knows."""
    return body.removesuffix(b"}") + UNKNOWN


async def test_java_takes_over_from_our_record_and_drops_our_fields(jvm: Providers, table: Table) -> None:
    """Our four fields keep Java neither out nor in; it writes its three."""
    async with hudi.table_lock(table.base, table.options):
        assert parse_record(await table.lock_file()).is_ours
        jvm.provider("p", table.base)
        assert jvm.ask("tryLock", "p") == "false"

    assert jvm.ask("tryLock", "p") == "true"
    written = parse_record(await table.lock_file())
    assert not written.is_ours
    assert not written.expired
    assert jvm.ask("close", "p") == "ok"
    assert await table.lock_file() == written.released(nonce=None).encode()


async def test_our_fields_survive_our_renewal_and_release(table: Table) -> None:
    """Token, validity and holder stay the same through a lease; only the nonce is new each time."""
    lock = hudi.table_lock(table.base, table.options)
    assert await lock.try_lock()
    acquired = json.loads(await table.lock_file())
    assert await lock.renew_lock()
    renewed = json.loads(await table.lock_file())
    await lock.unlock()
    released = json.loads(await table.lock_file())
    await lock.aclose()

    assert list(acquired) == list(renewed) == list(released) == OURS
    for name in ("owner", "epoch", "leaseMs", "holder"):
        assert acquired[name] == renewed[name] == released[name]
    assert len({acquired["nonce"], renewed["nonce"], released["nonce"]}) == 3


@pytest.mark.parametrize("holder", ["java", "python"])
async def test_a_live_record_with_unknown_fields_is_honoured_by_both_and_left_alone(
    jvm: Providers, table: Table, holder: str
) -> None:
    """They survive us as long as the lock is another's: we look and do not write."""
    if holder == "java":
        jvm.provider("holder", table.base)
        assert jvm.ask("tryLock", "holder") == "true"
        live = await table.lock_file()
        jvm.ask("close", "holder")
    else:
        async with hudi.table_lock(table.base, table.options):
            live = await table.lock_file()
    await table.backend.put(LOCK_KEY, with_unknown(live))

    lock = hudi.table_lock(table.base, table.options)
    assert not await lock.try_lock()
    assert (await lock.status()).owner == parse_record(live).owner
    await lock.aclose()
    jvm.provider("waiter", table.base)
    assert jvm.ask("tryLock", "waiter") == "false"
    jvm.ask("close", "waiter")
    assert await table.lock_file() == with_unknown(live)


async def test_both_take_over_from_a_free_record_with_unknown_fields(jvm: Providers, table: Table) -> None:
    """Neither is disturbed by them, and neither writes them back: not renewing, not releasing."""
    async with hudi.table_lock(table.base, table.options):
        pass
    free = with_unknown(await table.lock_file())

    await table.backend.put(LOCK_KEY, free)
    jvm.provider("p", table.base)
    for command, answer in (("tryLock", "true"), ("renew", "true"), ("close", "ok")):
        assert jvm.ask(command, "p") == answer
        assert list(json.loads(await table.lock_file())) == OURS[:3]

    await table.backend.put(LOCK_KEY, free)
    lock = hudi.table_lock(table.base, table.options)
    assert await lock.try_lock()
    assert list(json.loads(await table.lock_file())) == OURS
    assert await lock.renew_lock()
    await lock.unlock()
    assert list(json.loads(await table.lock_file())) == OURS
    await lock.aclose()


async def test_the_token_goes_on_from_a_record_with_unknown_fields(table: Table) -> None:
    """What others added does not cost us our own fields: the next token is the last one plus one at least."""
    async with hudi.table_lock(table.base, table.options, fencing=True) as lease:
        first = lease.fencing_token
    await table.backend.put(LOCK_KEY, with_unknown(await table.lock_file()))

    async with hudi.table_lock(table.base, table.options, fencing=True) as lease:
        assert lease.fencing_token > first


async def test_a_field_added_to_our_live_record_costs_no_lease(table: Table) -> None:
    """The record still has our nonce, so it is ours: renewed and released over the new version."""
    lock = hudi.table_lock(table.base, table.options)
    assert await lock.try_lock()
    await table.backend.put(LOCK_KEY, with_unknown(await table.lock_file()))

    assert await lock.renew_lock()
    renewed = parse_record(await table.lock_file())
    await table.backend.put(LOCK_KEY, with_unknown(renewed.encode()))
    await lock.unlock()
    await lock.aclose()

    released = parse_record(await table.lock_file())
    assert released.expired
    assert released.owner == renewed.owner


def test_java_reads_its_three_fields_whatever_else_is_there(jvm: Providers) -> None:
    """Our fields, unknown ones and both together change nothing of what Hudi reads."""
    theirs = jvm.ask("encode", "false", "1795228327960", "a").encode()
    ours = theirs.removesuffix(b"}") + (
        b',"nonce":"00112233445566778899aabbccddeeff","epoch":1795228327960000,"leaseMs":10000,"holder":"h"}'
    )

    for body in (theirs, ours, with_unknown(theirs), with_unknown(ours)):
        assert jvm.parse(body) == "false 1795228327960 a"
        record = parse_record(body)
        assert (record.expired, record.valid_until_ms, record.owner) == (False, 1795228327960, "a")
        assert record.is_ours == body.startswith(ours[:-1])
