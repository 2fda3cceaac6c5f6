"""The view as a table of PyArrow, from file slices as ``hudi`` shows them."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from asynclock.errors import ConfigError, SpecError
from asynclock.spark.arrow import view
from asynclock.spark.spec.load import load_spec
from tests.unit.specs import SPEC

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from asynclock.spark.spec.model import Spec

KEY = "_asynclock_key"
NOON = dt.datetime(2026, 1, 31, 12, tzinfo=dt.UTC)
COLUMNS = 'columns = { departed_at = "timestamp", origin = "string", dep_delay = "double" }'


@dataclass
class Slice:
    """A file slice."""

    base_file_name: str = "a.parquet"
    log_file_names: list[str] = field(default_factory=list)

    def base_file_relative_path(self) -> str:
        """The path below the table."""
        return self.base_file_name


@dataclass
class HudiTable:
    """A table with the rows of its base files."""

    base_url: str
    files: dict[str, pa.RecordBatch]
    slices: list[Slice]
    options: dict[str, str] = field(default_factory=dict)

    def hudi_options(self) -> dict[str, str]:
        """The options."""
        return self.options

    def get_file_slices(self) -> list[Slice]:
        """The slices."""
        return self.slices

    def create_file_group_reader_with_options(self) -> HudiTable:
        """The table reads itself."""
        return self

    def read_file_slice_from_paths(self, base_file_path: str, log_file_paths: list[str]) -> pa.RecordBatch:
        """The rows of a base file."""
        assert log_file_paths == []
        return self.files[base_file_path]


def row(key: str, **cells: Any) -> dict[str, Any]:  # noqa: ANN401  cells
    """A stored row of both streams."""
    names = (
        "departures__ts",
        "departures__origin",
        "departures__dep_delay",
        "arrivals__ts",
        "arrivals__deleted",
    )
    return {KEY: key, "tailnum": key, **dict.fromkeys(names), **cells}


def batch(*rows: dict[str, Any]) -> pa.RecordBatch:
    """Rows of a base file."""
    types = {
        "departures__ts": pa.timestamp("us", "UTC"),
        "departures__origin": pa.string(),
        "departures__dep_delay": pa.float64(),
        "arrivals__ts": pa.timestamp("us", "UTC"),
        "arrivals__deleted": pa.bool_(),
    }
    schema = pa.schema([(name, types.get(name, pa.string())) for name in rows[0]])
    return pa.RecordBatch.from_pylist(list(rows), schema)


@pytest.fixture
def spec(write_spec: Callable[[str], Path]) -> Spec:
    """Two streams; the second has a tombstone, the first a default."""
    return load_spec(write_spec(SPEC.replace(COLUMNS, f'{COLUMNS}\ndefault = {{ origin = "unknown" }}')))


ROWS = (
    row("both", departures__ts=NOON, departures__origin="JFK", departures__dep_delay=1.5, arrivals__ts=NOON),
    row("one", departures__ts=NOON, departures__origin=None),
    row("gone", arrivals__ts=NOON, arrivals__deleted=True),
    row("half", departures__origin="left over", arrivals__ts=NOON, arrivals__deleted=False),
    row("none"),
)


@pytest.mark.parametrize(
    ("stored", "kind"),
    [
        ((0.10000000149011612, None, float("nan"), float("-inf")), pa.float32()),
        ((0.10000000149011612, 0.1), pa.float64()),  # a newer spec has the column as double
        ((None,), pa.float32()),
    ],
)
def test_a_float_is_a_float_although_the_table_stores_a_double(
    write_spec: Callable[[str], Path], stored: tuple[float | None, ...], kind: pa.DataType
) -> None:
    """As a read shows it, and no value loses a digit."""
    spec = load_spec(write_spec(SPEC.replace('dep_delay = "double"', 'dep_delay = "float"')))
    rows = [
        row(str(number), departures__ts=NOON, departures__dep_delay=one) for number, one in enumerate(stored)
    ]

    shown = view(spec, HudiTable(spec.table.path, {"a.parquet": batch(*rows)}, [Slice()]))["dep_delay"]

    assert shown.type == kind
    assert repr(shown.cast(pa.float64()).to_pylist()) == repr(list(stored))


def test_the_rows_have_the_names_and_values_of_the_view(spec: Spec) -> None:
    """Streams without an event are null, deleted ones too; a row without any is left out."""
    made = HudiTable(spec.table.path, {"a.parquet": batch(*ROWS[:2]), "b.parquet": batch(*ROWS[2:])}, [
        Slice("a.parquet"), Slice("b.parquet"),
    ])  # fmt: skip

    shown = view(spec, made)

    assert shown.column_names == ["tailnum", "departed_at", "origin", "dep_delay", "arrived_at", "landed_in"]
    assert [tuple(row.values()) for row in shown.to_pylist()] == [
        ("both", NOON, "JFK", 1.5, NOON, None),
        ("one", NOON, "unknown", None, None, None),
        ("half", None, "unknown", None, NOON, None),
    ]
    assert shown.schema.field("landed_in").type == pa.string()


def test_a_stream_that_deletes_the_row_hides_it(write_spec: Callable[[str], Path]) -> None:
    """Also the columns of the streams that are alive."""
    text = SPEC.replace('ordering = "arrived_at"', 'ordering = "arrived_at"\ndeletes = "row"')
    spec = load_spec(write_spec(text))
    rows = (*ROWS, row("hidden", departures__ts=NOON, arrivals__ts=NOON, arrivals__deleted=True))

    shown = view(spec, HudiTable(spec.table.path, {"a.parquet": batch(*rows)}, [Slice()]))

    assert shown["tailnum"].to_pylist() == ["both", "one", "half"]


def test_a_stream_is_shown_if_it_has_all_of_its_ordering_values(write_spec: Callable[[str], Path]) -> None:
    """Without one of them it has no event, whatever its other columns hold."""
    text = SPEC.replace('ordering = "departed_at"', 'ordering = ["departed_at", "dep_delay"]')
    spec = load_spec(write_spec(text))
    names = {"departures__dep_delay": "_ts2_departures__dep_delay"}
    rows = [{names.get(name, name): cell for name, cell in one.items()} for one in ROWS]
    file = pa.RecordBatch.from_pylist(rows)

    shown = view(spec, HudiTable(spec.table.path, {"a.parquet": file}, [Slice()]))

    departed = dict(zip(shown["tailnum"].to_pylist(), shown["departed_at"].to_pylist(), strict=True))
    assert departed == {"both": NOON, "half": None}


def test_a_table_without_a_file_has_the_columns_and_no_row(spec: Spec) -> None:
    """Nothing is wrong about it: no slice has events."""
    shown = view(spec, HudiTable(spec.table.path, {}, []))

    assert shown.num_rows == 0
    assert shown.column_names == ["tailnum", "departed_at", "origin", "dep_delay", "arrived_at", "landed_in"]


def test_a_plain_table_shows_its_rows_and_no_deleted_one(write_spec: Callable[[str], Path]) -> None:
    """Its columns have their own names."""
    text = SPEC[: SPEC.index("[streams.arrivals]")].replace("buckets = 2", 'kind = "plain"\ntype = "mor"')
    spec = load_spec(write_spec(text.replace("dep_delay", "deleted").replace('"double"', '"boolean"')))
    rows = pa.RecordBatch.from_pylist([
        {KEY: key, "tailnum": key, "departed_at": NOON, "origin": None, "deleted": deleted}
        for key, deleted in (("a", None), ("b", True), ("c", False))
    ])  # fmt: skip

    shown = view(spec, HudiTable(spec.table.path, {"a.parquet": rows}, [Slice()]))

    assert shown.column_names == ["tailnum", "departed_at", "origin"]
    assert shown["tailnum"].to_pylist() == ["a", "c"]


LOG = Slice("a.parquet", [".a.log.1"])
LOG_ONLY = Slice("", [".b.log.1"])


@pytest.mark.parametrize(
    ("slices", "compacted", "reason"),
    [
        ([Slice(), LOG], False, "1 of 2 file slices have events that are not compacted yet"),
        ([LOG_ONLY], False, "1 of 1 file slices have events that are not compacted yet"),
        ([LOG, LOG_ONLY], True, "1 of 2 file slices were never compacted"),
    ],
)
def test_rows_that_would_be_wrong_are_refused(
    spec: Spec,
    slices: list[Slice],
    compacted: bool,  # noqa: FBT001  a parameter of the test
    reason: str,
) -> None:
    """Where events are not merged yet, or rows would be missing."""
    made = HudiTable(spec.table.path, {"a.parquet": batch(*ROWS)}, slices)

    with pytest.raises(ConfigError, match=reason):
        view(spec, made, compacted=compacted)


def test_the_rows_of_the_last_compaction_are_there_for_who_asks(spec: Spec) -> None:
    """Later events of the logs are left out."""
    made = HudiTable(spec.table.path, {"a.parquet": batch(*ROWS)}, [LOG])

    assert view(spec, made, compacted=True)["tailnum"].to_pylist() == ["both", "one", "half"]


@pytest.mark.parametrize(
    ("option", "value", "reason"),
    [
        ("hoodie.read.file.group.reader.version", "1", "merges without asynclock's merger"),
        ("hoodie.read.use.read_optimized.mode", "TRUE", "shows no row before the first compaction"),
    ],
)
def test_a_table_that_reads_wrong_rows_is_refused(spec: Spec, option: str, value: str, reason: str) -> None:
    """Those options give other rows without an error, the first one by the advice of hudi itself."""
    made = HudiTable(spec.table.path, {"a.parquet": batch(*ROWS)}, [Slice()], {option: value})

    with pytest.raises(ConfigError, match=reason) as caught:
        view(spec, made)

    assert caught.value.setting == option


def test_another_table_is_refused(spec: Spec) -> None:
    """At another place, or one that is none of ours."""
    with pytest.raises(SpecError, match="the given table is at file:///elsewhere"):
        view(spec, HudiTable("file:///elsewhere", {}, []))
    foreign = pa.RecordBatch.from_pylist([{"tailnum": "a"}])
    with pytest.raises(SpecError, match="there is no splice table of asynclock"):
        view(spec, HudiTable(spec.table.path, {"a.parquet": foreign}, [Slice()]))
