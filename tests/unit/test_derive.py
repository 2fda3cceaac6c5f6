"""Columns derived from the time of an event: which a spec may name, and their values without Spark."""

from __future__ import annotations

import datetime as dt
import json
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asynclock.errors import SpecError
from asynclock.spark.check.strict.derived import derivation
from asynclock.spark.check.strict.rows import Bad, Good
from asynclock.spark.check.strict.source_file import layout_of
from asynclock.spark.check.strict.stored_rows import Reading
from asynclock.spark.check.strict.values import FIRST_INSTANT, LAST_INSTANT, timestamp
from asynclock.spark.cli.explain import explanation_lines
from asynclock.spark.hudi.fit import check_derived
from asynclock.spark.hudi.instants import BatchCommit
from asynclock.spark.hudi.options.explanation import explain
from asynclock.spark.spec.derive import FUNCTIONS, Derived, derived_by
from asynclock.spark.spec.document import json_schema
from asynclock.spark.spec.load import load_spec
from asynclock.spark.writer.batch_columns import read_with

if TYPE_CHECKING:
    from pathlib import Path

    from asynclock.spark.spec.model import Spec

ZONES = ("UTC", "Europe/Berlin", "America/St_Johns", "Asia/Kathmandu", "Pacific/Apia", "Australia/Lord_Howe")
DAY = 86_400_000_000
TABLE = """\
[table]
path = "table"
kind = "plain"
key = ["k"]
partition_by = ["day"]
derive = { day = "date(at)", hour = "hour(at)" }
derive_zone = "Europe/Berlin"

[streams.s]
source = "in/*.csv"
ordering = "at"
columns = { at = "timestamp", born = "date", n = "int", extra = "timestamp" }
"""


def spec_of(folder: Path, *changes: tuple[str, str]) -> Spec:
    """The spec above with pieces of its text replaced."""
    text = TABLE
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    (folder / "in").mkdir(exist_ok=True)
    (folder / "spec.toml").write_text(text)
    return load_spec(folder / "spec.toml")


def value(function: str, zone: str, text: str) -> Any:  # noqa: ANN401  an int
    """A function of the time that a text says."""
    derived = Derived(name="d", function=function, source="at", zone=zone)
    return derivation(derived, "timestamp")(timestamp(text))


