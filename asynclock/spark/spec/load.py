"""Read a spec from TOML; every error names the file, the line and the key."""

from __future__ import annotations

import glob
import re
from contextlib import contextmanager
from dataclasses import fields
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast, get_args
from urllib.parse import quote

from asynclock import connect
from asynclock._shared.words import HIDDEN, refuse_credentials
from asynclock.errors import BackendNotInstalledError, ConfigError, SpecError
from asynclock.settings import LeaseSettings
from asynclock.spark.spec.checked import problems_of, raise_all, read, refuse, wrong
from asynclock.spark.spec.document import Document
from asynclock.spark.spec.environment import flat_settings, from_environment
from asynclock.spark.spec.hudi_settings import HudiSpec
from asynclock.spark.spec.joins import ViewSpec
from asynclock.spark.spec.kinds import DEFAULTS, default_concurrency
from asynclock.spark.spec.lock_settings import LocksSpec, LocksTable
from asynclock.spark.spec.model import URL, SourceFormat, Spec, StreamSpec, TableSpec
from asynclock.spark.spec.place import beside
from asynclock.spark.spec.service_settings import ServicesSpec, ServicesTable
from asynclock.spark.spec.spark import SparkSpec
from asynclock.spark.spec.toml import Keys, SpecFile, unknown_name
from asynclock.spark.spec.view import check_stream_name

if TYPE_CHECKING:
    from collections.abc import Iterator

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
    found: list[ConfigError] = []

    @contextmanager
    def collecting(*prefix: str) -> Iterator[None]:
        try:
            yield
        except ConfigError as error:
            found.extend(problems_of(error, *prefix))

    folder = file.path.parent
    tables = [field.name for field in fields(Document)]
    given: dict[str, dict[str, Any]] = {name: {} for name in tables}
    for name, value in file.values.items():
        if name not in tables:
            found.append(wrong(name, value, unknown_name(name, tables)))
        elif not isinstance(value, dict):
            found.append(wrong(name, value, f"expected a table, found {value!r}"))
        else:
            given[name] = value
    table = locks = services = spark = hudi = None
    streams: list[StreamSpec] = []
    views: list[ViewSpec] = []
    with collecting("table"):
        table = _read_table(given["table"], folder)
    with collecting():
        locks = _read_locks(given["locks"], folder, table)
    with collecting("services"):
        services = _read_services(given["services"], table)
    with collecting("spark"):
        spark = read(SparkSpec, given["spark"], hide=True)
    with collecting("hudi"):
        hudi = HudiSpec(options=cast("dict[str, str]", flat_settings(given["hudi"])))
    for name, values in given["streams"].items():
        with collecting("streams", name):
            streams.append(_read_stream(name, values, folder, table))
    for name, values in given["views"].items():
        with collecting("views", name):
            shown = {"streams": tuple(given["streams"]), **values} if isinstance(values, dict) else values
            views.append(read(ViewSpec, shown, name=name))
    if not found and table and locks and services and spark and hudi:
        with collecting():
            return Spec(
                path=file.path,
                table=table,
                locks=locks,
                services=services,
                spark=spark,
                streams=tuple(streams),
                views=tuple(views),
                hudi=hudi,
            )
    raise file.errors(found)


