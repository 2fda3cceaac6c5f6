"""What each merge makes of a late event, a null, a tie and of two streams, on both types of table."""

from __future__ import annotations

import csv
import datetime as dt
from typing import TYPE_CHECKING, Any, Final

from asynclock.spark import Splice, hoodie, load_spec, read
from asynclock.spark.hudi.options import call_argument, compaction_options, write_options
from asynclock.spark.spec.model import RECORD_KEY
from tests.laboratory.mechanisms.stage import Shown, must

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from asynclock.spark.spec.model import Spec
    from tests.laboratory.mechanisms.stage import Stage

PAYLOADS: Final = ("OverwriteWithLatestAvroPayload", "DefaultHoodieRecordPayload", "PartialUpdateAvroPayload")
# What docs/concepts/pipeline/plain.md and splice.md promise, on both types, whenever it is compacted.
PROMISED: Final[Mapping[str, Mapping[str, str]]] = {
    "event_time": {
        "late": "newer", "in one batch": "newer", "null": "erased", "tie": "later", "10, then 5, 7": "10, -",
    },
    "commit_time": {
        "late": "older", "in one batch": "older", "null": "erased", "tie": "later", "10, then 5, 7": "-, 7",
    },
    "partial_update": {
        "late": "older", "in one batch": "older", "null": "kept", "tie": "later", "10, then 5, 7": "10, 7",
    },
    "splice": {
        "late": "newer", "in one batch": "newer", "null": "erased", "tie": "later", "10, then 5, 7": "10, 7",
    },
}  # fmt: skip
_SPEC: Final = """
[table]
path = "{name}"
key = ["tailnum"]
buckets = 1
{table}
[locks]
max_clock_skew = 0.0
{services}
[streams.registry]
source = "in/*"
format = "csv"
ordering = "at"
columns = {{ at = "timestamp", year = "int", seats = "int"{dest} }}
[streams.departures]
source = "in/*"
format = "csv"
ordering = "at"
columns = {{ at = "timestamp", {year_and_seats}dest = "string" }}
"""
_COMPACTION: Final = "[services]\ncompaction = { every_commits = 1 }"

Event = dict[str, Any]
Batch = list[tuple[str, Event]]


def show(stage: Stage) -> Shown:
    """Write the same batches under each of our merges and each of Hudi's payloads, and compare the rows."""
    cases = Cases(stage)
    (stage.folder / "in").mkdir()
    rows: list[dict[str, object]] = []
    payloads = stage.sized(PAYLOADS[-1:], PAYLOADS)  # the others equal one of our merges
    unstable: dict[str, None] = {}
    for type_ in ("cow", "mor"):
        for merge, promised in PROMISED.items():
            between = merge == "splice" or not stage.small
            seen = cases.seen(Table(stage, type_, merge), between=between)
            for when, found in seen.items():
                must(found == promised, f"{merge} on {type_}, {when}, gives {promised}, and not {found}")
            rows.append({"merge": merge, "type": type_, **promised, "compaction": _changes(seen)})
        for payload in payloads:
            between = payload == "PartialUpdateAvroPayload" or not stage.small
            seen = cases.seen(HudiTable(stage, type_, payload), between=between)
            changes = _changes(seen)
            if changes not in {"no difference", "-"}:
                unstable[payload] = None
            first = next(iter(seen.values()))
            rows.append({"merge": f"Hudi: {payload}", "type": type_, **first, "compaction": changes})
    return Shown(
        sentence=f"our {len(PROMISED)} merges keep their promises on both types, compacted or not; of Hudi's "
        f"payloads the rows depend on the time of a compaction under: {', '.join(unstable) or 'none'}",
        table=rows,
    )


def _changes(seen: Mapping[str, Mapping[str, str]]) -> str:
    """Say in which case a compaction changes what is read."""
    (_, first), *later = seen.items()
    if not later:
        return "-"
    changes = (
        f"{case} {when}: {found[case]}"
        for when, found in later
        for case in found
        if found[case] != first[case]
    )
    return "; ".join(changes) or "no difference"


