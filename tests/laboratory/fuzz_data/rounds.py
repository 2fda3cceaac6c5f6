"""One round: hundreds of files fed into one table, and what must be there compared with what is."""

from __future__ import annotations

import json
import os
import shutil
import threading
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

import pyarrow as pa
from hudi import HudiTableBuilder
from pyspark.sql import functions as F  # noqa: N812  the name everybody uses

from asynclock.errors import AsyncLockError
from asynclock.spark.arrow import view
from asynclock.spark.check.strict.expected import same
from asynclock.spark.check.validation import validate
from asynclock.spark.hudi.table import Table as SpliceTable
from asynclock.spark.reader.snapshot import snapshot
from asynclock.spark.runs.run import run, run_services
from asynclock.spark.spec.load import load_spec
from tests.laboratory.fuzz_data.draw import Draw
from tests.laboratory.fuzz_data.files import Files
from tests.laboratory.fuzz_data.names import named
from tests.laboratory.fuzz_data.tables import TABLES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from pyspark.sql import SparkSession

    from asynclock.spark.spec.model import Spec
    from tests.laboratory.fuzz_data.files import File
    from tests.laboratory.fuzz_data.rows import Row
    from tests.laboratory.fuzz_data.tables import Stream, Table

DEADLINE: Final = 240.0
"""Seconds after which a run counts as a hang."""
NOW: Final = 1_700_000_000
DAY: Final = 86_400

Key = tuple[Any, ...]


class HangError(Exception):
    """A run did not come to its end."""


@dataclass
class Outcome:
    """What a round found.

    Attributes:
        files: Files fed.
        rows: Rows in them.
        changed: Values in the table that no file has, or that must be in the quarantine.
        lost: Rows that are neither where they must be nor in the quarantine.
        hangs: Runs that did not end.
        refused: Runs that were refused without a reason.
        misjudged: Whatever ``validate`` told wrong.
        third: Tables that hudi-rs read after the compaction.
        said: One sentence about each of them.
        blamed: The files they come from.
    """

    files: int = 0
    rows: int = 0
    changed: int = 0
    lost: int = 0
    hangs: int = 0
    refused: int = 0
    misjudged: int = 0
    third: int = 0
    said: list[str] = field(default_factory=list)
    blamed: set[str] = field(default_factory=set)

    @property
    def clean(self) -> bool:
        """Whether everything was as it must be."""
        return not (self.changed or self.lost or self.hangs or self.refused or self.misjudged)

    def tell(self, what: str, sentence: str, file: str = "") -> None:
        """Count one finding."""
        setattr(self, what, getattr(self, what) + 1)
        self.said.append(f"{what}: {sentence}")
        if file:
            self.blamed.add(file)


