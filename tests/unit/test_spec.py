"""The spec of a splice table: what is read, and the rules that it keeps."""

from __future__ import annotations

import pickle
import re
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

import pytest

from asynclock import sync
from asynclock.errors import ConfigError, SpecError
from asynclock.settings import LeaseSettings
from asynclock.spark.spec.column import Column
from asynclock.spark.spec.dialect import CsvDialect
from asynclock.spark.spec.load import load_spec, missing_source
from asynclock.spark.spec.lock_settings import LocksSpec
from asynclock.spark.spec.model import Spec, StreamSpec, TableSpec
from asynclock.spark.spec.place import same_locks
from asynclock.spark.spec.service_settings import ServicesSpec
from asynclock.spark.spec.toml import SpecFile
from tests.unit.specs import SPEC, TEN_LINES

if TYPE_CHECKING:
    from collections.abc import Callable

README = Path(__file__).parents[2] / "README.md"


def test_reads_every_setting(write_spec: Callable[[str], Path], tmp_path: Path) -> None:
    """A spec becomes plain values, and paths start from its folder."""
    spec = load_spec(write_spec(SPEC))

    assert spec.table == TableSpec(path=f"file://{tmp_path}/table", key=("tailnum",), buckets=2)
    assert spec.locks == LocksSpec(url=(tmp_path / "locks").as_uri(), settings=LeaseSettings(validity=20))
    assert (spec.services.compact_every_commits, spec.services.retain_commits) == (5, 3)
    assert spec.stream("departures") == StreamSpec(
        name="departures",
        source=f"{tmp_path}/in/departures/*.csv",
        format="csv",
        ordering="departed_at",
        checkpoint=f"{tmp_path}/checkpoints/departures",
        max_files_per_trigger=2,
        on_bad_row="quarantine",
        columns=(
            Column(name="departed_at", type="timestamp"),
            Column(name="origin", type="string"),
            Column(name="dep_delay", type="double"),
        ),
    )
    assert spec.stream("arrivals").on_bad_row == "fail"


def test_urls_are_left_alone(write_spec: Callable[[str], Path]) -> None:
    """A table, lock prefix or source on another store is taken as it is written."""
    text = SPEC.replace('"table"', '"s3a://lake/fleet"').replace('"locks"', '"s3://lake/locks"')
    spec = load_spec(write_spec(text.replace('"in/departures/*.csv"', '"s3a://lake/in/*.csv"')))

    assert spec.table.path == "s3a://lake/fleet"
    assert spec.locks.url == "s3://lake/locks"
    assert spec.stream("departures").source == "s3a://lake/in/*.csv"


@pytest.mark.parametrize("form", ["file://{}/{}", "{}/{}", "{1}"])
@pytest.mark.parametrize("name", ["mit Leerzeichen", "gesperrt-für-äöü", "50% of it", "a%20b"])
def test_locks_may_lie_in_a_folder_of_any_name(
    write_spec: Callable[[str], Path], tmp_path: Path, form: str, name: str
) -> None:
    """A space, an umlaut or a percent sign in the place of the locks is no obstacle, as URL or as path."""
    spec = load_spec(write_spec(SPEC.replace('url = "locks"', f'url = "{form.format(tmp_path, name)}"')))

    with sync.connect(spec.locks.url) as client, client.lock("stream/x").hold():
        made = {path.name for path in tmp_path.iterdir()}

    assert (unquote(name) if form.startswith("file:") else name) in made


def test_ten_lines_describe_a_table_of_two_streams(write_spec: Callable[[str], Path], tmp_path: Path) -> None:
    """Format, checkpoint and locks need no setting: they follow from the suffix and the path of the table."""
    spec = load_spec(write_spec(TEN_LINES))

    assert len(TEN_LINES.strip().split("\n")) == 10
    assert [stream.format for stream in spec.streams] == ["csv", "csv"]
    assert spec.locks.url == (tmp_path / ".asynclock/fleet/locks").as_uri()
    assert [stream.checkpoint for stream in spec.streams] == [
        f"file://{tmp_path}/.asynclock/fleet/checkpoints/{name}" for name in ("departures", "arrivals")
    ]


