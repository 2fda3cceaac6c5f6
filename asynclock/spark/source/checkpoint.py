"""A stream's checkpoint: its table, and the files or records that were read.

A checkpoint is useful only with the table that has the rows of its files. So the first commit of a stream
writes the table's id into the checkpoint's folder. A run with another table, or without one, is refused: it
would skip every file in the checkpoint and report success.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pyspark.errors import AnalysisException

from asynclock.spark.hadoop import HadoopFiles
from asynclock.spark.jvm import classes
from asynclock.spark.source.files import plain_url, source_files
from asynclock.spark.spec.functions import sums
from asynclock.spark.spec.load import misplaced

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pyspark.sql import SparkSession

    from asynclock.errors import SpecError
    from asynclock.spark.spec.model import Spec, StreamSpec

_TABLE_FILE: Final = "asynclock-table.json"
_AGAIN: Final = (
    "Name a new checkpoint: all files or records are read again, and those that the table has change nothing"
)
_BACK: Final = (
    "Put a whole copy of the checkpoint back, or restore a savepoint: a new checkpoint reads all files or "
    "records again, and the sums of the stream would count them twice"
)
_REDO: Final = "Delete that file: the batch is begun again, and skipped if the table has it"
_FOLDERS: Final = ("offsets", "sources/0", "commits")
_NEWEST: Final = 2  # of each, whose content is looked at
_VERSION: Final = "v1"  # each begins with it, that of a topic behind one byte
_HEAD: Final = 4


@dataclass(frozen=True, kw_only=True, slots=True)
class UnreadChanges:
    """Files of a source with content that no batch has read, or may not have read.

    Attributes:
        changed: Files that were changed after they were read; a file is read only once.
        hidden: Files that match the source but whose names begin with ``_`` or ``.``; Spark skips them.
    """

    changed: tuple[str, ...]
    hidden: tuple[str, ...]


class Checkpoint:
    """The checkpoint of one stream.

    Args:
        spec: The spec, for errors.
        stream: The stream.
        spark: A session.
    """

    def __init__(self, spec: Spec, stream: StreamSpec, spark: SparkSession) -> None:
        self._spec = spec
        self._stream = stream
        self._spark = spark
        self._hadoop: Any = classes(spark).org.apache.hadoop.fs
        self._configuration: Any = spark._jsc.hadoopConfiguration()  # noqa: SLF001
        self._files = HadoopFiles(spark)
        self._log: Any = classes(spark).io.asynclock.source.SourceLog
        self._log_folder = f"{stream.checkpoint}/sources/0"
        self._bound: dict[str, str] | None = None

    def refuse_damage(self) -> None:
        """Make sure that no file of the checkpoint is empty, or full of zeros, as a power loss leaves them.

        Raises:
            SpecError: A file is damaged; the error names it and the way out. Nothing was written.
        """
        self.query_id()  # it tells which batches are committed
        for folder in _FOLDERS:
            sizes = self._files.sizes(f"{self._stream.checkpoint}/{folder}")
            numbers = sorted(
                (name for name in sizes if name.removesuffix(".compact").isdigit()),
                key=lambda name: int(name.removesuffix(".compact")),
            )
            for name in numbers:
                path = f"{self._stream.checkpoint}/{folder}/{name}"
                is_cut = not sizes[name]
                if name in numbers[-_NEWEST:]:
                    is_cut = is_cut or _VERSION not in (self._files.read(path) or "")[:_HEAD]
                if is_cut:
                    raise self._damaged(path, _REDO if folder == "commits" else self._again)

    @property
    def _again(self) -> str:
        return _BACK if sums(self._stream.merge) else _AGAIN

    def _damaged(self, path: str, remedy: str) -> SpecError:
        reason = f"{path} is empty or damaged, as after a power loss; nothing was written. {remedy}"
        keys = ("streams", self._stream.name, "checkpoint")
        return misplaced(self._spec, keys, self._stream.checkpoint, reason)

    def refuse_another_table(
        self, table_id: Callable[[], str | None], *, is_there: Callable[[], bool] = lambda: False
    ) -> None:
        """Make sure that the checkpoint belongs to the spec's table, or to no table yet.

        Args:
            table_id: Returns the current id of the spec's table; None if nothing is committed there.
            is_there: Returns whether a table without commits of asynclock exists, for the error.

        Raises:
            SpecError: The checkpoint belongs to another table, or the table is gone. Nothing was written.
        """
        # Read the checkpoint first: a table has commits before a checkpoint names it.
        self._bound = bound = self._json(_TABLE_FILE)
        if bound is None or bound["table_id"] == (found := table_id()):
            return
        path = self._spec.table.path
        if found:
            there = f"{path} has the table {found}"
        elif is_there():
            there = f"the table at {path} has no commit of a stream"
        else:
            there = f"there is no table with commits at {path}"
        reason = (
            f"this checkpoint belongs to the table {bound['table_id']} at {bound['path']}, but {there}; what "
            "the stream has read is in the former only. Nothing was written; correct table.path, or name a "
            "new checkpoint, with which all files are read again"
        )
        keys = ("streams", self._stream.name, "checkpoint")
        raise misplaced(self._spec, keys, self._stream.checkpoint, reason)

    def refuse_another_source(self) -> None:
        """Make sure that a stream with a sum reads the files or the topic that its checkpoint has read.

        Spark knows a file by its path, so one that was moved would be read again.

        Raises:
            SpecError: The source is another one; nothing was written.
        """
        before = (self._bound or {}).get("source", self._read_from)
        if before != self._read_from and (names := sums(self._stream.merge)):
            reason = (
                f"this checkpoint has read {before}, and the source is now {self._read_from}: files of both "
                f"would be read again, and {', '.join(names)} would count their events twice. Nothing was "
                "written; name the former source, or read the new one as another stream"
            )
            keys = ("streams", self._stream.name, "source" if self._stream.kafka is None else "kafka")
            raise misplaced(self._spec, keys, self._read_from, reason)

    @property
    def _read_from(self) -> str:
        return self._stream.source if self._stream.kafka is None else self._stream.kafka.topic

    def bind(self, table_id: Callable[[], str | None]) -> None:
        """Record in the checkpoint that it belongs to the spec's table, unless it says so already.

        Call it after a commit and before Spark records the batch. A process killed in between repeats the
        batch and then binds the checkpoint.

        Args:
            table_id: Returns the id of the spec's table.
        """
        source = {"source": self._read_from} if sums(self._stream.merge) else {}
        if self._bound is not None and source.keys() <= self._bound.keys():
            return
        if (found := table_id()) is None:
            return
        bound = {"table_id": found, "path": self._spec.table.path} | source
        self._files.write(f"{self._stream.checkpoint}/{_TABLE_FILE}", json.dumps(bound))
        self._bound = bound

    def query_id(self) -> str | None:
        """Return the id of the query whose progress this is; None before its first start."""
        found = self._json("metadata")
        return None if found is None else found["id"]

    def offset(self, batch_id: int) -> str:
        """Return the end of a batch in its source, as Spark noted it in advance; empty if that is gone."""
        text = self._files.read(f"{self._stream.checkpoint}/offsets/{batch_id}")
        return "" if text is None else text.splitlines()[-1]

    def end(self, batch_id: int, due: Iterable[tuple[str, int]] | None) -> str:
        """Return ``offset`` with a digest of the files of the batch, as ``due`` returns them."""
        offset = self.offset(batch_id)
        if not offset or due is None:
            return offset
        digest = hashlib.sha256("\n".join(sorted(url for url, _ in due)).encode()).hexdigest()
        return json.dumps(json.loads(offset) | {"files": digest}, separators=(",", ":"))

    def due(self, batch_id: int) -> list[tuple[str, int]] | None:
        """Return the files of a batch: URL, and modification time in microseconds when they were listed.

        Spark silently leaves out a file that has vanished since.

        Returns:
            None if the checkpoint does not say it, and for a topic.
        """
        if self._stream.kafka is not None:
            return None
        ends = [self.offset(number) for number in (batch_id - 1, batch_id) if number >= 0]
        if not all(ends):
            return None
        *before, last = [int(json.loads(end)["logOffset"]) for end in ends]
        return self.entries(before[0] + 1 if before else 0, last)

    def entries(self, first: int, last: int) -> list[tuple[str, int]] | None:
        """Return the files of some entries of the source's log, as ``due``; None if one of them is gone."""
        folder = f"{self._stream.checkpoint}/sources/0"
        files: list[tuple[str, int]] = []
        for entry in range(first, last + 1):
            text = self._files.read(f"{folder}/{entry}")
            if text is None:
                text = self._files.read(f"{folder}/{entry}.compact")  # with all earlier entries
            if text is None:
                return None
            mine = f'"batchId":{entry}}}'
            found = [json.loads(line) for line in text.splitlines() if line.endswith(mine)]
            files += [(plain_url(one["path"]), one["timestamp"] * 1000) for one in found]
        return files

    def committed(self) -> int | None:
        """Return the number of the newest batch that Spark has noted as committed; None if there is none."""
        names = self._files.sizes(f"{self._stream.checkpoint}/commits")
        return max((int(name) for name in names if name.isdigit()), default=None)

    def first_offset(self) -> str:
        """Return the start of the first batch in its topic; empty if there is no batch yet."""
        text = self._files.read(f"{self._stream.checkpoint}/sources/0/0")
        return "" if text is None else text[text.index("{") :]  # the line before is a version

    def arrivals(self) -> dict[str, tuple[int, int]]:
        """Return the entry of each file in the source's log, and the file's modification time then, in ms.

        Files arrived in the order of the entries; one that was touched later has a misleading modification
        time. Entries have the numbers of batches until a driver dies after it wrote an entry and before it
        noted the batch: the next batch then has two entries.
        """
        lines = (
            line.split(" ") for line in self._log.arrivals(self._log_folder, self._configuration).splitlines()
        )
        return {url: (int(entry), int(modified)) for entry, modified, url in lines}

    def unread(self) -> int:
        """Return the number of files of the source that no batch has read yet."""
        known = self.arrivals()
        return sum(file.url not in known for file in source_files(self._spark, self._stream.source))

    def files_in(self, batch_id: int) -> int:
        """Return the number of files of a batch; 0 if it is no longer known."""
        entry = json.loads(self.offset(batch_id) or "{}").get("logOffset")
        log = f"{self._stream.checkpoint}/sources/0/{entry}"
        text = self._files.read(log) or self._files.read(f"{log}.compact") or ""
        # The first line is a version, and a compact log has the entries before, too.
        return sum(json.loads(line)["batchId"] == entry for line in text.splitlines()[1:])

    def unread_changes(self) -> UnreadChanges:
        """Return the files of the source whose present content has not been, or never will be, read.

        A topic has none: a record never changes, and none is skipped.
        """
        if self._stream.kafka is not None:
            return UnreadChanges(changed=(), hidden=())
        return UnreadChanges(changed=self._changed(), hidden=self._hidden())

    def _changed(self) -> tuple[str, ...]:
        try:
            now = self._spark.read.format("binaryFile").load(self._stream.source)
        except AnalysisException:  # no file matches any more
            return ()
        return tuple(sorted(self._log.changed(now._jdf, self._log_folder)))  # noqa: SLF001

    def _hidden(self) -> tuple[str, ...]:
        source = self._hadoop.Path(self._stream.source)
        matches = self._hadoop.GlobPattern(source.getName()).matches
        parent = source.getParent()  # None for a whole bucket
        around = self._glob(parent, "[._]*") if parent else []
        beside = [one for one in around if matches(one.getPath().getName())]
        found = {
            status.getPath().toString()
            for status in (*beside, *self._glob(source, "[._]*"))
            # Empty files are marks such as _SUCCESS, and .x.crc is Hadoop's checksum of x.
            if status.isFile() and status.getLen() and not status.getPath().getName().endswith(".crc")
        }
        return tuple(sorted(found))

    def _glob(self, folder: Any, pattern: str) -> list[Any]:  # noqa: ANN401  py4j
        path = self._hadoop.Path(folder, pattern)
        return list(path.getFileSystem(self._configuration).globStatus(path) or [])

    def _json(self, name: str) -> dict[str, str] | None:
        text = self._files.read(f"{self._stream.checkpoint}/{name}")
        if text is None:
            return None
        try:
            found: dict[str, str] = json.loads(text)
        except ValueError:
            remedy = self._again if name != _TABLE_FILE else "If the table is the right one, delete that file"
            raise self._damaged(f"{self._stream.checkpoint}/{name}", remedy) from None
        return found
