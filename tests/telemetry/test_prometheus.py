"""The metrics, scraped from a real endpoint; the dashboard and the alerts, against what is exported."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import promql_parser
import pytest
import yaml
from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.sdk.metrics import MeterProvider
from prometheus_client import CollectorRegistry

import asynclock.sync
from asynclock.spark.runs.instruments import INSTRUMENTS as OF_PIPELINES
from asynclock.telemetry import all_of
from asynclock.telemetry._signals import INSTRUMENTS, MOST_NAMES
from asynclock.telemetry.otel import OpenTelemetry
from asynclock.telemetry.prometheus import PrometheusMetrics, metric_name
from tests.docs.night import SENTENCES, is_said
from tests.telemetry.scraping import Samples, play_pipeline, read, scrape, total

if TYPE_CHECKING:
    from collections.abc import Iterator

    from asynclock.events import Event

ROOT = Path(__file__).parents[2]
DASHBOARD = json.loads((ROOT / "docs/observability/grafana-dashboard.json").read_text(encoding="utf-8"))
RULES = yaml.safe_load((ROOT / "docs/observability/prometheus-rules.yml").read_text(encoding="utf-8"))
RULE_LIST = [rule for group in RULES["groups"] for rule in group["rules"]]
PAGE = (ROOT / "docs/howto/observability.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def scraped(events: list[Event]) -> Samples:
    """Return what a scrape finds after the run."""
    registry = CollectorRegistry()
    metrics = PrometheusMetrics(registry)
    for event in events:
        metrics(event)
    return scrape(registry)


@pytest.fixture(scope="module")
def exported(scraped: Samples) -> Samples:
    """The metrics of locks and of a pipeline."""
    registry = CollectorRegistry()
    play_pipeline(PrometheusMetrics(registry))
    return scraped | read(registry)


@pytest.mark.parametrize("instrument", INSTRUMENTS, ids=lambda each: each.name)
def test_the_run_moves_every_metric(scraped: Samples, instrument: Any) -> None:  # noqa: ANN401  pytest's
    """But the locks held now, of which none is left."""
    ends = {"counter": "_total", "histogram": "_count", "updown": ""}
    found = total(scraped, metric_name(instrument) + ends[instrument.kind])
    assert found == 0 if instrument.kind == "updown" else found > 0


def test_the_numbers_are_those_of_the_run(scraped: Samples) -> None:
    """Counts by error and operation, and the locks of the run that ended."""
    assert total(scraped, "asynclock_lock_takeovers_total") == 1
    assert total(scraped, "asynclock_lock_losses_total", error_type="LeaseExpiredError") == 1
    assert total(scraped, "asynclock_lock_acquire_duration_seconds_count", error_type="") == 3
    assert (
        total(scraped, "asynclock_lock_acquire_duration_seconds_count", error_type="AcquireTimeoutError") == 1
    )
    assert total(scraped, "asynclock_lock_hold_duration_seconds_count") == 3
    assert total(scraped, "asynclock_lock_settled_total", asynclock_operation="acquire") == 1
    assert total(scraped, "asynclock_lock_unconfirmed_releases_total") == 1
    assert 1.9 < total(scraped, "asynclock_lock_stall_duration_seconds_sum") < 3.1


def test_counters_begin_at_zero() -> None:
    """``increase`` over a counter that begins with its first loss would not see that loss."""
    registry = CollectorRegistry()
    PrometheusMetrics(registry)
    samples = scrape(registry)
    losses = [value for (name, _), value in samples.items() if name == "asynclock_lock_losses_total"]
    assert losses == [0.0, 0.0, 0.0]


def test_hostile_text_adds_no_label_value(scraped: Samples) -> None:
    """A reason that is no known error is ``_OTHER``; no label has the text of a lock file."""
    values = {value for _, labels in scraped for name, value in labels if name != "le"}
    assert all(re.fullmatch(r"[A-Za-z_]*", value) for value in values)
    assert total(scraped, "asynclock_lock_losses_total", error_type="_OTHER") == 1


def test_a_live_client_is_counted() -> None:
    """The listener of a client of its own, beside another listener that fails."""

    def fail(_: Event) -> None:
        raise SystemExit

    registry = CollectorRegistry()
    both = all_of(fail, PrometheusMetrics(registry, names=True))
    with asynclock.sync.connect("memory://", events=both) as client, client.lock("orders").hold():
        during = scrape(registry)
    after = scrape(registry)

    assert total(during, "asynclock_lock_held", asynclock_lock_name="orders") == 1
    assert total(after, "asynclock_lock_held", asynclock_lock_name="orders") == 0
    assert total(after, "asynclock_lock_hold_duration_seconds_count", asynclock_lock_name="orders") == 1


def test_names_are_bounded() -> None:
    """However many locks there are, the label has a bounded number of values."""
    registry = CollectorRegistry()
    listener = PrometheusMetrics(registry, names=True)
    with asynclock.sync.connect("memory://", events=listener) as client:
        for number in range(MOST_NAMES + 20):
            client.lock(f"table-{number}").acquire().release()

    samples = scrape(registry)
    names = {value for _, labels in samples for name, value in labels if name == "asynclock_lock_name"}
    assert len(names) == MOST_NAMES + 1
    assert total(samples, "asynclock_lock_hold_duration_seconds_count", asynclock_lock_name="_OTHER") == 20


def test_opentelemetry_exports_the_same_names(events: list[Event], scraped: Samples) -> None:
    """By OpenTelemetry's own Prometheus exporter, so one dashboard serves both."""
    registry = CollectorRegistry()
    reader = PrometheusMetricReader(registry=registry)
    provider = MeterProvider([reader])
    listener = OpenTelemetry(meter_provider=provider)
    for event in events:
        listener(event)
    theirs = scrape(registry)
    provider.shutdown()

    ours = {name for name, _ in scraped if not name.endswith("_created")}
    assert {name for name, _ in theirs if name.startswith("asynclock")} == ours
    for name in ("asynclock_lock_losses_total", "asynclock_lock_renewal_duration_seconds_count"):
        assert total(theirs, name) == total(scraped, name)


