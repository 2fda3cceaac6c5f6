"""New instants are later than those of the table, in whatever zone and by whatever clock they are made."""

from __future__ import annotations

import datetime as dt
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

import pytest
from pyspark.sql import functions as F  # noqa: N812  the name everybody uses

from asynclock._cli.app import run_command
from asynclock.errors import ConfigError
from asynclock.spark import hoodie
from asynclock.spark.check.validation import validate
from asynclock.spark.errors import TimelineAheadError
from asynclock.spark.faults import is_passing
from asynclock.spark.hudi.meta import update_properties
from asynclock.spark.reader.changes import changes
from asynclock.spark.reader.snapshot import read
from asynclock.spark.reader.sql import register
from asynclock.spark.reader.table_history import timeline
from asynclock.spark.runs.run import run_services
from asynclock.spark.services.savepoints import restore, savepoint
from asynclock.spark.services.zone import to_utc
from asynclock.spark.writer.splice import Splice
from tests.docs.night import is_said
from tests.spark.pipeline_kit import Kept, Pipeline

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    from asynclock.spark.spec.model import Spec

HOUR = 3600.0
ZONES = ("Asia/Tokyo", "America/New_York")


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Kept:
    """A pipeline whose table has one commit of stream a."""
    made = Pipeline(tmp_path_factory.mktemp("kept") / "order", spark)
    made.deliver("a", {"k": "N1", "at": 1, "x": 1})
    made.run(made.spec(), streams=["a"])
    return Kept(made)


@pytest.fixture
def pipeline(kept: Kept) -> Pipeline:
    """That pipeline."""
    return kept.as_it_was()


def instants(pipeline: Pipeline) -> list[str]:
    """The files of the timeline."""
    folder = pipeline.folder / "table" / ".hoodie" / "timeline"
    return sorted(file.name for file in folder.iterdir() if file.name[0].isdigit())


def digits(moment: dt.datetime) -> str:
    """A time as Hudi writes it."""
    return moment.strftime("%Y%m%d%H%M%S%f")[:17]


def plant(pipeline: Pipeline, seconds: float, *, suffix: str = ".deltacommit.requested") -> Path:
    """An instant of a driver whose clock, or zone, is ahead by that many seconds."""
    text = digits(dt.datetime.now(dt.UTC) + dt.timedelta(seconds=seconds))
    file = pipeline.folder / "table" / ".hoodie" / "timeline" / f"{text}{suffix}"
    file.touch()
    return file


def make_local(pipeline: Pipeline, spec: Spec) -> None:
    """Make the table one of an earlier version, in local times."""
    update_properties(pipeline.spark, spec.table.path, {hoodie.TABLE_TIMELINE_TIMEZONE: "LOCAL"})


def write(pipeline: Pipeline, spec: Spec) -> object:
    """A write of a frame."""
    frame = pipeline.spark.createDataFrame([("N2", 1, 1, "n")], "k string, at bigint, x int, note string")
    return Splice(spec, pipeline.spark).write(frame, "a")


def delete(pipeline: Pipeline, spec: Spec) -> object:
    """A delete of a row."""
    return Splice(spec, pipeline.spark).delete([{"k": "N1"}])


def stream(pipeline: Pipeline, spec: Spec) -> object:
    """A batch of a stream."""
    pipeline.deliver("a", {"k": "N3", "at": 1, "x": 3})
    return pipeline.run(spec, streams=["a"])


def services(pipeline: Pipeline, spec: Spec) -> object:
    """The services."""
    return run_services(spec, once=True, spark=pipeline.spark)


def keep(pipeline: Pipeline, spec: Spec) -> object:
    """A savepoint."""
    return savepoint(spec, spark=pipeline.spark, timeout=20)


WORK = [stream, write, delete, services, keep]


def test_a_new_table_is_in_utc(pipeline: Pipeline) -> None:
    """Its properties say so, for every session of Hudi, and so do its instants."""
    spec = pipeline.spec()

    properties = pipeline.timeline(spec).properties()
    found = timeline(spec, pipeline.spark)

    assert properties[hoodie.TABLE_TIMELINE_TIMEZONE] == "UTC"
    assert all(one.utc for one in found)
    now = digits(dt.datetime.now(dt.UTC))
    assert found[-1].requested < (found[-1].completed or "") < now < str(int(found[-1].requested) + 10**9)


