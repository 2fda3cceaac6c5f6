"""The metrics of a pipeline: from reports to a scrape, the looks at sources, and metrics that fail."""

from __future__ import annotations

import re
import socket
import threading
import time
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.sdk.metrics import MeterProvider
from prometheus_client import CollectorRegistry

from asynclock._cli.app import run_command
from asynclock.errors import ConfigError
from asynclock.events import Event, Events
from asynclock.spark.results import Backlog
from asynclock.spark.runs import observing
from asynclock.spark.runs.instruments import INSTRUMENTS
from asynclock.spark.runs.observing import Observer, observed
from asynclock.spark.source import backlog
from asynclock.spark.source.backlog import BacklogLook
from asynclock.spark.source.files import SourceFile
from asynclock.telemetry._outlets import open_metrics
from asynclock.telemetry.otel import OpenTelemetry
from asynclock.telemetry.prometheus import PrometheusMetrics, metric_name
from tests.telemetry.scraping import Samples, play_pipeline, read, scrape, total
from tests.unit.specs import SPEC, table_spec

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from asynclock.telemetry._signals import Measurement

A = {"asynclock_table_name": "fleet", "asynclock_stream_name": "a"}
ENDS = {"counter": "_total", "histogram": "_count", "gauge": ""}


@pytest.fixture(scope="module")
def scraped() -> Samples:
    """What a scrape finds after some reports."""
    registry = CollectorRegistry()
    play_pipeline(PrometheusMetrics(registry))
    return scrape(registry)


@pytest.mark.parametrize("instrument", INSTRUMENTS, ids=lambda each: each.name)
def test_the_reports_move_every_metric(scraped: Samples, instrument: Any) -> None:  # noqa: ANN401  pytest's
    """Each has the table's name; those of a stream its name as well."""
    name = metric_name(instrument) + ENDS[instrument.kind]

    assert total(scraped, name, asynclock_table_name="fleet") > 0
    assert any(
        "asynclock_stream_name" in dict(labels) for each, labels in scraped if each == name
    ) == instrument.name.startswith("asynclock.stream.")


def test_the_numbers_are_those_of_the_reports(scraped: Samples) -> None:
    """A skipped batch is no commit; a gauge has its last value."""
    values = {
        "asynclock_stream_batch_duration_seconds_count": 2,
        "asynclock_stream_batch_duration_seconds_sum": 5,
        "asynclock_stream_rows_total": 30,
        "asynclock_stream_quarantined_total": 3,
        "asynclock_stream_retries_total": 1,
        "asynclock_stream_conflicts_total": 2,
        "asynclock_stream_lag_seconds": 12.5,
        "asynclock_stream_backlog_files": 4,
    }

    assert {name: total(scraped, name, **A) for name in values} == values
    assert total(scraped, "asynclock_stream_backlog_offsets", asynclock_stream_name="topic") == 70
    assert total(scraped, "asynclock_compaction_backlog") == 3
    assert total(scraped, "asynclock_service_duration_seconds_sum", asynclock_service_name="compaction") == 9
    waits = "asynclock_stream_lock_wait_duration_seconds_sum"
    assert {
        kind: total(scraped, waits, asynclock_lock_kind=kind, **A) for kind in ("lease", "reservation")
    } == {
        "lease": 7,
        "reservation": 1.5,
    }
    assert total(scraped, waits, asynclock_lock_kind="commit", **A) == 0.25
    assert total(scraped, "asynclock_lock_acquire_duration_seconds_count") == 2  # the lock's own


def test_counters_of_a_stream_begin_at_zero() -> None:
    """``increase`` over a counter that begins with its first bad rows would not see them."""
    registry = CollectorRegistry()
    Observer(PrometheusMetrics(registry), table_spec("file:///data/fleet"), ["a"])

    samples = read(registry)

    assert [
        value for (name, labels), value in samples.items() if name == "asynclock_stream_quarantined_total"
    ] == [0.0]


