"""Standard streams that are closed, full, or read by nobody, as some supervisors and scripts leave them."""

from __future__ import annotations

import itertools
import json
import subprocess
from typing import TYPE_CHECKING

import pytest

from tests.cli.command import COMMAND, DEADLINE

if TYPE_CHECKING:
    from pathlib import Path

INPUTS = ("", "<&-")
OUTPUTS = ("", ">&-", ">/dev/full")
ERRORS = ("", "2>&-", "2>/dev/full")
STREAMS = [" ".join(each).strip() for each in itertools.product(INPUTS, OUTPUTS, ERRORS)]


def shell(words: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a line of bash in which ``"$@"`` is the command with these arguments."""
    return subprocess.run(
        ["bash", "-c", words, "bash", *COMMAND, *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )


@pytest.mark.parametrize("streams", STREAMS, ids=lambda streams: streams or "all open")
def test_the_job_runs_and_its_exit_code_is_right(target: str, tmp_path: Path, streams: str) -> None:
    """Whatever of the standard streams is closed or full, also with -v, which prints each step."""
    script = f"echo ran >>{tmp_path}/ran; exit 7"
    ran = shell(f'"$@" {streams}', "run", "-v", target, "--", "sh", "-c", script)

    assert ran.returncode == 7
    assert (tmp_path / "ran").read_text() == "ran\n"
    assert "Traceback" not in ran.stderr
    assert json.loads((tmp_path / "locks" / "nightly.json").read_bytes())["expired"] is True


def test_a_command_finds_closed_streams_closed(target: str, tmp_path: Path) -> None:
    """As under ``flock`` and ``timeout``: nothing of ours is in their place, where its output would land."""
    look = f"for fd in 0 1 2; do test -e /proc/$$/fd/$fd && touch {tmp_path}/open-$fd; done; exit 7"
    ran = shell('"$@" <&- >&- 2>&-', "run", target, "--", "bash", "-c", look)

    assert ran.returncode == 7
    assert list(tmp_path.glob("open-*")) == []


def test_output_that_cannot_be_written_is_an_error_of_the_command(target: str) -> None:
    """A CMD whose standard output is closed fails by itself, and its code is passed on."""
    ran = shell('"$@" >&-', "run", target, "--", "sh", "-c", "echo lost")

    assert ran.returncode != 0
    assert "Traceback" not in ran.stderr


@pytest.mark.parametrize("streams", [">&-", ">/dev/full"])
def test_results_that_cannot_be_printed_are_an_error(target: str, streams: str) -> None:
    """``status`` has nothing else to do than to print: 1, with the reason."""
    shell('"$@"', "run", target, "--", "true")
    ran = shell(f'"$@" {streams}', "status", target)

    assert ran.returncode == 1
    assert ran.stderr.startswith("asynclock: the output could not be written: ")
    assert ran.stderr.count("\n") == 1


@pytest.mark.parametrize("streams", ["2>&-", "2>/dev/full"])
def test_a_usage_error_that_nobody_can_read_is_still_2(streams: str) -> None:
    """The exit code is the message then."""
    ran = shell(f'"$@" {streams}', "status")

    assert (ran.returncode, ran.stdout) == (2, "")


def test_an_empty_input_is_no_answer(target: str) -> None:
    """A question and a secret are not read from a closed standard input."""
    assert shell('"$@" <&-', "break", target).returncode == 2
    asked = shell('"$@" <&-', "status", "s3://b/x", "-o", "secret_access_key=-")
    assert asked.returncode == 2
    assert "the standard input has no line for it" in asked.stderr


def test_messages_that_nobody_reads_change_nothing(target: str) -> None:
    """A pipe whose reader has gone: the job runs to its end."""
    ran = shell('"$@" 2>&1 >/dev/null | true; exit ${PIPESTATUS[0]}', "run", "-v", target, "--",
                "sh", "-c", "sleep 0.5; exit 3")  # fmt: skip

    assert ran.returncode == 3
