"""The options of the backends, as type checkers see them."""

from __future__ import annotations

import pytest

import asynclock
from asynclock import BackendOptions, ConfigError
from asynclock.backends import BUILT_IN

HOSTS = {"memory": "", "file": "/tmp/locks"}  # noqa: S108  never opened


def taken(scheme: str) -> set[str]:
    """Return the options that a backend takes, as its refusal of another one lists them."""
    with pytest.raises(ConfigError) as caught:
        asynclock.connect(f"{scheme}://{HOSTS.get(scheme, 'bucket')}", **{"no such": 1})
    return set(caught.value.reason.rpartition(": ")[2].split(", "))


def test_a_type_checker_knows_the_options_that_the_backends_take() -> None:
    """Those of all backends, and ``trust_env``, which each accepts; no other."""
    assert set(BackendOptions.__annotations__) == {"trust_env"}.union(*map(taken, BUILT_IN))
