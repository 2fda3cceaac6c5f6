"""The fixtures for pytest, in runs of their own against the wheel that users install."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from typing import TYPE_CHECKING, Final

import pytest

import pytest_asynclock
from tests.packaging.wheel import install

if TYPE_CHECKING:
    from pathlib import Path

OPTIONS: Final = ["-q", "-p", "no:cacheprovider", "-W", "error"]
WITH_ASYNCIO: Final = ["-o", "asyncio_mode=auto", "-o", "asyncio_default_fixture_loop_scope=function"]
WITHOUT_ASYNCIO: Final = ["-p", "no:asyncio"]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the wheel in it, as pip unpacks it."""
    return install(tmp_path_factory.mktemp("wheel"))


class Runs:
    """Runs pytest over one test file, in an environment where the wheel is installed."""

    def __init__(self, installed: Path, folder: Path) -> None:
        self._environment = os.environ | {"PYTHONPATH": str(installed)}
        self._folder = folder

    def __call__(self, text: str, *options: str, asyncio: bool = True) -> str:
        """Return what pytest printed; everything must have passed, without a warning.

        Args:
            text: The test file.
            options: Of pytest.
            asyncio: Whether pytest-asyncio takes part.
        """
        plugin = WITH_ASYNCIO if asyncio else WITHOUT_ASYNCIO
        (self._folder / "test_it.py").write_text(text)
        done = subprocess.run(
            [sys.executable, "-m", "pytest", *OPTIONS, *plugin, *options, "test_it.py"],
            cwd=self._folder,
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


@pytest.fixture
def run(installed: Path, tmp_path: Path) -> Runs:
    """Return what runs pytest over a test file."""
    return Runs(installed, tmp_path)


def test_a_memory_client_locks_in_async_tests(run: Runs) -> None:
    """It works on the loop of the test, and each test has a store of its own."""
    printed = run(
        """
import pytest

@pytest.mark.parametrize("number", [1, 2])
async def test_it(asynclock_memory, number):
    assert await asynclock_memory.list() == []
    async with asynclock_memory.lock("job").hold(timeout=5) as lease:
        assert lease.held
"""
    )

    assert "2 passed" in printed


def test_a_memory_client_needs_no_plugin_for_asyncio(run: Runs) -> None:
    """A blocking test reaches the same locks by the client's address, and ``asyncio.run`` works as well."""
    printed = run(
        """
import asyncio
import asynclock.sync

def test_it(asynclock_memory):
    with asynclock.sync.connect(asynclock_memory.url) as client, client.lock("job").hold(timeout=5):
        assert asyncio.run(asynclock_memory.lock("job").status()).state == "held"
""",
        asyncio=False,
    )

    assert "1 passed" in printed


def test_a_memory_client_works_under_anyio(run: Runs) -> None:
    """Tests that anyio's plugin runs may use it."""
    printed = run(
        """
import pytest

@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_it(asynclock_memory):
    async with asynclock_memory.lock("job").hold(timeout=5) as lease:
        assert lease.held
""",
        asyncio=False,
    )

    assert "1 passed" in printed


def test_what_a_test_still_holds_is_released_after_it(run: Runs) -> None:
    """The client is closed at the end of the test: its locks are free, and it takes no more."""
    printed = run(
        """
import asynclock
import pytest
from asynclock import ConfigError

kept = []

async def test_first(asynclock_memory):
    kept.append((asynclock_memory, await asynclock_memory.lock("job").acquire(timeout=5)))

async def test_second():
    client, lease = kept[0]
    assert not lease.held
    async with asynclock.connect(client.url) as other:
        assert (await other.lock("job").status()).state == "free"
    with pytest.raises(ConfigError, match="it was closed"):
        await client.lock("job").acquire(timeout=5)
"""
    )

    assert "2 passed" in printed


def test_a_faulty_client_loses_the_answer_it_is_told_to(run: Runs) -> None:
    """The fault meets the lock, which finds its own write, and the journal shows it."""
    printed = run(
        """
from asynclock.testing import Fault

async def test_it(asynclock_faulty):
    backend = asynclock_faulty.backend
    backend.inject(Fault.REPLY_LOST, operation="put_if_absent")
    async with asynclock_faulty.lock("job").hold(timeout=10) as lease:
        assert lease.held
    assert [call.outcome for call in backend.journal if call.fault] == ["OutcomeUnknownError"]
"""
    )

    assert "1 passed" in printed


def test_a_fault_that_was_not_met_does_not_spoil_the_closing(run: Runs) -> None:
    """What was injected and not used up is forgotten: the lock is released when the test has ended."""
    printed = run(
        """
import asynclock
from asynclock.testing import Fault

kept = []

async def test_first(asynclock_faulty):
    kept.append((asynclock_faulty.url, await asynclock_faulty.lock("job").acquire(timeout=5)))
    asynclock_faulty.backend.inject(Fault.REQUEST_LOST, times=1000)

async def test_second():
    async with asynclock.connect(kept[0][0]) as other:
        assert (await other.lock("job").status()).state == "free"
"""
    )

    assert "2 passed" in printed


def test_hours_pass_in_virtual_time(run: Runs) -> None:
    """A process that is killed while it holds the lock leaves it to the other within the bound."""
    printed = run(
        """
import asyncio
import pytest
from asynclock import LeaseSettings

@pytest.fixture
def asynclock_settings():
    return LeaseSettings(validity=30.0)

async def work(client, name, log):
    async with client.lock("worker").hold():
        while True:
            log.append((name, asyncio.get_running_loop().time()))
            await asyncio.sleep(1.0)

def test_it(asynclock_virtual, asynclock_settings):
    world, log = asynclock_virtual, []
    active, standby = world.process("active"), world.process("standby", wall_error=900.0)
    active.start(work(world.client(active), "active", log))
    world.advance(1.0)
    standby.start(work(world.client(standby), "standby", log))
    world.advance(3600.0)
    active.kill()
    world.advance(120.0)
    last = max(at for name, at in log if name == "active")
    first = min(at for name, at in log if name == "standby")
    assert last > 3600.0
    assert last < first <= last + 1.0 + asynclock_settings.takeover_bound(0.0)
""",
        asyncio=False,
    )

    assert "1 passed" in printed


def test_a_run_that_asks_for_nothing_imports_nothing(run: Runs) -> None:
    """Other tests in an environment with asynclock pay nothing for it: the package is not imported."""
    printed = run(
        """
import sys

def test_it():
    assert "pytest_asynclock" in sys.modules
    assert "asynclock" not in sys.modules
"""
    )

    assert "1 passed" in printed


def test_pytest_lists_the_fixtures_with_what_they_are(run: Runs) -> None:
    """``pytest --fixtures`` shows all four and a sentence for each."""
    printed = run("", "--fixtures")

    shown = dict(
        re.findall(r"^(asynclock_\w+) -- .*pytest_asynclock\.py:\d+\n    (\S.*)$", printed, re.MULTILINE)
    )
    assert sorted(shown) == [
        "asynclock_faulty",
        "asynclock_memory",
        "asynclock_settings",
        "asynclock_virtual",
    ]
    assert all(len(text) > 20 for text in shown.values())


def test_the_plugin_has_fixtures_alone() -> None:
    """It has no hook, so that it changes nothing in the runs of others."""
    assert [name for name in vars(pytest_asynclock) if name.startswith("pytest_")] == []
