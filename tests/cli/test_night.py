"""What ``status``, ``list`` and ``watch`` answer at night: who, since when, until when, and does it live."""

from __future__ import annotations

import json
import os
import re
import signal
import time
from typing import TYPE_CHECKING, Any

import pytest

from asynclock import LeaseSettings, LockStatus, sync
from asynclock._cli.lock_words import facts, holder_cell, is_overdue, overdue_words
from asynclock._core.record import LockRecord
from tests.cli.command import asynclock, eventually, finish, kill_group, start, status

if TYPE_CHECKING:
    from pathlib import Path

CLOCK = r"(?:\d{4}-\d\d-\d\d )?\d\d:\d\d:\d\d"
FREE = rf"free at {CLOCK}"
HOUR = 3600.0


def put(
    folder: Path,
    *,
    age: float,
    validity: float = 300.0,
    since: float | None = None,
    expired: bool = False,
    is_kept: bool = False,
) -> None:
    """Write the lock ``nightly`` as a holder wrote it ``age`` seconds ago that had it for ``since``."""
    folder.mkdir(exist_ok=True)
    written = time.time() - age
    record = LockRecord(
        expired=expired,
        valid_until_ms=round((written + validity) * 1000),
        owner="an-owner",
        nonce="0" * 32,
        epoch=round((time.time() - (age if since is None else since)) * 1e6),
        lease_ms=round(validity * 1000),
        holder="db3:4711:backup",
        is_kept=is_kept,
    )
    path = folder / "nightly.json"
    path.write_bytes(record.encode())
    os.utime(path, (written, written))


def shown(target: str) -> dict[str, str]:
    """The lines of ``status``, by their names; the state is under the lock's."""
    lines = asynclock("status", target).stdout.splitlines()
    found = [re.split(r": +|  +", line.strip(), maxsplit=1) for line in lines]
    return {words[0]: words[-1] for words in found}


def test_a_live_holder_is_shown_with_since_and_last_renewal(folder: Path, target: str) -> None:
    """Since when, the last renewal and how often one is due, and when it is free if no other comes."""
    put(folder, age=12.0, since=43 * 60.0)

    lines = shown(target)

    assert lines["nightly"] == "held"
    assert lines["holder"] == "db3:4711:backup"
    assert re.fullmatch(rf"{CLOCK} \(43 min ago\)", lines["since"])
    assert re.fullmatch(r"1[2-9] s ago, due every 30 s", lines["last renewal"])
    assert re.fullmatch(rf"{CLOCK} \(in 5 min\) unless it is renewed", lines["free at"])
    assert "overdue" not in lines


@pytest.mark.parametrize(
    ("age", "said"),
    [
        (50.0, rf"1 renewal missed: the holder is late, or the store is slow; {FREE} unless it is renewed"),
        (110.0, rf"3 renewals missed: the holder is probably dead; {FREE}"),
    ],
)
def test_a_holder_that_misses_renewals_is_called_overdue(
    folder: Path, target: str, age: float, said: str
) -> None:
    """One or two may be slow; from three on the holder is probably dead, and the time of its end is said."""
    put(folder, age=age)

    lines = shown(target)

    assert lines["nightly"] == "held"
    assert re.fullmatch(said, lines["overdue"])
    assert f"{1 if age < 100 else 3} missed" in asynclock("list", f"file://{folder}").stdout


def test_the_lock_of_a_dead_holder_says_since_when_it_is_free(folder: Path, target: str) -> None:
    """An expired lock was not released; others may take it."""
    put(folder, age=HOUR + 300.0)

    lines = shown(target)

    assert lines["nightly"] == "expired"
    assert re.fullmatch(rf"{CLOCK} \(60 min ago\)", lines["free since"])
    assert "overdue" not in lines
    assert re.search(r"nightly +expired .* now ", asynclock("list", f"file://{folder}").stdout)


def test_a_kept_lock_says_until_when_and_names_no_process(folder: Path, target: str) -> None:
    """``--at-least`` keeps it after its process has ended: no pid is shown, and no renewal is missed."""
    assert asynclock("run", target, "--at-least", "1h", "true").returncode == 0

    texts = [
        asynclock("status", target).stdout,
        asynclock("list", f"file://{folder}").stdout,
        asynclock("run", target, "--wait", "0", "true").stderr,
        asynclock("run", target, "--wait", "1", "true").stderr.partition("\n")[0],
        asynclock("break", target, "--yes").stderr,
    ]

    pid = status(target)["holder"].split(":")[1]
    assert all(re.search(rf"kept until +{CLOCK}", text) for text in texts)
    assert all(f":{pid}:" not in text for text in texts)
    assert status(target)["kept"] is True


def test_a_kept_lock_is_free_after_its_time(folder: Path, target: str) -> None:
    """Not expired: nobody has died. ``status``, ``list`` and ``--check`` say so."""
    put(folder, age=1.5 * HOUR, validity=HOUR, is_kept=True)

    lines = shown(target)

    assert lines["nightly"] == "free"
    assert re.fullmatch(rf"{CLOCK} \(30 min ago\)", lines["free since"])
    assert re.search(r"nightly +free ", asynclock("list", f"file://{folder}").stdout)
    assert asynclock("status", target, "--check").returncode == 0


def test_a_corrupt_lock_says_why_and_what_to_do(folder: Path, target: str) -> None:
    """The reason and the next step, in ``status``; the reason in ``list``."""
    folder.mkdir()
    (folder / "nightly.json").write_bytes(b'{"expired":fal')

    lines = shown(target)

    assert (lines["nightly"], lines["reason"]) == ("corrupt", "not JSON")
    assert lines["next"].startswith(f"asynclock break {target} ")
    assert re.search(r"nightly +corrupt .*not JSON", asynclock("list", f"file://{folder}").stdout)
    assert status(target)["reason"] == "not JSON"


