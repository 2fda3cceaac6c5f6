"""What a report tells of a recorded run, and of a timeline."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from asynclock.errors import ConfigError
from asynclock.spark.hudi.instants import Instant
from asynclock.spark.runs.charts import MOST_POINTS, MOST_SPANS, charts
from asynclock.spark.runs.lanes import Lanes
from asynclock.spark.runs.lines import read_lines
from asynclock.spark.runs.story import Story, run_story, timeline_story
from asynclock.spark.runs.text import facts, seconds, summary
from tests.report.recorded import START, Recorded, record, spec

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def story(tmp_path: Path) -> Story:
    """The whole run."""
    return run_story(spec(tmp_path), record(tmp_path / "run"))


def test_the_sums_are_those_of_all_processes(story: Story) -> None:
    """Commits, rows, latencies, the locks' share of the commits' time, and what went wrong."""
    totals = story.totals

    assert (totals.commits, totals.rows, totals.retries, totals.conflicts, totals.quarantined) == (
        14, 1400, 1, 1, 1
    )  # fmt: skip
    assert (totals.commit_p50, totals.commit_p99) == (1.0, 4.0)
    assert totals.lock_share == pytest.approx(14 * 0.02 / 23.0)
    assert (totals.takeovers, totals.losses, totals.renewals) == (2, 1, 6)
    assert (totals.services, totals.chaos) == ({"cleaning": 1, "compaction": 1}, {"kill": 1, "stop": 1})
    assert (story.end - story.start, story.unread) == (120.0, 1)


def test_each_stream_has_its_sums_in_the_order_of_the_spec(story: Story) -> None:
    """They add up to the whole."""
    assert list(story.streams) == ["departures", "arrivals"]
    assert sum(one.commits for one in story.streams.values()) == story.totals.commits
    assert story.streams["arrivals"].commit_p99 == 4.0


def test_a_lane_shows_who_held_the_lease_and_who_waited(story: Story) -> None:
    """A killed holder held it until its last line; waits that are tried again are one."""
    found = [
        (span.process, span.state, span.start - START, span.end - START, span.slot, span.end_reason)
        for span in story.spans
        if span.lock == "stream/arrivals"
    ]

    assert found == [
        ("writer 101", "held", 1.0, 35.0, 0, "open"),
        ("writer 102", "waited", 6.0, 56.5, 1, ""),
        ("writer 102", "held", 56.5, 110.0, 0, "lost"),
    ]


def test_takeovers_and_losses_are_marked(story: Story) -> None:
    """Where and when they were."""
    found = [(mark.what, mark.lock, mark.time - START) for mark in story.marks]

    assert found == [
        ("takeover", "stream/departures", 56.5),
        ("takeover", "stream/arrivals", 56.5),
        ("loss", "stream/arrivals", 110.0),
    ]


def test_waiters_at_one_time_have_lanes_of_their_own(tmp_path: Path) -> None:
    """One that waits later takes a lane that is free again."""
    run = Recorded(tmp_path / "run")
    for pid, until, waited in ((1, 10.0, 10.0), (2, 12.0, 8.0), (3, 20.0, 5.0)):
        run.lock("writer", pid, "acquired", until, "stream/a", waited_seconds=waited)
    lanes = Lanes()
    for line in read_lines(tmp_path / "run"):
        lanes.take(line)

    waits = {span.process: span.slot for span in lanes.spans({}) if span.state == "waited"}

    assert waits == {"writer 1": 1, "writer 2": 2, "writer 3": 1}


def test_each_process_says_how_it_ended(story: Story) -> None:
    """Killed, with its error, or well."""
    assert {one.name: one.end for one in story.processes} == {
        "writer 101": "killed",
        "writer 102": "lease on 'stream/arrivals' lost",
        "services 103": "well",
    }


def test_resources_are_rates_where_they_are_counters(story: Story) -> None:
    """Half a core, megabytes a second; memory as it was."""
    sample = next(one for one in story.samples if one.process == "writer 102")

    assert (sample.cores, sample.network, sample.storage) == pytest.approx((0.5, 1.5e5, 1.5e6))
    assert sample.memory == 4e8 + 1e7 * 7.5


def test_lines_of_another_program_are_left_out(tmp_path: Path) -> None:
    """Whatever its kinds are, and whatever its fields are."""
    folder = record(tmp_path / "run")
    before = run_story(spec(tmp_path), folder)
    run = Recorded(folder)
    run.add("watch", 9, "memory", 500.0, rss=1)

    assert run_story(spec(tmp_path), folder) == before


def test_of_a_run_of_two_tables_the_specs_is_told(tmp_path: Path) -> None:
    """By the table's path; what was done to processes from outside is in both."""
    folder, fleet = record(tmp_path / "run"), spec(tmp_path)
    run = Recorded(folder)
    run.start("writer", 201, 1.0, table=fleet.table.path)
    run.batch("writer", 201, "departures", 0, 3.0)

    story = run_story(fleet, folder)

    assert ([one.name for one in story.processes], story.totals.commits) == (["writer 201"], 1)
    assert len(story.chaos) == 2


