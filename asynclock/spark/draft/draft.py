"""A commented spec for the files of some folders."""

from __future__ import annotations

import json
import re
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Final

from asynclock._shared.words import escaped
from asynclock.spark.check.strict.rows import BadFileError, Good
from asynclock.spark.check.strict.source_file import layout_of
from asynclock.spark.draft.guess import Streams
from asynclock.spark.draft.sample import take
from asynclock.spark.spec.buckets import DEFAULT, advised
from asynclock.spark.spec.column_groups import TOMBSTONE
from asynclock.spark.spec.dialect import CsvDialect
from asynclock.spark.spec.load import format_of, parse_spec
from asynclock.spark.spec.ordering import ORDERING
from asynclock.spark.spec.toml import SpecFile

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from asynclock.spark.draft.guess import Guess
    from asynclock.spark.draft.sample import Sample
    from asynclock.spark.spec.model import Spec

_TABLE: Final = "table"
_HEAD: Final = """\
#:schema ./asynclock.schema.json
# For checks and completion in an editor: asynclock pipeline schema > asynclock.schema.json
#
# Drafted by `asynclock pipeline init` from the first files of each folder. Every guess has a comment: check
# it. The key and the partitions are fixed once the table has been written."""
_LOCKS: Final = """\
# The locks and checkpoints are next to the table. [locks] url names another place for the locks."""


def draft_spec(
    folders: Sequence[Path],
    *,
    table: str | None = None,
    key: Sequence[str] = (),
    file: Path | None = None,
    warn: Callable[[str], object] | None = None,
) -> str:
    """Return the text of a spec with one stream for each folder; nothing is written.

    Args:
        folders: The folders of the streams' files, on this machine.
        table: Path or URL of the table, which need not exist; None: a folder next to the spec, with the name
            of the spec's file.
        key: The key of the table, by the names of the columns or by those in the files; empty: guessed.
        file: The future place of the spec; its paths start there. None: its paths are absolute.
        warn: Called with each sentence about a guess that a person should check.

    Raises:
        ConfigError: A folder has no files that a stream could read, or there is no key or ordering.
    """
    samples: dict[str, Sample] = {}
    for folder in folders:
        samples[_stream_name(folder, samples)] = take(folder)
    mapped = {source: name for sample in samples.values() for name, source in sample.sources.items()}
    key = [mapped.get(name, name) for name in key]
    streams = Streams(samples)
    timed = {stream: streams.ordering(stream, key) for stream in samples}
    orderings = {stream: guess.names[0] for stream, guess in timed.items() if guess}
    found = streams.key(orderings, key)
    draft = _Draft(samples, streams, found, file, table)
    for stream, guess in timed.items():
        draft.orderings[stream] = guess or streams.any_ordering(stream, found.names)
    spec = parse_spec(SpecFile(draft.path, draft.text()))
    if warn is not None:
        for stream, sample in samples.items():
            for note in sample.notes:
                warn(f"stream {stream}: {note}")
        if found.warning:
            warn(found.warning)
    return draft.text(_read(spec, samples))


