"""A report as numbers in words: for the terminal, and next to the pictures of the page."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from asynclock._shared.words import escaped

if TYPE_CHECKING:
    from collections.abc import Mapping

    from asynclock.spark.runs.story import Story
    from asynclock.spark.runs.totals import RunTotals

NONE: Final = "-"
_MINUTE, _HOUR = 60, 3600


def summary(story: Story) -> list[str]:
    """Return the lines of a summary; the numbers are those of the page."""
    totals = story.totals
    when = f"{moment(story.start)} to {moment(story.end)}{zone(story)}"
    lines = [f"table: {story.table}", f"time: {when}, {seconds(story.end - story.start)}"]
    lines += [f"{name}: {text}" for name, text in facts(story)]
    if story.recorded:
        lines += [
            f"process {one.name}: {seconds(one.last - one.first)}, ended: {one.end}"
            for one in story.processes
        ]
    lines += [f"stream {name}: {_stream(one)}" for name, one in story.streams.items()]
    if story.recorded:
        lines += [
            f"lease {lane.lock}: held {seconds(lane.held_seconds)} by {lane.holders}, "
            f"waited for {seconds(lane.waited_seconds)}, {counted(lane.renewals, 'renewal')}, "
            f"{counted(lane.takeovers, 'takeover')}, {lane.losses} lost"
            for lane in story.lanes
        ]
    if totals.services:
        lines.append(f"services: {named(totals.services)}")
    if totals.chaos:
        lines.append(f"done to the run: {named(totals.chaos)}")
    if story.unread:
        lines.append(f"{counted(story.unread, 'line')} could not be read: a killed process leaves a torn one")
    return [escaped(line) for line in lines]


def facts(story: Story) -> list[tuple[str, str]]:
    """Return the most telling numbers, each with its name."""
    totals = story.totals
    found = [
        ("commits", f"{totals.commits:,}"),
        ("rows", f"{totals.rows:,}"),
        ("rows a second", f"{totals.rows_per_second:,.0f}"),
        ("commit latency, median", seconds(totals.commit_p50)),
        ("commit latency, 99 of 100", seconds(totals.commit_p99)),
    ]
    if story.recorded:
        found += [
            ("locks' share of commit time", share(totals.lock_share)),
            ("waited for the commit lock", seconds(totals.commit_lock_wait_seconds)),
            ("held the commit lock", seconds(totals.commit_lock_hold_seconds)),
            ("waited for leases", seconds(totals.lock_wait_seconds)),
            ("takeovers", f"{totals.takeovers:,}"),
            ("leases lost", f"{totals.losses:,}"),
            ("renewals", f"{totals.renewals:,}"),
            ("retries", f"{totals.retries:,}"),
            ("conflicts", f"{totals.conflicts:,}"),
            ("quarantined rows", f"{totals.quarantined:,}"),
        ]
    return found


def _stream(totals: RunTotals) -> str:
    return (
        f"{counted(totals.commits, 'commit')}, {counted(totals.rows, 'row')}, "
        f"latency {seconds(totals.commit_p50)} median, {seconds(totals.commit_p99)} 99 of 100, "
        f"{totals.quarantined:,} quarantined, {counted(totals.retries, 'retry', 'retries')}, "
        f"{counted(totals.conflicts, 'conflict')}"
    )


def counted(number: int, one: str, more: str | None = None) -> str:
    """Return a number with the name of the counted things."""
    return f"{number:,} {one if number == 1 else more or one + 's'}"


def named(counts: Mapping[str, int]) -> str:
    """Return counts with their names."""
    return ", ".join(f"{number:,} {name}" for name, number in counts.items()) or NONE


def zone(story: Story) -> str:
    """Return the zone of a story; a timeline that is not in UTC has that of the machine that wrote it."""
    return " UTC" if story.recorded else " local time" if story.local else " by the timeline's clock"


def moment(time: float) -> str:
    """Return a time in the form for people."""
    return datetime.fromtimestamp(time, UTC).strftime("%Y-%m-%d %H:%M:%S")


def seconds(value: float | None) -> str:
    """Return a duration in the form for people."""
    if value is None:
        return NONE
    if value < 0.9995:  # noqa: PLR2004  rounds to 1000 ms
        return f"{value * 1000:.0f} ms" if value else "0 s"
    if value < _MINUTE:
        return f"{value:.1f} s"
    if value < _HOUR:
        return f"{int(value) // 60} min {int(value) % 60:02} s"
    return f"{int(value) // 3600} h {int(value) % 3600 // 60:02} min"


def share(value: float | None) -> str:
    """Return a share in percent."""
    return NONE if value is None else f"{value * 100:.2f} %"