def test_opentelemetry_exports_the_same_names(scraped: Samples) -> None:
    """By OpenTelemetry's own Prometheus exporter, so one dashboard serves both."""
    registry = CollectorRegistry()
    provider = MeterProvider([PrometheusMetricReader(registry=registry)])
    play_pipeline(OpenTelemetry(meter_provider=provider))
    theirs = read(registry)
    provider.shutdown()

    def pipeline_names(samples: Samples) -> set[str]:
        of_locks = ("asynclock_lock", "asynclock_store")
        return {
            name
            for name, _ in samples
            if name.startswith("asynclock")
            and not name.startswith(of_locks)
            and not name.endswith("_created")
        }

    assert pipeline_names(theirs) == pipeline_names(scraped)
    for name in ("asynclock_stream_lag_seconds", "asynclock_stream_rows_total"):
        assert total(theirs, name, **A) == total(scraped, name, **A)


class Broken:
    """Metrics that fail."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, _: Event) -> None:
        """Fail."""
        self.add([])

    def add(self, _: Iterable[Measurement]) -> None:
        """Fail."""
        self.calls += 1
        raise RuntimeError("the exporter is gone")


def test_metrics_that_fail_are_said_once_and_stop_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """Neither a batch nor an event of a lock nor a service sees the error; each is still offered."""
    broken: Any = Broken()

    play_pipeline(broken)

    assert broken.calls > 10
    (said,) = caplog.records
    assert said.getMessage().startswith("the metrics of the run have failed: ")
    assert said.getMessage().endswith("[AL-038]")
    assert said.exc_info is not None
    assert "the exporter is gone" in caplog.text


def test_a_run_without_metrics_keeps_its_spec() -> None:
    """Nothing listens, and no package of metrics is needed."""
    spec = table_spec("file:///data/fleet")

    with observed(spec, None, ["a"]) as (listening, observer):
        assert (listening is spec, observer) == (True, None)


def test_the_metrics_hear_the_locks_next_to_another_listener() -> None:
    """A listener that the locks have already goes on hearing them."""
    heard: list[Event] = []
    spec = table_spec("file:///data/fleet")
    spec = replace(spec, locks=replace(spec.locks, listener=heard.append))
    registry = CollectorRegistry()

    with observed(spec, PrometheusMetrics(registry), ["a"]) as (listening, _):
        assert listening.locks.listener is not None
        told = Events(listening.locks.listener, url="memory://", validity=10.0)
        told.emit("acquired", "stream/a.json", "owner", 1, "", duration=2.0)

    assert [event.kind for event in heard] == ["acquired"]
    assert total(read(registry), "asynclock_lock_held") == 1


class Log:
    """A checkpoint: which batches are committed, and the files of each entry; old entries may be gone."""

    def __init__(self) -> None:
        self.entries_of: dict[int, list[str]] = {}
        self.newest: int | None = None
        self.oldest = 0
        self.asked: list[tuple[int, int]] = []
        self.whole_reads = 0

    def committed(self) -> int | None:
        """Spark's newest committed batch."""
        return self.newest

    def offset(self, batch_id: int) -> str:
        """Batches and entries have the same numbers here."""
        return f'{{"logOffset":{batch_id}}}'

    def entries(self, first: int, last: int) -> list[tuple[str, int]] | None:
        """None if Spark has joined one of them to a later one."""
        self.asked.append((first, last))
        if first <= last and first < self.oldest:
            return None
        return [(url, 0) for entry in range(first, last + 1) for url in self.entries_of[entry]]

    def arrivals(self) -> dict[str, tuple[int, int]]:
        """All entries."""
        self.whole_reads += 1
        return {url: (entry, 0) for entry, urls in self.entries_of.items() for url in urls}