def test_who_was_killed_is_known_by_its_id(tmp_path: Path) -> None:
    """A kill may name a process by another of its roles; with it both roles end."""
    folder, fleet = tmp_path / "run", spec(tmp_path)
    run = Recorded(folder)
    for role, pid in (("writer", 301), ("services", 301), ("writer", 302)):
        run.start(role, pid, 1.0, table=fleet.table.path)
    run.add("shipper", 301, "chaos", 5.0, what="kill")

    ends = {one.name: one.end for one in run_story(fleet, folder).processes}

    assert ends == {"writer 301": "killed", "services 301": "killed", "writer 302": "no last line"}


def test_a_run_of_two_other_tables_is_refused(tmp_path: Path) -> None:
    """With their names; a run of one table may have been made under another path."""
    folder = record(tmp_path / "run")
    Recorded(folder).start("writer", 201, 1.0, table="/ships")

    with pytest.raises(ConfigError, match=r"a run of the tables /fleet, /ships, and the spec is of"):
        run_story(spec(tmp_path), folder)


def test_a_folder_without_a_line_of_a_run_is_refused(tmp_path: Path) -> None:
    """Kills alone are no run."""
    Recorded(tmp_path / "run").add("writer", 1, "chaos", 0.0, what="kill")

    with pytest.raises(ConfigError, match="no line of a run is in this folder; asynclock pipeline run"):
        run_story(spec(tmp_path), tmp_path / "run")


def test_the_summary_says_the_numbers(story: Story) -> None:
    """One fact a line, for a terminal."""
    lines = summary(story)

    assert lines[:4] == [
        "table: /fleet",
        "time: 2027-01-15 08:00:00 to 2027-01-15 08:02:00 UTC, 2 min 00 s",
        "commits: 14",
        "rows: 1,400",
    ]
    assert "locks' share of commit time: 1.22 %" in lines
    assert (
        "stream arrivals: 7 commits, 700 rows, latency 2.0 s median, 4.0 s 99 of 100, 0 quarantined, "
        "1 retry, 1 conflict"
    ) in lines
    assert (
        "lease stream/arrivals: held 1 min 27 s by 2, waited for 50.5 s, 3 renewals, 1 takeover, 1 lost"
    ) in lines
    assert lines[-2:] == [
        "done to the run: 1 kill, 1 stop",
        "1 line could not be read: a killed process leaves a torn one",
    ]


def test_the_summary_is_safe_for_a_terminal(tmp_path: Path) -> None:
    """Whatever a process was told."""
    run = Recorded(tmp_path / "run")
    run.start("writer", 1, 0.0)
    run.add("writer", 1, "end", 1.0, error="\x1b[31mred\n")

    assert all(line.isprintable() for line in summary(run_story(spec(tmp_path), tmp_path / "run")))


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "-"), (0.0, "0 s"), (0.0123, "12 ms"), (0.9996, "1.0 s"), (59.94, "59.9 s"),
        (61.0, "1 min 01 s"), (7260.0, "2 h 01 min"),
    ],
)  # fmt: skip
def test_durations_as_people_say_them(value: float | None, shown: str) -> None:
    """With the unit that fits."""
    assert seconds(value) == shown