@pytest.mark.parametrize("work", WORK)
@pytest.mark.parametrize("suffix", [".deltacommit.requested", ".compaction.requested", ".clean.requested"])
def test_nothing_is_written_behind_the_newest_instant(
    pipeline: Pipeline, work: Callable[[Pipeline, Spec], object], suffix: str
) -> None:
    """Of any kind and by any writer, an earlier instant is refused, with what to do."""
    spec = pipeline.spec()
    planted = plant(pipeline, 5 * HOUR, suffix=suffix)
    before = instants(pipeline)

    with pytest.raises(TimelineAheadError, match=r"Nothing was written\..* 5 h 0 min") as caught:
        work(pipeline, spec)

    assert planted.name[:17] in str(caught.value)
    assert abs(caught.value.seconds - 5 * HOUR) < HOUR
    assert instants(pipeline) == before


def test_a_completion_counts_as_much_as_a_request(pipeline: Pipeline) -> None:
    """A commit that began long ago and ended in the future of this clock."""
    spec = pipeline.spec()
    name = next(one for one in instants(pipeline) if one.endswith(".deltacommit"))
    folder = pipeline.folder / "table" / ".hoodie" / "timeline"
    later = digits(dt.datetime.now(dt.UTC) + dt.timedelta(hours=2))
    (folder / name).rename(folder / f"{name[:17]}_{later}.deltacommit")

    with pytest.raises(TimelineAheadError, match=later) as caught:
        write(pipeline, spec)

    assert is_said("A clock or time zone that differs", [str(caught.value)])


def test_an_archived_completion_counts(pipeline: Pipeline) -> None:
    """What the timeline has archived is as much before a new commit as what it has not."""
    spec = pipeline.spec()
    table = pipeline.table(spec)
    archived = table.commits._archived_until = digits(dt.datetime.now(dt.UTC) + dt.timedelta(hours=2))

    with pytest.raises(TimelineAheadError, match=archived):
        table.refuse_disorder()


def test_a_statement_behind_the_newest_instant_is_refused(pipeline: Pipeline) -> None:
    """SQL asks under the commit lock, before it writes anything."""
    spec = pipeline.spec()
    register(spec, pipeline.spark, name="ordered")
    plant(pipeline, 2 * HOUR)
    before = instants(pipeline)

    for statement in (
        "INSERT INTO ordered_stored (k, a__ts, a__x) VALUES ('N9', 9, 9)",
        "UPDATE ordered_stored SET a__x = 5, a__ts = 10 WHERE k = 'N1'",
        "DELETE FROM ordered_stored WHERE k = 'N1'",
    ):
        with pytest.raises(Exception, match=r"earlier: .*Nothing was written\."):
            pipeline.spark.sql(statement)

    assert instants(pipeline) == before


def test_a_restore_behind_the_newest_instant_is_refused(pipeline: Pipeline) -> None:
    """It would drop commits and be earlier than they."""
    spec = pipeline.spec()
    kept = savepoint(spec, spark=pipeline.spark)
    plant(pipeline, 2 * HOUR)
    before = instants(pipeline)

    with pytest.raises(TimelineAheadError):
        restore(spec, kept, spark=pipeline.spark, timeout=20)

    assert instants(pipeline) == before


