"""Metrics and spans through OpenTelemetry's API; needs the extra ``otel``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

try:
    from opentelemetry import metrics, trace
    from opentelemetry.trace import Status, StatusCode
except ImportError as _missing:
    raise ImportError(
        "asynclock.telemetry.otel needs opentelemetry-api; run: pip install 'asynclock[otel]'"
    ) from _missing

from asynclock._kinds import BEGINS, ENDS, TROUBLES
from asynclock.telemetry._signals import ERROR_TYPE, INSTRUMENTS, Signals

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from opentelemetry.metrics import Meter, MeterProvider
    from opentelemetry.trace import Span, TracerProvider

    from asynclock.events import Event
    from asynclock.telemetry._signals import Instrument, Measurement

_SCOPE: Final = "asynclock"


class OpenTelemetry:
    """Exports metrics and spans of locks (``connect(url, events=...)``), and metrics of pipelines.

    A pipeline takes it as ``run(spec, metrics=...)``. Each acquisition and each hold of a lock is a span, a
    child of the span in which the lock was acquired.

    Args:
        meter_provider: Default: the global one.
        tracer_provider: Default: the global one. Its processor must not block, because the listener runs on
            the loop that renews all leases.
        names: For the metrics, as for ``asynclock.telemetry._signals.Signals``. Spans always have the name.
    """

    def __init__(
        self,
        *,
        meter_provider: MeterProvider | None = None,
        tracer_provider: TracerProvider | None = None,
        names: bool | Callable[[str], str] = False,
    ) -> None:
        self._signals = Signals(names=names)
        self._meter = metrics.get_meter(_SCOPE, meter_provider=meter_provider)
        self._adders = {each.name: _adder(self._meter, each) for each in INSTRUMENTS}
        self._tracer = trace.get_tracer(_SCOPE, tracer_provider=tracer_provider)
        self._holds: dict[str, Span] = {}

    def __call__(self, event: Event) -> None:
        """Add an event."""
        self.add(self._signals.measure(event))
        self._trace(event)

    def add(self, measurements: Iterable[Measurement]) -> None:
        """Add measurements, of locks or of the pipeline."""
        for instrument, value, attributes in measurements:
            if instrument.name not in self._adders:
                self._adders[instrument.name] = _adder(self._meter, instrument)  # a meter knows its own again
            self._adders[instrument.name](value, attributes)

    def _trace(self, event: Event) -> None:
        now = round(event.time * 1e9)
        if event.kind in BEGINS or event.kind == "not_acquired":
            began = now - round((event.duration or 0.0) * 1e9)
            span = self._tracer.start_span("asynclock.acquire", start_time=began, attributes=event.fields())
            if event.kind == "not_acquired":
                _fail(span, event)
            span.end(end_time=now)
        if event.kind in BEGINS:
            hold = self._tracer.start_span("asynclock.hold", start_time=now, attributes=event.fields())
            self._holds[event.owner] = hold
        elif event.kind in TROUBLES and (noted := self._holds.get(event.owner)) is not None:
            noted.add_event(f"asynclock.{event.kind}", event.fields(), timestamp=now)
        elif event.kind in ENDS:
            ended = self._holds.pop(event.owner, None)
            if ended is not None:
                ended.set_attributes(event.fields())
                if event.kind != "released":
                    _fail(ended, event)
                ended.end(end_time=now)


def _adder(meter: Meter, instrument: Instrument) -> Callable[[float, dict[str, str]], None]:
    """Create a metric and return the function that takes its values."""
    name, unit, meaning = instrument.name, instrument.unit, instrument.meaning
    if instrument.kind == "histogram":
        buckets = instrument.buckets
        return meter.create_histogram(name, unit, meaning, explicit_bucket_boundaries_advisory=buckets).record
    if instrument.kind == "gauge":
        return meter.create_gauge(name, unit, meaning).set
    if instrument.kind == "updown":
        return meter.create_up_down_counter(name, unit, meaning).add
    return meter.create_counter(name, unit, meaning).add


def _fail(span: Span, event: Event) -> None:
    span.set_attribute(ERROR_TYPE, event.reason or event.kind)
    span.set_status(Status(StatusCode.ERROR, event.detail or event.reason))
