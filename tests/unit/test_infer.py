"""A spec drafted from files: what is read off them, what is guessed, and what is refused."""

from __future__ import annotations

import csv
import gzip
import json
import os
import random
import subprocess
import sys
import zlib
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from asynclock.errors import ConfigError
from asynclock.spark.check.strict import source_file
from asynclock.spark.check.strict.rows import Good
from asynclock.spark.check.strict.source_file import layout_of, rows
from asynclock.spark.draft import sample
from asynclock.spark.draft.draft import draft_spec
from asynclock.spark.draft.sample import take
from asynclock.spark.draft.texts import TextColumn
from asynclock.spark.spec.load import load_spec

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from asynclock.spark.spec.model import Spec

EVENTS = (
    "tailnum,seen_at,delay\nN1,2024-01-01 10:00:00,-4.5\nN2,2024-01-01 10:05:00,\nN1,2024-01-02 09:00:00,7\n"
)
PLANES = "tailnum,updated_at,seats\nN1,2024-01-01,100\nN2,2024-01-01,55\n"


def folder(tmp_path: Path, name: str, **files: str | bytes) -> Path:
    """A folder with files; a double underscore in a name stands for a point."""
    made = tmp_path / name
    made.mkdir(parents=True, exist_ok=True)
    for number, (file, content) in enumerate(files.items()):
        path = made / file.replace("__", ".")
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        os.utime(path, (1_700_000_000 + number, 1_700_000_000 + number))
    return made


def drafted(tmp_path: Path, *folders: Path, **options: Any) -> tuple[Spec, str]:  # noqa: ANN401  as draft_spec has them
    """The spec as it is loaded from a file, and its text."""
    file = tmp_path / "spec.toml"
    text = draft_spec(folders, file=file, **options)
    file.write_text(text)
    return load_spec(file), text


def types(spec: Spec, stream: str) -> dict[str, str]:
    """The declared types of a stream's columns."""
    return {column.name: column.type for column in spec.stream(stream).columns}


@pytest.mark.parametrize(
    ("texts", "kind"),
    [
        (["1", "-20", "9223372036854775807"], "bigint"),
        (["1", "2.5"], "double"),
        (["1", "1e3"], "double"),
        (["007", "12"], "string"),
        (["+1", "2"], "string"),
        (["0", "-0", "0.5"], "double"),
        (["nan", "inf"], "string"),
        (["nan", "1.5"], "double"),
        (["9223372036854775808"], "decimal(38,0)"),
        (["1234567890123456.78", "1.5"], "decimal(38,2)"),
        (["0.12345678901234568", "1e-7"], "double"),
        (["1" * 39], "string"),
        (["true", "False"], "boolean"),
        (["true", "1"], "string"),
        (["2024-01-31", "1999-12-01"], "date"),
        (["2024-01-31", "2024-01-31T10:00:00Z"], "timestamp"),
        (["2024-02-30"], "string"),
        (["10:00"], "string"),
        ([], "string"),
    ],
)
def test_a_type_is_chosen_only_if_it_keeps_every_text(texts: list[str], kind: str) -> None:
    """A number that would come back in another form, such as a code with leading zeros, is text."""
    column = TextColumn()
    for text in texts:
        column.add(text)

    assert column.kind() == kind


def test_a_drafted_spec_is_loaded_as_it_stands(tmp_path: Path) -> None:
    """Key, ordering and types are found, and the paths start at the spec."""
    spec, text = drafted(
        tmp_path,
        folder(tmp_path, "in/events", one__csv=EVENTS, two__csv=EVENTS),
        folder(tmp_path, "in/planes", one__csv=PLANES),
    )

    assert spec.table.key == ("tailnum",)
    assert [(stream.name, stream.format, stream.ordering) for stream in spec.streams] == [
        ("events", "csv", ("seen_at",)),
        ("planes", "csv", ("updated_at",)),
    ]
    assert types(spec, "events") == {"tailnum": "string", "seen_at": "timestamp", "delay": "double"}
    assert types(spec, "planes") == {"tailnum": "string", "updated_at": "date", "seats": "bigint"}
    assert 'path = "spec"' in text
    assert 'source = "in/events/*.csv"' in text
    assert "# A guess. 6 rows of events become 2, 2 rows of planes become 2." in text
    assert "# 2 of 2 files read, 6 rows, 0 of them bad." in text


