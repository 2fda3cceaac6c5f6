"""Read a spec from TOML; every error names the file, the line and the key."""

from __future__ import annotations

import glob
import re
from dataclasses import fields
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast, get_args
from urllib.parse import quote

from asynclock._secrets import HIDDEN
from asynclock.backends._url import refuse_credentials
from asynclock.client import connect
from asynclock.errors import BackendNotInstalledError, ConfigError, SpecError
from asynclock.settings import LeaseSettings
from asynclock.spark.spec.column import Column
from asynclock.spark.spec.dialect import CsvDialect
from asynclock.spark.spec.environment import FromEnvironment, from_environment
from asynclock.spark.spec.joins import TopRows, ViewSpec
from asynclock.spark.spec.kafka_settings import KafkaSpec
from asynclock.spark.spec.kinds import DEFAULTS, default_concurrency
from asynclock.spark.spec.lock_settings import LocksSpec
from asynclock.spark.spec.model import (
    URL,
    SourceFormat,
    Spec,
    StreamSpec,
    TableSpec,
)
from asynclock.spark.spec.place import beside
from asynclock.spark.spec.service_settings import ServicesSpec
from asynclock.spark.spec.spark import SparkSpec
from asynclock.spark.spec.toml import Keys, Section, SpecFile, unknown_name
from asynclock.spark.spec.view import check_stream_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from asynclock.spark.spec.joins import Join
    from asynclock.spark.spec.kinds import Concurrency, Markers, Merge, TableKind, TableType
    from asynclock.spark.spec.model import BadRowPolicy
    from asynclock.spark.spec.service_settings import ServicesMode

_STREAM_KEYS: Final = tuple(
    field.name.rstrip("_") for field in fields(StreamSpec) if field.name not in {"name", "whole_rows"}
)
_URL_CHARACTERS: Final = ":/?#[]@!$&'()*+,;=~%"  # RFC 3986, section 2, besides letters and digits
_WILDCARD: Final = re.compile(r"[*?\[{]")
_FORMATS: Final[dict[str, SourceFormat]] = {
    ".csv": "csv", ".parquet": "parquet", ".json": "json", ".jsonl": "json", ".ndjson": "json",
}  # fmt: skip
COMPRESSIONS: Final = (".gz", ".bz2", ".zst", ".deflate", ".lz4", ".snappy")


def load_spec(path: str | Path) -> Spec:
    """Read and check a spec; nothing is created.

    Args:
        path: A TOML file. Relative paths in it start from its folder.

    Raises:
        SpecError: The file, a key or a value is wrong, or a local source does not exist.
    """
    refuse_credentials("spec", str(path))
    return parse_spec(SpecFile.read(Path(path).absolute()))


def parse_spec(file: SpecFile) -> Spec:
    """Check the text of a spec; see ``load_spec``."""
    root = file.root(("table", "locks", "services", "streams", "views", "spark"))
    streams = root.section("streams")
    folder = file.path.parent
    with file.locating():
        table = _read_table(root, folder)
        spec = Spec(
            path=file.path,
            table=table,
            locks=_read_locks(root, folder, table),
            services=_read_services(root, table),
            spark=_read_spark(root),
            streams=tuple(_read_stream(streams, name, folder, table) for name in streams.values),
            views=tuple(_read_views(root, tuple(streams.values))),
        )
    for stream in spec.streams:
        if stream.source and (problem := missing_source(stream.source)):
            raise file.error(("streams", stream.name, "source"), stream.source, problem)
    return spec


def missing_source(source: str) -> str | None:
    """Return why a local source cannot be read, or None; the run looks for sources in remote stores.

    An empty folder is not an error, since files may still arrive.
    """
    path = local_path(source)
    if path is not None and not _WILDCARD.search(path) and Path(path).is_file():
        pattern = Path(path).with_name(f"{Path(path).stem}*{Path(path).suffix}")
        return f"the source is one file, and a stream watches for more; name its folder, or {pattern}"
    if path is None or next(glob.iglob(path), None):  # noqa: PTH207  Path.glob refuses absolute patterns
        return None
    fixed = _WILDCARD.split(path)[0]
    folder = Path(fixed if fixed == path else fixed.rpartition("/")[0] or "/")
    if not folder.exists():
        return f"the source does not exist: there is no {folder}; create it or correct the path"
    if "{" in path or (folder.is_dir() and not any(folder.iterdir())):
        return None  # braces are Hadoop's syntax; the run looks for these files
    return f"the source does not exist: nothing in {folder} matches; correct the pattern"


def local_path(url: str) -> str | None:
    """Return the path of a local URL, or None for one of a remote store."""
    if not URL.match(url):
        return url
    scheme, _, rest = url.partition(":")
    return "/" + rest.lstrip("/") if scheme.lower() == "file" else None


