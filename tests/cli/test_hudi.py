"""``hudi`` on a table of a real server."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import signal
import subprocess
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from asynclock.backend import Stored
from asynclock.backends import open_backend
from asynclock.hudi._core.audit_records import encode, file_name
from asynclock.hudi._core.paths import LOCK_NAME
from tests.cli.command import COMMAND, DEADLINE, eventually, kill_group
from tests.cli.screen import Screen

if TYPE_CHECKING:
    from tests.laboratory.servers import Server

_numbers = itertools.count()
HUDI_RECORD = b'{"expired":false,"validUntil":%d,"owner":"a-spark-writer"}'


@dataclass
class Table:
    """A Hudi table, and the environment that leads the command to it."""

    base: str
    environment: dict[str, str]
    options: dict[str, Any]

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run the command to its end."""
        return subprocess.run(
            [*COMMAND, *words],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=DEADLINE,
            env=os.environ | self.environment,
            check=False,
        )

    def start(self, *words: str) -> subprocess.Popen[str]:
        """Start the command and go on."""
        return subprocess.Popen(
            [*COMMAND, *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            env=os.environ | self.environment,
        )

    def put(self, key: str, body: bytes) -> None:
        """Write an object of the table."""

        async def write() -> None:
            backend = open_backend(self.base, **self.options)
            try:
                await backend.put(key, body)
            finally:
                await backend.aclose()

        asyncio.run(write())

    def get(self, key: str) -> Any:  # noqa: ANN401  JSON
        """Read an object of the table."""

        async def read() -> bytes:
            backend = open_backend(self.base, **self.options)
            try:
                stored = await backend.get(key)
            finally:
                await backend.aclose()
            return stored.body if isinstance(stored, Stored) else b"null"

        return json.loads(asyncio.run(read()))

    def state(self) -> str:
        """State of the lock, as the command shows it."""
        shown: dict[str, str] = json.loads(self.run("hudi", "status", self.base, "--json").stdout)
        return shown["state"]


@pytest.fixture
def table(minio: Server) -> Table:
    """A table of version 9 without data."""
    base = f"{minio.url}/cli-{next(_numbers)}"
    environment = {
        f"ASYNCLOCK_OPTION_{name.upper()}": str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in minio.options.items()
    }
    made = Table(base, {"ASYNCLOCK_URL": minio.url, **environment}, dict(minio.options))
    made.put(".hoodie/hoodie.properties", b"hoodie.table.name=t\nhoodie.table.version=9\n")
    return made


def test_freeze_keeps_the_lock_while_its_command_runs(table: Table) -> None:
    """CMD finds the lock and its own id, its exit code is that of freeze, and then the lock is free."""
    ran = table.run("hudi", "freeze", table.base, "sh", "-c", "echo $ASYNCLOCK_OWNER $ASYNCLOCK_LOCK; exit 7")
    record = table.get(f"{LOCK_NAME}.json")

    assert (ran.returncode, ran.stderr) == (7, "")
    assert ran.stdout.split() == [record["owner"], f"{table.base}/{LOCK_NAME}"]
    assert record["expired"] is True


def test_freeze_waits_aloud_for_a_writer(table: Table) -> None:
    """A writer's lock is waited for, at most as long as is said: 75, CMD was not run, the writer is named."""
    table.put(f"{LOCK_NAME}.json", HUDI_RECORD % 4_000_000_000_000)

    corrupt = table.run("hudi", "freeze", table.base, "--wait", "1", "touch", "/no/such/file")
    table.put(f"{LOCK_NAME}.json", HUDI_RECORD % _soon_ms())
    ran = table.run("hudi", "freeze", table.base, "--wait", "1", "--", "touch", "/no/such/file")

    assert corrupt.returncode == 65
    assert (ran.returncode, ran.stdout) == (75, "")
    assert "waiting for" in ran.stderr
    assert "a-spark-writer" in ran.stderr
    assert "CMD was not run" in ran.stderr


def test_freeze_ends_its_command_when_the_lock_is_broken(table: Table) -> None:
    """Another's break is a loss: CMD is ended and the exit code is 76."""
    frozen = table.start(
        "hudi", "freeze", table.base, "--validity", "10", "--max-clock-skew", "0", "sleep", "60"
    )
    try:
        eventually(lambda: table.state() == "held")
        broken = table.run("hudi", "break", table.base, "--yes", "--force")
        _, errors = frozen.communicate(timeout=DEADLINE)
    finally:
        kill_group(frozen)

    assert broken.returncode == 0
    assert "now free" in broken.stdout
    assert frozen.returncode == 76
    assert "ending CMD" in errors


def test_a_signal_to_freeze_ends_its_command_and_frees_the_table(table: Table) -> None:
    """SIGTERM is CMD's too; the lock is released and the audit trail has its END."""
    assert table.run("hudi", "audit", table.base, "enable").returncode == 0
    frozen = table.start("hudi", "freeze", table.base, "sleep", "60")
    try:
        eventually(lambda: table.state() == "held")
        frozen.send_signal(signal.SIGTERM)
        _, errors = frozen.communicate(timeout=DEADLINE)
    finally:
        kill_group(frozen)

    assert (frozen.returncode, errors) == (143, "")
    assert table.state() == "free"
    (hold,) = table.run("hudi", "history", table.base, "--json").stdout.splitlines()
    assert json.loads(hold)["ended"] is True


def test_break_of_a_live_writer_needs_force_and_warns(table: Table) -> None:
    """A live lock stays without --force: 1. With it the lock is free, as Hudi's own readers see it."""
    table.put(".hoodie/hoodie.properties", b"hoodie.table.name=t\nhoodie.table.version=8\n")
    table.put(f"{LOCK_NAME}.json", HUDI_RECORD % _soon_ms())

    refused = table.run("hudi", "break", table.base, "--yes")
    done = table.run("hudi", "break", table.base, "--yes", "--force", "--json")

    assert refused.returncode == 1
    assert "only --force breaks a live lock; nothing was written [AL-042]" in refused.stderr
    assert "may be Hudi 1.0" in refused.stderr
    assert (done.returncode, json.loads(done.stdout)["state"]) == (0, "free")
    assert table.get(f"{LOCK_NAME}.json")["expired"] is True


@pytest.mark.parametrize(
    "words", [("freeze", "--", "true"), ("break", "--yes"), ("audit", "enable"), ("audit",)]
)
def test_what_is_no_table_is_refused(table: Table, words: tuple[str, ...]) -> None:
    """2 and a sentence, and nothing is written there."""
    ran = table.run("hudi", words[0], f"{table.base}-no", *words[1:])

    assert (ran.returncode, ran.stdout) == (2, "")
    assert "there is no Hudi table" in ran.stderr
    assert "Traceback" not in ran.stderr


def test_the_audit_trail_is_switched_listed_and_cleaned_up(table: Table) -> None:
    """Off at first; once on, each freeze is a hold that history shows and verify passes."""
    audit = ("hudi", "audit", table.base)
    before = table.run("hudi", "history", table.base)
    assert table.run(*audit).stdout.startswith("audit trail: off")
    assert table.run(*audit, "enable").stdout.startswith("audit trail: on")

    for _ in range(2):
        assert table.run("hudi", "freeze", table.base, "true").returncode == 0

    holds = [
        json.loads(line) for line in table.run("hudi", "history", table.base, "--json").stdout.splitlines()
    ]
    verified = table.run("hudi", "verify", table.base)
    rehearsed = table.run(*audit, "cleanup", "--older-than", "0s", "--dry-run")
    kept = json.loads(table.run(*audit, "--json").stdout)["files"]
    cleaned = table.run(*audit, "cleanup", "--older-than", "0s", "--json")
    disabled = table.run(*audit, "disable", "--delete-files")
    assert (before.returncode, before.stdout) == (0, "")
    assert "is empty and off" in before.stderr
    assert [(hold["ended"], hold["renewals"]) for hold in holds] == [(True, 0)] * 2
    assert holds[0]["start_ms"] <= holds[0]["end_ms"] <= holds[1]["start_ms"]
    assert (verified.returncode, verified.stdout) == (0, "PASSED: 2 holds, 0 overlaps\n")
    assert rehearsed.stdout.count("would delete") == 2
    assert kept == 2
    assert len(json.loads(cleaned.stdout)["files"]) == 2
    assert disabled.stdout.startswith("audit trail: off")


def test_two_holders_at_once_fail(table: Table) -> None:
    """Overlapping holds are named and give 1; a hold without an end is a warning and gives 0."""
    table.put(file_name("one", 1000), encode("one", 1000, "START", 1000, 9000))
    warned = table.run("hudi", "verify", table.base)
    table.put(file_name("two", 2000), encode("two", 2000, "START", 2000, 9000))
    failed = table.run("hudi", "verify", table.base)
    as_json = table.run("hudi", "verify", table.base, "--json")

    assert (warned.returncode, warned.stdout.splitlines()[-1]) == (0, "WARNING: 1 holds, 0 overlaps")
    assert "has no END" in warned.stdout
    assert failed.returncode == 1
    assert "both held the lock at once" in failed.stdout
    assert (as_json.returncode, json.loads(as_json.stdout)["result"]) == (1, "FAILED")


@pytest.mark.parametrize("columns", [40, 80, 200])
def test_history_fits_its_terminal_and_keeps_the_times(table: Table, columns: int) -> None:
    """No line is longer than the terminal, the last N are shown with their times, and owners are escaped."""
    owners = ["first", "0a1f3c52-6f0e-4f3e-9b0a-2f0f6a4f0c11", "\x1b]0;owned\x07"]
    for number, owner in enumerate(owners, 1):
        start = number * 100_000
        lines = encode(owner, start, "START", start, start + 10) + encode(
            owner, start, "END", start + 1500, start
        )
        table.put(file_name(f"{number}", start), lines)

    with Screen(
        "hudi", "history", table.base, "--last", "2", columns=columns, environment=table.environment
    ) as screen:
        assert screen.end() == 0

    head, *rows = screen.lines
    assert max(len(line) for line in screen.lines) <= columns
    assert len(rows) == 2
    assert all(row.startswith("1970-01-01 ") and "released" in row for row in rows)
    assert ("owner" in head) == (columns > 40)
    assert "\x1b]0" not in screen.text


def _soon_ms() -> int:
    return int(time.time() * 1000) + 300_000