def test_every_guess_has_a_comment(tmp_path: Path) -> None:
    """The line before the key and each ordering says why."""
    _, text = drafted(tmp_path, folder(tmp_path, "events", one__csv=EVENTS))
    lines = text.split("\n")

    guesses = [place for place, line in enumerate(lines) if line.startswith(("key =", "ordering ="))]
    assert len(guesses) == 2
    assert all(lines[place - 1].startswith("# ") for place in guesses)


def test_without_a_file_the_paths_are_absolute(tmp_path: Path) -> None:
    """Text for stdout is right in whatever folder it is saved."""
    source = folder(tmp_path, "events", one__csv=EVENTS)

    assert f'source = "{source}/*.csv"' in draft_spec([source])
    assert 'path = "s3a://lake/fleet"' in draft_spec([source], table="s3a://lake/fleet")


@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "windows-1252"])
def test_the_dialect_is_found(tmp_path: Path, separator: str, encoding: str) -> None:
    """Separator, encoding and the text for null are read off the files."""
    text = 'id;at;name;size\n1;2024-01-01;"Müller; Sohn";NA\n2;2024-01-02;Öz;5\n'.replace(";", separator)
    source = folder(tmp_path, "people", one__csv=text.encode(encoding))

    spec, _ = drafted(tmp_path, source)

    stream = spec.stream("people")
    dialect = stream.dialect
    assert dialect is not None
    assert (dialect.separator, dialect.encoding, dialect.null) == (separator, encoding, "NA")
    assert types(spec, "people") == {"id": "bigint", "at": "date", "name": "string", "size": "bigint"}
    found = list(rows(source / "one.csv", stream, layout_of(spec, stream)))
    assert [row.values[-1] for row in found if isinstance(row, Good)] == [None, 5]


def test_files_with_tabs_and_packed_files_are_named_by_a_pattern(tmp_path: Path) -> None:
    """A suffix that says no format gets one in the spec, and packed files are matched with the others."""
    plain = "k\tat\n1\t5\n"
    tabs = folder(tmp_path, "tabs", one__tsv=plain)
    packed = folder(tmp_path, "packed", one__csv=EVENTS, two__csv__gz=gzip.compress(EVENTS.encode()))

    _, of_tabs = drafted(tmp_path, tabs)
    of_packed, _ = drafted(tmp_path, packed)

    assert 'source = "tabs/*.tsv"\nformat = "csv"\n' in of_tabs
    assert r'csv = { separator = "\t" }' in of_tabs
    assert of_packed.stream("packed").source == f"{tmp_path}/packed/*{{.csv,.csv.gz}}"


def test_json_keeps_the_types_that_its_values_have(tmp_path: Path) -> None:
    """A number in quotes is text, a time in quotes is a time, and what is nested is text."""
    lines = [
        {"id": 1, "at": "2024-01-01T10:00:00Z", "code": "12", "x": 1.5, "tags": ["a"], "ok": True, "n": None},
        {"id": 2, "at": "2024-01-01T10:00:01Z", "code": "13", "x": 2, "tags": [], "ok": False, "more": 1},
    ]
    source = folder(tmp_path, "events", one__jsonl="\n".join(map(json.dumps, lines)))

    spec, text = drafted(tmp_path, source)

    assert types(spec, "events") == {
        "id": "bigint", "at": "timestamp", "code": "string", "x": "double", "tags": "string",
        "ok": "boolean", "n": "string", "more": "bigint",
    }  # fmt: skip
    assert 'n = "string"  # no value in the files that were read' in text