def test_a_writer_that_looked_too_early_is_refused_by_the_lock(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The commit lock asks itself, so it does not matter what happens between a look and a write."""
    spec = pipeline.spec()
    monkeypatch.setattr("asynclock.spark.hudi.table.Table.refuse_disorder", lambda _: None)
    plant(pipeline, 2 * HOUR)
    before = instants(pipeline)

    with pytest.raises(TimelineAheadError):
        write(pipeline, spec)

    assert instants(pipeline) == before


def test_a_commit_in_which_the_clock_steps_back_is_not_acknowledged(pipeline: Pipeline) -> None:
    """It began in order; its completion would lie behind what others have done, and is refused as well."""
    spec = pipeline.spec()
    folder = str(pipeline.folder / "table" / ".hoodie" / "timeline")
    later = digits(dt.datetime.now(dt.UTC) + dt.timedelta(hours=2))
    before = {one for one in instants(pipeline) if one.endswith(".deltacommit")}

    def step(value: int) -> int:
        begun = [one for one in Path(folder).iterdir() if one.name.endswith(".deltacommit.requested")]
        if len(begun) > 1:
            (Path(folder) / f"{later}.deltacommit.requested").touch()
        return value

    rows = pipeline.spark.createDataFrame([("N2", 1, 1, "n")], "k string, at bigint, x int, note string")
    stepping = rows.withColumn("x", F.udf(step, "int")("x"))
    with pytest.raises(TimelineAheadError, match=later):
        Splice(spec, pipeline.spark).write(stepping, "a")

    assert {one for one in instants(pipeline) if one.endswith(".deltacommit")} == before


def test_a_difference_of_a_moment_is_waited_out(pipeline: Pipeline) -> None:
    """Clocks of two machines are never the same."""
    spec = pipeline.spec()
    planted = plant(pipeline, 0.9)

    write(pipeline, spec)

    assert max(instants(pipeline))[:17] > planted.name[:17]


def test_a_stream_waits_for_a_clock_that_is_seconds_behind() -> None:
    """Seconds pass by themselves, and hours are somebody's to decide."""
    few = TimelineAheadError(path="t", seconds=5.0, reason="r")
    many = TimelineAheadError(path="t", seconds=HOUR, reason="r")

    assert (is_passing(few), is_passing(many)) == (True, False)


def sentence(spark: SparkSession, zone: str, ahead: float, now: str, *, writer: str) -> str:
    """What is said in a zone about an instant of a driver whose offset is ``writer``."""
    jvm: Any = spark._jvm
    at = dt.datetime.fromisoformat(now)
    own = at.astimezone(ZoneInfo(zone))
    offset = dt.datetime.strptime(writer, "%z").utcoffset()
    assert offset is not None
    newest = own.replace(tzinfo=None) + dt.timedelta(seconds=ahead)
    made = newest.replace(tzinfo=dt.UTC) - offset
    java_zone = jvm.java.time.ZoneId.of(zone)
    order = jvm.io.asynclock.timeline.InstantOrder
    return str(
        order.tooEarly(
            "/t", java_zone, digits(newest), int(made.timestamp() * 1000), digits(own),
            int(at.timestamp() * 1000),
        )
    )  # fmt: skip


def test_seconds_are_blamed_on_the_clocks(spark: SparkSession) -> None:
    """Nobody has to look for a zone."""
    said = sentence(spark, "UTC", 5, "2026-06-01T12:00:00+00:00", writer="+0000")

    assert "5 s earlier" in said
    assert "clocks of two drivers differ" in said
    assert "it can write again in 5 s" in said


@pytest.mark.parametrize(
    ("zone", "now", "writer"),
    [
        ("America/New_York", "2026-11-01T06:05:00+00:00", "-0400"),
        ("Europe/Berlin", "2026-10-25T01:10:00+00:00", "+0200"),
        ("Australia/Lord_Howe", "2027-04-03T15:10:00+00:00", "+1100"),
    ],
)
def test_the_hour_of_the_autumn_change_is_waited_for(
    spark: SparkSession, zone: str, now: str, writer: str
) -> None:
    """The clocks were set back, and the table has times of before."""
    said = sentence(spark, zone, 1200, now, writer=writer)

    assert f"The clocks of {zone} have just been set back by " in said
    assert "wait, it can write again in 20 min" in said


def test_another_zone_is_named_with_what_to_set(spark: SparkSession) -> None:
    """When the newest file was written tells the zone of its clock."""
    said = sentence(spark, "UTC", 5.5 * HOUR, "2026-06-01T12:00:00+00:00", writer="+0530")

    assert "made by a driver in the zone UTC+05:30" in said
    assert "-Duser.timezone=GMT+05:30" in said
    assert "5 h 30 min" in said
    assert "asynclock pipeline to-utc" in said


def test_a_clock_that_was_wrong_by_hours_is_blamed_itself(spark: SparkSession) -> None:
    """The newest instant was in order when it was made, by a clock in this very zone."""
    said = sentence(spark, "Asia/Tokyo", 3 * HOUR, "2026-06-01T12:00:00+00:00", writer="+0900")

    assert "clock of this machine was set back" in said


def test_a_commit_behind_a_compaction_is_named(
    pipeline: Pipeline, capsys: pytest.CaptureFixture[str]
) -> None:
    """What another driver has lost in this way is found: its commit, its rows and the compaction."""
    spec = pipeline.spec()
    stream(pipeline, spec)
    services(pipeline, spec)
    compaction = max(one for one in instants(pipeline) if one.endswith(".commit"))[:17]
    pipeline.deliver("a", {"k": "N4", "at": 1, "x": 4}, {"k": "N5", "at": 1, "x": 5})
    pipeline.run(spec, streams=["a"])
    good = validate(spec, pipeline.spark)
    last = max(one for one in instants(pipeline) if one.endswith(".deltacommit"))
    folder = pipeline.folder / "table" / ".hoodie" / "timeline"
    earlier = str(int(compaction) - 1)
    (folder / last).rename(folder / f"{last[:17]}_{earlier}.deltacommit")

    report = validate(spec, pipeline.spark)

    assert (good.ok, good.unseen_commits) == (True, ())
    assert not report.ok
    (unseen,) = report.unseen_commits
    assert (unseen.requested, unseen.completed, unseen.compaction) == (last[:17], earlier, compaction)
    assert (unseen.stream, unseen.batch, unseen.rows) == ("a", 2, 2)
    assert run_command(["pipeline", "validate", str(spec.path)]) == 1
    assert f"{unseen.requested} of stream a" in capsys.readouterr().out


def test_a_table_in_local_times_goes_on(pipeline: Pipeline) -> None:
    """It stays what it is: it is read and written, and its times are left as they stand."""
    spec = pipeline.spec()
    make_local(pipeline, spec)

    stream(pipeline, spec)
    services(pipeline, spec)

    assert read(spec, pipeline.spark).count() == 2
    assert pipeline.timeline(spec).properties()[hoodie.TABLE_TIMELINE_TIMEZONE] == "LOCAL"
    assert not any(one.utc for one in timeline(spec, pipeline.spark))


def test_a_table_in_local_times_is_moved_to_utc(pipeline: Pipeline) -> None:
    """Once nothing is pending and all new instants will be later; a second time nothing is to be done."""
    spec = pipeline.spec()
    make_local(pipeline, spec)

    assert to_utc(spec, spark=pipeline.spark)
    assert not to_utc(spec, spark=pipeline.spark)

    stream(pipeline, spec)
    assert pipeline.timeline(spec).properties()[hoodie.TABLE_TIMELINE_TIMEZONE] == "UTC"
    assert validate(spec, pipeline.spark).ok


def test_a_table_whose_times_are_ahead_of_utc_is_not_moved_yet(pipeline: Pipeline) -> None:
    """The sentence says when it can be."""
    spec = pipeline.spec()
    make_local(pipeline, spec)
    planted = plant(pipeline, 3 * HOUR - 30)

    with pytest.raises(TimelineAheadError, match=r"Nothing was changed.* in 3 h 0 min") as caught:
        to_utc(spec, spark=pipeline.spark)

    assert planted.name[:17] in str(caught.value)
    assert pipeline.timeline(spec).properties()[hoodie.TABLE_TIMELINE_TIMEZONE] == "LOCAL"


def test_a_table_with_something_pending_is_not_moved(pipeline: Pipeline) -> None:
    """A plan has a time of the zone before."""
    spec = pipeline.spec()
    make_local(pipeline, spec)
    planted = plant(pipeline, -1)

    with pytest.raises(ConfigError, match=f"pending instants, .*{planted.name[:17]}"):
        to_utc(spec, spark=pipeline.spark)

    assert pipeline.timeline(spec).properties()[hoodie.TABLE_TIMELINE_TIMEZONE] == "LOCAL"


PROGRAM = """
import json, pathlib, sys
from asynclock.spark import (load_spec, read, run, run_services, session, Splice, to_utc)
from asynclock.spark.hudi.meta import update_properties
zone, path = sys.argv[1:]
conf = {"spark.driver.extraJavaOptions": f"-Duser.timezone={zone}"} if zone != "ours" else {}
conf["spark.sql.warehouse.dir"] = str(pathlib.Path(path).parent / "warehouse")
spark = session("zoned", master="local[2]", conf=conf)
spec = load_spec(path)
folder = pathlib.Path(path).parent
def deliver(name, *rows):
    (folder / "in" / "a" / name).write_text("k,at,x,note\\n" + "".join(f"{row}\\n" for row in rows))
def said(work):
    try:
        work()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "done"
def feed():
    run(spec, once=True, streams=["a"], spark=spark)
def rows():
    return sorted(tuple(row) for row in read(spec, spark).select("k", "x").collect())
def serve():
    run_services(spec, once=True, spark=spark)
def local():
    update_properties(spark, spec.table.path, {"hoodie.table.timeline.timezone": "LOCAL"})
def answer(**found):
    print("ANSWER", json.dumps(found))
"""


def zoned(spec: Spec, zone: str, body: str, *, tz: str = "UTC") -> dict[str, Any]:
    """What a program with a JVM in a zone answers; ``ours``: one that asynclock starts as ever."""
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM + body, zone, str(spec.path)],
        check=False, capture_output=True, text=True, env={**os.environ, "TZ": tz},
    )  # fmt: skip
    found = [line for line in ended.stdout.splitlines() if line.startswith("ANSWER ")]
    assert found, ended.stderr[-3000:]
    answer: dict[str, Any] = json.loads(found[-1].removeprefix("ANSWER "))
    return {**answer, "log": ended.stderr} if "clock" in answer else answer


