"""What every suite shares."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import traceback
from typing import TYPE_CHECKING

import blockbuster
import pytest
from blockbuster import blockbuster_ctx

from asynclock.testing._clocks import ManualClock
from tests.laboratory.class_archive import jvm_options
from tests.laboratory.cores import SHORT_LIVED_JVM

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

pytest_plugins = ("tests.suite_report",)

for number in (signal.SIGINT, signal.SIGHUP):
    if signal.getsignal(number) is signal.SIG_IGN:
        # Begun in the background: every program that the tests start would ignore it too.
        signal.signal(number, lambda *_: None)


# For every Spark that a test starts; a worker of pytest-xdist inherits it.
os.environ.setdefault("SPARK_SUBMIT_OPTS", jvm_options())
os.environ.setdefault("SPARK_LAUNCHER_OPTS", SHORT_LIVED_JVM)  # the JVM that writes the command of the other


class PlacedError(blockbuster.BlockingError):
    """A call that blocks the loop. It prints where, since an error of a backend says nothing of its cause."""

    def __init__(self, func: str) -> None:
        super().__init__(func)
        sys.stderr.write(f"{self}\n{''.join(traceback.format_stack())}")


@pytest.fixture(autouse=True)
def no_blocking_calls(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail an async test in which asynclock blocks the loop."""
    function = getattr(request.node, "obj", None)
    if not asyncio.iscoroutinefunction(function):
        yield
        return
    request.getfixturevalue("monkeypatch").setattr(blockbuster.blockbuster, "BlockingError", PlacedError)
    with blockbuster_ctx("asynclock") as buster:
        for blocking in buster.functions.values():
            # Finding a backend reads the metadata of installed packages, as an import does.
            blocking.can_block_in("asynclock/backends/__init__.py", {"open_backend"})
            # To fetch new credentials, the SDKs read token files of a kilobyte.
            blocking.can_block_in("asynclock/backends/_cloud.py", {"_bounded"})
            # It runs on a loop of its own, in a worker thread.
            blocking.can_block_in("asynclock/backends/_aws.py", {"make"})
        yield


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """One session for all tests of this process: on two cores, with its files in pytest's own folder."""
    from tests.spark.warm import session_of_tests  # noqa: PLC0415  most processes need no Spark

    with session_of_tests(tmp_path_factory.mktemp("spark")) as started:
        yield started


@pytest.fixture
def clock() -> ManualClock:
    """Return clocks that move only when told to."""
    return ManualClock()