def test_parquet_keeps_the_types_of_its_schema(tmp_path: Path) -> None:
    """Each type of a file becomes the narrowest that holds it without loss; what has none is left out."""
    when = datetime(2024, 1, 1, tzinfo=UTC)
    table = pa.table({
        "id": pa.array([1, 2], pa.int32()),
        "at": pa.array([when, when], pa.timestamp("ms", "UTC")),
        "big": pa.array([1, 2], pa.uint64()),
        "price": pa.array([Decimal("1.50"), None], pa.decimal128(9, 2)),
        "half": pa.array([1.5, 2.5], pa.float32()),
        "raw": pa.array([b"a", b"b"], pa.binary()),
        "inner": pa.array([{"a": 1}, {"a": 2}]),
    })  # fmt: skip
    source = folder(tmp_path, "events")
    pq.write_table(table, source / "one.parquet")

    spec, text = drafted(tmp_path, source)

    assert types(spec, "events") == {
        "id": "int", "at": "timestamp", "big": "decimal(38,0)", "price": "decimal(38,2)", "half": "float",
    }  # fmt: skip
    assert '# "raw" is left out: no type of a table takes its values without loss' in text
    assert '# "inner" is left out' in text


def test_one_key_has_one_type_in_all_streams(tmp_path: Path) -> None:
    """A key that is a number here and a code there is text everywhere."""
    spec, _ = drafted(
        tmp_path,
        folder(tmp_path, "a", one__csv="id,at\n1,5\n2,6\n"),
        folder(tmp_path, "b", one__csv="id,at\n007,5\n008,6\n"),
    )

    assert (types(spec, "a")["id"], types(spec, "b")["id"]) == ("string", "string")
    assert spec.view_names() == {"a__ts": "a__at", "b__ts": "b__at"}


@pytest.mark.parametrize(
    ("streams", "key"),
    [
        # Named like a key, although several events have it.
        (
            {"a": "at,amount,order_id\n1,5,7\n2,5,7\n", "b": "order_id,amount,at\n7,5,1\n8,5,2\n"},
            ("order_id",),
        ),
        # Unique in one stream.
        ({"a": "place,at,kind\nx,1,p\ny,2,p\nz,3,p\n", "b": "at,place,kind\n1,x,p\n2,x,p\n"}, ("place",)),
        # Unique together.
        ({"a": "place,hour,at\nx,1,1\nx,2,2\ny,1,3\ny,2,4\n"}, ("place", "hour")),
        # A column with empty fields is no key.
        ({"a": "id,name,at\n1,x,1\n,y,2\n"}, ("name",)),
    ],
)
def test_the_key_is_common_to_all_streams_and_tells_rows_apart(
    tmp_path: Path, streams: dict[str, str], key: tuple[str, ...]
) -> None:
    """Names that look like a key go first, then what is unique in a stream, then several columns."""
    spec, _ = drafted(tmp_path, *(folder(tmp_path, name, one__csv=text) for name, text in streams.items()))

    assert spec.table.key == key


@pytest.mark.parametrize(
    ("header", "ordering"),
    [
        ("id,created_at,updated_at,day", "updated_at"),
        ("id,price,event_time", "event_time"),
        ("id,ts,updated_at", "ts"),
        ("id,price,version", "version"),
        ("id,price", "price"),
    ],
)
def test_the_ordering_is_a_column_that_looks_like_a_time(tmp_path: Path, header: str, ordering: str) -> None:
    """A change goes before a creation, a time before a number, and a weak guess says so."""
    names = header.split(",")
    value = {"price": "5", "version": "1", "id": "1"}
    row = ",".join(
        value.get(name, "2024-01-01" if name == "day" else "2024-01-01 10:00:00") for name in names
    )
    source = folder(tmp_path, "a", one__csv=f"{header}\n{row}\n")

    spec, text = drafted(tmp_path, source, key=["id"])

    assert spec.stream("a").ordering == (ordering,)
    assert ("A weak guess" in text) is (ordering == "price")


