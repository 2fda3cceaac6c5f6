"""The event files of the demo: instants, counts, order of delivery, and what the oracle makes of them."""

import csv
import hashlib
import tomllib
from collections import defaultdict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import pytest

from examples import fleet_data, fleet_oracle
from examples.fleet_data import Fleet, arrival_events, departure_events, prepare, write_spec

AIRPORTS = pd.DataFrame(
    {"faa": ["BOS", "LAX", "HNL", "ORD"]}
    | {"tzone": ["America/New_York", "America/Los_Angeles", "Pacific/Honolulu", "America/Chicago"]}
)


def flight(
    day: str, departure: int, arrival: int, dest: str, *, delays: tuple[float, float] = (0, 0)
) -> pd.DataFrame:
    """One flight, with the columns of the source that matter."""
    year, month, date = map(int, day.split("-"))
    row = {"year": year, "month": month, "day": date, "tailnum": "N1", "dest": dest}
    row |= {
        "sched_dep_time": departure,
        "sched_arr_time": arrival,
        "dep_delay": delays[0],
        "arr_delay": delays[1],
    }
    return pd.DataFrame([row])


@pytest.mark.parametrize(
    ("day", "clock", "delay", "instant"),
    [
        ("2013-01-01", 515, 2, "2013-01-01T10:17Z"),
        ("2013-07-01", 515, -2, "2013-07-01T09:13Z"),
        ("2013-03-09", 2359, 180, "2013-03-10T07:59Z"),  # past the clock change, in minutes that pass
        ("2013-03-10", 230, 0, "2013-03-10T07:30Z"),  # the clock skips this time
        ("2013-11-02", 2359, 180, "2013-11-03T06:59Z"),
        ("2013-11-03", 130, 0, "2013-11-03T05:30Z"),  # the first of two
        ("2013-12-31", 2359, 10, "2014-01-01T05:09Z"),
    ],
)
def test_departure_instant(day: str, clock: int, delay: int, instant: str) -> None:
    """A departure happens at its scheduled New York time plus its delay, also around clock changes."""
    events = departure_events(flight(day, clock, 1200, "BOS", delays=(delay, 0)))

    assert events["at"].tolist() == [pd.Timestamp(instant)]


@pytest.mark.parametrize(
    ("day", "departure", "arrival", "dest", "instant"),
    [
        ("2013-01-01", 1000, 1115, "BOS", "2013-01-01T16:15Z"),
        ("2013-01-01", 2255, 10, "BOS", "2013-01-02T05:10Z"),  # lands after midnight
        ("2013-01-01", 2100, 30, "LAX", "2013-01-02T08:30Z"),  # after midnight in Los Angeles
        ("2013-01-01", 100, 2350, "HNL", "2013-01-01T09:50Z"),  # at the gate it is still the day before
        ("2013-01-01", 900, 900, "ORD", "2013-01-01T15:00Z"),  # the same time on another clock
        ("2013-01-01", 900, 900, "BOS", "2013-01-02T14:00Z"),  # the departure itself is not after it
        ("2013-03-09", 2300, 330, "ORD", "2013-03-10T08:30Z"),
        ("2013-11-02", 2359, 130, "BOS", "2013-11-03T05:30Z"),  # the first of two
        ("2013-11-03", 145, 130, "BOS", "2013-11-03T06:30Z"),  # the second: the first has passed
        ("2013-01-01", 2359, 440, "SJU", "2013-01-02T08:40Z"),
        ("2013-07-01", 2359, 340, "BQN", "2013-07-02T07:40Z"),  # Puerto Rico has no summer time
        ("2013-07-01", 2359, 340, "PSE", "2013-07-02T07:40Z"),
        ("2013-07-01", 800, 1155, "STT", "2013-07-01T15:55Z"),
    ],
)
def test_arrival_instant(day: str, departure: int, arrival: int, dest: str, instant: str) -> None:
    """An arrival happens when the destination's clock next shows the scheduled time, plus its delay."""
    events = arrival_events(flight(day, departure, arrival, dest, delays=(500, -7)), AIRPORTS)

    assert events["at"].tolist() == [pd.Timestamp(instant) - pd.Timedelta(minutes=7)]