@given(st.sampled_from(ZONES), st.integers(FIRST_INSTANT + DAY, LAST_INSTANT - DAY))
def test_each_function_is_that_of_the_clock_on_the_wall(zone: str, micros: int) -> None:
    """At any instant of any zone, the values are those of the instant moved by the zone's offset."""
    then = dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(microseconds=micros)
    offset = then.astimezone(ZoneInfo(zone)).utcoffset()
    assert offset is not None
    days, rest = divmod(micros + offset // dt.timedelta(microseconds=1), DAY)
    year, month, day = map(int, str(dt.date(1970, 1, 1) + dt.timedelta(days)).split("-"))
    found = {
        function: derivation(Derived(name="d", function=function, source="at", zone=zone), "timestamp")(
            micros
        )
        for function in FUNCTIONS
    }

    assert found == {"date": days, "year": year, "month": month, "hour": rest * 24 // DAY}
    assert dt.date(year, month, day) - dt.date(1970, 1, 1) == dt.timedelta(found["date"])


@given(st.integers(-719_162, 2_932_896))
def test_a_date_has_no_zone(days: int) -> None:
    """The functions of a date are those of the calendar, in any zone."""
    for zone in ("Pacific/Kiritimati", "Pacific/Pago_Pago"):
        values = {
            name: derivation(Derived(name="d", function=name, source="at", zone=zone), "date")(days)
            for name in ("date", "year", "month")
        }
        then = dt.date.fromordinal(days + dt.date(1970, 1, 1).toordinal())
        assert values == {"date": days, "year": then.year, "month": then.month}


def test_the_hour_that_autumn_repeats_is_one_and_the_hour_that_spring_skips_is_none() -> None:
    """Two instants an hour apart have one hour in autumn; in spring 2 o'clock is followed by nothing."""
    autumn = [value("hour", "Europe/Berlin", f"2024-10-27T{hour:02}:30:00Z") for hour in range(3)]
    spring = [value("hour", "Europe/Berlin", f"2024-03-31T{hour:02}:30:00Z") for hour in range(3)]

    assert autumn == [2, 2, 3]
    assert spring == [1, 3, 4]


def test_times_before_1970_are_rounded_down() -> None:
    """The last microsecond of 1969 is in its last hour, on the day before the first."""
    assert value("date", "UTC", "1969-12-31T23:59:59.999999Z") == -1
    assert value("hour", "UTC", "1969-12-31T23:59:59.999999Z") == 23
    assert value("hour", "America/New_York", "1883-11-18T12:00:00Z") == 7  # four minutes behind, by the sun


@pytest.mark.parametrize(
    ("zone", "text"), [("Asia/Tokyo", "9999-12-31T20:00:00Z"), ("America/Lima", "0001-01-01T00:00:00Z")]
)
def test_a_time_whose_year_has_more_or_fewer_digits_has_no_value(zone: str, text: str) -> None:
    """It is a bad row, as a folder of the year 10000 would sort before all others."""
    with pytest.raises(ValueError, match=str(timestamp(text))):
        value("date", zone, text)


@pytest.mark.parametrize(
    ("change", "key", "words"),
    [
        (('"date(at)"', '"at"'), "table.derive.day", ["no function of a column", "date, year, month, hour"]),
        (('"date(at)"', '"date(at, 2)"'), "table.derive.day", ["no function of a column"]),
        (('"date(at)"', '"dates(at)"'), "table.derive.day", ["did you mean 'date'?"]),
        (('"date(at)"', "7"), "table.derive.day", ["expected a string"]),
        (('"date(at)"', '"date(when)"'), "table.derive.day", ["'s' declares no column 'when'"]),
        (('"date(at)"', '"date(n)"'), "table.derive.day", ["has n as int", "timestamp or date"]),
        (('"date(at)"', '"date(hour)"'), "table.derive.day", ["'hour' is derived itself"]),
        (('"hour(at)"', '"hour(born)"'), "table.derive.hour", ["has born as date", "needs a timestamp"]),
        (("Europe/Berlin", "Europe/Berln"), "table.derive_zone", ["did you mean 'Europe/Berlin'?"]),
        (("Europe/Berlin", "+01:00"), "table.derive_zone", ["no such time zone"]),
        (("Europe/Berlin", "../Europe/Berlin"), "table.derive_zone", ["no such time zone"]),
        ((" n = ", " day = "), "table.derive.day", ["stream 's' has a column 'day'"]),
        ((" n = ", " Hour = "), "table.derive.hour", ["stream 's' has a column 'hour'"]),
        (("hour = ", "deleted = "), "table.derive", ["tombstone"]),
        (("hour = ", "k__h = "), "table.derive", ["no double _"]),
        (("hour = ", "DAY = "), "table.derive", ["named twice"]),
        (('"plain"', '"splice"'), "table.derive", ["a time of its own", "one partition"]),
        (
            ("ordering", 'optional = ["extra"]\nordering'),
            "table.derive.hour",
            ["extra, which is optional there"],
        ),
    ],
)
def test_a_derive_that_cannot_be_is_refused(
    tmp_path: Path, change: tuple[str, str], key: str, words: list[str]
) -> None:
    """One sentence names the key and the remedy, and nothing is written."""
    more = [("hour(at)", "hour(extra)")] if "optional" in change[1] else []
    with pytest.raises(SpecError) as caught:
        spec_of(tmp_path, change, *more)

    assert caught.value.key == key
    assert caught.value.line > 0
    assert all(word in str(caught.value) for word in words), str(caught.value)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in", "spec.toml"]


def test_a_zone_without_derive_is_refused(tmp_path: Path) -> None:
    """It would say something about nothing."""
    with pytest.raises(SpecError, match="nothing is derived; drop it"):
        spec_of(
            tmp_path,
            ('derive = { day = "date(at)", hour = "hour(at)" }\n', ""),
            ("{ at = ", '{ day = "date", at = '),
        )


def test_derived_columns_are_columns_of_the_table_and_not_of_the_source(tmp_path: Path) -> None:
    """The view has them under their names; ``explain`` says how each is made."""
    spec = spec_of(tmp_path)

    assert list(spec.physical_types().items()) == [
        ("k", "string"), ("day", "date"), ("at", "timestamp"), ("born", "date"), ("n", "int"),
        ("extra", "timestamp"), ("hour", "int"),
    ]  # fmt: skip
    assert "hour" in spec.view_names()
    assert list(spec.streams[0].sources(spec.table)) == ["k", "at", "born", "n", "extra"]
    assert {one.column: one.rule for one in explain(spec).derived} == {
        "day": "date(at) in Europe/Berlin",
        "hour": "hour(at) in Europe/Berlin",
    }
    assert "  day is date(at) in Europe/Berlin" in list(explanation_lines(explain(spec), None))


def test_the_second_reader_derives_by_itself(tmp_path: Path) -> None:
    """A row without a time or with one out of the calendar is bad; others have values in their places."""
    spec = spec_of(tmp_path, ("ordering = ", 'format = "csv"\nordering = '), ('"at"\n', '"n"\n'))
    layout = layout_of(spec, spec.streams[0])
    lost = layout.good(1, ["x", None, None, "1", None])
    late = layout.good(2, ["x", "9999-12-31T23:30:00Z", None, "1", None])
    good = layout.good(3, ["x", "2024-06-30T22:30:00Z", None, "1", None])

    assert lost == Bad(1, "at is missing")
    assert late == Bad(2, "at has no day, since its year is not from 1 to 9999")
    assert isinstance(good, Good)
    found = dict(zip(layout.stored, good.values, strict=True))
    assert list(found)[:2] == ["k", "day"]
    assert (found["day"], found["hour"]) == ((dt.date(2024, 7, 1) - dt.date(1970, 1, 1)).days, 0)


def test_a_batch_is_validated_with_the_columns_that_it_derived(tmp_path: Path) -> None:
    """A column that joined later is null in older batches, whose rows need not have its time."""
    older = spec_of(tmp_path, (', hour = "hour(at)"', ""))
    columns = read_with(older.streams[0], older)
    spec = spec_of(tmp_path, ("hour(at)", "hour(extra)"))
    groups = {0: tuple((name, kind) for name, kind in spec.physical_types().items() if name not in "k day")}
    reading = Reading(spec, spec.streams[0], columns, groups)

    row = reading.layout.good(1, ["x", "2024-06-30T22:30:00Z", None, "1", None])

    assert isinstance(row, Good)
    [(_, key, _, cells)] = reading.events(row.values)
    assert key == ("x", 19905)
    assert dict(zip((name for name, _ in groups[0]), cells, strict=True))["hour"] is None


def commit_of(spec: Spec) -> BatchCommit:
    """A commit of the spec, as it comes back from a timeline."""
    commit = BatchCommit(
        requested="1", completed="2", stream="s", query_id="q", batch_id=0, fencing_token=1, owner="o",
        buckets=4, key=("k",), table_id="t", columns=read_with(spec.streams[0], spec),
    )  # fmt: skip
    return BatchCommit.parse("1", "2", commit.metadata())


def test_a_commit_carries_how_its_columns_were_derived(tmp_path: Path) -> None:
    """A name in the files with any characters is not mistaken for that."""
    spec = spec_of(tmp_path, ('n = "int"', 'n = { type = "int", from = "a=b from c" }'))

    commit = commit_of(spec)

    assert commit.derived == {"day": "date(at) in Europe/Berlin", "hour": "hour(at) in Europe/Berlin"}
    assert derived_by("decimal(3,2)?@x from a=b") == ""
    assert layout_of(spec, spec.streams[0], commit.columns).sources["n"] == "a=b from c"


@pytest.mark.parametrize(
    ("changes", "key", "words"),
    [
        (
            [("Europe/Berlin", "UTC")],
            "table.derive.day",
            "date(at) in Europe/Berlin, and this spec derives it",
        ),
        ([('"date(at)"', '"date(born)"')], "table.derive.day", "derives it as date(born) in Europe/Berlin"),
        (
            [(', hour = "hour(at)"', ""), ("{ at = ", '{ hour = "int", at = ')],
            "table.derive.hour",
            "and this spec reads it from the sources",
        ),
    ],
)
def test_a_derive_that_changes_is_refused(
    tmp_path: Path, changes: list[tuple[str, str]], key: str, words: str
) -> None:
    """Rows of one time would have two days; the table keeps its rule."""
    spec = spec_of(tmp_path)
    known, stored = commit_of(spec).derived, spec.physical_types()
    check_derived(spec, stored, known)
    changed = spec_of(tmp_path, *changes)

    with pytest.raises(SpecError, match="Nothing was written") as caught:
        check_derived(changed, stored, known)

    assert caught.value.key == key
    assert words in str(caught.value)


def test_a_column_of_the_sources_does_not_become_a_derived_one(tmp_path: Path) -> None:
    """Its values so far may be others; a new column may be derived, and one may be dropped."""
    prepared = spec_of(
        tmp_path,
        ('derive = { day = "date(at)", hour = "hour(at)" }\nderive_zone = "Europe/Berlin"\n', ""),
        ("{ at = ", '{ day = "date", at = '),
    )
    stored = prepared.physical_types()
    spec = spec_of(tmp_path)

    with pytest.raises(SpecError, match="has day from the sources, and this spec derives it as date"):
        check_derived(spec, stored, {})

    older = spec_of(tmp_path, (', hour = "hour(at)"', ""))
    check_derived(spec, older.physical_types(), commit_of(older).derived)
    check_derived(older, spec.physical_types(), commit_of(spec).derived)


def test_the_schema_for_editors_has_the_functions() -> None:
    """An editor marks a text that is no function."""
    schema = json_schema()["$defs"]["TableSpec"]["properties"]["derive"]

    assert "date|year|month|hour" in json.dumps(schema)