def test_names_as_people_have_them_are_mapped(tmp_path: Path) -> None:
    """A column whose name a spec cannot have gets another one and says which it has in the files."""
    header = 'Order ID,at,_id,AÑO,2016,Size,size,"a.b ","say ""hi""",deleted,Deleted,ts'
    text = f"{header}\n1,5,2,3,4,5,6,7,8,yes,1,9\n"
    spec, _ = drafted(tmp_path, folder(tmp_path, "a", one__csv=text))
    (stream,) = spec.streams

    assert stream.sources(spec.table) == {
        "order_id": "Order ID", "at": "at", "id": "_id", "ano": "AÑO", "c_2016": "2016", "size": "Size",
        "ts": "ts", "size_2": "size", "a_b": "a.b ", "say_hi": 'say "hi"', "deleted_2": "deleted",
        "deleted_3": "Deleted",
    }  # fmt: skip


def test_a_key_can_be_given_by_its_name_in_the_files(tmp_path: Path) -> None:
    """Nobody has to know what a name becomes."""
    source = folder(tmp_path, "a", one__csv="Order ID,at,x\n1,5,2\n")
    spec, _ = drafted(tmp_path, source, key=["Order ID"])

    assert spec.table.key == ("order_id",)


def test_columns_that_no_spec_can_name_are_left_out_with_the_reason(tmp_path: Path) -> None:
    """The other columns are drafted, and the spec can be run."""
    spec, said = drafted(tmp_path, folder(tmp_path, "a", one__csv="id,at,x,x,\n1,5,2,3,4\n"))

    assert types(spec, "a") == {"id": "bigint", "at": "bigint"}
    for name, reason in {"x": "a file has it twice", "": "it has no name"}.items():
        assert f'# "{name}" is left out: {reason}' in said


def test_a_tombstone_is_recognised(tmp_path: Path) -> None:
    """A boolean column deleted is one, any other column of that name gets another."""
    _, text = drafted(tmp_path, folder(tmp_path, "a", one__csv="id,at,deleted\n1,5,true\n"))
    _, other = drafted(tmp_path, folder(tmp_path, "b", one__csv="id,at,deleted\n1,5,2024-01-01\n"))

    assert 'deleted = "boolean"  # the tombstone' in text
    assert 'deleted_2 = { type = "date", from = "deleted" }' in other


def test_a_column_that_not_every_file_has_is_left_out(tmp_path: Path) -> None:
    """Files without it would be bad files."""
    source = folder(tmp_path, "a", one__csv="id,at\n1,5\n", two__csv="id,at,more\n1,5,6\n")

    spec, text = drafted(tmp_path, source)

    assert "more" not in types(spec, "a")
    assert '# "more" is left out: not every file has it' in text


def test_stream_names_are_made_of_folder_names(tmp_path: Path) -> None:
    """Any folder gives a name that a stream may have, and no two the same."""
    names = ["2024-Events", "in/My  Planes_", "other/my planes"]
    spec, _ = drafted(tmp_path, *(folder(tmp_path, name, one__csv="id,at\n1,5\n") for name in names))

    assert [stream.name for stream in spec.streams] == ["s_2024_events", "my_planes", "my_planes_2"]


def test_text_from_files_stays_inside_of_comments(tmp_path: Path) -> None:
    """A column name with a line end cannot add a line to the spec."""
    source = folder(tmp_path, "a", one__csv='id,at,"x\n[locks]\nurl = 1"\n1,5,6\n')

    spec, text = drafted(tmp_path, source)

    (stream,) = spec.streams
    assert stream.sources(spec.table)["x_locks_url_1"] == "x\n[locks]\nurl = 1"
    assert "\n[locks]" not in text


