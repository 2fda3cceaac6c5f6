"""``prune`` as users run it; which locks it may delete is in ``tests/unit/test_prune.py``."""

from __future__ import annotations

import json
import os
import time
from typing import TYPE_CHECKING

import pytest

from tests.cli.command import asynclock, locks
from tests.cli.test_buckets import run_at

if TYPE_CHECKING:
    from pathlib import Path

    from tests.laboratory.servers import Server

DAY = 86_400.0


def aged(folder: Path, name: str, days: float) -> None:
    """Make a lock that was released some days ago."""
    assert asynclock("run", f"file://{folder}/{name}", "true").returncode == 0
    path = folder / f"{name}.json"
    record = json.loads(path.read_bytes())
    path.write_text(json.dumps(record | {"epoch": record["epoch"] - int(days * DAY * 1e6)}))
    then = time.time() - days * DAY
    os.utime(path, (then, then))


def test_old_locks_are_deleted_and_the_rest_stays(folder: Path) -> None:
    """Each deleted lock is a line; a dry run only names them; the next holder takes the lock as ever."""
    for name, days in (("old", 40), ("team/older", 90), ("new", 2)):
        aged(folder, name, days)
    words = ("prune", f"file://{folder}/", "--older-than", "30d")

    rehearsed = asynclock(*words, "--dry-run")
    ran = asynclock(*words)
    again = asynclock(*words, "--json")

    assert rehearsed.stdout == "would delete old\nwould delete team/older\n"
    assert (ran.returncode, ran.stdout) == (0, "deleted old\ndeleted team/older\n")
    assert ran.stderr == "asynclock: 2 locks deleted, 1 kept\n"
    assert json.loads(again.stdout) == {"deleted": [], "kept": 1, "dry_run": False}
    assert [name for name in locks(folder) if name.endswith(".json")] == ["new.json"]
    assert asynclock("run", f"file://{folder}/old", "true").returncode == 0


@pytest.mark.parametrize("age", ["23h", "30", "-1d", "1w", "", "1e9d", "٣d"])
def test_a_wrong_age_is_refused(folder: Path, age: str) -> None:
    """2 and a sentence; nothing is deleted."""
    aged(folder, "old", 40)

    ran = asynclock("prune", f"file://{folder}", f"--older-than={age}")

    assert (ran.returncode, ran.stdout) == (2, "")
    assert "Traceback" not in ran.stderr
    assert (folder / "old.json").exists()


def test_a_hudi_table_is_refused(tmp_path: Path) -> None:
    """The lock of a table is never deleted."""
    (tmp_path / ".hoodie").mkdir()
    (tmp_path / ".hoodie" / "hoodie.properties").write_text("hoodie.table.name=orders\n")

    ran = asynclock("prune", f"file://{tmp_path}", "--older-than", "30d")

    assert (ran.returncode, ran.stdout) == (2, "")
    assert "is a Hudi table" in ran.stderr


def test_a_missing_bucket_is_an_error(minio: Server) -> None:
    """69 and a sentence."""
    ran = run_at(minio, "prune", "s3://asynclock-no-such-bucket/locks", "--older-than", "30d")

    assert (ran.returncode, ran.stdout) == (69, "")
    assert "does not exist" in ran.stderr
