"""The blocking API: the same names without ``await``, for PySpark drivers, threads and scripts.

Everything runs on asynclock's loop thread, so leases are renewed while the caller blocks. In a thread with a
running event loop, every call raises a ``RuntimeError`` that names the async call.
"""

from typing import TYPE_CHECKING

import asynclock
from asynclock._core.shutdown import install_signal_handlers as install_signal_handlers
from asynclock._core.status import LockStatus as LockStatus
from asynclock.backend import Absent as Absent
from asynclock.backend import Backend as Backend
from asynclock.backend import Stored as Stored
from asynclock.backend import Written as Written
from asynclock.clock import Clock as Clock
from asynclock.clock import SystemClock as SystemClock
from asynclock.errors import AccessDeniedError as AccessDeniedError
from asynclock.errors import AcquireTimeoutError as AcquireTimeoutError
from asynclock.errors import AsyncLockError as AsyncLockError
from asynclock.errors import BackendError as BackendError
from asynclock.errors import BackendNotInstalledError as BackendNotInstalledError
from asynclock.errors import BackendUnavailableError as BackendUnavailableError
from asynclock.errors import ConfigError as ConfigError
from asynclock.errors import LeaseExpiredError as LeaseExpiredError
from asynclock.errors import LeaseLostError as LeaseLostError
from asynclock.errors import LeaseTakenOverError as LeaseTakenOverError
from asynclock.errors import LockChangedError as LockChangedError
from asynclock.errors import OutcomeUnknownError as OutcomeUnknownError
from asynclock.errors import PreconditionFailedError as PreconditionFailedError
from asynclock.errors import RecordCorruptError as RecordCorruptError
from asynclock.errors import SpecError as SpecError
from asynclock.errors import StaleTokenError as StaleTokenError
from asynclock.errors import TicketSpentError as TicketSpentError
from asynclock.errors import UnsupportedBackendError as UnsupportedBackendError
from asynclock.settings import LeaseSettings as LeaseSettings
from asynclock.sync._blocking import probe as probe
from asynclock.sync._facade import Lease as Lease
from asynclock.sync._facade import Lock as Lock
from asynclock.sync._facade import LockClient as LockClient
from asynclock.sync._facade import RWLock as RWLock
from asynclock.sync._facade import Semaphore as Semaphore
from asynclock.sync._facade import connect as connect
from asynclock.sync._fencing import FencedObject as FencedObject

if TYPE_CHECKING:
    from asynclock._core.defects import Defect as Defect
    from asynclock._core.probing import Finding as Finding
    from asynclock._core.probing import ProbeReport as ProbeReport
    from asynclock.options import BackendOptions as BackendOptions

_LATER = ("BackendOptions", "Defect", "Finding", "ProbeReport")


def __getattr__(name: str) -> object:
    """Import rarely used names on first use, as ``asynclock`` does."""
    if name not in _LATER:
        raise AttributeError(f"module 'asynclock.sync' has no attribute {name!r}")
    return getattr(asynclock, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_LATER})