@pytest.mark.parametrize(
    ("files", "reason"),
    [
        ({}, "has no file that ends in .csv"),
        ({"notes__txt": "x"}, "has no file that ends in .csv"),
        ({"empty__csv": ""}, "has no file that ends in .csv"),
        ({"one__parquet": "no parquet"}, "cannot be read as parquet"),
        ({"one__csv": ",\n1,2\n"}, "no column that a spec can name"),
        ({"one__csv": "name,text\nx,y\n"}, "no column says which of two events"),
        ({"one__csv": "at,x\n2024-01-01 10:00:00,\n"}, "no column is in every folder"),
    ],
)
def test_a_folder_that_gives_no_spec_is_refused(tmp_path: Path, files: dict[str, str], reason: str) -> None:
    """One sentence says what the folder lacks."""
    with pytest.raises(ConfigError, match=reason):
        draft_spec([folder(tmp_path, "a", **files)])


@pytest.mark.parametrize(
    ("file", "content", "reason"),
    [
        ("a.json", '[{"id": 1, "at": 1}, {"id": 2, "at": 2}]', "is one JSON array; .* jq -c '.\\[\\]'"),
        ("a.json", '{\n  "id": 1,\n  "at": 1\n}\n', "objects over several lines; .* jq -c \\. "),
        ("a.json", "id,at\n1,2\n", "has no line that is a JSON object"),
        ("a.csv", "id,at\r1,2\r2,3\r", "end in a carriage return alone"),
        ("a.csv", "N1,x,-4.5\nN2,y,7.25\n", "looks like values"),
        ("a.csv", '"id,at\n1,2\n', "a.csv: line 1: a quoted field is never closed"),
        ("a.csv.gz", gzip.compress(b"id,at\n1,2\n" * 500, mtime=0)[:30], "cannot be read as csv: a.csv.gz: "),
        ("a.csv.gz", b"id,at\n1,2\n", "cannot be read as csv"),
        ("a.csv.bz2", b"BZh9" + b"x" * 50, "cannot be read as csv"),
        ("a.csv.zst", b"no zstd", "cannot be read as csv"),
    ],
)
def test_the_true_reason_is_said(tmp_path: Path, file: str, content: str | bytes, reason: str) -> None:
    """The error says what is wrong with the file, not what did not come of it."""
    source = folder(tmp_path, "a", **{file.replace(".", "__"): content})

    with pytest.raises(ConfigError, match=reason):
        draft_spec([source])


def warned(tmp_path: Path, text: str | bytes, **options: Any) -> tuple[list[str], str]:  # noqa: ANN401  as above
    """The warnings about the draft of one CSV file, and the draft."""
    said: list[str] = []
    spec, draft = drafted(tmp_path, folder(tmp_path, "a", one__csv=text), warn=said.append, **options)
    assert spec.streams
    return said, draft


def test_a_guessed_key_that_merges_rows_is_never_silent(tmp_path: Path) -> None:
    """How many rows are left is said, and how another key is chosen; a given key needs no warning."""
    rows = "".join(f"{'sun' if day % 3 else 'rain'},2024-01-{day:02},{day % 2}\n" for day in range(1, 29))
    text = f"weather,date,wind\n{rows}"

    said, draft = warned(tmp_path, text)

    assert said[0].startswith("the key weather is a guess: 28 rows of a become 2. ")
    assert said[0].endswith("choose another key with --key, such as date")
    assert "# A guess. 28 rows of a become 2." in draft
    assert warned(tmp_path, text, key=["wind"])[0] == []


def test_a_key_that_merges_nothing_needs_no_warning(tmp_path: Path) -> None:
    """Each row has a value of its own."""
    assert warned(tmp_path, "id,at\n1,2024-01-01\n2,2024-01-01\n")[0] == []


