"""The command at MinIO: a bucket that is missing is an error, and no state of a lock."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

import pytest

from asynclock._secrets import is_secret
from tests.cli.command import COMMAND, DEADLINE

if TYPE_CHECKING:
    from tests.laboratory.servers import Server

MISSING = "asynclock-no-such-bucket"


def run_at(store: Server, *words: str) -> subprocess.CompletedProcess[str]:
    """Run the command to its end with the options of a store, secrets from the environment."""
    environment, options = dict(os.environ), []
    for name, value in store.options.items():
        word = str(value).lower() if isinstance(value, bool) else str(value)
        if is_secret(name):
            environment[f"STORE_{name.upper()}"] = word
            word = f"env:STORE_{name.upper()}"
        options += ["-o", f"{name}={word}"]
    at = words.index("true") if "true" in words else len(words)
    return subprocess.run(
        [*COMMAND, *words[:at], *options, *words[at:]],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        env=environment,
        check=False,
    )


@pytest.mark.parametrize(
    "words",
    [("status", "/nightly"), ("list", "/"), ("break", "/nightly", "--yes"), ("run", "/nightly", "true")],
)
def test_a_missing_bucket_is_an_error(minio: Server, words: tuple[str, ...]) -> None:
    """69 and a sentence, at once: nothing can be said of a lock in a bucket that is not there."""
    url = f"{minio.url.partition('://')[0]}://{MISSING}/locks"

    ran = run_at(minio, words[0], f"{url}{words[1]}", *words[2:])

    assert (ran.returncode, ran.stdout) == (69, "")
    assert "does not exist" in ran.stderr
    assert "Traceback" not in ran.stderr


def test_a_lock_that_was_never_taken_is_absent(minio: Server) -> None:
    """In a bucket that is there, a missing object is absent; once taken and released it is free."""
    target = f"{minio.url}/command/nightly"

    before = run_at(minio, "status", target)
    ran = run_at(minio, "run", target, "true")
    after = run_at(minio, "status", target)

    assert (before.returncode, ran.returncode, after.returncode) == (0, 0, 0)
    assert before.stdout.startswith("nightly: absent")
    assert after.stdout.startswith("nightly: free")