def test_cancelled_and_diverted_flights_have_no_arrival() -> None:
    """No departure without a delay known, no arrival without one, and nothing without a tail number."""
    flights = pd.concat([flight("2013-01-01", 900, 1000, "BOS")] * 4, ignore_index=True)
    flights.loc[1, ["dep_delay", "arr_delay"]] = np.nan
    flights.loc[2, "arr_delay"] = np.nan
    flights.loc[3, "tailnum"] = np.nan

    assert departure_events(flights).index.tolist() == [0, 2]
    assert arrival_events(flights, AIRPORTS).index.tolist() == [0]


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> tuple[Fleet, Path]:
    """The whole year, written once."""
    directory = tmp_path_factory.mktemp("full")
    return prepare(directory), write_spec(directory)


@pytest.fixture(scope="module")
def expected(full: tuple[Fleet, Path]) -> fleet_oracle.Expected:
    """The whole year as the oracle reads it."""
    return fleet_oracle.expect(full[1])


def test_year_has_the_known_counts(full: tuple[Fleet, Path]) -> None:
    """Every rule drops exactly the flights it is known to drop."""
    fleet, _ = full

    assert fleet.counts == fleet_data.FlightCounts(
        flights=336_776,
        without_tailnum=2_512,
        cancelled=8_255,
        never_landed=458,
        without_arr_delay=717,
        departures=336_776 - 8_255,
        arrivals=336_776 - 8_255 - 458 - 717,
        planes=3_322,
    )
    assert {name: stream.events for name, stream in fleet.streams.items()} == {
        "registry": 3_322 + 830,
        "departures": 328_521,
        "arrivals": 327_346,
    }
    assert (fleet.events, fleet.aircraft) == (660_019, 4_043)


def test_year_comes_late_and_twice(full: tuple[Fleet, Path], expected: fleet_oracle.Expected) -> None:
    """In every stream more than 5 % lost to a newer event, came late, or were duplicates."""
    for name, statistics in expected.statistics.items():
        assert statistics.superseded_share > 0.05, name
        assert statistics.late_share > 0.05, name
        assert statistics.duplicate_share > 0.05, name
        assert statistics.events == full[0].streams[name].events
        assert statistics.duplicates == full[0].streams[name].duplicates
    assert (len(expected.rows), len(expected.columns)) == (4_043, 17)


def test_one_tie_delivered_together(full: tuple[Fleet, Path], expected: fleet_oracle.Expected) -> None:
    """The year's only two different events of one instant lie in one file, once, as in the source."""
    assert {name: stats.tied for name, stats in expected.statistics.items()} == {
        "registry": 0,
        "departures": 0,
        "arrivals": 2,
    }
    places = [
        (path.name, row["landed_in"])
        for path in full[0].streams["arrivals"].files
        for row in csv.DictReader(path.read_text().split("\n"))
        if (row["tailnum"], row["arrived_at"]) == ("N710TW", "2013-04-18T19:04:00.000Z")
    ]

    assert [dest for _, dest in places] == ["SEA", "LAX"]
    assert len({name for name, _ in places}) == 1


def test_winners_are_the_newest_flights_of_the_source(expected: fleet_oracle.Expected) -> None:
    """What the files add up to is the source's last flight of every aircraft, by its own reckoning."""
    newest: dict[str, tuple[datetime, int, str]] = {}
    flights = fleet_data.read_table("flights.csv.zip").dropna(subset=["tailnum", "dep_delay"])
    columns = ["year", "month", "day", "sched_dep_time", "dep_delay", "tailnum", "flight", "dest"]
    for year, month, day, clock, delay, tailnum, number, dest in flights[columns].itertuples(index=False):
        local = datetime(year, month, day, *divmod(clock, 100), tzinfo=ZoneInfo("America/New_York"))
        instant = local.astimezone(UTC) + timedelta(minutes=delay)
        newest[tailnum] = max(newest.get(tailnum, (instant, number, dest)), (instant, number, dest))

    actual = {
        key: (row["departed_at"], row["flight"], row["dest"])
        for key, row in expected.rows.items()
        if row["departed_at"] is not None
    }

    assert actual == newest


def test_files_rise_in_name_and_time(full: tuple[Fleet, Path]) -> None:
    """Readers by name and readers by modification time see one order, and none lies in the future."""
    for stream in full[0].streams.values():
        times = [path.stat().st_mtime for path in stream.files]
        assert list(stream.files) == sorted(stream.files)
        assert times == sorted(set(times))
        assert times[-1] < datetime.now(UTC).timestamp()