class _Draft:
    def __init__(
        self, samples: dict[str, Sample], streams: Streams, key: Guess, file: Path | None, table: str | None
    ) -> None:
        self.path = (file or Path.cwd() / "spec.toml").absolute()
        self.orderings: dict[str, Guess] = {}
        self._samples = samples
        self._streams = streams
        self._key = key
        self._absolute = file is None
        self._table = str(self._own_folder(file)) if table is None else table

    def _own_folder(self, file: Path | None) -> Path:
        """Return a folder for the table, with the name of the spec's file and apart from its sources."""
        folder = self.path.with_name(_TABLE if file is None or not file.suffix else file.stem)
        sources = [sample.folder.absolute() for sample in self._samples.values()]
        is_source = any(one.is_relative_to(folder) or folder.is_relative_to(one) for one in sources)
        return folder.with_name(f"{folder.name}-{_TABLE}") if is_source else folder

    def text(self, read: dict[str, str] | None = None) -> str:
        """Return the spec; ``read`` has the second reader's result for each stream."""
        lines = [_HEAD, "", "[table]", f"path = {_quoted(self._place(self._table))}"]
        lines += [
            _comment(self._key.reason),
            f"key = [{', '.join(map(_quoted, self._key.names))}]",
            *self._buckets(),
            "",
            _LOCKS,
        ]
        for stream, sample in self._samples.items():
            lines += ["", *self._stream(stream, sample, (read or {}).get(stream, ""))]
        return "\n".join(lines) + "\n"

    def _buckets(self) -> Iterator[str]:
        """Yield the number of buckets if the present files need more than the default."""
        size = sum(
            file.stat().st_size
            for sample in self._samples.values()
            for file in sample.folder.glob(sample.pattern)
            if file.is_file()
        )
        if (number := advised(size)) > DEFAULT:
            yield _comment(
                "A bucket for each GiB of the files; asynclock pipeline rebucket changes the number."
            )
            yield f"buckets = {number}"

    def _stream(self, stream: str, sample: Sample, read: str) -> Iterator[str]:
        if read:
            yield _comment(read)
        for note in sample.notes:
            yield _comment(note)
        yield f"[streams.{stream}]"
        yield f"source = {_quoted(self._place(f'{sample.folder}/{sample.pattern}'))}"
        if sample.others:
            names = ", ".join(sample.others[:3]) + (", ..." if len(sample.others) > 3 else "")  # noqa: PLR2004
            yield _comment(f"Not matched: {len(sample.others)} other files ({names}).")
        if format_of(sample.pattern) != sample.format:
            yield f"format = {_quoted(sample.format)}"
        if sample.csv is not None and sample.csv != CsvDialect():
            yield "# Guessed; docs/reference/spec.md lists the other keys."
            if sample.csv.null:
                yield _comment(
                    f"{sample.csv.null} without quotes is null, in text as well, where an empty field is not"
                )
            yield f"csv = {{ {', '.join(_dialect(sample.csv))} }}"
        yield _comment(self.orderings[stream].reason)
        yield f"ordering = {_quoted(self.orderings[stream].names[0])}"
        yield '# on_bad_row = "quarantine"  # puts bad rows aside; by default they stop the stream'
        yield ""
        yield f"[streams.{stream}.columns]"
        ordering = self.orderings[stream].names[0]
        for name, kind in self._streams.types[stream].items():
            if name.lower() == ORDERING and name != ordering:
                yield _comment(f"{name} is left out: {stream}__{ORDERING} holds the ordering column")
                continue
            yield f"{name} = {_column(kind, name, sample.sources[name])}{self._about(sample, name)}"
        for name, reason in sample.left_out.items():
            yield _comment(f"{_quoted(name)} is left out: {reason}")

    def _about(self, sample: Sample, name: str) -> str:
        if name in self._key.names:
            return "  # key"
        if name in sample.empty:
            return "  # no value in the files that were read"
        if name == TOMBSTONE:
            return "  # the tombstone: true removes what the stream has for the key"
        return ""

    def _place(self, path: str) -> str:
        if re.match(r"[a-z][a-z0-9+.-]*:/", path, re.IGNORECASE):
            return path
        absolute = Path(path).absolute()
        if not self._absolute and absolute.is_relative_to(self.path.parent):
            return str(absolute.relative_to(self.path.parent))
        return str(absolute)


def _read(spec: Spec, samples: dict[str, Sample]) -> dict[str, str]:
    """Return the second reader's result for the files under the drafted spec."""
    said = {}
    for stream in spec.streams:
        sample = samples[stream.name]
        layout = layout_of(spec, stream)
        good = bad = 0
        for file in sample.files:
            try:
                for row in sample.read(file, layout):
                    good, bad = good + isinstance(row, Good), bad + (not isinstance(row, Good))
            except BadFileError as error:
                bad += 1
                said[stream.name] = f" {file.name} is a bad file: {error}."
        more = f"{len(sample.files)} of {sample.found} files read, {good + bad} rows, {bad} of them bad."
        said[stream.name] = more + said.get(stream.name, "")
    return said


def _stream_name(folder: Path, taken: Iterable[str]) -> str:
    words = re.sub(r"[^a-z0-9]+", "_", folder.absolute().name.lower()).strip("_")
    name = words if re.match(r"[a-z]", words) else f"s_{words}".rstrip("_")
    known = set(taken)
    number = 2
    unique = name
    while unique in known:
        unique, number = f"{name}_{number}", number + 1
    return unique


def _column(kind: str, name: str, source: str) -> str:
    return _quoted(kind) if source == name else f"{{ type = {_quoted(kind)}, from = {_quoted(source)} }}"


def _dialect(dialect: CsvDialect) -> Iterator[str]:
    default = CsvDialect()
    for one in fields(CsvDialect):
        value = getattr(dialect, one.name)
        if value != getattr(default, one.name):
            yield f"{one.name} = {_quoted(value)}"


def _comment(text: str) -> str:
    return f"# {escaped(text)}"


def _quoted(text: str) -> str:
    # A string of JSON is a string of TOML, except for DEL.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
