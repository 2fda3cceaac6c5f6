"""One lock file, two languages: the real Java provider and Python, side by side."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Final, NamedTuple

import pytest

from asynclock import hudi
from asynclock._core.record import LockRecord, parse_record
from asynclock.errors import ConfigError, LeaseLostError, RecordCorruptError
from asynclock.testing._proxy import TapProxy, Wire

if TYPE_CHECKING:
    from tests.hudi.conftest import Table
    from tests.hudi.harness import Providers
    from tests.laboratory.servers import Server

OWNER: Final = "29e115af-62d2-43b0-acc5-9484041a7145"
GOLDEN: Final = b'{"expired":false,"validUntil":1795228327960,"owner":"29e115af-62d2-43b0-acc5-9484041a7145"}'
LOCK_KEY: Final = ".hoodie/.locks/table_lock.json"


async def ask(jvm: Providers, *words: str) -> str:
    """Ask the JVM without blocking this loop, whose own leases must be renewed."""
    return await asyncio.to_thread(jvm.ask, *words)


def test_both_sides_write_the_same_bytes(jvm: Providers) -> None:
    """The three fields come out byte for byte as Hudi writes them."""
    ours = LockRecord(expired=False, valid_until_ms=1795228327960, owner=OWNER).encode()

    assert ours == GOLDEN
    assert jvm.ask("encode", "false", "1795228327960", OWNER).encode() == GOLDEN


def test_both_sides_read_the_same_bytes(jvm: Providers) -> None:
    """Each reads the golden bytes as the same record."""
    record = parse_record(GOLDEN)

    assert (record.expired, record.valid_until_ms, record.owner) == (False, 1795228327960, OWNER)
    assert jvm.parse(GOLDEN) == f"false 1795228327960 {OWNER}"


async def test_python_waits_for_a_java_holder(jvm: Providers, table: Table) -> None:
    """A provider's lock is held for Python until the provider releases it."""
    jvm.provider("p", table.base)
    assert jvm.ask("tryLock", "p") == "true"

    lock = hudi.table_lock(table.base, table.options)
    assert not await lock.try_lock()
    status = await lock.status()
    assert (status.state, status.owner, status.table_version) == (
        "held",
        jvm.ask("getLock", "p").split()[2],
        9,
    )

    jvm.ask("close", "p")
    assert await lock.try_lock(5)
    await lock.aclose()