def test_drivers_of_two_zones_share_a_table(tmp_path: Path, spark: SparkSession) -> None:
    """The second one's rows are behind no compaction of the first one, also for consumers of changes."""
    pipeline = Pipeline(tmp_path, spark)
    spec = pipeline.spec({"every_commits = 2": "every_commits = 1"})
    first = """
deliver("1.csv", "N1,1,1,", "N2,1,1,")
feed(); serve()
answer(rows=rows())
"""
    second = """
deliver("2.csv", "N1,2,2,", "N3,1,3,")
feed()
answer(rows=rows())
"""

    one = zoned(spec, "ours", first, tz=ZONES[0])
    until = changes(spec, spark).until
    two = zoned(spec, "ours", second, tz=ZONES[1])

    assert one["rows"] == [["N1", 1], ["N2", 1]]
    assert two["rows"] == [["N1", 2], ["N2", 1], ["N3", 3]]
    changed = changes(spec, spark, since=until).frame.select("k", "x").collect()
    assert sorted(map(tuple, changed)) == [("N1", 2), ("N3", 3)]
    assert validate(spec, spark).ok


def test_a_session_in_another_zone_is_refused(pipeline: Pipeline) -> None:
    """One that was started by somebody else: for a table in UTC, for a new one, and for SQL."""
    spec = pipeline.spec()
    new = pipeline.spec(
        {'"table"': '"other"', '"locks"': '"other-locks"', "checkpoints/a": "checkpoints/new"},
        name="new.toml",
    )
    before = instants(pipeline)
    body = f"""
from asynclock.spark import register
deliver("2.csv", "N1,2,2,")
found = [said(feed), said(serve), said(lambda: to_utc(spec, spark=spark))]
register(spec, spark, name="zoned")
found.append(said(lambda: spark.sql("INSERT INTO zoned_stored (k, a__ts, a__x) VALUES ('N9', 9, 9)")))
seen = rows()
spec = load_spec({str(new.path)!r})
answer(refused=[*found, said(feed)], rows=seen)
"""

    told = zoned(spec, "Asia/Tokyo", body)

    stream_said, services_said, moved, statement, new_said = told["refused"]
    for said in (stream_said, services_said, statement, new_said):
        assert "in UTC, and the JVM of this Spark is in Asia/Tokyo" in said
        assert "-Duser.timezone=UTC" in said
        assert "Nothing was written" in said
    assert moved == "done"  # it is in UTC already
    assert told["rows"] == [["N1", 1]]
    assert instants(pipeline) == before
    assert not (pipeline.folder / "other").exists()


