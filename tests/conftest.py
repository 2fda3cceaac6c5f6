"""What every suite shares."""

from __future__ import annotations

import asyncio
import os
import signal
from typing import TYPE_CHECKING

import pytest
from blockbuster import blockbuster_ctx

from asynclock.testing.clocks import ManualClock
from tests.laboratory.class_archive import jvm_options

if TYPE_CHECKING:
    from collections.abc import Iterator

pytest_plugins = ("tests.suite_report",)

for number in (signal.SIGINT, signal.SIGHUP):
    if signal.getsignal(number) is signal.SIG_IGN:
        # Begun in the background: every program that the tests start would ignore it too.
        signal.signal(number, lambda *_: None)


# For every Spark that a test starts; a worker of pytest-xdist inherits it.
os.environ.setdefault("SPARK_SUBMIT_OPTS", jvm_options())


@pytest.fixture(autouse=True)
def no_blocking_calls(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail an async test in which asynclock blocks the loop."""
    function = getattr(request.node, "obj", None)
    if not asyncio.iscoroutinefunction(function):
        yield
        return
    with blockbuster_ctx("asynclock") as buster:
        for blocking in buster.functions.values():
            # Finding a backend reads the metadata of installed packages, as an import does.
            blocking.can_block_in("asynclock/backends/__init__.py", {"open_backend"})
            # To fetch credentials anew, the SDKs read token files of a kilobyte.
            blocking.can_block_in("asynclock/backends/_cloud.py", {"_bounded"})
            # It runs on a loop of its own, in a worker thread.
            blocking.can_block_in("asynclock/backends/_aws.py", {"make"})
        yield


@pytest.fixture
def clock() -> ManualClock:
    """Return clocks that move only when told to."""
    return ManualClock()
