"""The exit code that each error stands for."""

from __future__ import annotations

import pytest

from asynclock._cli.exit_codes import exit_code
from asynclock.errors import AsyncLockError, ConfigError
from asynclock.spark.errors import CutFilesError, TimelineAheadError


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ConfigError(setting="a", value=1, reason="r"), 2),
        (TimelineAheadError(path="t", seconds=3600.0, reason="r"), 75),
        (CutFilesError.__new__(CutFilesError), 1),
        (AsyncLockError("any other"), 1),
    ],
    ids=lambda one: type(one).__name__,
)
def test_error_has_its_code(error: AsyncLockError, code: int) -> None:
    """As ``docs/howto/command.md`` lists them."""
    assert exit_code(error) == code
