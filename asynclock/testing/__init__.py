"""What users of the library, and the library itself, are tested with.

* ``FaultyBackend`` spoils requests of any backend on purpose: lost answers, late writes, 409, …
* ``VirtualLoop`` runs asyncio programs in virtual time, bit for bit repeatable from a seed.
* ``simulate`` runs the shipped client through one history of faults and checks it.
* ``BackendContract`` and ``LockContract`` are the test suites that every backend passes; they
  need pytest.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from asynclock.testing.clocks import ManualClock, VirtualClock
    from asynclock.testing.contract import BackendContract
    from asynclock.testing.faulty import Fault, FaultyBackend
    from asynclock.testing.history import History
    from asynclock.testing.lock_contract import LockContract
    from asynclock.testing.simulate import simulate
    from asynclock.testing.virtual import DeadlockError, Process, VirtualLoop, run_virtual

__all__ = [
    "BackendContract",
    "DeadlockError",
    "Fault",
    "FaultyBackend",
    "History",
    "LockContract",
    "ManualClock",
    "Process",
    "VirtualClock",
    "VirtualLoop",
    "run_virtual",
    "simulate",
]

_MODULES: Final = {
    "BackendContract": "contract",
    "DeadlockError": "virtual",
    "Fault": "faulty",
    "FaultyBackend": "faulty",
    "History": "history",
    "LockContract": "lock_contract",
    "ManualClock": "clocks",
    "Process": "virtual",
    "VirtualClock": "clocks",
    "VirtualLoop": "virtual",
    "run_virtual": "virtual",
    "simulate": "simulate",
}


def __getattr__(name: str) -> Any:  # noqa: ANN401  each name has a type of its own
    # On demand: the contract suites need pytest, which a program with a FaultyBackend may not have.
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)


class _Testing(ModuleType):
    """This module, whose function ``simulate`` stays what it is when the module of that name is imported."""

    @property
    def simulate(self) -> object:
        """The function."""
        return import_module(f"{__name__}.simulate").simulate

    @simulate.setter
    def simulate(self, module: ModuleType) -> None:
        """Do not let the import system put the module in the function's place."""


sys.modules[__name__].__class__ = _Testing