def test_check_tells_a_script_whether_the_lock_can_be_taken(folder: Path, target: str) -> None:
    """0: absent, free, expired; 1: held or kept; 65: corrupt; 69: no store. Without it held gives 0 too."""
    folder.mkdir()
    codes = [asynclock("status", target, "--check").returncode]
    put(folder, age=1.0)
    codes += [
        asynclock("status", target, *words).returncode for words in (("--check",), ("--check", "--json"), ())
    ]
    put(folder, age=1.0, is_kept=True)
    codes.append(asynclock("status", target, "--check").returncode)
    put(folder, age=1.0, expired=True)
    codes.append(asynclock("status", target, "--check").returncode)
    put(folder, age=HOUR)
    codes.append(asynclock("status", target, "--check").returncode)
    (folder / "nightly.json").write_bytes(b"{")
    codes.append(asynclock("status", target, "--check").returncode)
    codes.append(asynclock("status", f"file://{folder}/no/such/x", "--check").returncode)

    assert codes == [0, 1, 1, 0, 1, 0, 0, 65, 69]


@pytest.mark.parametrize("words", [(), ("--json",)])
def test_watch_tells_of_a_holder_that_dies(folder: Path, target: str, words: tuple[str, ...]) -> None:
    """One line as it is seen first, one once the holder is probably dead, one as its lock is over."""
    holder = start("run", target, "--validity", "6", "sleep", "60")
    watching = None
    try:
        eventually((folder / "nightly.json").exists)
        watching = start("watch", f"file://{folder}", "--interval", "0.1s", *words)
        assert watching.stdout is not None
        first = watching.stdout.readline()
        kill_group(holder)
        lines = [first, watching.stdout.readline(), watching.stdout.readline()]
        watching.send_signal(signal.SIGINT)
        assert finish(watching)[0] == 0
    finally:
        kill_group(holder)
        if watching is not None:
            kill_group(watching)

    if words:
        seen = [json.loads(line) for line in lines]
        assert [each["state"] for each in seen] == ["held", "held", "expired"]
        assert [each["missed_renewals"] >= 3 for each in seen] == [False, True, True]
    else:
        assert [line.split()[3] for line in lines] == ["held", "held", "expired"]
        assert ["probably dead; free at " in line for line in lines] == [False, True, False]


def hudi(**fields: object) -> LockStatus:
    """The status of a lock that a Hudi writer holds."""
    known: dict[str, Any] = {
        "name": "table_lock", "url": "s3://b/t/.hoodie/.locks/table_lock", "state": "held", "owner": "uuid",
        "holder": None, "fencing_token": None, "valid_until_ms": 1, "remaining": 200.0, "age": 100.0,
        "version": "1", "store_time": 1_700_000_000.0, "missed_renewals": 0,
    }  # fmt: skip
    return LockStatus(**known | fields)


def words_of(found: LockStatus) -> dict[str, str]:
    """What is said of a lock, by name."""
    return dict(facts(found, break_command="asynclock hudi break s3://b/t"))


def test_the_lock_of_a_hudi_writer_is_told_the_same_way() -> None:
    """Its record has no holder, no token and no validity; the last renewal and the end are known."""
    words = words_of(hudi(missed_renewals=3, since_ms=1_699_999_000_000))

    assert words["holder"] == "Hudi writer uuid"
    assert words["last renewal"] == "100 s ago"
    assert words["since"].endswith(" (17 min ago)")
    assert words["overdue"].startswith("3 renewals missed: the holder is probably dead; free at ")
    assert "token" not in words


def test_without_a_common_clock_no_time_is_made_up() -> None:
    """Where the store's Date cannot be relied on, it is said that the end is unknown."""
    found = hudi(remaining=None, age=None, store_time=None, missed_renewals=None, since_ms=1_699_999_000_000)
    words = words_of(found)

    assert words["free at"].startswith("unknown: the store sends no time")
    assert "ago" not in words["since"]
    assert "last renewal" not in words
    assert (overdue_words(found), is_overdue(found)) == (None, False)


def test_times_are_by_the_clock_of_the_store() -> None:
    """What is ago and what is left counts from the store's time of the look, not from this machine's."""
    words = words_of(hudi(store_time=1_000_000_000.0, since_ms=999_999_400_000))

    assert words["since"].endswith(" (10 min ago)")
    assert words["free at"].endswith("(in 3 min) unless it is renewed")
    assert "2001-09-09" in words["free at"] or "2001-09-08" in words["free at"]


def test_a_holder_of_the_users_own_words_is_shown_as_it_is() -> None:
    """Only the number of a process is left out of what a kept lock shows."""
    kept = hudi(kept=True, holder="the nightly job (ask Ann)", missed_renewals=None)

    assert words_of(kept)["last holder"] == "the nightly job (ask Ann)"
    assert holder_cell(kept).startswith("kept until ")


def test_the_fields_of_a_status_are_those_of_the_library(folder: Path, target: str) -> None:
    """``--json`` has the dataclass's fields, in its order, with what the night asks for among them."""
    settings = LeaseSettings(validity=60, max_clock_skew=0)
    with sync.connect(f"file://{folder}", settings=settings) as client, client.lock("nightly").hold():
        as_json, read = status(target), client.lock("nightly").status()

    assert list(as_json) == list(LockStatus.__slots__)
    assert (as_json["since_ms"], as_json["validity"]) == (read.since_ms, 60.0)
    assert (as_json["missed_renewals"], as_json["kept"], as_json["reason"]) == (0, False, None)