def test_a_local_table_is_kept_in_the_zone_of_its_drivers(pipeline: Pipeline) -> None:
    """A driver in that zone goes on with it; one in UTC is refused, and its error names the zone."""
    spec = pipeline.spec()
    make_local(pipeline, spec)
    body = """
deliver("2.csv", "N1,2,2,", "N2,1,1,")
found = [said(feed), said(serve)]
answer(done=found, rows=rows())
"""

    told = zoned(spec, "Asia/Tokyo", body)
    with pytest.raises(TimelineAheadError, match=r"-Duser\.timezone=GMT\+09:00") as caught:
        write(pipeline, spec)

    assert told == {"done": ["done", "done"], "rows": [["N1", 2], ["N2", 1]]}
    assert "in the zone UTC+09:00, and this one is in UTC" in str(caught.value)


def test_values_do_not_depend_on_the_zone_of_the_driver(tmp_path: Path, spark: SparkSession) -> None:
    """Times without a zone are UTC, whatever zone the people have; stored and shown alike."""
    pipeline = Pipeline(tmp_path, spark)
    spec = pipeline.spec()
    pipeline.deliver(
        "b",
        {"k": "N1", "seen": "2026-07-01 12:00:00", "y": 1.0},
        {"k": "N2", "seen": "2026-01-01T00:30:00+09:00"},
    )
    body = """
run(spec, once=True, streams=["b"], spark=spark)
answer(seen=[r[0] for r in read(spec, spark).orderBy("k").selectExpr("unix_micros(seen)").collect()])
"""

    told = zoned(spec, "ours", body, tz="Asia/Tokyo")

    assert told["seen"] == [
        int(dt.datetime(2026, 7, 1, 12, tzinfo=dt.UTC).timestamp()) * 10**6,
        int(dt.datetime(2025, 12, 31, 15, 30, tzinfo=dt.UTC).timestamp()) * 10**6,
    ]
    assert validate(spec, spark).ok


