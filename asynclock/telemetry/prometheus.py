"""The metrics in a registry of ``prometheus_client``; needs the extra ``prometheus``."""

from __future__ import annotations

import threading
from itertools import product
from typing import TYPE_CHECKING, Final, NamedTuple

try:
    from prometheus_client import REGISTRY, Counter, Gauge, Histogram
except ImportError as _missing:
    raise ImportError(
        "asynclock.telemetry.prometheus needs prometheus_client; run: pip install 'asynclock[prometheus]'"
    ) from _missing

from asynclock.telemetry._signals import INSTRUMENTS, Signals

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from prometheus_client import CollectorRegistry

    from asynclock.events import Event
    from asynclock.telemetry._signals import Instrument, Measurement

_UNITS: Final = {"s": "_seconds"}


def metric_name(instrument: Instrument) -> str:
    """Return the name in Prometheus by OpenTelemetry's rules. Samples of counters end in ``_total``.

    Source: OpenTelemetry specification, "Prometheus and OpenMetrics Compatibility".
    """
    return _plain(instrument.name) + _UNITS.get(instrument.unit, "")


class _Metric(NamedTuple):
    """A metric of the registry, and the names of its labels."""

    metric: Counter | Gauge | Histogram
    labels: list[str]


class PrometheusMetrics:
    """Keeps the metrics of locks (``connect(url, events=...)``) and pipelines (``run(spec, metrics=...)``).

    Use one for all clients and runs of a process.

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
        self._registry = registry
        self._adding = threading.Lock()
        common = self._signals.common
        self._metrics = {each.name: self._metric(each, common) for each in INSTRUMENTS}

    def _metric(self, instrument: Instrument, common: tuple[str, ...] = ()) -> _Metric:
        name, registry = metric_name(instrument), self._registry
        labels = [_plain(each) for each in (*common, *instrument.attributes)]
        metric: Counter | Gauge | Histogram
        if instrument.kind == "histogram":
            metric = Histogram(
                name, instrument.meaning, labels, buckets=instrument.buckets, registry=registry
            )
        else:
            made = Counter if instrument.kind == "counter" else Gauge
            metric = made(name, instrument.meaning, labels, registry=registry)
        if labels and not common:
            # Start each series at 0: increase() misses the first value of a series that begins with 1.
            for values in product(*instrument.attributes.values()):
                metric.labels(*values)
        return _Metric(metric, labels)

    def __call__(self, event: Event) -> None:
        """Add an event."""
        self.add(self._signals.measure(event))

    def add(self, measurements: Iterable[Measurement]) -> None:
        """Add measurements, of locks or of the pipeline. A metric that is new here is registered.

        Raises:
            ValueError: The registry has a metric of that name from elsewhere.
        """
        for instrument, value, attributes in measurements:
            metric, labels = self._metrics.get(instrument.name) or self._registered(instrument)
            given = {_plain(name): text for name, text in attributes.items()}
            child = metric.labels(**{name: given.get(name, "") for name in labels}) if labels else metric
            if isinstance(child, Histogram):
                child.observe(value)
            elif isinstance(child, Gauge) and instrument.kind == "gauge":
                child.set(value)
            else:
                child.inc(value)

    def _registered(self, instrument: Instrument) -> _Metric:
        with self._adding:
            if instrument.name not in self._metrics:
                self._metrics[instrument.name] = self._metric(instrument)
            return self._metrics[instrument.name]


def _plain(name: str) -> str:
    return name.replace(".", "_")