class Source:
    """Files with their age in seconds, and the look at them."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.log, self.ages = Log(), dict[str, float]()
        patch.setattr(backlog, "Checkpoint", lambda *_: self.log)
        patch.setattr(backlog, "source_files", lambda *_: self.files())
        patch.setattr(backlog, "time", SimpleNamespace(time=lambda: 1000.0))
        stream: Any = SimpleNamespace(name="a", kafka=None, source="in/*")
        spec: Any = None
        self.look = BacklogLook(spec, stream, spec)

    def files(self) -> list[SourceFile]:
        """The listing."""
        return [
            SourceFile(url=url, modified_ms=round((1000 - age) * 1000), size=1)
            for url, age in self.ages.items()
        ]

    def waits(self) -> tuple[int | None, float | None]:
        """The number of waiting files, and the age of the oldest."""
        found = self.look()
        assert found.offsets is None
        return found.files, found.lag_seconds


@pytest.fixture
def source(monkeypatch: pytest.MonkeyPatch) -> Source:
    """Three files, of which the oldest was delivered last."""
    source = Source(monkeypatch)
    source.ages = {"one": 60.0, "two": 50.0, "three": 300.0}
    source.log.entries_of = {0: ["one"], 1: ["two"], 2: ["three"]}
    return source


def test_files_wait_until_spark_notes_their_batch(source: Source) -> None:
    """A file whose batch has begun still waits; the lag is that of the oldest waiting file, then 0."""
    found = [source.waits()]
    for source.log.newest in range(3):
        found.append(source.waits())

    assert found == [(3, 300.0), (2, 300.0), (1, 300.0), (0, 0.0)]


def test_a_look_reads_only_the_new_entries(source: Source) -> None:
    """Each once."""
    for source.log.newest in (0, 2):
        source.waits()

    assert source.log.asked == [(0, 0), (1, 2)]
    assert source.log.whole_reads == 0


def test_entries_that_spark_has_joined_are_read_with_the_whole_log(source: Source) -> None:
    """Those of batches that are not committed do not count."""
    source.log.oldest, source.log.newest = 1, 1

    assert source.waits() == (1, 300.0)
    source.log.newest = 2
    assert source.waits() == (0, 0.0)
    assert source.log.whole_reads == 1


def test_files_wait_again_after_a_restore(source: Source) -> None:
    """The checkpoint is set back, and its stream reads them again."""
    source.log.newest = 2
    source.waits()
    source.log.newest = 0

    assert source.waits() == (2, 300.0)


def test_a_file_from_the_future_is_not_behind(source: Source) -> None:
    """The clock of the store may be ahead of ours."""
    source.ages = {"one": -5.0}

    assert source.waits() == (1, 0.0)


@pytest.mark.parametrize(
    ("newest", "end", "behind"),
    [(None, "", 12), (4, '{"t":{"0":7,"1":3}}', 5), (4, '{"t":{"0":7}}', 6)],
    ids=["nothing committed", "all partitions", "a new partition"],
)
def test_a_topic_is_behind_by_its_offsets(
    monkeypatch: pytest.MonkeyPatch, newest: int | None, end: str, behind: int
) -> None:
    """A partition without a committed offset counts from its earliest record."""
    offsets = {True: {0: 10, 1: 5}, False: {0: 1, 1: 2}}
    log = SimpleNamespace(committed=lambda: newest, offset=lambda _: end)
    monkeypatch.setattr(backlog, "Checkpoint", lambda *_: log)
    monkeypatch.setattr(backlog, "topic_offsets", lambda *_, latest=False: offsets[latest])
    stream: Any = SimpleNamespace(name="a", kafka=SimpleNamespace(topic="t"))
    spec: Any = None

    assert BacklogLook(spec, stream, spec)() == Backlog(stream="a", offsets=behind)


def test_a_source_is_watched_from_the_start_to_the_end(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A look that fails is said once for its stream and hides no other; the last look is after the body."""
    found = iter(range(1000))
    looked = threading.Semaphore(0)

    def look() -> Backlog:
        looked.release()
        return Backlog(stream="b", files=next(found), lag_seconds=0.0)

    def fail() -> Backlog:
        raise OSError("no such bucket")

    monkeypatch.setattr(observing, "LOOK_SECONDS", 0.001)
    monkeypatch.setattr(observing, "BacklogLook", lambda _, stream, __: fail if stream == "a" else look)
    spec: Any = SimpleNamespace(table=SimpleNamespace(path="s3a://x/fleet"), stream=lambda name: name)
    registry, spark = CollectorRegistry(), None

    observer = Observer(PrometheusMetrics(registry), spec, ["a", "b"])
    with observer.watching(spark):  # type: ignore[arg-type]  the looks do not use it
        for _ in range(3):
            assert looked.acquire(timeout=60)
    last = next(found) - 1

    samples = read(registry)
    assert total(samples, "asynclock_stream_backlog_files", asynclock_stream_name="b") == last >= 3
    (said,) = caplog.messages
    assert said.startswith("stream a: a look at its backlog failed: OSError: no such bucket; ")