def test_people_see_their_own_time(pipeline: Pipeline) -> None:
    """The JVM is in UTC; the timeline and Spark's log are shown in local time, which is also taken back."""
    spec = pipeline.spec()
    body = """
import time
from asynclock.spark import timeline
from asynclock.spark.cli.timeline_command import TimelineTable
clock = time.strftime("%y/%m/%d %H:")
spark._jvm.org.apache.log4j.Logger.getLogger("people").warn("as we see it")
(one,) = timeline(spec, spark)
line = next(iter(TimelineTable(["a"], None).lines([one])))
rows = read(spec, spark, as_of=line.split()[0]).count()
answer(clock=clock, line=line, completed=one.completed, rows=rows)
"""

    told = zoned(spec, "ours", body, tz="Asia/Tokyo")

    lines = [line for line in told["log"].splitlines() if line.endswith("WARN people: as we see it")]
    assert len(lines) == 1
    assert lines[0].startswith(told["clock"])
    seen = dt.datetime.fromisoformat(told["line"].split()[0])
    assert digits(seen - dt.timedelta(hours=9)) == told["completed"]
    assert told["rows"] == 1


def test_a_flag_of_yours_comes_after_ours() -> None:
    """Java takes the last of two, so a driver can stay in the zone of its table."""
    from asynclock.spark.hudi.session import session_conf  # noqa: PLC0415

    found = session_conf(conf={"spark.driver.extraJavaOptions": "-Duser.timezone=Asia/Tokyo"})

    flags = found["spark.driver.extraJavaOptions"].split()
    assert flags[0] == "-Duser.timezone=UTC"
    assert flags[-1] == "-Duser.timezone=Asia/Tokyo"
    assert found["spark.executor.extraJavaOptions"] == "-Duser.timezone=UTC"
