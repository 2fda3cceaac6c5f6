"""Spans and metrics of OpenTelemetry, in memory and over OTLP to a server of the test."""

from __future__ import annotations

import gzip
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import TYPE_CHECKING, Any

import pytest
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader, PeriodicExportingMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

import asynclock
from asynclock.telemetry._signals import INSTRUMENTS
from asynclock.telemetry.otel import OpenTelemetry

if TYPE_CHECKING:
    from collections.abc import Iterator

    from asynclock.events import Event


class Traced:
    """A listener whose spans are kept in memory."""

    def __init__(self) -> None:
        self.memory = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self.memory))
        self.listener = OpenTelemetry(tracer_provider=self.provider)

    def named(self, name: str) -> list[Any]:
        """Return the finished spans of that name."""
        return [span for span in self.memory.get_finished_spans() if span.name == name]


@pytest.fixture
def traced() -> Iterator[Traced]:
    """Return one."""
    traced = Traced()
    yield traced
    traced.provider.shutdown()


@pytest.mark.parametrize("renewal", ["thread", "loop"])
async def test_a_hold_is_a_child_of_the_callers_span(traced: Traced, renewal: Any) -> None:  # noqa: ANN401
    """Also where the lease lives on another thread."""
    tracer = traced.provider.get_tracer("user")
    with tracer.start_as_current_span("job") as job:
        async with (
            asynclock.connect("memory://", renewal=renewal, events=traced.listener) as client,
            client.lock("orders").hold() as lease,
        ):
            token = lease.fencing_token

    (acquire,), (hold,) = traced.named("asynclock.acquire"), traced.named("asynclock.hold")
    assert acquire.parent.span_id == hold.parent.span_id == job.get_span_context().span_id
    assert acquire.start_time <= acquire.end_time == hold.start_time <= hold.end_time
    assert hold.attributes["asynclock.lock.name"] == "orders"
    assert hold.attributes["asynclock.fencing_token"] == token
    assert hold.status.status_code is StatusCode.UNSET


def test_spans_say_what_went_wrong(traced: Traced, events: list[Event]) -> None:
    """A loss, a timeout and an unconfirmed release are errors; stalls are events of the span."""
    for event in events:
        traced.listener(event)

    holds = {span.attributes["asynclock.lock.name"]: span for span in traced.named("asynclock.hold")}
    assert holds["adopted"].attributes["error.type"] == "LeaseExpiredError"
    assert holds["adopted"].status.status_code is StatusCode.ERROR
    assert holds["unconfirmed"].attributes["error.type"] == "release_unconfirmed"
    assert "asynclock.stalled" in [each.name for each in holds["dead"].events]
    failed = [
        span for span in traced.named("asynclock.acquire") if span.status.status_code is StatusCode.ERROR
    ]
    assert [span.attributes["error.type"] for span in failed] == ["AcquireTimeoutError"]
    texts = [str(value) for span in holds.values() for value in span.attributes.values()]
    assert all(text.isprintable() and "secret" not in text for text in texts)


def test_every_metric_reaches_a_reader(events: list[Event]) -> None:
    """With its unit and its description."""
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader])
    listener = OpenTelemetry(meter_provider=provider)
    for event in events:
        listener(event)
    data = reader.get_metrics_data()
    provider.shutdown()

    assert data is not None
    (scope,) = data.resource_metrics[0].scope_metrics
    found = {(each.name, each.unit, each.description) for each in scope.metrics}
    assert found == {(each.name, each.unit, each.meaning) for each in INSTRUMENTS}
    bounds = {
        each.name: each.data.data_points[0].explicit_bounds
        for each in scope.metrics
        if "duration" in each.name
    }
    assert bounds["asynclock.lock.acquire.duration"][-1] == 14400


def test_metrics_travel_over_otlp(events: list[Event]) -> None:
    """The exporter of the SDK sends them to a receiver, which decodes them."""
    received: list[ExportMetricsServiceRequest] = []

    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            packed = self.headers.get("Content-Encoding") == "gzip"
            received.append(ExportMetricsServiceRequest.FromString(gzip.decompress(body) if packed else body))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Receiver) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        exporter = OTLPMetricExporter(f"http://127.0.0.1:{server.server_port}/v1/metrics")
        provider = MeterProvider([PeriodicExportingMetricReader(exporter, export_interval_millis=3_600_000)])
        listener = OpenTelemetry(meter_provider=provider)
        for event in events:
            listener(event)
        provider.shutdown()
        server.shutdown()
        thread.join()

    names = {
        metric.name
        for request in received
        for resource in request.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
        if scope.scope.name == "asynclock"
    }
    assert names == {each.name for each in INSTRUMENTS}
