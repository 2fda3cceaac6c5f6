"""The charts of a report in Vega-Lite: data, and a description of the picture that the browser draws."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from asynclock.spark.runs.samples import Sample
    from asynclock.spark.runs.story import Story

Vega = dict[str, Any]

MOST_POINTS: Final = 600
"""Most points of a line or stream; if there are more, the highest of each moment is drawn."""
MOST_SPANS: Final = 3000
_MOST_NAMED: Final = 12
"""Most colours in a legend; if there are more processes or streams, tooltips and tables have the names."""
_BINS: Final = 48
_SLOT: Final = 16
_TO_THE_SECOND: Final = "utcyearmonthdatehoursminutesseconds"
_CLOCKS: Final = ((600, "%H:%M:%S"), (86_400, "%H:%M"), (7 * 86_400, "%d %b %H:%M"))
"""The format of times on an axis of at most that many seconds."""
_DONE_TO_IT: Final = "#e5484d"
_RESOURCES: Final[Sequence[tuple[str, str, str, Callable[[Sample], float]]]] = (
    ("cores", "Cores in use", ".2~f", lambda one: one.cores),
    ("memory", "Memory, MB", ",.0f", lambda one: one.memory / 1e6),
    ("threads", "Threads", ",.0f", lambda one: one.threads),
    ("descriptors", "Open descriptors", ",.0f", lambda one: one.descriptors),
    ("network", "Network, MB/s", ".3~f", lambda one: one.network / 1e6),
    ("storage", "Disks, MB/s", ".3~f", lambda one: one.storage / 1e6),
)


@dataclass(frozen=True, kw_only=True)
class Chart:
    """A picture.

    Attributes:
        name: Its id in the page.
        title: Its title on the page.
        note: One sentence on how to read it; may be empty.
        spec: Its Vega-Lite.
        small: Whether two stand side by side.
    """

    name: str
    title: str
    note: str
    spec: Vega
    small: bool = False


def charts(story: Story) -> list[Chart]:
    """Return the charts of a report; one that would be empty is left out."""
    return [chart for chart in (_leases(story), _latency(story), _rows(story), _services(story)) if chart] + [
        chart for chart in (_resource(story, *each) for each in _RESOURCES) if chart
    ]


def _leases(story: Story) -> Chart | None:
    if not story.spans:
        return None
    drawn = sorted(story.spans, key=lambda span: span.start - span.end)[:MOST_SPANS]
    bars = [
        {
            "lock": span.lock, "slot": span.slot, "process": span.process, "state": span.state,
            "from": _ms(span.start), "to": _ms(max(span.end, span.start + 1e-3)),
            "seconds": round(span.end - span.start, 1), "end": span.end_reason,
            "token": "" if span.token is None else str(span.token),
        }
        for span in drawn
    ]  # fmt: skip
    marks = [
        {"lock": mark.lock, "slot": 0, "at": _ms(mark.time), "what": mark.what, "process": mark.process,
         "detail": mark.detail}
        for mark in story.marks if mark.what != "failed renewal"
    ][:MOST_SPANS]  # fmt: skip
    slots = 1 + max(span.slot for span in drawn)
    names = [lane.lock for lane in story.lanes]
    holders = [one.name for one in story.processes] or _names(bars, "process")
    lanes: Vega = {
        "y": {"field": "lock", "type": "nominal", "title": None, "scale": {"domain": names}},
        "yOffset": {"field": "slot", "type": "ordinal", "scale": {"domain": list(range(slots))}},
    }
    held = {
        "data": {"values": bars},
        "mark": {"type": "bar", "cornerRadius": 2},
        "encoding": lanes
        | {
            "x": _time("from", story),
            "x2": {"field": "to", "type": "temporal"},
            "color": _color("process", holders),
            "opacity": {"condition": {"test": "datum.state === 'waited'", "value": 0.35}, "value": 1},
            "tooltip": _tooltip(
                "lock", "process", "state", ("from", "from", "time"), ("to", "until", "time"), "seconds",
                "token", "end",
            ),
        },
    }  # fmt: skip
    points = {
        "data": {"values": marks},
        "mark": {"type": "point", "filled": True, "size": 90, "stroke": "white", "strokeWidth": 1},
        "encoding": lanes
        | {
            "x": _time("at"),
            "shape": {
                "field": "what", "type": "nominal",
                "legend": None,
                "scale": {"domain": ["takeover", "loss"], "range": ["triangle-right", "cross"]},
            },
            "color": {"value": _DONE_TO_IT},
            "tooltip": _tooltip("what", "lock", "process", ("at", "at", "time"), "detail"),
        },
    }  # fmt: skip
    note = (
        "Solid: held; pale, below: waited. Triangles are takeovers, crosses losses; dashed lines: what was "
        "done to the run."
        if story.recorded
        else "From the first to the last commit under one fencing token."
    )
    if len(drawn) < len(story.spans):
        note += f" The {MOST_SPANS} longest of {len(story.spans)} are drawn."
    if len(holders) > _MOST_NAMED:
        note += " Colours repeat: point at a bar for the name of its process."
    layers = [held, *([points] if marks else []), *_chaos(story)]
    spec = {"layer": layers, "height": len(names) * (slots * _SLOT + 8)}
    return Chart(name="leases", title="Who held which lease", note=note, spec=_whole(spec))


def _latency(story: Story) -> Chart | None:
    if not story.commits:
        return None
    by_stream: defaultdict[str, list[Vega]] = defaultdict(list)
    for one in story.commits:
        by_stream[one.stream].append(
            {"at": _ms(one.time), "stream": one.stream, "seconds": round(one.seconds, 3), "rows": one.rows,
             "batch": one.batch, "instant": one.instant or "", "process": one.process}
        )  # fmt: skip
    points = [point for each in by_stream.values() for point in _thinned(each, "seconds", story)]
    commits = {
        "data": {"values": points},
        "mark": {"type": "point", "filled": True, "opacity": 0.75, "size": 28},
        "encoding": {
            "x": _time("at", story),
            "y": {"field": "seconds", "type": "quantitative", "title": None},
            "color": _color("stream", list(story.streams)),
            "tooltip": _tooltip(
                "stream", "batch", "instant", ("at", "committed", "time"), "seconds", "rows", "process"
            ),
        },
    }
    note = (
        "From the start of the batch to its commit."
        if story.recorded
        else "From the request of the commit to its completion."
    )
    if len(points) < len(story.commits):
        note += f" {len(points)} of {len(story.commits)} are drawn, the slowest of each moment."
    spec = {"layer": [commits, *_chaos(story)], "height": 220}
    return Chart(name="latency", title="Commits and their latency, in seconds", note=note, spec=_whole(spec))


def _rows(story: Story) -> Chart | None:
    if not any(one.rows for one in story.commits):
        return None
    width = max((story.end - story.start) / _BINS, 0.001)
    sums: defaultdict[tuple[int, str], int] = defaultdict(int)
    for one in story.commits:
        sums[min(_BINS - 1, int((one.time - story.start) / width)), one.stream] += one.rows
    bars: list[Vega] = []
    tops: defaultdict[int, int] = defaultdict(int)
    for (place, stream), rows in sorted(sums.items()):
        bars.append(
            {"from": _ms(story.start + place * width), "to": _ms(story.start + (place + 1) * width),
             "stream": stream, "rows": rows, "low": tops[place], "high": tops[place] + rows}
        )  # fmt: skip
        tops[place] += rows
    spec = {
        "data": {"values": bars},
        "mark": {"type": "rect"},
        "encoding": {
            "x": _time("from", story),
            "x2": {"field": "to", "type": "temporal"},
            "y": {"field": "low", "type": "quantitative", "title": None},
            "y2": {"field": "high"},
            "color": _color("stream", list(story.streams)),
            "tooltip": _tooltip("stream", ("from", "from", "time"), ("to", "until", "time"), "rows"),
        },
        "height": 140,
    }
    return Chart(name="rows", title="Rows committed", note="", spec=_whole(spec))


def _services(story: Story) -> Chart | None:
    if not story.works:
        return None
    bars = [
        {"service": one.service, "from": _ms(one.start), "to": _ms(max(one.end, one.start + 1e-3)),
         "seconds": round(one.end - one.start, 2), "instant": one.instant or "", "process": one.process}
        for one in sorted(story.works, key=lambda work: work.start - work.end)[:MOST_SPANS]
    ]  # fmt: skip
    names = sorted({one.service for one in story.works})
    encoding = {
        "y": {"field": "service", "type": "nominal", "title": None, "scale": {"domain": names}},
        "color": _color("service", names, legend=False),
        "tooltip": _tooltip(
            "service", ("from", "began", "time"), ("to", "done", "time"), "seconds", "instant", "process"
        ),
    }
    spec = {
        "data": {"values": bars},
        "layer": [
            {"mark": {"type": "bar", "height": {"band": 0.55}},
             "encoding": encoding | {"x": _time("from", story), "x2": {"field": "to", "type": "temporal"}}},
            # Work that is too short for a bar is visible, too.
            {"mark": {"type": "tick", "thickness": 2, "bandSize": 15},
             "encoding": encoding | {"x": _time("from")}},
        ],
        "height": 28 * len(names),
    }  # fmt: skip
    return Chart(name="services", title="Table services", note="", spec=_whole(spec))


def _resource(
    story: Story, name: str, title: str, shown: str, value: Callable[[Sample], float]
) -> Chart | None:
    by_process: defaultdict[str, list[Vega]] = defaultdict(list)
    for one in story.samples:
        by_process[one.process].append(
            {"at": _ms(one.time), "process": one.process, "value": round(value(one), 4)}
        )
    if not by_process:
        return None
    spec = {
        "data": {
            "values": [each for found in by_process.values() for each in _thinned(found, "value", story)]
        },
        "mark": {"type": "line", "strokeWidth": 1.5, "point": {"size": 10}},
        "encoding": {
            "x": _time("at", story),
            "y": {"field": "value", "type": "quantitative", "title": None},
            "color": _color("process", [one.name for one in story.processes], legend=False),
            "tooltip": [
                *_tooltip("process", ("at", "at", "time")),
                {"field": "value", "type": "quantitative", "title": title, "format": shown},
            ],
        },
        "height": 110,
    }
    return Chart(name=name, title=title, note="", spec=_whole(spec), small=True)


def _chaos(story: Story) -> list[Vega]:
    """Return dashed lines for the disturbances of a run; if there are too many, faults are left out first."""
    if not story.chaos:
        return []
    values = [
        {"at": _ms(one.time), "what": one.what, "process": one.process, "detail": one.detail}
        for one in sorted(story.chaos, key=lambda one: one.what == "fault")[:MOST_POINTS]
    ]
    rule = {
        "data": {"values": values},
        "mark": {"type": "rule", "strokeDash": [4, 3], "opacity": 0.8, "color": _DONE_TO_IT},
        "encoding": {
            "x": _time("at"),
            "tooltip": _tooltip("what", "process", ("at", "at", "time"), "detail"),
        },
    }
    return [rule]


def _whole(spec: Vega) -> Vega:
    return {
        "$schema": "https://vega.github.io/schema/vega-lite/v6.json",
        "width": "container",
        "autosize": {"type": "fit-x", "contains": "padding"},
    } | spec


def _time(field: str, story: Story | None = None) -> Vega:
    """Return a place in time; the first layer of a chart sets the range."""
    place: Vega = {"field": field, "type": "temporal", "title": None, "scale": {"type": "utc"}}
    if story is not None:
        place["scale"] |= {
            "domain": [_ms(story.start), max(_ms(story.end), _ms(story.start) + 1)],
            "nice": False,
            "clamp": True,
        }
        place["axis"] = {
            "format": _clock(story.end - story.start),
            "labelOverlap": True,
            "tickCount": {"signal": "max(2, floor(width / 90))"},
        }
    return place


def _clock(seconds: float) -> str:
    """Return the format of times on an axis of that length."""
    return next((shown for longest, shown in _CLOCKS if seconds <= longest), "%d %b")


def _color(field: str, names: list[str], *, legend: bool = True) -> Vega:
    shown = {"title": None, "orient": "top"} if legend and len(names) <= _MOST_NAMED else None
    return {"field": field, "type": "nominal", "scale": {"domain": names}, "legend": shown}


def _tooltip(*fields: str | tuple[str, str, str]) -> list[Vega]:
    """Return the content of a tooltip: fields, or a field with its title and ``time``."""
    shown: list[Vega] = []
    for each in fields:
        if isinstance(each, str):
            shown.append({"field": each, "title": each})
        else:
            field, title, _ = each
            shown.append(
                {"field": field, "type": "temporal", "title": title, "timeUnit": _TO_THE_SECOND,
                 "format": "%Y-%m-%d %H:%M:%S"}
            )  # fmt: skip
    return shown


def _thinned(points: list[Vega], field: str, story: Story) -> list[Vega]:
    """Return at most ``MOST_POINTS`` points: for each moment the one with the highest value."""
    if len(points) <= MOST_POINTS:
        return points
    width = max(_ms(story.end) - _ms(story.start), 1) / MOST_POINTS
    highest: dict[int, Vega] = {}
    for point in points:
        place = min(MOST_POINTS - 1, int((point["at"] - _ms(story.start)) / width))
        if place not in highest or point[field] > highest[place][field]:
            highest[place] = point
    return [highest[place] for place in sorted(highest)]


def _names(values: Iterable[Vega], field: str) -> list[str]:
    return sorted({value[field] for value in values})


def _ms(time: float) -> int:
    return round(time * 1000)
