"""A scrape over HTTP, and reports of a pipeline with something for each of its metrics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.request import urlopen

from prometheus_client import generate_latest, start_http_server
from prometheus_client.parser import text_string_to_metric_families

from asynclock.events import Events
from asynclock.spark.results import Backlog, BatchReport, ServiceReport, Wasted
from asynclock.spark.runs.observing import Observer
from tests.unit.specs import table_spec

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


def scrape(registry: CollectorRegistry) -> Samples:
    """Serve a registry over HTTP, read it once, and parse it."""
    server, thread = start_http_server(0, addr="127.0.0.1", registry=registry)
    try:
        with urlopen(f"http://127.0.0.1:{server.server_port}/metrics", timeout=10) as answer:
            text = answer.read().decode()
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
    return _parsed(text)


def read(registry: CollectorRegistry) -> Samples:
    """Return what a scrape of a registry would find, without the half second that a server takes to end."""
    return _parsed(generate_latest(registry).decode())


def _parsed(text: str) -> Samples:
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def total(samples: Samples, name: str, **labels: str) -> float:
    """Return the sum of the samples of that name that have these labels."""
    return sum(
        value
        for (each, has), value in samples.items()
        if each == name and labels.items() <= dict(has).items()
    )


def play_pipeline(metrics: Any) -> None:  # noqa: ANN401  also metrics that fail
    """Report leases, batches, looks at sources and services of a pipeline with two streams."""
    observer = Observer(metrics, table_spec("file:///data/fleet"), ["a", "topic"])
    locks = Events(observer.hear, url="file:///locks", validity=10.0)
    locks.emit("acquired", "stream/a.json", "o1", 1, "", duration=7.0)
    locks.emit("acquired", "service/compaction.json", "o2", 1, "", duration=1.0)
    known: dict[str, Any] = {"stream": "a", "skipped": False, "reservation_seconds": 0.0}
    wasted = Wasted(conflicts=2, seconds=1.0)
    observer.take_batch(BatchReport(**known, batch_id=0, rows=10, quarantined=3, seconds=2.0), 0.25)
    observer.take_batch(BatchReport(**known | {"skipped": True}, batch_id=1), None)
    observer.take_batch(
        BatchReport(
            **known | {"reservation_seconds": 1.5}, batch_id=2, rows=20, seconds=3.0, retries=1, wasted=wasted
        ),
        None,
    )
    look = observer._look
    look("a", lambda: Backlog(stream="a", files=9, lag_seconds=60.0))
    look("a", lambda: Backlog(stream="a", files=4, lag_seconds=12.5))
    look("topic", lambda: Backlog(stream="topic", offsets=70))
    observer.take_service(ServiceReport(service="compaction", seconds=9.0))
    observer.take_compaction_backlog(8)
    observer.take_compaction_backlog(3)