class Cases:
    """Three batches of real registrations and departures, and what is read of them.

    Of five aircraft, one each has a late event, a late one within its batch, a newer event that withdraws a
    value, and two events of one time. The last has a registration at 10 o'clock, which its departures at 5
    and 7 o'clock follow.
    """

    def __init__(self, stage: Stage) -> None:
        stage.fleet(rows=4_000)
        revised = list(_revised(list(_events(stage, "registry"))))
        known = [pair for pair in revised if pair[0]["year"] and pair[1]["year"]]
        (late, batch, tie, (registered, _)) = known[:4]
        withdrawn = next(pair for pair in revised if pair[0]["year"] and not pair[1]["year"])
        tie = (tie[0], tie[1] | {"at": tie[0]["at"]})
        places = sorted({event["dest"] for event in _events(stage, "departures")})
        clock = registered["at"].replace(minute=0)
        flown = [
            {"tailnum": registered["tailnum"], "at": clock.replace(hour=hour), "dest": place}
            for hour, place in zip((5, 7), places, strict=False)
        ]
        self._pairs = {"late": late, "in one batch": batch, "null": withdrawn, "tie": tie}
        self._registered, self._flown = registered, flown
        self.batches: tuple[Batch, ...] = (
            [
                ("registry", late[1]),
                ("registry", batch[1]),
                ("registry", batch[0]),
                ("registry", withdrawn[0]),
                ("registry", tie[0]),
                ("registry", registered | {"at": clock.replace(hour=10)}),
            ],
            [
                ("registry", late[0]),
                ("registry", withdrawn[1]),
                ("registry", tie[1]),
                ("departures", flown[0]),
            ],
            [("departures", flown[1])],
        )

    def seen(self, table: Table, *, between: bool) -> dict[str, dict[str, str]]:
        """Return what is read of a table, and of merge-on-read after compactions at two times."""
        for batch in self.batches:
            table.write(batch)
        seen = {"as written": self._judged(table)}
        if table.type == "cow":
            return seen
        table.compact()
        seen["compacted at the end"] = self._judged(table)
        if between:
            other = table.anew()
            for batch in self.batches[:2]:
                other.write(batch)
            other.compact()
            other.write(self.batches[2])
            seen["compacted before 7"] = self._judged(other)
        return seen

    def _judged(self, table: Table) -> dict[str, str]:
        rows = table.rows()
        judged = {}
        for case, (older, newer) in self._pairs.items():
            row = rows[older["tailnum"]]
            if case == "null":
                judged[case] = "erased" if row["year"] is None else "kept"
            else:
                first, second = ("earlier", "later") if case == "tie" else ("older", "newer")
                judged[case] = {older["seats"]: first, newer["seats"]: second}[row["seats"]]
        row = rows[self._registered["tailnum"]]
        registry = "10" if row["seats"] == self._registered["seats"] else "-"
        departure = {event["dest"]: str(event["at"].hour) for event in self._flown}.get(row["dest"], "-")
        return judged | {"10, then 5, 7": f"{registry}, {departure}"}


