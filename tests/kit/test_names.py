"""What ``asynclock.testing`` offers by name."""

from __future__ import annotations

import subprocess
import sys

import pytest

import asynclock.testing


@pytest.mark.parametrize("name", asynclock.testing.__all__)
def test_a_name_that_is_promised_is_there(name: str) -> None:
    """Each public name is imported when it is asked for."""
    assert getattr(asynclock.testing, name).__name__ == name


def test_an_unknown_name_is_an_attribute_error() -> None:
    """A misspelt name fails as in any module."""
    with pytest.raises(AttributeError, match="no attribute 'FautlyBackend'"):
        getattr(asynclock.testing, "FautlyBackend")  # noqa: B009  as a misspelt import does


def test_all_but_the_contracts_do_without_pytest() -> None:
    """A program may use the faulty backend and virtual time where pytest is not installed."""
    names = [name for name in asynclock.testing.__all__ if not name.endswith("Contract")]
    program = (
        "import sys; sys.modules['pytest'] = None\n"
        f"from asynclock.testing import {', '.join(names)}\n"
        "print('imported')"
    )

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)

    assert (done.stdout, done.stderr) == ("imported\n", "")