def test_the_end_of_a_run_does_not_wait_for_a_look_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    """It goes on after its patience."""
    hangs = threading.Event()
    monkeypatch.setattr(observing, "_PATIENCE_SECONDS", 0.01)
    monkeypatch.setattr(observing, "BacklogLook", lambda *_: hangs.wait)
    spec: Any = SimpleNamespace(table=SimpleNamespace(path="fleet"), stream=lambda name: name)
    metrics: Any = SimpleNamespace(add=list)

    began = time.monotonic()
    with Observer(metrics, spec, ["a"]).watching(None):  # type: ignore[arg-type]  as above
        pass
    assert time.monotonic() - began < 30
    hangs.set()


@pytest.mark.parametrize("target", ["", "0", "65536", "x", "127.0.0.1:", "otel2", "9100:localhost"])
def test_a_wrong_place_for_the_metrics_is_refused(target: str) -> None:
    """In a sentence, before anything begins."""
    with (
        pytest.raises(ConfigError, match="must be a port, HOST:PORT or otel; nothing was begun"),
        open_metrics(target),
    ):
        pass


def test_a_port_in_use_is_refused() -> None:
    """And a port that is free again can be served."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        target = f"127.0.0.1:{taken.getsockname()[1]}"
        with (
            pytest.raises(ConfigError, match=f"{target}.* cannot be served there: .*; nothing was begun"),
            open_metrics(target),
        ):
            pass
    with open_metrics(target.rpartition(":")[2]) as metrics:
        assert isinstance(metrics, PrometheusMetrics)


def test_opentelemetry_without_an_sdk_is_refused() -> None:
    """The API alone would drop every value without a word."""
    with pytest.raises(ConfigError, match="opentelemetry-instrument"), open_metrics("otel"):
        pass


def test_opentelemetry_with_an_sdk_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its global provider gets the metrics."""
    provider = MeterProvider()
    monkeypatch.setattr("opentelemetry.metrics.get_meter_provider", lambda: provider)
    with open_metrics("otel") as metrics:
        assert isinstance(metrics, OpenTelemetry)
    provider.shutdown()


@pytest.mark.parametrize(("target", "package"), [("9100", "prometheus_client"), ("otel", "opentelemetry")])
def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch, target: str, package: str) -> None:
    """With the command that installs it."""
    monkeypatch.setattr(
        "asynclock.telemetry._outlets.find_spec", lambda name: None if name == package else object()
    )
    with pytest.raises(ConfigError, match=r"pip install 'asynclock\["), open_metrics(target):
        pass


def test_no_place_means_no_metrics() -> None:
    """The default."""
    with open_metrics(None) as metrics:
        assert metrics is None


@pytest.mark.parametrize("verb", ["run", "services"])
def test_the_command_refuses_a_wrong_place(
    verb: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """From its option or the environment, before it starts Spark."""
    spec = tmp_path / "spec.toml"
    spec.write_text(SPEC)
    for stream in ("departures", "arrivals"):
        (tmp_path / "in" / stream).mkdir(parents=True)

    codes = [run_command(["pipeline", verb, str(spec), "--metrics", "nine"])]
    monkeypatch.setenv("ASYNCLOCK_METRICS", "ten")
    codes.append(run_command(["pipeline", verb, str(spec)]))

    assert codes == [2, 2]
    lines = capsys.readouterr().err.splitlines()
    reason = "must be a port, HOST:PORT or otel; nothing was begun"
    assert [
        re.fullmatch(rf"asynclock: .*{value}.* {reason}.*", line) is not None
        for value, line in zip(("nine", "ten"), lines, strict=True)
    ] == [True, True]