class Table:
    """One of our tables, under one merge.

    Args:
        stage: Where it is.
        type_: ``cow`` or ``mor``.
        merge: Its merge.
        number: Tells tables of one merge apart.
        name: Of the table's folder; default: that of the merge.
    """

    def __init__(self, stage: Stage, type_: str, merge: str, number: int = 0, name: str = "") -> None:
        self.type = type_
        self._stage, self._merge, self._number = stage, merge, number
        splice = merge == "splice"
        kind = f'kind = "plain"\nmerge = "{merge}"' if not splice else ""
        path = stage.folder / f"{type_}_{name or merge}_{number}.toml"
        text = _SPEC.format(
            name=path.stem,
            table=f'type = "{type_}"\n{kind}',
            services=_COMPACTION if type_ == "mor" else "",
            dest="" if splice else ', dest = "string"',
            year_and_seats="" if splice else 'year = "int", seats = "int", ',
        )
        path.write_text(text)
        self._spec: Spec = load_spec(path)
        self._splice: Splice | None = None

    def anew(self) -> Table:
        """Return an empty table of the same kind."""
        return type(self)(self._stage, self.type, self._merge, self._number + 1)

    def write(self, batch: Batch) -> None:
        """Write a batch: of a splice in a commit for each stream, of whole rows in one."""
        self._splice = self._splice or Splice(self._spec, self._stage.spark)
        whole = self._spec.table.kind == "plain"
        for stream in dict.fromkeys(stream for stream, _ in (batch[:1] if whole else batch)):
            events = [event for name, event in batch if whole or name == stream]
            columns = [column.name for column in self._spec.stream(stream).columns]
            self._splice.write(self._frame(events, ["tailnum", *columns]), stream)

    def compact(self) -> None:
        """Let Hudi merge the logs into base files."""
        options = call_argument(self._compaction_options())
        statement = (
            f"CALL run_compaction(op => 'scheduleandexecute', path => '{self._spec.table.path}', "
            f"options => '{options}')"
        )
        must(self._stage.spark.sql(statement).collect(), "a compaction has work to do")

    def rows(self) -> dict[str, Event]:
        """Return the rows that a reader sees, by aircraft."""
        return {row["tailnum"]: row.asDict() for row in read(self._spec, self._stage.spark).collect()}

    def _compaction_options(self) -> dict[str, str]:
        return compaction_options(self._spec)

    def _frame(self, events: Sequence[Event], columns: Sequence[str]) -> Any:  # noqa: ANN401  a DataFrame
        types = {"at": "timestamp", "year": "int", "seats": "int"}
        schema = ", ".join(f"{name} {types.get(name, 'string')}" for name in columns)
        rows = [tuple(event.get(name) for name in columns) for event in events]
        return self._stage.spark.createDataFrame(rows, schema).coalesce(1)


class HudiTable(Table):
    """A table of whole rows that is written by options, under a payload class of Hudi's."""

    def __init__(self, stage: Stage, type_: str, payload: str, number: int = 0) -> None:
        super().__init__(stage, type_, "event_time", number, name=payload)
        self._payload = payload

    def anew(self) -> Table:
        """Return an empty table of the same kind."""
        return HudiTable(self._stage, self.type, self._payload, self._number + 1)

    def write(self, batch: Batch) -> None:
        """Write a batch in one commit; Hudi reduces it to one row per key."""
        options = _without_merge(write_options(self._spec)) | {
            hoodie.DATASOURCE_WRITE_PAYLOAD_CLASS: f"org.apache.hudi.common.model.{self._payload}",
            hoodie.COMBINE_BEFORE_UPSERT: "true",
        }
        frame = self._frame([event for _, event in batch], ["tailnum", "at", "year", "seats", "dest"])
        frame = frame.withColumn(RECORD_KEY, frame["tailnum"])
        frame.write.format("hudi").options(**options).mode("append").save(self._spec.table.path)

    def rows(self) -> dict[str, Event]:
        """Return the rows that a reader sees, by aircraft."""
        reader = self._stage.spark.read.format("hudi").option(hoodie.METADATA_ENABLE, "false")
        return {row["tailnum"]: row.asDict() for row in reader.load(self._spec.table.path).collect()}

    def _compaction_options(self) -> dict[str, str]:
        return _without_merge(super()._compaction_options())


def _without_merge(options: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in options.items() if name != hoodie.WRITE_RECORD_MERGE_MODE}


def _events(stage: Stage, stream: str) -> Iterator[Event]:
    """Yield the events of a stream, in the order of the files."""
    for path in sorted((stage.folder / "data" / stream).glob("*.csv")):
        with path.open(newline="") as file:
            for row in csv.DictReader(file):
                at = row["registered_at" if stream == "registry" else "departed_at"]
                event: Event = {name: row.get(name) or None for name in ("tailnum", "dest")}
                numbers = {name: int(row[name]) if row.get(name) else None for name in ("year", "seats")}
                yield event | numbers | {"at": dt.datetime.fromisoformat(at)}


def _revised(events: list[Event]) -> Iterator[tuple[Event, Event]]:
    """Yield the first two registrations of each aircraft whose seats were changed between them."""
    for tailnum in dict.fromkeys(event["tailnum"] for event in events):
        own = {event["at"]: event for event in events if event["tailnum"] == tailnum}
        if len(own) > 1:
            older, newer = (own[at] for at in sorted(own)[:2])
            if older["seats"] != newer["seats"]:
                yield older, newer
