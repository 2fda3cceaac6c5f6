"""A loss that only the release finds is reported, and a store that does not answer keeps nobody waiting."""

from __future__ import annotations

import fcntl
import json
import time
from typing import TYPE_CHECKING

import pytest

from tests.cli.command import asynclock, eventually, finish, is_held, kill_group, start, status

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from subprocess import Popen

WAITS = ("sh", "-c", 'while [ ! -e "$0" ]; do sleep 0.02; done; exit 3')


@pytest.fixture
def job(folder: Path, target: str, tmp_path: Path) -> Iterator[Popen[str]]:
    """A run that holds the lock for 300 s, renewed every 30, and ends with 3 once ``end`` exists."""
    process = start("run", target, "--", *WAITS, str(tmp_path / "end"))
    eventually(lambda: is_held(folder, "nightly"))
    yield process
    kill_group(process)


def test_a_broken_lock_that_only_the_release_finds_is_76(
    job: Popen[str], target: str, tmp_path: Path
) -> None:
    """CMD ends well before the next renewal, but did not have the lock to its end."""
    assert asynclock("break", target, "--yes", "--force").returncode == 0
    (tmp_path / "end").touch()

    code, _, errors = finish(job)

    assert code == 76
    assert "broken by an operator" in errors
    assert "CMD had already ended with 3" in errors


def test_a_lock_of_another_that_only_the_release_finds_is_76(
    job: Popen[str], folder: Path, target: str, tmp_path: Path
) -> None:
    """Another's record is found and left alone."""
    path = folder / "nightly.json"
    other = json.loads(path.read_bytes()) | {"owner": "other", "nonce": "0" * 32}
    path.write_text(json.dumps(other))
    (tmp_path / "end").touch()

    code, _, errors = finish(job)

    assert code == 76
    assert "another owner has taken over" in errors
    assert status(target)["owner"] == "other"


def test_a_release_that_is_not_answered_keeps_the_command_for_two_seconds(
    job: Popen[str], folder: Path, target: str, tmp_path: Path
) -> None:
    """The exit code is CMD's, a warning says what is known, and the lock frees itself."""
    with (folder / ".nightly.json.lock").open() as side_file:
        fcntl.flock(side_file, fcntl.LOCK_EX)  # no write can be made
        (tmp_path / "end").touch()
        began = time.monotonic()
        code, _, errors = finish(job)
        took = time.monotonic() - began

    assert code == 3
    assert took < 2.0 + 2.0  # the bound, and the end of the interpreter on a busy machine
    assert f"warning: the store did not confirm the release of {target} within 2 s" in errors
    assert "it is free after 300 s" in errors
