from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.command import COMMAND, DEADLINE, asynclock, status

UNBUFFERED = os.environ | {"PYTHONUNBUFFERED": "1"}
BUFFERED = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}


@pytest.mark.parametrize("environment", [BUFFERED, UNBUFFERED], ids=["buffered", "unbuffered"])
@pytest.mark.parametrize("words", [["status", "--json"], ["status"], ["list"], ["doctor"], ["--help"]])
def test_output_to_a_full_device_ends_with_a_sentence(
    folder: Path, target: str, words: list[str], environment: dict[str, str]
) -> None:
    """What could not be printed is an error: 1 and one sentence, no traceback."""
    asynclock("run", target, "--", "true")
    place = {"status": [target], "list": [f"file://{folder}/"], "doctor": [f"file://{folder}/"]}
    with Path("/dev/full").open("w") as full:
        ran = subprocess.run(
            [*COMMAND, words[0], *place.get(words[0], []), *words[1:]],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
            timeout=DEADLINE,
            check=False,
        )

    assert (ran.returncode, ran.stderr) == (
        1,
        "asynclock: the output could not be written: No space left on device [AL-005]\n",
    )


@pytest.mark.parametrize("environment", [BUFFERED, UNBUFFERED], ids=["buffered", "unbuffered"])
def test_output_to_a_full_pipe_ends_with_a_sentence(target: str, environment: dict[str, str]) -> None:
    """A pipe that takes no more and does not block: 1 and one sentence."""
    asynclock("run", target, "--", "true")
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    for size in (4096, 1):
        with contextlib.suppress(BlockingIOError):
            while True:
                os.write(writing, b"x" * size)
    ran = subprocess.run(
        [*COMMAND, "status", target, "--json"],
        stdout=writing,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        timeout=DEADLINE,
        check=False,
    )
    os.close(reading)
    os.close(writing)

    assert ran.returncode == 1
    assert "asynclock: the output could not be written: " in ran.stderr
    assert "Traceback" not in ran.stderr


def test_a_full_standard_error_does_not_end_the_command(target: str) -> None:
    """Messages that nobody can read cost neither the lock nor CMD's exit code."""
    with Path("/dev/full").open("w") as full:
        ran = subprocess.run(
            [*COMMAND, "run", target, "-v", "--", "sh", "-c", "echo done; exit 7"],
            stdout=subprocess.PIPE,
            stderr=full,
            text=True,
            timeout=DEADLINE,
            check=False,
        )

    assert (ran.returncode, ran.stdout) == (7, "done\n")
    assert status(target)["state"] == "free"


def test_the_module_is_the_command(target: str) -> None:
    """``python -m asynclock`` does the same as ``asynclock``."""
    words = [sys.executable, "-m", "asynclock", "run", target, "--", "echo", "hi"]

    ran = subprocess.run(words, capture_output=True, text=True, timeout=DEADLINE, check=False)

    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "hi\n", "")
    assert json.loads(asynclock("status", target, "--json").stdout)["state"] == "free"
