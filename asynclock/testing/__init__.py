"""Tools for testing your own code that uses asynclock.

* ``FaultyBackend`` spoils requests of any backend on purpose: lost answers, late writes, 409, …
* ``VirtualLoop`` runs asyncio programs in virtual time, bit for bit repeatable from a seed, on a
  ``SimulatedStore`` that lives in memory; ``VirtualWorld`` is both, with machines and clients.
* ``TapProxy`` journals and breaks requests on their way to a real server.
* ``BackendContract`` and ``LockContract`` are the test suites that every backend passes; they
  need pytest.

pytest finds fixtures for most of these by itself: see ``pytest_asynclock``.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from asynclock.testing._clocks import ManualClock, VirtualClock
    from asynclock.testing._contract import BackendContract
    from asynclock.testing._faulty import Fault, FaultyBackend
    from asynclock.testing._lock_contract import LockContract
    from asynclock.testing._proxy import TapProxy, Wire
    from asynclock.testing._store import SimulatedStore, StoreProfile
    from asynclock.testing._virtual import DeadlockError, Process, VirtualLoop, run_virtual
    from asynclock.testing._world import FaultyClient, VirtualWorld

__all__ = [
    "BackendContract",
    "DeadlockError",
    "Fault",
    "FaultyBackend",
    "FaultyClient",
    "LockContract",
    "ManualClock",
    "Process",
    "SimulatedStore",
    "StoreProfile",
    "TapProxy",
    "VirtualClock",
    "VirtualLoop",
    "VirtualWorld",
    "Wire",
    "run_virtual",
]

_MODULES: Final = {
    "BackendContract": "_contract",
    "DeadlockError": "_virtual",
    "Fault": "_faulty",
    "FaultyBackend": "_faulty",
    "FaultyClient": "_world",
    "LockContract": "_lock_contract",
    "ManualClock": "_clocks",
    "Process": "_virtual",
    "SimulatedStore": "_store",
    "StoreProfile": "_store",
    "TapProxy": "_proxy",
    "VirtualClock": "_clocks",
    "VirtualLoop": "_virtual",
    "VirtualWorld": "_world",
    "Wire": "_proxy",
    "run_virtual": "_virtual",
}


def __getattr__(name: str) -> Any:  # noqa: ANN401  each name has a type of its own
    # On demand: the contract suites need pytest, which a program with a FaultyBackend may not have.
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
