"""The audit trail: written as Hudi writes it, read as Hudi reads it, only more strictly."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Final

import pytest

from asynclock import hudi
from asynclock._core.record import LockRecord
from asynclock.backend import Stored
from asynclock.backends import open_backend
from asynclock.errors import ConfigError
from asynclock.hudi._core.audit import AuditReport, cleanup, validate
from asynclock.hudi._core.audit_records import encode, file_name, start_of

if TYPE_CHECKING:
    from asynclock.backend import Backend
    from tests.hudi.conftest import Table
    from tests.hudi.harness import Providers

FOLDER: Final = ".hoodie/.locks/audit/"
KEYS: Final = {"ownerId", "transactionStartTime", "timestamp", "state", "lockExpiration", "lockHeld"}
LOCK_KEY: Final = ".hoodie/.locks/table_lock.json"


async def trail(backend: Backend) -> dict[str, list[dict[str, object]]]:
    """Every file of the trail, by name."""
    found = {}
    async for entry in backend.list(FOLDER):
        stored = await backend.get(entry.key)
        assert isinstance(stored, Stored)
        found[entry.key.removeprefix(FOLDER)] = [json.loads(line) for line in stored.body.splitlines()]
    return found


def held(owner: str, start: int, end: int | None, *, expiration: int = 0) -> tuple[str, bytes]:
    """The file of one holder."""
    lines = encode(owner, start, "START", start, expiration or start + 10)
    if end is not None:
        lines += encode(owner, start, "END", end, expiration or end)
    return file_name(owner, start), lines


async def store(backend: Backend, *files: tuple[str, bytes]) -> None:
    """Put files into the trail."""
    for key, body in files:
        await backend.put(key, body)


def test_hostile_file_names_are_escaped_in_findings() -> None:
    """A file that others can write to the trail sends no escape sequences to a terminal."""
    name = "1_\x1b]0;owned\x07\u202e.jsonl"
    report = AuditReport("FAILED", 2, ((name, name),), (name,), (name,), (name,))

    assert len(report.findings) == 4
    assert all(sentence.isprintable() and "owned" in sentence for sentence in report.findings)


async def test_nothing_is_written_while_the_switch_is_off(table: Table) -> None:
    """Off by default, off after it was switched off, and off where the switch is damaged."""
    for switch in (None, b'{"STORAGE_LOCK_AUDIT_SERVICE_ENABLED":false}', b"{", b"[]"):
        if switch is not None:
            await table.backend.put(".hoodie/.locks/audit_enabled.json", switch)
        async with hudi.table_lock(table.base, table.options):
            pass
        assert not (await hudi.audit_status(table.base, table.options)).enabled
    assert await trail(table.backend) == {}


async def test_a_hold_is_written_with_exactly_hudis_six_keys(table: Table) -> None:
    """START, RENEW, END in one file whose name says when and who."""
    await hudi.audit_enable(table.base, table.options)
    async with hudi.table_lock(table.base, table.options) as lease:
        await lease.confirm()
        status = await hudi.table_lock(table.base, table.options).status()
    (name, records), *rest = (await trail(table.backend)).items()

    assert rest == []
    assert name == f"{records[0]['transactionStartTime']}_{lease.owner}.jsonl"
    assert status.since_ms == records[0]["transactionStartTime"]
    assert [record["state"] for record in records][0 :: len(records) - 1] == ["START", "END"]
    assert {record["state"] for record in records[1:-1]} == {"RENEW"}
    assert all(record.keys() == KEYS for record in records)
    assert (await hudi.audit_validate(table.base, table.options)).result == "PASSED"


async def test_a_lost_lease_leaves_no_end(table: Table) -> None:
    """What is not known to have ended is a warning."""
    await hudi.audit_enable(table.base, table.options)
    lock = hudi.table_lock(table.base, table.options)
    assert await lock.try_lock()
    await table.backend.put(LOCK_KEY, LockRecord(expired=True, valid_until_ms=1, owner="x").encode())
    assert not await lock.renew_lock()
    await lock.aclose()

    report = await hudi.audit_validate(table.base, table.options)
    assert report.result == "WARNING"
    (name,) = report.unended
    assert report.findings == (f"{name}: has no END: its holder died, lost the lock, or holds it now",)


async def test_each_side_validates_what_the_other_wrote(jvm: Providers, table: Table) -> None:
    """Java's and our holders by turns, one trail; Hudi's own validator is asked in test_spark."""
    await hudi.audit_enable(table.base, table.options)
    for turn in range(2):
        async with hudi.table_lock(table.base, table.options):
            pass
        await asyncio.to_thread(jvm.provider, "p", table.base)
        assert await asyncio.to_thread(jvm.ask, "tryLock", "p") == "true"
        if turn:
            assert await asyncio.to_thread(jvm.ask, "renew", "p") == "true"
        status = await hudi.table_lock(table.base, table.options).status()
        assert status.since_ms is not None
        assert await asyncio.to_thread(jvm.ask, "close", "p") == "ok"

    files = await trail(table.backend)
    assert len(files) == 4
    assert all(record.keys() == KEYS for records in files.values() for record in records)
    kinds = {
        tuple(map(type, (record[key] for key in sorted(KEYS)))) for each in files.values() for record in each
    }
    assert len(kinds) == 1
    report = await hudi.audit_validate(table.base, table.options)
    assert (report.result, report.transactions) == ("PASSED", 4)


async def test_two_holders_at_once_fail_the_validation(table: Table) -> None:
    """The pair is named, the earlier one first; the next after them is not blamed."""
    files = [held("a", 100, 300), held("b", 200, 250), held("c", 300, 400)]
    await store(table.backend, *files)

    report = await validate(table.backend)

    assert report.result == "FAILED"
    assert report.overlaps == (("100_a.jsonl", "200_b.jsonl"),)
    assert report.findings == ("100_a.jsonl and 200_b.jsonl: both held the lock at once, by their clocks",)


async def test_a_holder_without_an_end_holds_until_its_expiration(table: Table) -> None:
    """A successor after it is a warning about the first, one before it an overlap."""
    await store(table.backend, held("a", 100, None, expiration=200), held("b", 200, 300))
    assert (await validate(table.backend)).result == "WARNING"

    await store(table.backend, held("c", 199, 200))
    assert (await validate(table.backend)).result == "FAILED"


async def test_a_provider_used_twice_is_two_holds_in_one_file(table: Table) -> None:
    """Another holder in the pause between them is no overlap."""
    name, first = held("a", 100, 200)
    second = encode("a", 100, "START", 400, 500) + encode("a", 100, "END", 450, 500)
    await store(table.backend, (name, first + second), held("b", 300, 350))

    report = await validate(table.backend)

    assert (report.result, report.transactions) == ("PASSED", 3)


CORRUPT: Final = {
    "empty": b"",
    "no JSON": b"locked by bob\n",
    "cut": encode("a", 1, "START", 1, 2)[:-20],
    "a key too many": b'{"x":1,' + encode("a", 1, "START", 1, 2)[1:],
    "a key missing": b'{"ownerId":"a"}\n',
    "a time in quotes": encode("a", 1, "START", 77, 2).replace(b"77", b'"77"'),
    "an unknown state": encode("a", 1, "START", 1, 2).replace(b"START", b"BEGIN"),
    "no object": b"[]\n",
    "not UTF-8": b"\xff\xfe\n",
}


@pytest.mark.parametrize("damage", CORRUPT)
async def test_a_corrupt_file_is_named_and_the_others_still_count(table: Table, damage: str) -> None:
    """Hudi passes over it in silence; with no file left to read both fail."""
    await store(table.backend, (f"{FOLDER}1_bad.jsonl", CORRUPT[damage]))
    assert (await validate(table.backend)).result == "FAILED"

    await store(table.backend, held("a", 100, 200))
    report = await validate(table.backend)

    assert (report.result, report.unreadable) == ("WARNING", ("1_bad.jsonl",))
    assert report.findings == (
        "1_bad.jsonl: is not an audit file and was left out; inspect it, or delete it",
    )


async def test_a_file_too_long_to_read_is_checked_so_far(table: Table) -> None:
    """Its holder renewed for hours; what can be read still shows an overlap."""
    lines = b"".join(encode("a", 100, "RENEW", 100 + n, 300 + n) for n in range(600))
    await store(table.backend, (file_name("a", 100), lines))
    report = await validate(table.backend)
    assert (report.result, report.too_long) == ("WARNING", ("100_a.jsonl",))
    assert report.findings == ("100_a.jsonl: is longer than 64 KiB; only its beginning was checked",)

    await store(table.backend, held("b", 200, 210))
    assert (await validate(table.backend)).result == "FAILED"


async def test_clean_up_deletes_by_age_and_says_what_first(table: Table) -> None:
    """A dry run deletes nothing; young files, other files and the switch stay."""
    await hudi.audit_enable(table.base, table.options)
    await store(table.backend, held("a", 100, 200), (f"{FOLDER}notes.txt", b"mine"))

    assert (await hudi.audit_cleanup(table.base, table.options)).files == ()
    dry = await hudi.audit_cleanup(table.base, table.options, age_days=0, dry_run=True)
    assert (dry.files, dry.dry_run) == (("100_a.jsonl",), True)
    assert (await hudi.audit_status(table.base, table.options)).files == 1
    assert (await hudi.audit_cleanup(table.base, table.options, age_days=0)).files == ("100_a.jsonl",)
    assert [entry.key async for entry in table.backend.list(FOLDER)] == [f"{FOLDER}notes.txt"]
    assert (await hudi.audit_status(table.base, table.options)).enabled
    with pytest.raises(ConfigError, match="age_days"):
        await hudi.audit_cleanup(table.base, table.options, age_days=-1)


async def test_switching_off_keeps_the_trail_unless_told_otherwise(table: Table) -> None:
    """As hudi-cli's ``locks audit disable``."""
    await store(table.backend, held("a", 100, 200))
    await hudi.audit_disable(table.base, table.options)
    assert (await hudi.audit_status(table.base, table.options)).files == 1
    await hudi.audit_disable(table.base, table.options, keep_files=False)
    assert (await hudi.audit_status(table.base, table.options)).files == 0