@pytest.mark.parametrize(("other", "encoding"), [("Zürich", "utf-8"), ("Bern", "windows-1252")])
def test_one_byte_that_is_not_utf8_is_told(tmp_path: Path, other: str, encoding: str) -> None:
    """A file with other UTF-8 is UTF-8 with a bad row; without any, the encoding is a guess that is said."""
    lines = [f"{number},{number},{other}".encode() for number in range(1000)]
    lines[500] = b"500,500,caf\xe9"

    said, draft = warned(tmp_path, b"\n".join([b"id,at,place", *lines, b""]))

    assert len(said) == 1
    assert "line 502 of one.csv is not UTF-8" in said[0]
    assert ('encoding = "windows-1252"' in draft.replace("# ", "")) is (encoding == "windows-1252")
    assert ("1 of them bad" in draft) is (encoding == "utf-8")


def test_a_time_that_is_none_is_told(tmp_path: Path) -> None:
    """The column that its name makes look right is text, and a value shows why."""
    said, draft = warned(tmp_path, "id,updated_at,n\n1,31.01.2024 10:00,1\n2,31.01.2024 11:00,2\n")

    assert "updated_at is called like a time, but '31.01.2024 10:00' is none" in said[0]
    assert 'ordering = "n"' in draft


def test_the_table_is_called_as_the_spec_is(tmp_path: Path) -> None:
    """A folder of the sources that has this name already is not taken for the table."""
    source = folder(tmp_path, "fleet", one__csv="id,at\n1,2\n")
    other = folder(tmp_path, "other", one__csv="id,at\n1,2\n")

    assert 'path = "orders"' in draft_spec([source], file=tmp_path / "orders.toml")
    assert 'path = "fleet"' in draft_spec([other], file=tmp_path / "fleet.toml")
    assert 'path = "fleet-table"' in draft_spec([source], file=tmp_path / "fleet.toml")