DAMAGES: Final = {
    # damage: (bytes, Java's verdict, ours)
    "empty": (b"", "refused", "corrupt"),
    "cut in the middle": (GOLDEN[:40], "refused", "corrupt"),
    "no JSON": (b"locked by bob", "refused", "corrupt"),
    "null": (b"null", "refused", "corrupt"),
    "a field missing": (b'{"expired":false,"validUntil":1795228327960}', "refused", "corrupt"),
    "a field null": (GOLDEN.replace(b"1795228327960", b"null"), "refused", "corrupt"),
    "a number in quotes": (GOLDEN.replace(b"1795228327960", b'"1795228327960"'), "read", "corrupt"),
    "a number with a fraction": (GOLDEN.replace(b"1795228327960", b"1795228327960.7"), "read", "corrupt"),
    "a flag in quotes": (GOLDEN.replace(b"false", b'"false"'), "read", "corrupt"),
    "a key twice": (GOLDEN[:-1] + b',"expired":true}', "read", "corrupt"),
    "text behind the record": (GOLDEN + b" locked", "read", "corrupt"),
    "some of our fields": (GOLDEN[:-1] + b',"epoch":7}', "read", "corrupt"),
    "a negative time": (GOLDEN.replace(b"1795228327960", b"-1"), "read", "corrupt"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_lock_file_is_never_read_more_laxly_than_by_java(jvm: Providers, damage: str) -> None:
    """What Java refuses we refuse; what it lets pass and we refuse is in the table."""
    body, *expected = DAMAGES[damage]

    answer = jvm.parse(body)
    theirs = "refused" if answer.startswith("error") or answer == "null" else "read"
    try:
        parse_record(body)
    except RecordCorruptError:
        ours = "corrupt"
    else:
        ours = "read"

    assert [theirs, ours] == expected, answer
    assert (theirs, ours) != ("refused", "read")


async def test_a_damaged_lock_file_stops_both_sides_and_is_left_alone(jvm: Providers, table: Table) -> None:
    """Neither overwrites a file it cannot read."""
    await table.backend.put(LOCK_KEY, GOLDEN[:40])
    jvm.provider("p", table.base)

    assert "Failed to deserialize JSON content" in jvm.ask("tryLock", "p")
    lock = hudi.table_lock(table.base, table.options)
    with pytest.raises(RecordCorruptError):
        await lock.try_lock()
    await lock.aclose()
    assert await table.lock_file() == GOLDEN[:40]


READS: Final = {
    404: "NOT_EXISTS",
    409: "UNKNOWN_ERROR",
    429: "UNKNOWN_ERROR",
    500: "UNKNOWN_ERROR",
    503: "UNKNOWN_ERROR",
    403: "error",
}
WRITES: Final = {
    412: "ACQUIRED_BY_OTHERS",
    429: "THROTTLED",
    409: "UNKNOWN_ERROR",
    500: "UNKNOWN_ERROR",
    503: "UNKNOWN_ERROR",
    403: "UNKNOWN_ERROR",
}
CUTS: Final = {"read": "error", "create": "error", "update": "UNKNOWN_ERROR"}


class Row(NamedTuple):
    """What the store does to a request, and what Hudi's client makes of it."""

    command: str
    fault: Wire
    status: int
    meaning: str


ROWS: Final = [
    *(Row("read", Wire.ANSWER, *answer) for answer in READS.items()),
    *(Row(command, Wire.ANSWER, *answer) for command in ("create", "update") for answer in WRITES.items()),
    *(
        Row(command, cut, 0, meaning)
        for command, meaning in CUTS.items()
        for cut in (Wire.CUT_BEFORE, Wire.CUT_AFTER)
    ),
]


@pytest.mark.parametrize("row", ROWS, ids=[f"{row.command}-{row.status or row.fault}" for row in ROWS])
async def test_each_answer_means_what_hudis_own_client_makes_of_it(
    jvm: Providers, minio: Server, table: Table, row: Row
) -> None:
    """One row of the table of statuses; the request is not sent twice."""
    async with TapProxy(upstream=minio.endpoint, seed=1) as proxy:
        through = [*jvm.properties(table.base), f"test.endpoint={proxy.url}"]
        await ask(jvm, "client", "c", f"{table.base}/{LOCK_KEY}", *through)
        proxy.inject(row.fault, status=row.status)

        answer = await ask(jvm, row.command, "c", *(['"e"'] if row.command == "update" else []))

        assert answer.split()[0] == row.meaning, answer
        assert len(proxy.journal) == 1


async def test_java_takes_over_from_a_dead_python_holder(jvm: Providers, table: Table) -> None:
    """A Python holder that stops without a word keeps Java out until validUntil, and no longer."""
    lock = hudi.table_lock(table.base, table.options)
    assert await lock.try_lock()
    record = parse_record(await table.lock_file())
    await lock.unlock()
    await lock.aclose()
    # As a killed holder leaves it: unexpired, and never written again.
    await table.backend.put(LOCK_KEY, record.encode())
    for name, skew_ms in (("behind", -20_000), ("now", 0)):
        jvm.provider(name, table.base, skew_ms=skew_ms)
        assert jvm.ask("tryLock", name) == "false"
        jvm.ask("close", name)

    jvm.provider("late", table.base, skew_ms=20_000)
    assert jvm.ask("tryLock", "late") == "true"
    jvm.ask("close", "late")


async def test_a_java_holder_that_lost_its_lock_is_interrupted_and_told(jvm: Providers, table: Table) -> None:
    """Hudi 1.2 refuses to renew what another wrote over, and says so at unlock."""
    jvm.provider("p", table.base)
    assert jvm.ask("tryLock", "p") == "true"
    await table.backend.put(LOCK_KEY, GOLDEN)

    assert jvm.ask("renew", "p").startswith("false")
    assert "FAILED_TO_RELEASE" in jvm.ask("unlock", "p")
    jvm.ask("close", "p")


async def test_python_that_lost_its_lock_to_java_is_told(jvm: Providers, table: Table) -> None:
    """After a Java clock far ahead took a live lock, the holder's lease is lost and writes nothing."""
    lock = hudi.table_lock(table.base, table.options)
    assert await lock.try_lock()
    jvm.provider("ahead", table.base, skew_ms=60_000)
    assert jvm.ask("tryLock", "ahead") == "true"
    stolen = await table.lock_file()

    assert not await lock.renew_lock()
    with pytest.raises(LeaseLostError):
        await lock.unlock()
    await lock.aclose()
    assert await table.lock_file() == stolen
    jvm.ask("close", "ahead")


async def test_the_token_rises_across_java_holders_that_drop_it(jvm: Providers, table: Table) -> None:
    """Tokens handed out before and after each Java holder strictly rise."""
    tokens = []
    for number in range(3):
        async with hudi.table_lock(table.base, table.options, fencing=True) as lease:
            tokens.append(lease.fencing_token)
        jvm.provider(f"p{number}", table.base, skew_ms=(-5_000, 0, 5_000)[number])
        assert jvm.ask("tryLock", f"p{number}") == "true"
        jvm.ask("close", f"p{number}")
    async with hudi.table_lock(table.base, table.options, fencing=True) as lease:
        tokens.append(lease.fencing_token)

    assert tokens == sorted(set(tokens))


REFUSALS: Final = {
    "validity below ten renewals": {
        "write_lock_storage_validity_timeout_secs": "19",
        "write_lock_storage_renew_interval_secs": "2",
    },
    "validity below ten seconds": {
        "write_lock_storage_validity_timeout_secs": "9",
        "write_lock_storage_renew_interval_secs": "1",
    },
    "no renewal": {"write_lock_storage_renew_interval_secs": "0"},
}


@pytest.mark.parametrize("refusal", REFUSALS)
def test_both_sides_refuse_the_same_times(jvm: Providers, minio: Server, refusal: str) -> None:
    """Hudi's rules for validity and interval are ours."""
    options = REFUSALS[refusal]
    base = f"{minio.url}/t"

    assert jvm.ask("new", "x", "0", *jvm.properties(base, **options)).startswith("error IllegalArgument")
    with pytest.raises(ConfigError, match=re.escape("hoodie.write.lock.storage.")):
        hudi.table_lock(base, {f"hoodie.{key.replace('_', '.')}": value for key, value in options.items()})


@pytest.mark.parametrize("base", ["file:///data/t", "hdfs://n/t", "oss://b/t", "s3n://b/t"])
def test_both_sides_refuse_the_same_schemes(jvm: Providers, base: str) -> None:
    """Where Hudi has no storage lock, there is none here either."""
    assert "Failed to load and initialize StorageLock" in jvm.ask("new", "x", "0", *jvm.properties(base))
    with pytest.raises(ConfigError):
        hudi.table_lock(base)


@pytest.mark.parametrize("spelling", ["s3://", "s3a://"])
@pytest.mark.parametrize("slashes", ["", "/", "//"])
async def test_every_spelling_is_one_object(
    jvm: Providers, table: Table, spelling: str, slashes: str
) -> None:
    """Scheme and trailing slashes lead both sides to one lock."""
    base = table.base.replace("s3://", spelling) + slashes
    async with hudi.table_lock(base, table.options):
        jvm.provider("p", base)
        assert jvm.ask("tryLock", "p") == "false"
    assert jvm.ask("tryLock", "p") == "true"
    assert not parse_record(await table.lock_file()).expired
    jvm.ask("close", "p")