async def test_ten_thousand_files_are_validated_and_cleaned_up() -> None:
    """Every hold of a busy month, in a store in memory."""
    backend = open_backend("memory://audit-ten-thousand")
    await store(backend, *(held(f"o{n}", 100 * n, 100 * n + 50) for n in range(1, 10_001)))

    report = await validate(backend)
    assert (report.result, report.transactions, report.findings) == ("PASSED", 10_000, ())
    gone = await cleanup(backend, older_than=0, dry_run=False)
    assert len(gone.files) == 10_000
    assert (await validate(backend)).transactions == 0


async def test_more_files_than_a_page_of_the_store_are_all_seen(table: Table) -> None:
    """S3 lists a thousand at a time."""
    count = 1_010
    async with asyncio.TaskGroup() as tasks:
        for n in range(1, count + 1):
            tasks.create_task(store(table.backend, held(f"o{n}", 100 * n, 100 * n + 50)))

    assert (await validate(table.backend)).transactions == count


def test_only_a_holders_own_file_tells_since_when() -> None:
    """The name ends in the whole owner id and begins with a time."""
    assert start_of(f"{FOLDER}123_abc.jsonl", "abc") == 123
    for name in ("123_xabc.jsonl", "x_abc.jsonl", "123_abc.json", "_abc.jsonl"):
        assert start_of(FOLDER + name, "abc") is None