@pytest.mark.parametrize("name", ["one.csv", "one.jsonl"])
def test_reading_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Of a line that never ends only the bytes before the bound are read; what came before it counts."""
    monkeypatch.setattr(sample, "MOST_BYTES", 1 << 21)
    lines = {"one.csv": "id,at\n1,2\n", "one.jsonl": '{"id": 1, "at": 2}\n'}[name]
    packed = gzip.compress(lines.encode() + b'"' + b"x" * (1 << 25), 1)
    source = folder(tmp_path, "a", **{f"{name}.gz".replace(".", "__"): packed})
    largest = 0

    class Counted:
        def __init__(self) -> None:
            self._inner = zlib.decompressobj(31)

        def decompress(self, packed: bytes, most: int) -> bytes:
            nonlocal largest
            found = self._inner.decompress(packed, most)
            largest += len(found)
            return found

        def __getattr__(self, name: str) -> object:
            return getattr(self._inner, name)

    monkeypatch.setitem(source_file._COMPRESSED, ".gz", Counted)

    assert 'ordering = "at"' in draft_spec([source])
    assert largest < 1 << 23


def test_folders_without_a_common_column_are_refused(tmp_path: Path) -> None:
    """The sentence lists the columns of each."""
    folders = [folder(tmp_path, "a", one__csv="id,at\n1,5\n"), folder(tmp_path, "b", one__csv="nr,at\n1,5\n")]

    with pytest.raises(ConfigError, match="a has id, at; b has nr, at"):
        draft_spec(folders)


def test_a_given_key_is_taken_or_refused(tmp_path: Path) -> None:
    """It must be a column of every folder."""
    source = folder(tmp_path, "a", one__csv="id,name,at\n1,x,5\n")

    assert drafted(tmp_path, source, key=["name"])[0].table.key == ("name",)
    with pytest.raises(ConfigError, match="there are: id, name"):
        draft_spec([source], key=["nome"])


def test_a_missing_folder_is_refused(tmp_path: Path) -> None:
    """So is one whose name is a pattern."""
    with pytest.raises(ConfigError, match="no such folder"):
        take(tmp_path / "none")
    with pytest.raises(ConfigError, match="wildcard"):
        take(folder(tmp_path, "a[1]", one__csv=EVENTS))


WORDS = (
    "",
    "a",
    "Ünï",
    'say "hi"',
    "x,y",
    "line\nend",
    "NULL",
    "nan",
    "007",
    "+1",
    " 1",
    "1,5",
    "10:00",
    "-",
)


def texts_of(rng: random.Random, rows: int) -> list[str]:
    """A column of one kind of text, with or without gaps and words in between."""
    kinds: list[Callable[[], str]] = [
        lambda: str(rng.randrange(-(10 ** rng.randrange(1, 25)), 10 ** rng.randrange(1, 25))),
        lambda: f"{rng.uniform(-1e6, 1e6):.{rng.randrange(8)}f}",
        lambda: repr(rng.uniform(-1, 1) * 10.0 ** rng.randrange(-300, 300)),
        lambda: f"{rng.randrange(1, 9999):04}-{rng.randrange(1, 13):02}-{rng.randrange(1, 29):02}",
        lambda: f"2024-01-{rng.randrange(1, 29):02} {rng.randrange(24):02}:00:00.{rng.randrange(10**6):06}",
        lambda: rng.choice(("true", "false", "TRUE")),
        lambda: f"{rng.randrange(1000):03}",
        lambda: rng.choice(WORDS),
    ]
    kind = rng.choice(kinds)
    gap = rng.choice((0.0, 0.3))
    word = rng.choice((0.0, 0.0, 0.05))
    return [
        rng.choice(WORDS) if rng.random() < word else "" if rng.random() < gap else kind()
        for _ in range(rows)
    ]


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("form", ["csv", "jsonl"])
def test_the_strict_reader_takes_what_is_inferred(tmp_path: Path, seed: int, form: str) -> None:
    """No row of a file is bad under the spec that was drafted from it, and numbers keep their value."""
    rng = random.Random(seed)
    size = rng.randrange(1, 30)
    columns = {"id": [str(number) for number in range(size)], "at": ["2024-01-01"] * size}
    columns |= {f"c{number}": texts_of(rng, size) for number in range(8)}
    lines = list(zip(*columns.values(), strict=True))
    source = folder(tmp_path, "a")
    with (source / f"1.{form}").open("w", newline="", encoding="utf-8") as file:
        if form == "csv":
            writer = csv.writer(file, quoting=rng.choice((csv.QUOTE_MINIMAL, csv.QUOTE_ALL)))
            writer.writerows([list(columns), *lines])
        else:
            file.writelines(json.dumps(dict(zip(columns, line, strict=True))) + "\n" for line in lines)

    spec, text = drafted(tmp_path, source, key=["id"])

    assert f"# 1 of 1 files read, {size} rows, 0 of them bad." in text
    stream = spec.stream("a")
    layout = layout_of(spec, stream)
    found = list(rows(source / f"1.{form}", stream, layout))
    for place, name in enumerate(layout.names):
        for row, given in zip(found, columns[name], strict=True):
            assert isinstance(row, Good)
            value = row.values[place]
            if layout.types[name] == "string":
                assert value == given or (value is None and given in {"", text_for_null(spec)})
            elif isinstance(value, int | Decimal) and layout.types[name] not in {
                "date",
                "timestamp",
                "boolean",
            }:
                assert Decimal(given) == value


def text_for_null(spec: Spec) -> str:
    """What stands for null in the files of the stream."""
    dialect = spec.stream("a").dialect
    return dialect.null if dialect else ""


def test_drafting_needs_no_spark(tmp_path: Path) -> None:
    """Neither Spark nor Java is loaded."""
    source = folder(tmp_path, "a", one__csv=EVENTS)
    code = (
        "import sys, pathlib\nfrom asynclock.spark.draft.draft import draft_spec\n"
        "draft_spec([pathlib.Path(sys.argv[1])])\nprint('pyspark' in sys.modules)"
    )

    done = subprocess.run(
        [sys.executable, "-c", code, str(source)], check=True, capture_output=True, text=True
    )

    assert done.stdout == "False\n"
