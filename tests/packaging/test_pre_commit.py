"""The hooks of pre-commit check what ``make lint`` checks, without a download."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

ROOT: Final = Path(__file__).parents[2]
CONFIGURATION: Final = ROOT / ".pre-commit-config.yaml"


def hooks() -> dict[str, dict[str, Any]]:
    """Return the hooks by their ids; those of other repositories are not there."""
    (repository,) = yaml.safe_load(CONFIGURATION.read_text())["repos"]
    assert repository["repo"] == "local"
    return {hook["id"]: hook for hook in repository["hooks"]}


def test_the_hooks_run_what_make_lint_runs() -> None:
    """Each tool of the target is a hook, from the same environment."""
    target = re.search(r"^lint:.*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert target is not None
    linted = re.findall(r"\$\(BIN\)/([a-z-]+(?: check| format)?)", target[1])
    hooked = [hook["entry"] for hook in hooks().values() if hook["language"] == "system"]

    assert len(hooked) == len(linted)
    for tool, entry in zip(linted, hooked, strict=True):
        assert entry.startswith(f".venv/bin/{tool}")


@pytest.mark.parametrize(
    ("message", "taken"),
    [
        ("s3: send no write twice\n\nThe why.\n", True),
        ("hudi, spark: one home for the keys\n", True),
        ("Merge branch 'main' into s3\n", True),
        ('Revert "s3: send no write twice"\n', True),
        ("Send no write twice\n\nnote: a colon in the body is no scope\n", False),
        ("s3:send no write twice\n", False),
        ("fixes\n", False),
    ],
)
def test_a_commit_subject_has_a_scope(message: str, *, taken: bool) -> None:
    """The subject begins with the part of the tree that the commit is about."""
    pattern = hooks()["subject"]["entry"]

    # As pre-commit searches with --multiline.
    assert (re.search(pattern, message, re.MULTILINE | re.DOTALL) is not None) is taken
