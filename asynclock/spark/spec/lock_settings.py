"""The locks of a table, as a spec names them."""

from __future__ import annotations

import base64
import binascii
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from pydantic import BaseModel, ConfigDict, StrictFloat

from asynclock import connect, sync
from asynclock._shared.words import HIDDEN, refuse_credentials
from asynclock.errors import BackendNotInstalledError, ConfigError
from asynclock.spark.spec.environment import refuse_literal_option, resolved
from asynclock.telemetry import all_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from asynclock.events import Event
    from asynclock.settings import LeaseSettings

_CUSTOMER_KEY: Final = "sse_customer_key"
_OF_CONNECT: Final = frozenset({"clock", "events", "holder", "renewal", "settings"})


@dataclass(frozen=True, kw_only=True)
class LocksSpec:
    """The place and times of the pipeline's leases.

    Attributes:
        url: URL of the locks, as for ``asynclock.connect``; in a spec, by default next to the table.
        settings: Times of the leases.
        options: Options of the store; secrets only as ``FromEnvironment``.
        moved_from: URL of the former locks of the table, which nobody uses any more.
        listener: Gets each event of the locks, as ``events`` of ``asynclock.connect``; not a key of a spec.
    """

    url: str
    settings: LeaseSettings
    options: Mapping[str, object] = field(default_factory=dict, hash=False)
    moved_from: str | None = None
    listener: Callable[[Event], object] | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        for name, value in self.options.items():
            refuse_literal_option(name, value)
            if name in _OF_CONNECT:
                raise ConfigError(setting=name, value=HIDDEN, reason="no such option of a store")
        # A spec may name a store whose package is not installed on this machine.
        with suppress(BackendNotInstalledError):
            connect(self.url, settings=self.settings, **self._resolved())
        if self.moved_from is not None:
            refuse_credentials("moved_from", self.moved_from)

    def connect(self, *, holder: str | None = None) -> sync.LockClient:
        """Return a client of the locks; no I/O.

        Args:
            holder: The holder that others see for the leases of this client; None: this process.

        Raises:
            ConfigError: A secret is no longer in the environment.
            BackendNotInstalledError: The package of the store is missing.
        """
        return sync.connect(
            self.url, settings=self.settings, holder=holder, events=self.listener, **self._resolved()
        )

    def _resolved(self) -> dict[str, Any]:
        options = resolved(self.options)
        if isinstance(key := options.get(_CUSTOMER_KEY), str):
            try:
                options[_CUSTOMER_KEY] = base64.b64decode(key, validate=True)
            except binascii.Error:
                raise ConfigError(setting=_CUSTOMER_KEY, value=HIDDEN, reason="must be in base64") from None
        return options


def heard_by(locks: LocksSpec, listener: Callable[[Event], object]) -> LocksSpec:
    """Return the locks with one listener more."""
    both = listener if locks.listener is None else all_of(locks.listener, listener)
    return replace(locks, listener=both)


class LocksTable(BaseModel):
    """The place and times of the leases; every other key is an option of the store.

    Attributes:
        url: URL of the locks, or their folder; by default next to the table.
        moved_from: URL of the locks that the table was written under before.
        validity: Seconds until a crashed holder is replaced.
        renew_interval: Seconds between two renewals; at most validity / 10.
        safety_margin: Seconds before the end of the validity at which a holder stops.
        max_clock_skew: Largest difference of two clocks, in seconds.
        poll_interval: Seconds between two looks at a lock that is held.
    """

    model_config = ConfigDict(extra="allow", frozen=True)

    url: str | None = None
    moved_from: str | None = None
    validity: StrictFloat | None = None
    renew_interval: StrictFloat | None = None
    safety_margin: StrictFloat | None = None
    max_clock_skew: StrictFloat | None = None
    poll_interval: StrictFloat | None = None
