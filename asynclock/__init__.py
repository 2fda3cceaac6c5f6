"""A lock that lives in the object store where the data already is."""

from importlib import import_module as _import_module
from typing import TYPE_CHECKING

from asynclock._core.shutdown import install_signal_handlers as install_signal_handlers
from asynclock._core.status import LockStatus as LockStatus
from asynclock.backend import Absent as Absent
from asynclock.backend import Backend as Backend
from asynclock.backend import Stored as Stored
from asynclock.backend import Written as Written
from asynclock.client import LockClient as LockClient
from asynclock.client import connect as connect
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
from asynclock.lease import Lease as Lease
from asynclock.lock import Lock as Lock
from asynclock.settings import LeaseSettings as LeaseSettings
from asynclock.sharing import RWLock as RWLock
from asynclock.sharing import Semaphore as Semaphore

if TYPE_CHECKING:
    from asynclock._core.defects import Defect as Defect
    from asynclock._core.probing import Finding as Finding
    from asynclock._core.probing import ProbeReport as ProbeReport
    from asynclock._core.probing import probe as probe
    from asynclock.fencing import FencedObject as FencedObject
    from asynclock.options import BackendOptions as BackendOptions

__version__: str = "0.1.0"
_LATER = {
    "BackendOptions": "options",
    "Defect": "_core.defects",
    "FencedObject": "fencing",
    "Finding": "_core.probing",
    "ProbeReport": "_core.probing",
    "probe": "_core.probing",
}


def __getattr__(name: str) -> object:
    """Load what few programs need when it is first named (PEP 562)."""
    if name not in _LATER:
        raise AttributeError(f"module 'asynclock' has no attribute {name!r}")
    found: object = getattr(_import_module(f"asynclock.{_LATER[name]}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *_LATER})