def _read_table(root: Section, folder: Path) -> TableSpec:
    section = root.section("table", [field.name for field in fields(TableSpec)])
    kind = section.value("kind", str, TableSpec.kind)
    if kind not in DEFAULTS:
        raise section.error("kind", kind, unknown_name(kind, DEFAULTS))
    default = DEFAULTS[kind]
    type_ = section.value("type", str, default.type)
    path = _absolute(section.required("path", str), folder)
    with section.locating():
        return TableSpec(
            path=path if URL.match(path) else f"file://{path}",
            key=section.names("key") or (),
            partition_by=section.names("partition_by") or (),
            buckets=section.value("buckets", int, TableSpec.buckets),
            kind=cast("TableKind", kind),
            type=cast("TableType", type_),
            merge=cast("Merge", section.value("merge", str, default.merge)),
            concurrency=cast(
                "Concurrency", section.value("concurrency", str, default_concurrency(kind, type_))
            ),
            markers=cast("Markers", section.value("markers", str, TableSpec.markers)),
        )


def _read_locks(root: Section, folder: Path, table: TableSpec) -> LocksSpec:
    section = root.section("locks")  # every other key is an option of the store, which knows its options
    times = [field.name for field in fields(LeaseSettings)]
    known = ("url", "moved_from", *times)
    for name in section.values:
        if name not in known and get_close_matches(name, known, n=1):
            raise section.error(name, HIDDEN, unknown_name(name, known))
    given, moved_from = section.optional("url", str), section.optional("moved_from", str)
    url = _default_locks(root, table) if given is None else _locks_url(given, folder)
    settings = {name: value for name in times if (value := section.optional(name, float)) is not None}
    with section.locating():
        return LocksSpec(
            url=url,
            settings=LeaseSettings(**settings),
            options={
                name: from_environment(name, value)
                for name, value in section.values.items()
                if name not in known
            },
            moved_from=None if moved_from is None else _locks_url(moved_from, folder),
        )


def _default_locks(root: Section, table: TableSpec) -> str:
    section = root.section("table")
    with section.locating():
        url = _encoded(f"{beside(table.path)}/locks")
    try:
        connect(url)
    except BackendNotInstalledError:
        pass
    except ConfigError as error:
        if error.setting == "url":
            reason = f"no locks can be beside the table: {error.reason}; name another place as [locks] url"
            raise section.error("path", table.path, reason) from error
    return url


def _locks_url(given: str, folder: Path) -> str:
    return _encoded(given if URL.match(given) else (folder / given).as_uri())


def _encoded(url: str) -> str:
    """Encode spaces and umlauts in the URL of a folder; parts that are percent-encoded stay as they are."""
    return quote(url, safe=_URL_CHARACTERS) if url.lower().startswith("file:") else url


def _read_services(root: Section, table: TableSpec) -> ServicesSpec:
    section = root.section("services", ("mode", "compaction", "clustering", "cleaning", "archiving"))
    if table.type == "cow" and "compaction" in section.values:
        reason = "a copy-on-write table has no logs to compact; remove it"
        raise section.error("compaction", section.values["compaction"], reason)
    compaction = section.section("compaction", ("every_commits",))
    clustering = section.section("clustering", ("every_commits", "sort_by"))
    cleaning = section.section("cleaning", ("retain_commits",))
    archiving = section.section("archiving", ("keep_min_commits", "keep_max_commits"))
    retain = cleaning.value("retain_commits", int, ServicesSpec.retain_commits)
    keep_min = archiving.value("keep_min_commits", int, retain + 10)
    with section.locating():
        return ServicesSpec(
            mode=cast("ServicesMode", section.value("mode", str, ServicesSpec.mode)),
            compact_every_commits=compaction.value("every_commits", int, ServicesSpec.compact_every_commits),
            cluster_every_commits=clustering.required("every_commits", int)
            if "clustering" in section.values
            else None,
            cluster_by=clustering.names("sort_by") or (),
            retain_commits=retain,
            archive_min_commits=keep_min,
            archive_max_commits=archiving.value("keep_max_commits", int, keep_min + 10),
        )


def _read_spark(root: Section) -> SparkSpec:
    section = root.section("spark")
    known = [field.name for field in fields(SparkSpec)]
    for name in section.values:
        if name not in known:  # its value may be a secret and is not shown
            raise section.error(name, HIDDEN, unknown_name(name, known))
    with section.locating():
        return SparkSpec(
            master=section.optional("master", str),
            conf=dict(_settings("", section.section("conf").values, "conf")),
            packages=section.names("packages") or (),
        )


def _settings(
    prefix: str, values: Mapping[str, object], key: str
) -> Iterator[tuple[str, str | FromEnvironment]]:
    """Yield the settings below a key; without quotes TOML makes a table of each part of their names."""
    for name, given in values.items():
        full = f"{prefix}{name}"
        value = from_environment(f"{key}.{full}", given)
        if isinstance(value, dict):
            yield from _settings(f"{full}.", value, key)
        elif isinstance(value, bool):
            yield full, str(value).lower()
        elif isinstance(value, str | int | float | FromEnvironment):
            yield full, value if isinstance(value, FromEnvironment) else str(value)
        else:
            raise ConfigError(setting=f"{key}.{full}", value=HIDDEN, reason="expected a string or a number")