def expressions() -> Iterator[tuple[str, str]]:
    """Yield where an expression stands, and the expression."""
    for panel in DASHBOARD["panels"]:
        for target in panel.get("targets", []):  # a row has none
            expression = target["expr"].replace("$__rate_interval", "5m")
            yield f"panel {panel['title']}", expression
    for rule in RULE_LIST:
        yield f"alert {rule['alert']}", rule["expr"]


def selectors(node: Any) -> Iterator[Any]:  # noqa: ANN401  the parser is not typed
    """Yield the selectors of an expression."""
    if isinstance(node, promql_parser.VectorSelector):
        yield node
    for name in ("expr", "lhs", "rhs", "vector_selector", "args"):
        below = getattr(node, name, None)
        for each in below if isinstance(below, list) else [below]:
            if each is not None:
                yield from selectors(each)


@pytest.mark.parametrize(("place", "expression"), list(expressions()))
def test_dashboard_and_alerts_ask_for_what_is_exported(
    exported: Samples, place: str, expression: str
) -> None:
    """Each expression parses, and each of its metrics exists with the labels that are asked for."""
    found = list(selectors(promql_parser.parse(expression)))
    assert found, place
    for selector in found:
        labels = [dict(has) for name, has in exported if name == selector.name]
        assert labels, f"{place}: {selector.name}"
        for matcher in selector.matchers.matchers:
            if matcher.name not in {"job", "instance"}:
                assert any(each.get(matcher.name) == matcher.value for each in labels), (
                    f"{place}: {matcher.name}"
                )
        grouped = (
            set(re.findall(r"by \(([^)]*)\)", expression)[0].split(", ")) if " by " in expression else set()
        )
        assert grouped - {"", "job", "instance"} <= set(labels[0]), place


def test_every_metric_is_on_the_dashboard() -> None:
    """And in the table of the page, with its kind, unit and meaning."""
    asked = {each.name for _, text in expressions() for each in selectors(promql_parser.parse(text))}
    rows = dict(re.findall(r"^\| `(asynclock\.[a-z._]+)` \| (.*) \|$", PAGE, re.MULTILINE))
    for each in (*INSTRUMENTS, *OF_PIPELINES):
        assert any(name.startswith(metric_name(each)) for name in asked), each.name
        assert rows[each.name].startswith(f"`{metric_name(each)}"), each.name
        assert f"| `{each.unit}` |" in rows[each.name], each.name
        assert rows[each.name].endswith(each.meaning), each.name
        for attribute in each.attributes:
            assert f"`{attribute}`" in rows[each.name], each.name
    assert len(rows) == len(INSTRUMENTS) + len(OF_PIPELINES)


def test_rules_have_what_prometheus_needs() -> None:
    """Names are unique; each rule says how bad it is and what happened."""
    assert len({rule["alert"] for rule in RULE_LIST}) == len(RULE_LIST)
    for rule in RULE_LIST:
        assert set(rule) <= {"alert", "expr", "for", "labels", "annotations"}
        assert rule["labels"]["severity"] in {"warning", "info"}
        assert rule["annotations"]["summary"]


RUNBOOKS = [rule for rule in RULE_LIST if "runbook_url" in rule["annotations"]]


@pytest.mark.parametrize("rule", RUNBOOKS, ids=lambda rule: rule["alert"])
def test_a_runbook_is_the_section_of_its_sentence(rule: dict[str, Any]) -> None:
    """The link leads to a section of the night page that begins with the summary of the alert."""
    notes = rule["annotations"]
    page, _, anchor = notes["runbook_url"].partition("#")
    sections = {name.lower().replace(" ", "-"): name for name in SENTENCES}

    assert page == "https://github.com/asynclock/asynclock/blob/main/docs/howto/night.md"
    assert is_said(sections[anchor], [re.sub(r"{{.*?}}", "x", notes["summary"])])


def test_the_alerts_of_pipelines_have_runbooks() -> None:
    """All of their group."""
    assert [rule["alert"] for rule in RULES["groups"][1]["rules"]] == [rule["alert"] for rule in RUNBOOKS]