class Round:
    """A table of its own, fed twice, compacted, and looked at after each.

    Args:
        folder: Where everything lies.
        spark: The session.
        seed: Makes the same files again.
        files: How many.
        deadline: Seconds after which a run counts as a hang.
    """

    def __init__(
        self, folder: Path, spark: SparkSession, seed: int, files: int, *, deadline: float = DEADLINE
    ) -> None:
        self._deadline = deadline
        self._folder = folder
        self._spark = spark
        self._table: Table = named(TABLES[seed % len(TABLES)], seed)
        self._files = generate(self._table, seed, files)
        self.outcome = Outcome(files=files)
        self._arrived: dict[str, list[File]] = {stream.name: [] for stream in self._table.streams}

    def run(self) -> Outcome:
        """Feed, look, compact, look again."""
        self._folder.mkdir(parents=True)
        for stream in self._table.streams:
            (self._folder / "in" / stream.name).mkdir(parents=True)
        path = self._folder / "spec.toml"
        path.write_text(self._table.spec(), encoding="utf-8")
        spec = load_spec(path)
        try:
            for late in (False, True):
                self._deliver(late=late)
                self._guarded(lambda: run(spec, once=True, spark=self._spark))
            self._look(self._stored(spec), "as written")
            self._disturb()
            self._second_reading(spec)
            self._guarded(lambda: run_services(spec, once=True, spark=self._spark))
            self._look(self._stored(spec), "compacted")
            self._third_reading(spec)
            self._must_be_refused()
        except HangError as error:
            self.outcome.tell("hangs", str(error))
        except AsyncLockError as error:
            self.outcome.tell("refused", str(error))
        except Exception as error:  # noqa: BLE001  whatever Spark raises
            self.outcome.tell("refused", f"{type(error).__name__}: {str(error)[:2000]}")
        return self.outcome

    def keep(self, folder: Path) -> None:
        """Copy what is blamed to a folder."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "spec.toml").write_text(self._table.spec(), encoding="utf-8")
        for name, files in self._files.items():
            for file in files:
                if f"{name}/{file.name}" in self.outcome.blamed:
                    (folder / name).mkdir(exist_ok=True)
                    (folder / name / file.name).write_bytes(file.content)
        (folder / "said.txt").write_text("\n".join(self.outcome.said), encoding="utf-8")

    def _deliver(self, *, late: bool) -> None:
        for stream in self._table.streams:
            arriving = [file for file in self._files[stream.name] if file.late == late]
            for file in arriving:
                path = self._folder / "in" / stream.name / file.name
                path.write_bytes(file.content)
                os.utime(path, (_modified(file), _modified(file)))
            self._arrived[stream.name] += sorted(arriving, key=lambda file: (_modified(file), file.name))

    def _disturb(self) -> None:
        """Lay a file beside the others that no stream reads, and touch one that has been read."""
        for stream in self._table.streams:
            folder = self._folder / "in" / stream.name
            (folder / f"_hidden.{stream.format}").write_bytes(b"hidden")
            touched = folder / self._touched(stream).name
            os.utime(touched, (NOW + DAY, NOW + DAY))

    def _touched(self, stream: Stream) -> File:
        """Return the first file with content: an empty one that stays empty has nothing that is unread."""
        return next(file for file in self._files[stream.name] if file.content)

    def _must_be_refused(self) -> None:
        """Run with another type of an ordering column, and with a table that is gone."""
        path = self._folder / "other.toml"
        name, kind = self._table.streams[0].ordering
        other = "bigint" if kind == "string" else "string"
        text = self._table.spec()
        for begin in (f"{name} = ", f"{name} = {{ type = "):
            text = text.replace(f'{begin}"{kind}"', f'{begin}"{other}"')
        path.write_text(text, encoding="utf-8")
        table = self._folder / "table"
        away = self._folder / "away"
        for what, spec in (
            ("a type that changed", path),
            ("a table that is gone", self._folder / "spec.toml"),
        ):
            if spec != path:
                table.rename(away)
            try:
                self._guarded(lambda spec=spec: run(load_spec(spec), once=True, spark=self._spark))
            except AsyncLockError:
                continue
            self.outcome.tell("changed", f"a run with {what} was not refused")

    def _guarded(self, call: Callable[[], object]) -> None:
        errors: list[BaseException] = []

        def work() -> None:
            try:
                call()
            except BaseException as error:  # noqa: BLE001  raised again below
                errors.append(error)

        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        thread.join(self._deadline)
        if thread.is_alive():
            raise HangError(f"a run has not ended after {self._deadline:.0f} s")
        if errors:
            raise errors[0]

    def _look(self, rows: Iterable[tuple[Key, list[list[Any]]]], when: str) -> None:
        expected = self._expected()
        found: Counter[Key] = Counter()
        for key, groups in rows:
            found[key] += 1
            if key not in expected:
                self.outcome.tell("changed", f"{when}: a row that no file has: {key}, {groups}")
                continue
            for stream, cells in zip(self._table.streams, groups, strict=True):
                file, row = expected[key].get(stream.name, ("", None))
                wanted = [row.cells[name].value if row else None for name, _ in stream.owned]
                for (name, kind), want, has in zip(stream.owned, wanted, cells, strict=True):
                    if not same(want, has):
                        sentence = (
                            f"{when}: {stream.name}.{name} ({kind}) of {key} is {has!r}, not {want!r}; {file}"
                        )
                        self.outcome.tell("changed", sentence, file)
        for key, events in expected.items():
            if found[key] != 1:
                files = ", ".join(file for file, _ in events.values())
                self.outcome.tell(
                    "lost",
                    f"{when}: {key} is there {found[key]} times; {files}",
                    next(iter(events.values()))[0],
                )
        if when == "as written":
            self._look_aside()

    def _look_aside(self) -> None:
        for stream in self._table.streams:
            folder = self._folder / "checkpoints" / f"{stream.name}-quarantine"
            entries = [
                json.loads(line)
                for path in sorted(folder.rglob("*.json"))
                for line in path.read_text(encoding="utf-8").split("\n")
                if line
            ]
            aside = Counter(unquote(entry["file"].rpartition("/")[2]) for entry in entries)
            reasons = {unquote(entry["file"].rpartition("/")[2]): entry["reason"] for entry in entries}
            for entry in entries:
                if not entry.get("reason"):
                    self.outcome.tell("lost", f"put aside without a reason: {entry}")
            for file in self._files[stream.name]:
                self.outcome.rows += len(file.rows)
                name = f"{stream.name}/{file.name}"
                if aside[file.name] != file.aside:
                    wrong = "; ".join(row.why for row in file.rows if not row.good)
                    sentence = (
                        f"{name} ({file.kind}) makes {aside[file.name]} entries in the quarantine, not "
                        f"{file.aside}: {reasons.get(file.name)}; wrong: {wrong}"
                    )
                    self.outcome.tell("lost", sentence, name)

    def _expected(self) -> dict[Key, dict[str, tuple[str, Row]]]:
        """Of each key and stream the newest event, and its file."""
        expected: dict[Key, dict[str, tuple[str, Row]]] = {}
        for stream in self._table.streams:
            ordering = stream.ordering[0]
            for file in self._arrived[stream.name]:
                for row in file.rows:
                    if file.bad or not row.good:
                        continue
                    key = tuple(row.cells[name].value for name, _ in self._table.shared)
                    group = expected.setdefault(key, {})
                    before = group.get(stream.name)
                    if before is None or _rank(before[1], ordering) <= _rank(row, ordering):
                        group[stream.name] = f"{stream.name}/{file.name}", row
        return expected

    def _columns(self) -> list[tuple[str, str]]:
        """Return the columns of the table and their types: the shared ones, then each stream's own."""
        columns = [*self._table.shared]
        for stream in self._table.streams:
            columns += [
                (f"{stream.name}__{'ts' if name == stream.ordering[0] else name}", kind)
                for name, kind in stream.owned
            ]
        return columns

    def _stored(self, spec: Spec) -> Iterable[tuple[Key, list[list[Any]]]]:
        whole = {"date": F.unix_date, "timestamp": F.unix_micros}
        stored = snapshot(SpliceTable(spec, self._spark))
        frame = stored.select(*(whole.get(kind, F.col)(name) for name, kind in self._columns()))
        return map(self._split, frame.collect())

    def _third_reading(self, spec: Spec) -> None:
        """Read the compacted table by hudi-rs, if each of its slices is a base file alone."""
        table = HudiTableBuilder.from_base_uri(spec.table.path).build()
        if any(one.log_file_names or not one.base_file_name for one in table.get_file_slices()):
            return
        whole = {"date": pa.int32(), "timestamp": pa.int64()}
        shown, names = view(spec, table), spec.view_names()
        cells = [
            shown[name].cast(whole.get(kind, shown[name].type)).to_pylist()
            for name, kind in ((names.get(stored, stored), kind) for stored, kind in self._columns())
        ]
        self._look(map(self._split, zip(*cells, strict=True)), "by hudi-rs")
        self.outcome.third += 1

    def _split(self, row: Iterable[Any]) -> tuple[Key, list[list[Any]]]:
        """Return the key of a row and the cells of each stream."""
        values = list(row)
        place = len(self._table.shared)
        key, groups = tuple(values[:place]), []
        for stream in self._table.streams:
            groups.append(values[place : place + len(stream.owned)])
            place += len(stream.owned)
        return key, groups

    def _second_reading(self, spec: Spec) -> None:
        report = validate(spec, self._spark)
        before = self.outcome.clean
        if not report.ok and before:
            for difference in report.sample:
                self.outcome.tell("misjudged", f"validate tells what is not so: {difference}")
        if report.ok and not before:
            self.outcome.tell("misjudged", "validate finds nothing wrong")
        for stream, told in zip(self._table.streams, report.streams, strict=True):
            files = self._files[stream.name]
            unread = [unquote(name.rpartition("/")[2]) for name in (*told.hidden_files, *told.changed_files)]
            if unread != [f"_hidden.{stream.format}", self._touched(stream).name]:
                self.outcome.tell(
                    "misjudged", f"{stream.name}: validate tells {unread} as never read or changed"
                )
            good = sum(row.good for file in files for row in file.rows if not file.bad)
            aside = sum(file.aside for file in files)
            if (told.events, told.bad_rows) != (good, aside):
                counted = f"{told.events} events and {told.bad_rows} bad rows"
                sentence = f"{stream.name}: validate counts {counted}, not {good} and {aside}"
                self.outcome.tell("misjudged", sentence)


def generate(table: Table, seed: int, files: int) -> dict[str, list[File]]:
    """The files of each stream of a table."""
    draw = Draw(seed)
    made: dict[str, list[File]] = {}
    for place, stream in enumerate(table.streams):
        count = files // len(table.streams) + (place < files % len(table.streams))
        maker = Files(table, stream)
        made[stream.name] = [maker.file(draw, number) for number in range(count)]
    return made


def discard(folder: Path) -> None:
    """Remove what a round left."""
    shutil.rmtree(folder, ignore_errors=True)


def _modified(file: File) -> int:
    return NOW - file.age * DAY + int(file.name[:6]) % 7


def _rank(row: Row, ordering: str) -> Any:  # noqa: ANN401  numbers or bytes
    value = row.cells[ordering].value
    # Spark and Hudi compare texts byte by byte.
    return value.encode() if isinstance(value, str) else value
