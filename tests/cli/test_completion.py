from __future__ import annotations

import os
import subprocess

import pytest

from tests.cli.command import COMMAND, DEADLINE, asynclock


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_script_for_each_shell(shell: str) -> None:
    """The script asks the command itself, by a variable of its own."""
    ran = asynclock("completion", shell)

    assert (ran.returncode, ran.stderr) == (0, "")
    assert "_ASYNCLOCK_COMPLETE" in ran.stdout


def test_words_are_completed() -> None:
    """What the script asks for is answered: the commands that begin so."""
    asked = {"_ASYNCLOCK_COMPLETE": "bash_complete", "COMP_WORDS": "asynclock st", "COMP_CWORD": "1"}
    ran = subprocess.run(
        COMMAND, env=os.environ | asked, capture_output=True, text=True, timeout=DEADLINE, check=False
    )

    assert ran.stdout.splitlines() == ["plain,status"]


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("asynclock ", {"watch", "prune", "policy", "cost", "hudi", "pipeline", "run"}),
        ("asynclock hudi ", {"status", "freeze", "audit", "break", "history", "verify"}),
        ("asynclock watch --", {"--interval", "--json", "--max-clock-skew"}),
        ("asynclock prune --", {"--older-than", "--dry-run"}),
        ("asynclock hudi audit s3://bucket/t ", {"status", "enable", "disable", "cleanup"}),
    ],
)
def test_every_verb_is_completed(words: str, found: set[str]) -> None:
    """Verbs, their actions and their options, with a default URL in the environment or without."""
    typed = words.split(" ")
    asked = {
        "_ASYNCLOCK_COMPLETE": "bash_complete",
        "COMP_WORDS": words,
        "COMP_CWORD": str(len(typed) - 1),
        "ASYNCLOCK_URL": "not a url",
    }
    ran = subprocess.run(
        COMMAND, env=os.environ | asked, capture_output=True, text=True, timeout=DEADLINE, check=False
    )

    assert ran.stderr == ""
    assert found <= {line.partition(",")[2] for line in ran.stdout.splitlines()}
