"""Where gevent or eventlet has replaced threads or sockets, asynclock refuses to lock, and says why."""

from __future__ import annotations

import asyncio
import sys
from types import ModuleType
from typing import TYPE_CHECKING

import pytest

import asynclock
from asynclock import ConfigError, sync

if TYPE_CHECKING:
    from collections.abc import Callable

PATCHERS = [
    ("gevent", "gevent.monkey", "is_module_patched", "threading"),
    ("gevent", "gevent.monkey", "is_module_patched", "queue"),
    ("gevent", "gevent.monkey", "is_module_patched", "select"),
    ("eventlet", "eventlet.patcher", "is_monkey_patched", "thread"),
    ("eventlet", "eventlet.patcher", "is_monkey_patched", "socket"),
]
"""Each library, its module and the public function of that which tells whether a module is patched."""


@pytest.fixture(params=PATCHERS, ids=lambda given: f"{given[0]}-{given[3]}")
def patch(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Callable[[], str]:
    """Return what stands in for the library's patching of one module, and returns the library's name.

    What the real ones do with threads cannot be undone in a process that runs further tests.
    """
    library, name, ask, patched = request.param
    module = ModuleType(name)
    setattr(module, ask, lambda asked: asked == patched)

    def patch() -> str:
        monkeypatch.setitem(sys.modules, name, module)
        return str(library)

    return patch


def test_a_patched_process_is_refused_at_connect(patch: Callable[[], str]) -> None:
    """Async and blocking clients alike; the error names what is patched, and what to do."""
    library = patch()
    for connect in (asynclock.connect, sync.connect):
        with pytest.raises(ConfigError, match=f"{library} has monkey-patched.*asynclock run") as refused:
            connect("memory://")
        assert refused.value.setting == library


def test_a_process_that_is_patched_later_is_refused_at_the_next_call(patch: Callable[[], str]) -> None:
    """A lease that is held can be released, since the thread that renews it is a real one."""
    client = sync.connect("memory://patched-later")
    with client.lock("orders").hold() as lease:
        library = patch()
        with pytest.raises(ConfigError, match=library):
            client.lock("others").acquire()
        assert lease.held
    client.close()


def test_a_client_that_was_not_used_before_the_patching_is_refused(patch: Callable[[], str]) -> None:
    """With ``renewal="loop"`` the first use says so."""
    client = asynclock.connect("memory://", renewal="loop")
    library = patch()
    with pytest.raises(ConfigError, match=library):
        asyncio.run(client.lock("orders").status())


def test_a_probe_is_refused_too(patch: Callable[[], str]) -> None:
    """Nothing is written."""
    library = patch()
    with pytest.raises(ConfigError, match=library):
        asyncio.run(asynclock.probe("memory://"))
    with pytest.raises(ConfigError, match=library):
        sync.probe("memory://")


def test_other_patches_do_no_harm(monkeypatch: pytest.MonkeyPatch) -> None:
    """A library that has patched nothing that is needed is left alone."""
    module = ModuleType("gevent.monkey")
    module.is_module_patched = lambda asked: asked in {"os", "subprocess", "signal"}  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "gevent.monkey", module)
    with sync.connect("memory://") as client, client.lock("orders").hold() as lease:
        assert lease.held
