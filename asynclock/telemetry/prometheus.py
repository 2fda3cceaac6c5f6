"""The metrics in a registry of ``prometheus_client``; needs the extra ``prometheus``."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Final

try:
    from prometheus_client import REGISTRY, Counter, Gauge, Histogram
except ImportError as _missing:
    raise ImportError(
        "asynclock.telemetry.prometheus needs prometheus_client; run: pip install 'asynclock[prometheus]'"
    ) from _missing

from asynclock.telemetry._signals import INSTRUMENTS, Signals

if TYPE_CHECKING:
    from collections.abc import Callable

    from prometheus_client import CollectorRegistry

    from asynclock.events import Event
    from asynclock.telemetry._signals import Instrument

_UNITS: Final = {"s": "_seconds"}


def metric_name(instrument: Instrument) -> str:
    """Return the name in Prometheus by OpenTelemetry's rules. Samples of counters end in ``_total``.

    Source: OpenTelemetry specification, "Prometheus and OpenMetrics Compatibility".
    """
    return _plain(instrument.name) + _UNITS.get(instrument.unit, "")


class PrometheusMetrics:
    """A listener for ``connect(url, events=...)`` that keeps the metrics. Use one for all clients.

    Args:
        registry: The registry of the metrics; default: that of the process.
        names: As for ``asynclock.telemetry._signals.Signals``.

    Raises:
        ValueError: The registry has these metrics already.
    """

    def __init__(
        self,
        registry: CollectorRegistry = REGISTRY,
        *,
        names: bool | Callable[[str], str] = False,
    ) -> None:
        self._signals = Signals(names=names)
        self._metrics = {each.name: self._metric(each, registry) for each in INSTRUMENTS}

    def _metric(self, instrument: Instrument, registry: CollectorRegistry) -> Counter | Gauge | Histogram:
        name, labels = metric_name(instrument), self._labels(instrument)
        metric: Counter | Gauge | Histogram
        if instrument.kind == "histogram":
            metric = Histogram(
                name, instrument.meaning, labels, buckets=instrument.buckets, registry=registry
            )
        else:
            made = Counter if instrument.kind == "counter" else Gauge
            metric = made(name, instrument.meaning, labels, registry=registry)
        if labels and not self._signals.common:
            # Start each series at 0: increase() misses the first value of a series that begins with 1.
            for values in product(*instrument.attributes.values()):
                metric.labels(*values)
        return metric

    def _labels(self, instrument: Instrument) -> list[str]:
        return [_plain(each) for each in (*self._signals.common, *instrument.attributes)]

    def __call__(self, event: Event) -> None:
        """Add an event."""
        for instrument, value, attributes in self._signals.measure(event):
            given = {_plain(name): text for name, text in attributes.items()}
            labels = {name: given.get(name, "") for name in self._labels(instrument)}
            metric = self._metrics[instrument.name]
            child = metric.labels(**labels) if labels else metric
            if isinstance(child, Histogram):
                child.observe(value)
            else:
                child.inc(value)


def _plain(name: str) -> str:
    return name.replace(".", "_")