def missing_source(source: str) -> str | None:
    """Return the reason why a local source cannot be read, or None; the run looks for remote sources.

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


def _read_table(given: dict[str, object], folder: Path) -> TableSpec:
    values = dict(given)
    kind = values.get("kind", TableSpec.kind)
    if isinstance(kind, str) and kind in DEFAULTS:
        default = DEFAULTS[kind]
        values.setdefault("type", default.type)
        values.setdefault("merge", default.merge)
        values.setdefault("concurrency", default_concurrency(kind, str(values["type"])))
    if isinstance(path := values.get("path"), str):
        path = _absolute(path, folder)
        values["path"] = path if URL.match(path) else f"file://{path}"
    return read(TableSpec, values)


def _read_locks(given: dict[str, object], folder: Path, table: TableSpec | None) -> LocksSpec | None:
    """Return the locks, or None if they are right but the table, next to which they are, is wrong."""
    try:
        said = read(LocksTable, given)
        options = said.model_extra or {}
        known = list(LocksTable.model_fields)
        raise_all(
            wrong(name, HIDDEN, unknown_name(name, known))
            for name in options
            if get_close_matches(name, known, n=1)
        )
        times = said.model_dump(exclude={"url", "moved_from", *options}, exclude_none=True)
        settings = LeaseSettings(**times)
        read_options = {name: from_environment(name, value) for name, value in options.items()}
    except ConfigError as error:
        refuse(problems_of(error, "locks"))
    if said.url is None and table is None:
        return None
    url = _default_locks(table) if said.url is None and table else _locks_url(said.url or "", folder)
    try:
        return LocksSpec(
            url=url,
            settings=settings,
            options=read_options,
            moved_from=None if said.moved_from is None else _locks_url(said.moved_from, folder),
        )
    except ConfigError as error:
        refuse(problems_of(error, "locks"))


def _default_locks(table: TableSpec) -> str:
    try:
        url = _encoded(f"{beside(table.path)}/locks")
    except ConfigError as error:
        refuse(problems_of(error, "table"))
    try:
        connect(url)
    except BackendNotInstalledError:
        pass
    except ConfigError as error:
        if error.setting == "url":
            reason = f"no locks can be next to the table: {error.reason}; name another place as [locks] url"
            raise wrong("table.path", table.path, reason) from error
    return url


def _locks_url(given: str, folder: Path) -> str:
    return _encoded(given if URL.match(given) else (folder / given).as_uri())


def _encoded(url: str) -> str:
    """Encode spaces and umlauts in the URL of a folder; parts that are percent-encoded stay as they are."""
    return quote(url, safe=_URL_CHARACTERS) if url.lower().startswith("file:") else url


def _read_services(given: dict[str, object], table: TableSpec | None) -> ServicesSpec:
    if table and table.type == "cow" and "compaction" in given:
        reason = "a copy-on-write table has no logs to compact; remove it"
        raise wrong("compaction", given["compaction"], reason)
    return read(ServicesTable, given).spec()


def _read_stream(name: str, given: object, folder: Path, table: TableSpec | None) -> StreamSpec:
    check_stream_name(name)
    values = dict(given) if isinstance(given, dict) else {}
    source = values.get("source", "")
    if isinstance(given, dict) and "columns" not in given:
        reason = (
            "missing; add columns = { NAME = \"TYPE\", ... }, or let 'asynclock pipeline init FOLDER' write "
            "them from the files"
        )
        raise wrong("columns", None, reason)
    if isinstance(source, str) and source:
        values["source"] = _absolute(source, folder)
    if "format" not in values:
        values["format"] = "json" if not source or "kafka" in values else _format(str(source))
    checkpoint = values.get("checkpoint")
    if checkpoint is None:
        values["checkpoint"] = f"{beside(table.path)}/checkpoints/{name}" if table else ""
    elif isinstance(checkpoint, str):
        values["checkpoint"] = _absolute(checkpoint, folder)
    plain = table is not None and table.kind == "plain"
    found: list[ConfigError] = []
    if isinstance(source, str) and source and (problem := missing_source(values["source"])):
        found.append(wrong("source", values["source"], problem))
    try:
        stream = read(StreamSpec, values if isinstance(given, dict) else given, name=name, whole_rows=plain)
    except ConfigError as error:
        found += problems_of(error)
    raise_all(found)
    return stream


def _format(source: str) -> SourceFormat:
    found = format_of(source)
    if found is None:
        reason = (
            f"missing, and the name of the source does not end in {', '.join(_FORMATS)}; add format = "
            f"{' | '.join(repr(name) for name in get_args(SourceFormat))}"
        )
        raise wrong("format", None, reason)
    return found


def format_of(source: str) -> SourceFormat | None:
    """Return the format by the suffix of a source, ignoring one of a compression; None if there is none."""
    name = source.rpartition("/")[2].lower()
    for compression in COMPRESSIONS:
        name = name.removesuffix(compression)
    return next((kind for suffix, kind in _FORMATS.items() if name.endswith(suffix)), None)


def _absolute(path: str, folder: Path) -> str:
    return path if URL.match(path) else str(folder / path)


def misplaced(spec: Spec, keys: Keys, value: object, reason: str) -> SpecError:
    """Return an error about a key of a spec that was read earlier, with its present line in the file."""
    try:
        return SpecFile.read(spec.path).error(keys, value, reason)
    except SpecError:
        return SpecError(path=str(spec.path), line=0, key=".".join(keys), value=value, reason=reason)