def test_the_spec_of_the_readme_is_a_spec(write_spec: Callable[[str], Path], tmp_path: Path) -> None:
    """Its ten lines are read as they stand, and its shared column has the names that the text says."""
    for stream in ("departures", "arrivals"):
        (tmp_path / "data" / stream).mkdir(parents=True)
    (block,) = re.findall(r"```toml\n(.*?)```", README.read_text(), re.DOTALL)

    spec = load_spec(write_spec(block))

    assert len(block.strip().split("\n")) == 10
    assert {"departures__delay", "arrivals__delay"} <= set(spec.view_names().values())


@pytest.mark.parametrize(
    ("path", "locks"),
    [
        ("s3a://lake/fleet", "s3a://lake/.asynclock/fleet/locks"),
        ("s3a://lake//warehouse/fleet/", "s3a://lake/warehouse/.asynclock/fleet/locks"),
        ("gs://lake/a/../fleet", "gs://lake/.asynclock/fleet/locks"),
        (
            "abfs://lake@account.dfs.core.windows.net/fleet",
            "abfs://lake@account.dfs.core.windows.net/.asynclock/fleet/locks",
        ),
        ("file:///x/my fleet", "file:///x/.asynclock/my%20fleet/locks"),
        ("file:/x/fleet", "file:///x/.asynclock/fleet/locks"),
    ],
)
def test_locks_are_beside_the_table_on_any_store(
    write_spec: Callable[[str], Path], path: str, locks: str
) -> None:
    """The place of the locks follows from the path of the table alone, however it is spelled."""
    assert load_spec(write_spec(TEN_LINES.replace('"fleet"', f'"{path}"'))).locks.url == locks


def test_a_table_behind_a_link_has_one_place_of_locks(
    write_spec: Callable[[str], Path], tmp_path: Path
) -> None:
    """Two writers that reach one local table by two paths bind to the same locks."""
    (tmp_path / "disk" / "fleet").mkdir(parents=True)
    (tmp_path / "link").symlink_to("disk/fleet")

    urls = [load_spec(write_spec(TEN_LINES.replace('"fleet"', f'"{path}"'))).locks.url
            for path in ("disk/fleet", "link")]  # fmt: skip

    assert urls == [(tmp_path / "disk/.asynclock/fleet/locks").as_uri()] * 2


@pytest.mark.parametrize(
    ("source", "kind"),
    [
        ("in/arrivals/*.csv.gz", "csv"),
        ("in/arrivals/part-*.snappy.parquet", "parquet"),
        ("in/arrivals/*.jsonl.zst", "json"),
        ("in/arrivals/*.NDJSON", "json"),
    ],
)
def test_the_suffix_of_the_source_says_the_format(
    write_spec: Callable[[str], Path], tmp_path: Path, source: str, kind: str
) -> None:
    """A suffix of compression is set aside."""
    (tmp_path / source.replace("*", "1")).write_text("")
    text = TEN_LINES.replace("in/arrivals/*.csv", source)

    assert load_spec(write_spec(text)).stream("arrivals").format == kind


def test_a_name_of_one_stream_stays_plain_in_the_view(write_spec: Callable[[str], Path]) -> None:
    """A name of several streams gets the stream before it, and as gives any column another name."""
    text = TEN_LINES.replace("origin", "place").replace("dest", "Place")
    plain = load_spec(write_spec(text)).view_names()
    renamed = load_spec(write_spec(text + 'as = { Place = "place", arrived_at = "landed" }\n')).view_names()

    assert plain == {
        "departures__ts": "departed_at",
        "departures__place": "departures__place",
        "departures__delay": "departures__delay",
        "arrivals__ts": "arrived_at",
        "arrivals__Place": "arrivals__Place",
        "arrivals__delay": "arrivals__delay",
    }
    assert renamed == plain | {"arrivals__ts": "landed", "arrivals__Place": "place"}


