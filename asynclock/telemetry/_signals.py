"""The metrics: their names, units and attributes, and the measurements that each event adds.

Names and units follow the semantic conventions of OpenTelemetry. Prometheus gets the same metrics, named by
OpenTelemetry's conversion rules, so one dashboard works for both.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from asynclock._kinds import BEGINS, ENDS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from asynclock.events import Event

LOCK_NAME: Final = "asynclock.lock.name"
ERROR_TYPE: Final = "error.type"
OPERATION: Final = "asynclock.operation"
OTHER: Final = "_OTHER"
"""OpenTelemetry's name for a value that is not in a known set."""
MOST_NAMES: Final = 200

SECONDS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600, 14400)
_SHARES: Final = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
_LOSSES: Final = ("LeaseExpiredError", "LeaseLostError", "LeaseTakenOverError")
_STORE: Final = (
    "AccessDeniedError", "BackendError", "BackendUnavailableError", "OutcomeUnknownError",
    "PreconditionFailedError", "UnsupportedBackendError",
)  # fmt: skip
_NOT_ACQUIRED: Final = (
    "AcquireTimeoutError", "CancelledError", "ConfigError", "RecordCorruptError", "held", "makes_way",
    *_STORE
)  # fmt: skip
_ERRORS: Final = frozenset({*_LOSSES, *_NOT_ACQUIRED})


@dataclass(frozen=True, kw_only=True)
class Instrument:
    """One metric.

    Attributes:
        name: Its name by OpenTelemetry's conventions.
        kind: ``counter`` only rises, ``updown`` also falls, ``gauge`` is set.
        unit: In UCUM notation; braces hold the thing that is counted.
        meaning: Its description, one sentence.
        attributes: Each attribute with its possible values; an empty value: not present; no values: they are
            not known in advance.
        buckets: Upper bounds of a histogram.
    """

    name: str
    kind: Literal["counter", "updown", "gauge", "histogram"]
    unit: str
    meaning: str
    attributes: Mapping[str, tuple[str, ...]]
    buckets: tuple[float, ...] = ()


class Measurement(NamedTuple):
    """One value that is added to a metric, or set as its value if it is a gauge."""

    instrument: Instrument
    value: float
    attributes: dict[str, str]


def _histogram(name: str, meaning: str, errors: tuple[str, ...] = ()) -> Instrument:
    attributes = {ERROR_TYPE: ("", *errors)} if errors else {}
    return Instrument(
        name=name, kind="histogram", unit="s", meaning=meaning, attributes=attributes, buckets=SECONDS
    )


def _counter(name: str, unit: str, meaning: str, **attributes: tuple[str, ...]) -> Instrument:
    known = {"error_type": ERROR_TYPE, "operation": OPERATION}
    named = {known[each]: values for each, values in attributes.items()}
    return Instrument(name=name, kind="counter", unit=unit, meaning=meaning, attributes=named)


ACQUIRE: Final = _histogram(
    "asynclock.lock.acquire.duration",
    "Time from the call until the lock was held, or until the call ended without it.",
    _NOT_ACQUIRED,
)
HOLD: Final = _histogram(
    "asynclock.lock.hold.duration", "Time for which a lock was held, until its release or its loss.", _LOSSES
)
HELD: Final = Instrument(
    name="asynclock.lock.held",
    kind="updown",
    unit="{lock}",
    meaning="Locks that this process holds now.",
    attributes={},
)
CONTENTION: Final = _counter(
    "asynclock.lock.contention", "{look}", "Looks of a waiting acquisition that found another holder."
)
TAKEOVERS: Final = _counter(
    "asynclock.lock.takeovers",
    "{takeover}",
    "Acquisitions after a holder that neither released the lock nor renewed it.",
)
RENEWAL: Final = _histogram(
    "asynclock.lock.renewal.duration", "Time of a renewal, until its outcome or its failure.", _STORE
)
MARGIN: Final = Instrument(
    name="asynclock.lock.renewal.margin",
    kind="histogram",
    unit="1",
    meaning="Share of the validity that was left when a renewal was confirmed.",
    attributes={},
    buckets=_SHARES,
)
LOSSES: Final = _counter(
    "asynclock.lock.losses", "{loss}", "Leases that ended before their release.", error_type=_LOSSES
)
SETTLED: Final = _counter(
    "asynclock.lock.settled",
    "{write}",
    "Writes without an answer that were found to have landed by reading the object back.",
    operation=("acquire", "renew", "release"),
)
REAPED: Final = _counter(
    "asynclock.lock.reaped",
    "{write}",
    "Writes made harmless that could still have landed after their acquisition or lease had ended.",
)
UNCONFIRMED: Final = _counter(
    "asynclock.lock.unconfirmed_releases",
    "{release}",
    "Releases that the store never confirmed: the lock frees itself after its validity.",
)
STALL: Final = _histogram(
    "asynclock.lock.stall.duration", "Time for which this process did not run while it held the lock."
)
STORE_ERRORS: Final = _counter(
    "asynclock.store.errors",
    "{error}",
    "Rounds of an acquisition and renewals that the store did not answer or refused.",
    error_type=_STORE,
    operation=("acquire", "renew"),
)
INSTRUMENTS: Final = (
    ACQUIRE, HOLD, HELD, CONTENTION, TAKEOVERS, RENEWAL, MARGIN, LOSSES, SETTLED, REAPED, UNCONFIRMED, STALL,
    STORE_ERRORS,
)  # fmt: skip


