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