def digest(fleet: Fleet) -> str:
    """The bytes of every file, in order."""
    whole = hashlib.sha256()
    for stream in fleet.streams.values():
        for path in stream.files:
            whole.update(path.name.encode() + path.read_bytes())
    return whole.hexdigest()


def test_seed_decides_every_byte(tmp_path: Path) -> None:
    """The same seed gives the same files, another seed others."""
    first, same, other = (
        digest(prepare(tmp_path / str(number), rows=2_000, seed=seed, files_per_stream=5))
        for number, seed in enumerate((7, 7, 8))
    )

    assert first == same
    assert first != other


def test_rows_limit_the_events(tmp_path: Path) -> None:
    """A short run has exactly that many events, early flights with the registry of their aircraft."""
    fleet = prepare(tmp_path, rows=5_000, files_per_stream=6)
    expected = fleet_oracle.expect(write_spec(tmp_path))

    assert sum(statistics.events for statistics in expected.statistics.values()) == fleet.events == 5_000
    assert [len(stream.files) for stream in fleet.streams.values()] == [6, 6, 6]
    flown = [row for row in expected.rows.values() if row["departed_at"] is not None]
    assert len(flown) > 0.95 * len(expected.rows)
    assert max(row["departed_at"] for row in flown) < datetime(2013, 1, 5, tzinfo=UTC)
    assert sum(row["registered_at"] is not None for row in flown) > 0.5 * len(flown)


@pytest.mark.parametrize("options", [{"rows": 0}, {"rows": -1}, {"rows": 1}, {"files_per_stream": 0}])
def test_numbers_out_of_range_write_nothing(tmp_path: Path, options: dict[str, int]) -> None:
    """Too few events or files are refused, by name, before anything is written."""
    with pytest.raises(ValueError, match=next(iter(options))):
        prepare(tmp_path, **options)

    assert not any(tmp_path.iterdir())


def test_files_are_never_mixed_with_older_ones(tmp_path: Path) -> None:
    """A folder that has events is left alone."""
    old = tmp_path / "data" / "arrivals" / "00000.csv"
    old.parent.mkdir(parents=True)
    old.write_text("tailnum\n")

    with pytest.raises(FileExistsError, match="arrivals"):
        prepare(tmp_path, rows=2_000)

    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [old]


def test_ties_survive_any_cut_and_shuffle(tmp_path: Path) -> None:
    """Events of one instant stay in one file and in order, wherever the files are cut."""
    rng = np.random.default_rng(5)
    events = pd.DataFrame({"tailnum": [f"N{n}" for n in rng.integers(0, 9, 300)], "landed_in": "BOS"})
    events = events.assign(arr_delay=1.0, air_time=1.0, distance=range(300))
    minutes = np.sort(rng.integers(1, 40, 300))
    events["at"] = fleet_data.REGISTERED_AT + pd.to_timedelta(minutes, unit="min")
    order = fleet_data._delivery_order(events, minutes / 40, hold=0.5, rng=rng)
    delivery = fleet_data._write(tmp_path, "arrivals", events, order, files=50)

    places = defaultdict(list)
    for path in delivery.files:
        for row in csv.DictReader(path.read_text().split("\n")):
            places[row["tailnum"], row["arrived_at"]].append((path.name, int(row["distance"])))
    tied = [found for found in places.values() if len({distance for _, distance in found}) > 1]

    assert len(tied) > 30
    for found in tied:
        assert len({name for name, _ in found}) == 1
        assert [distance for _, distance in found] == sorted(distance for _, distance in found)


def test_spec_is_rendered_for_a_folder(tmp_path: Path) -> None:
    """The written spec is the shipped one with every path inside the folder."""
    folder = tmp_path / 'a "quoted" folder'
    shipped = tomllib.loads(fleet_data.SPEC.read_text())
    written = tomllib.loads(write_spec(folder).read_text())

    assert written["table"]["path"] == f"file://{folder}/table"
    assert "asynclock-fleet" not in (folder / "fleet.toml").read_text()
    for name, stream in written["streams"].items():
        assert stream["source"] == f"{folder}/data/{name}/*.csv"
        assert stream["columns"] == shipped["streams"][name]["columns"]