def _read_stream(streams: Section, name: str, folder: Path, table: TableSpec) -> StreamSpec:
    with streams.locating(name):
        check_stream_name(name)
    section = streams.section(name, _STREAM_KEYS)
    if "columns" not in section.values:
        reason = (
            "missing; add columns = { NAME = \"TYPE\", ... }, or let 'asynclock pipeline init FOLDER' write "
            "them from the files"
        )
        raise section.error("columns", None, reason)
    columns = section.section("columns")
    renamed = section.section("as")
    with columns.locating():
        typed = tuple(_read_column(columns, key) for key in columns.values)
    source = section.value("source", str, "")
    with section.locating():
        kafka = _read_kafka(section)
        checkpoint = section.optional("checkpoint", str)
        return StreamSpec(
            name=name,
            source=_absolute(source, folder) if source else "",
            kafka=kafka,
            format=_read_format(section, source),
            ordering=section.required("ordering", str),
            checkpoint=f"{beside(table.path)}/checkpoints/{name}"
            if checkpoint is None
            else _absolute(checkpoint, folder),
            columns=typed,
            csv=_read_dialect(section),
            max_files_per_trigger=section.optional("max_files_per_trigger", int),
            max_records_per_trigger=section.optional("max_records_per_trigger", int),
            on_bad_row=cast("BadRowPolicy", section.value("on_bad_row", str, StreamSpec.on_bad_row)),
            optional=section.names("optional") or (),
            as_={key: renamed.required(key, str) for key in renamed.values},
            whole_rows=table.kind == "plain",
        )


def _read_column(columns: Section, name: str) -> Column:
    if not isinstance(columns.values[name], dict):
        return Column(name=name, type=columns.required(name, str))
    section = columns.section(name, ("type", "from"))
    return Column(name=name, type=section.required("type", str), from_=section.optional("from", str))


def _read_views(root: Section, streams: tuple[str, ...]) -> Iterator[ViewSpec]:
    views = root.section("views")
    for name in views.values:
        section = views.section(name, ("streams", "join", "top"))
        top = section.section("top", [field.name for field in fields(TopRows)])
        with section.locating("top"):
            first = (
                TopRows(
                    n=top.required("n", int),
                    by=top.required("by", str),
                    per=top.names("per") or (),
                    ascending=top.value("ascending", bool, TopRows.ascending),
                )
                if "top" in section.values
                else None
            )
        named = section.names("streams")
        with section.locating():
            yield ViewSpec(
                name=name,
                streams=streams if named is None else named,
                join=cast("Join", section.value("join", str, ViewSpec.join)),
                top=first,
            )


def _read_kafka(stream: Section) -> KafkaSpec | None:
    if "kafka" not in stream.values:
        return None
    section = stream.section("kafka", [field.name for field in fields(KafkaSpec)])
    options = section.section("options")
    return KafkaSpec(
        servers=section.required("servers", str),
        topic=section.required("topic", str),
        options=dict(_settings("", options.values, "kafka.options")),
    )


def _read_format(stream: Section, source: str) -> SourceFormat:
    given = stream.optional("format", str)
    if given is not None:
        return cast("SourceFormat", given)
    if not source or "kafka" in stream.values:
        return "json"
    found = format_of(source)
    if found is None:
        reason = (
            f"missing, and the name of the source does not end in {', '.join(_FORMATS)}; add format = "
            f"{' | '.join(repr(name) for name in get_args(SourceFormat))}"
        )
        raise stream.error("format", None, reason)
    return found


def format_of(source: str) -> SourceFormat | None:
    """Return the format that the suffix of a source says, one of a compression set aside; None if none."""
    name = source.rpartition("/")[2].lower()
    for compression in COMPRESSIONS:
        name = name.removesuffix(compression)
    return next((kind for suffix, kind in _FORMATS.items() if name.endswith(suffix)), None)


def _read_dialect(stream: Section) -> CsvDialect | None:
    if "csv" not in stream.values:
        return None
    section = stream.section("csv", [field.name for field in fields(CsvDialect)])
    with stream.locating():
        return CsvDialect(
            separator=section.value("separator", str, CsvDialect.separator),
            quote=section.value("quote", str, CsvDialect.quote),
            escape=section.optional("escape", str),
            encoding=section.value("encoding", str, CsvDialect.encoding),
            null=section.value("null", str, CsvDialect.null),
            multiline=section.value("multiline", bool, CsvDialect.multiline),
        )


def _absolute(path: str, folder: Path) -> str:
    return path if URL.match(path) else str(folder / path)


def misplaced(spec: Spec, keys: Keys, value: object, reason: str) -> SpecError:
    """Return an error about a key of a spec that was read earlier, with its present line in the file."""
    try:
        return SpecFile.read(spec.path).error(keys, value, reason)
    except SpecError:
        return SpecError(path=str(spec.path), line=0, key=".".join(keys), value=value, reason=reason)