def test_tombstones_are_not_in_the_view(write_spec: Callable[[str], Path]) -> None:
    """Every stream may have a tombstone, and none of them has a name there."""
    names = load_spec(
        write_spec(TEN_LINES.replace("delay", "deleted").replace("int", "boolean"))
    ).view_names()

    assert set(names.values()) == {"departed_at", "origin", "arrived_at", "dest"}


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("s3://lake/locks", "s3a://lake//locks/", True),
        ("abfs://lake@x.dfs.core.windows.net/l", "wasbs://lake@x.blob.core.windows.net/l", True),
        ("file:///a%20b/locks", "file:/a b/locks/", True),
        ("memory://x", "memory://x", True),
        ("s3://lake/locks", "gs://lake/locks", False),
        ("s3://lake/locks", "s3://lake/locks2", False),
    ],
)
def test_lock_urls_are_compared_as_places(one: str, other: str, same: bool) -> None:  # noqa: FBT001  a case
    """Spellings of one place are one place."""
    assert same_locks(one, other) is same


def test_ordering_column_is_stored_as_ts(write_spec: Callable[[str], Path]) -> None:
    """The ordering column has a fixed physical name; the others keep theirs behind the stream's."""
    spec = load_spec(write_spec(SPEC))
    stream = spec.stream("departures")

    physical = [stream.physical(column) for column in stream.owned(spec.table)]

    assert physical == ["departures__ts", "departures__origin", "departures__dep_delay"]


def test_key_columns_take_a_declared_type(write_spec: Callable[[str], Path]) -> None:
    """A key is text unless a stream says otherwise."""
    plain = load_spec(write_spec(SPEC))
    typed = load_spec(
        write_spec(
            SPEC.replace('{ departed_at = "timestamp",', '{ tailnum = "int", departed_at = "timestamp",')
        )
    )

    assert plain.shared_type("tailnum") == "string"
    assert typed.shared_type("tailnum") == "int"
    assert typed.stream("departures").owned(typed.table)[0].name == "departed_at"


def test_csv_dialect_is_read_where_it_is_given(write_spec: Callable[[str], Path]) -> None:
    """A stream of CSV files is read by RFC 4180, but for what its spec says."""
    given = (
        'csv = { separator = ";", escape = "\\\\", encoding = "utf-16", null = "NULL", multiline = false }'
    )
    spec = load_spec(
        write_spec(SPEC.replace('ordering = "departed_at"', f'ordering = "departed_at"\n{given}'))
    )

    assert spec.stream("departures").dialect == CsvDialect(
        separator=";", quote='"', escape="\\", encoding="utf-16", null="NULL", multiline=False
    )
    assert spec.stream("arrivals").dialect == CsvDialect()


@pytest.mark.parametrize(
    ("csv", "key", "texts"),
    [
        ('{ separator = "ab" }', "separator", ["one character"]),
        ('{ separator = "\\n" }', "separator", ["one character"]),
        ('{ quote = "," }', "quote", ["the separator is the same"]),
        ('{ quote = "", escape = "x" }', "escape", ["no quotes"]),
        ('{ encoding = "utf8" }', "encoding", ["did you mean 'utf-8'", "windows-1252"]),
        ('{ null = "a,b" }', "null", ["separator"]),
        ('{ multiline = "no" }', "multiline", ["true or false"]),
        ('{ comment = "#" }', "comment", ["unknown", "separator"]),
    ],
)
def test_wrong_csv_dialect_is_refused(
    write_spec: Callable[[str], Path], csv: str, key: str, texts: list[str]
) -> None:
    """Each setting of the dialect is checked, and the complaint names its line."""
    path = write_spec(SPEC.replace('ordering = "departed_at"', f'ordering = "departed_at"\ncsv = {csv}'))

    with pytest.raises(SpecError) as caught:
        load_spec(path)

    assert (caught.value.line, caught.value.key) == (18, f"streams.departures.csv.{key}")
    for text in texts:
        assert text in str(caught.value)