class Signals:
    """Turns events into measurements, on any thread, without a mutex that a signal could interrupt.

    Args:
        names: Whether metrics have the lock's name as an attribute. Each name is a time series that stays, so
            use this for few locks, or give a function that maps many names to few (``lambda name:
            name.split("/")[0]``). After 200 different names, others become ``_OTHER``.
    """

    def __init__(self, *, names: bool | Callable[[str], str] = False) -> None:
        self._names = names
        self._known: set[str] = set()
        self._held: dict[str, object] = {}

    @property
    def common(self) -> tuple[str, ...]:
        """Attributes that every metric has."""
        return (LOCK_NAME,) if self._names else ()

    def measure(self, event: Event) -> list[Measurement]:
        """Return the measurements of an event."""
        name = self._name(event.name)
        began = ended = False
        if event.kind in BEGINS:
            began = self._held.setdefault(event.owner, mark := object()) is mark
        elif event.kind in ENDS:
            ended = self._held.pop(event.owner, None) is not None
        found = _BY_KIND[event.kind](event) if event.kind in _BY_KIND else []
        found += _of_hold(event, began=began, ended=ended)
        return [Measurement(each.instrument, each.value, name | each.attributes) for each in found]

    def _name(self, name: str) -> dict[str, str]:
        if self._names is False:
            return {}
        shown = name if self._names is True else str(self._names(name))
        if shown not in self._known:
            if len(self._known) >= MOST_NAMES:
                return {LOCK_NAME: OTHER}
            self._known.add(shown)
        return {LOCK_NAME: shown}


def _acquired(event: Event) -> list[Measurement]:
    found = [Measurement(ACQUIRE, event.duration or 0.0, {})]
    if event.reason == "takeover":
        found.append(Measurement(TAKEOVERS, 1, {}))
    if event.kind == "adopted":
        found.append(Measurement(SETTLED, 1, {OPERATION: "acquire"}))
    return found


def _renewed(event: Event) -> list[Measurement]:
    found = [Measurement(RENEWAL, event.duration or 0.0, {})]
    if event.remaining is not None and event.validity > 0:
        found.append(Measurement(MARGIN, event.remaining / event.validity, {}))
    return found + _read_back(event, "renew")


def _renewal_failed(event: Event) -> list[Measurement]:
    error = _error(event)
    return [
        Measurement(RENEWAL, event.duration or 0.0, error),
        Measurement(STORE_ERRORS, 1, error | {OPERATION: "renew"}),
    ]


def _read_back(event: Event, operation: str) -> list[Measurement]:
    return [Measurement(SETTLED, 1, {OPERATION: operation})] if event.reason == "read_back" else []


def _error(event: Event) -> dict[str, str]:
    return {ERROR_TYPE: event.reason if event.reason in _ERRORS else OTHER}


_BY_KIND: Final[Mapping[str, Callable[[Event], list[Measurement]]]] = {
    "acquired": _acquired,
    "adopted": _acquired,
    "not_acquired": lambda event: [Measurement(ACQUIRE, event.duration or 0.0, _error(event))],
    "waiting": lambda _: [Measurement(CONTENTION, 1, {})],
    "acquire_failed": lambda event: [Measurement(STORE_ERRORS, 1, _error(event) | {OPERATION: "acquire"})],
    "renewed": _renewed,
    "renewal_failed": _renewal_failed,
    "stalled": lambda event: [Measurement(STALL, event.duration or 0.0, {})],
    "lost": lambda event: [Measurement(LOSSES, 1, _error(event))],
    "released": lambda event: _read_back(event, "release"),
    "release_unconfirmed": lambda _: [Measurement(UNCONFIRMED, 1, {})],
    "reaped": lambda _: [Measurement(REAPED, 1, {})],
}
"""The measurements of an event that do not depend on earlier events."""


def _of_hold(event: Event, *, began: bool, ended: bool) -> list[Measurement]:
    if began:
        return [Measurement(HELD, 1, {})]
    if ended:
        loss = (
            {ERROR_TYPE: event.reason if event.reason in _ERRORS else OTHER} if event.kind == "lost" else {}
        )
        return [Measurement(HELD, -1, {}), Measurement(HOLD, event.duration or 0.0, loss)]
    return []
