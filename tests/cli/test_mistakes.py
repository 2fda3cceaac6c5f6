"""Mistakes that are typical of a command line, and what is said to them. Nothing is run or written."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.cli.command import asynclock

if TYPE_CHECKING:
    from pathlib import Path

URL = "s3://bucket/locks/nightly"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("run", "./job.sh", URL), f"URL/NAME comes first, then CMD: asynclock run {URL} -- ./job.sh"),
        (("run", "./job.sh", "--", URL), f"URL/NAME comes first, then CMD: asynclock run {URL} -- ./job.sh"),
        (("run", "--wait", "1m", "./job.sh", URL), "URL/NAME comes first, then CMD"),
        (("run", "--", "./job.sh"), "URL/NAME is missing before --"),
        (("run", "--wait", "1m", "--", "ls", "-l"), "URL/NAME is missing before --"),
        (("run", URL), "CMD is missing, as in: asynclock run URL/NAME -- ./job.sh"),
        (("run", URL, "--wait", "1m"), "CMD is missing"),
        (("hudi", "freeze", "s3a://b/t"), "CMD is missing, as in: asynclock hudi freeze TABLE -- ./job.sh"),
        (("hudi", "freeze", "ls", "s3a://b/t"), "TABLE comes first, then CMD"),
        (("hudi", "s3a://b/t", "status"), "the command comes first: asynclock hudi status s3a://b/t"),
        (("pipeline", "fleet.toml", "run"), "the command comes first: asynclock pipeline run fleet.toml"),
        (("unlock", URL), "Did you mean 'break'?"),
        (("lock", URL), "Did you mean 'run'?"),
        (("ls", URL), "Did you mean 'list'?"),
        (("status", "s3://bucket/locks/"), "as in s3://bucket/locks/nightly; asynclock list shows all"),
        (("list", f"{URL}.json"), f"is the object of a lock; the lock itself is {URL}"),
        (("run", URL, "-o", "validity=60", "ls"), "is not an option of a store; write --validity TIME"),
        (("run", "file:///var/my locks/a", "ls"), "write file:///var/my%20locks/a"),
        (("list", "file:///var/my locks"), "write file:///var/my%20locks"),
    ],
    ids=" ".join,
)
def test_a_typical_mistake_gets_the_right_words(words: tuple[str, ...], said: str) -> None:
    """Exit code 2, and a sentence with the command line that is meant."""
    ran = asynclock(*words)

    assert (ran.returncode, ran.stdout) == (2, "")
    assert said in " ".join(ran.stderr.split())
    assert "Traceback" not in ran.stderr


@pytest.mark.parametrize("words", [("true",), ("--", "true"), ("--", "--", "true")], ids=" ".join)
def test_a_right_command_line_is_not_corrected(target: str, words: tuple[str, ...]) -> None:
    """With and without ``--``; options before and after the lock; URLs among CMD's own words."""
    ran = asynclock("run", "--wait", "1m", target, "-q", *words[-1:], "s3://bucket/x")
    dashes = asynclock("run", target, "--", "true", "file:///x")
    before = asynclock("run", "--", target, "true")

    assert (ran.returncode, dashes.returncode, before.returncode) == (0, 0, 0)


def test_a_line_of_the_shell_as_one_word_is_told_how_to_run(target: str) -> None:
    """127, as of any program that is not there, with the way to a shell."""
    ran = asynclock("run", target, "echo hi; echo there")
    other = asynclock("run", target, "no-such-program")

    assert (ran.returncode, other.returncode) == (127, 127)
    assert "write: sh -c '...'" in ran.stderr
    assert "sh -c" not in other.stderr


def test_the_url_of_a_folder_is_no_lock_and_the_other_way_round(folder: Path, target: str) -> None:
    """``status`` of a folder leads to ``list``, and ``list`` of a lock to ``status``."""
    assert asynclock("run", target, "true").returncode == 0

    of_folder = asynclock("status", f"file://{folder}")
    of_lock = asynclock("list", target)

    assert f"see asynclock list file://{folder}" in of_folder.stderr
    assert f"{target} is a lock; see asynclock status {target}" in of_lock.stderr


@pytest.mark.parametrize("words", [("run", "true"), ("status",)], ids=" ".join)
def test_a_store_in_memory_is_warned_of(words: tuple[str, ...]) -> None:
    """It ends with the command, so a lock there keeps nobody out."""
    ran = asynclock(words[0], "memory://x/nightly", *words[1:])

    assert ran.returncode == 0
    assert "warning: memory:// is a store of this process only" in ran.stderr


@pytest.mark.parametrize("words", [(), ("run",), ("hudi", "status")], ids=" ".join)
def test_help_is_a_word_too(words: tuple[str, ...]) -> None:
    """``asynclock help run`` is ``asynclock run --help``."""
    asked, shown = asynclock("help", *words), asynclock(*words, "--help")

    assert (asked.returncode, asked.stdout) == (0, shown.stdout)