def test_the_charts_of_a_run(story: Story) -> None:
    """Leases, commits, services and resources; one that would be empty is left out."""
    names = [chart.name for chart in charts(story)]

    resources = ["cores", "memory", "threads", "descriptors", "network", "storage"]
    assert names == ["leases", "latency", "rows", "services", *resources]
    story.works, story.samples = [], []
    assert [chart.name for chart in charts(story)] == ["leases", "latency", "rows"]


def test_a_long_run_is_thinned_out_and_says_so(tmp_path: Path) -> None:
    """The page does not grow with the run, and the slowest commit is on it."""
    run = Recorded(tmp_path / "run")
    with (run.folder / "writer-1.jsonl").open("w"):
        pass
    many = 3 * MOST_POINTS
    for number in range(many):
        run.batch("writer", 1, "departures", number, float(number), seconds=99.0 if number == 777 else 1.0)
    story = run_story(spec(tmp_path), tmp_path / "run")

    (latency,) = (chart for chart in charts(story) if chart.name == "latency")

    drawn = latency.spec["layer"][0]["data"]["values"]
    assert len(drawn) == MOST_POINTS
    assert max(point["seconds"] for point in drawn) == 99.0
    assert f"{MOST_POINTS} of {many} are drawn, the slowest of each moment." in latency.note


def test_very_many_leases_are_thinned_out_and_say_so(story: Story) -> None:
    """The longest are drawn."""
    story.spans = story.spans * MOST_SPANS

    leases = charts(story)[0]

    assert len(leases.spec["layer"][0]["data"]["values"]) == MOST_SPANS
    assert f"The {MOST_SPANS} longest of {len(story.spans)} are drawn." in leases.note


def instant(requested: str, completed: str | None, action: str, **fields: object) -> Instant:
    """An instant of a minute."""
    day = "2027011508"
    return Instant(
        requested=day + requested,
        completed=None if completed is None else day + completed,
        action=action,
        state="COMPLETED" if completed else "INFLIGHT",
        **fields,  # type: ignore[arg-type]
    )


def test_a_timeline_tells_commits_writers_and_services(tmp_path: Path) -> None:
    """Latency from request to completion; a lease from the first to the last commit under one token."""
    told = timeline_story(
        spec(tmp_path),
        [
            instant("0000000", "0002000", "deltacommit", stream="departures", token=1, rows=5, latency=2.0),
            instant("0003000", "0006000", "deltacommit", stream="departures", token=1, rows=5, latency=3.0),
            instant("0010000", "0011000", "deltacommit", stream="departures", token=2, rows=5, latency=1.0),
            instant("0011000", "0012000", "deltacommit", stream="__deletes", token=3, rows=1, latency=1.0),
            instant("0013000", "0014000", "deltacommit", rows=7, latency=1.0),
            instant("0015000", "0019000", "commit"),
            instant("0020000", "0020500", "clean"),
            instant("0003000", "0021000", "savepoint"),
            instant("0030000", None, "deltacommit"),
        ],
    )

    assert {name: one.rows for name, one in told.streams.items()} == {
        "departures": 15, "(SQL, foreign)": 7, "(delete)": 1
    }  # fmt: skip
    assert (told.totals.commits, told.totals.commit_p99, told.totals.seconds) == (5, 3.0, 20.5)
    assert told.totals.services == {"cleaning": 1, "compaction": 1}
    assert [(span.lock, span.process, span.end - span.start) for span in told.spans] == [
        ("stream/departures", "token 1", 6.0),
        ("stream/departures", "token 2", 1.0),
        ("delete", "token 3", 1.0),
    ]
    assert [name for name, _ in facts(told)][-1] == "commit latency, 99 of 100"


def test_a_table_without_a_commit_has_no_report(tmp_path: Path) -> None:
    """Nothing to draw."""
    with pytest.raises(ConfigError, match="nothing is committed to the table yet"):
        timeline_story(spec(tmp_path), [instant("0030000", None, "deltacommit")])