def test_dialect_of_other_files_is_refused(write_spec: Callable[[str], Path]) -> None:
    """A dialect beside files that are no CSV would be read by nobody."""
    text = SPEC.replace(
        'format = "csv"\nordering = "departed_at"', 'format = "json"\nordering = "departed_at"\ncsv = {}'
    )

    with pytest.raises(SpecError, match="no CSV dialect"):
        load_spec(write_spec(text))


def test_tombstone_in_another_case_is_refused(write_spec: Callable[[str], Path]) -> None:
    """A column named Deleted would hide no row, unlike what its writer means."""
    with pytest.raises(SpecError, match="only 'deleted' in lower case is a tombstone"):
        load_spec(write_spec(SPEC.replace('deleted = "boolean"', 'Deleted = "boolean"')))


def test_a_spec_without_streams_is_refused(write_spec: Callable[[str], Path]) -> None:
    """There is nothing to splice without a stream."""
    with pytest.raises(SpecError, match=r"add a table \[streams\.NAME\]") as caught:
        load_spec(write_spec(SPEC.partition("[streams")[0]))

    assert caught.value.key == "streams"


def test_a_missing_file_is_a_spec_error(tmp_path: Path) -> None:
    """A path that leads nowhere is reported like any other mistake."""
    with pytest.raises(SpecError, match="cannot be read"):
        load_spec(tmp_path / "none.toml")


def test_key_type_must_be_the_same_in_all_streams(write_spec: Callable[[str], Path]) -> None:
    """Two streams cannot mean the same row by keys of two types."""
    text = SPEC.replace("{ departed_at", '{ tailnum = "string", departed_at')
    text = text.replace("arrived_at = ", 'tailnum = "int"\narrived_at = ')

    with pytest.raises(SpecError, match="give it one type everywhere") as caught:
        load_spec(write_spec(text))

    assert caught.value.key == "streams.arrivals.columns.tailnum"


def test_an_empty_source_folder_waits_for_its_first_delivery(tmp_path: Path) -> None:
    """A folder without any file is a source; a folder that does not exist is none."""
    (tmp_path / "empty").mkdir()

    assert missing_source(f"{tmp_path}/empty/*.csv") is None
    assert missing_source(f"file://{tmp_path}/empty") is None
    assert missing_source(f"{tmp_path}/none/*.csv") is not None
    assert missing_source("s3a://bucket/none/*.csv") is None


def test_a_source_of_one_file_is_refused_with_a_pattern(tmp_path: Path) -> None:
    """Spark cannot watch a single file; the text says what to name instead."""
    file = tmp_path / "events.csv"
    file.touch()

    problem = missing_source(str(file))

    assert problem is not None
    assert str(tmp_path / "events*.csv") in problem


def test_an_unknown_stream_is_named(write_spec: Callable[[str], Path]) -> None:
    """Asking for a stream that the spec does not have says which ones it has."""
    spec = load_spec(write_spec(SPEC))

    with pytest.raises(ConfigError, match="did you mean 'departures'"):
        spec.stream("departure")


def test_keys_inside_text_are_no_keys() -> None:
    """Lines of a string of several lines do not count as assignments."""
    file = SpecFile(Path("x.toml"), 'a = """\nb = 1\n"""\nb = 2\n[c]\nd.e = 1\n')

    assert [file.line(keys) for keys in (("b",), ("c",), ("c", "d", "e"), ("z",))] == [4, 5, 6, 0]


def test_a_spec_survives_pickling(write_spec: Callable[[str], Path]) -> None:
    """A spec can be sent to another process."""
    spec = load_spec(write_spec(SPEC))

    assert pickle.loads(pickle.dumps(spec)) == spec  # noqa: S301  our own bytes


def test_rules_hold_without_a_file() -> None:
    """A spec built in code is checked by the same rules."""
    with pytest.raises(ConfigError, match="at least one stream"):
        Spec(
            path=Path("none.toml"),
            table=TableSpec(path="file:///t", key=("k",)),
            locks=LocksSpec(url="memory://", settings=LeaseSettings()),
            services=ServicesSpec(),
            streams=(),
        )
