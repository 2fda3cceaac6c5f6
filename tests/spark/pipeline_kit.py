"""A pipeline of two small streams over files in a folder of its own."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import json
import os
import shutil
import subprocess
import threading
import time
import uuid
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F  # noqa: N812  the name everybody uses

from asynclock._cli.app import run_command
from asynclock.errors import LockChangedError
from asynclock.spark import hoodie
from asynclock.spark.hudi.guard import guard_properties
from asynclock.spark.hudi.table import Table
from asynclock.spark.hudi.timeline import Timeline
from asynclock.spark.runs.run import run
from asynclock.spark.spec.load import load_spec
from asynclock.spark.work import worker
from asynclock.spark.writer.splice import Splice
from tests.cli.command import COMMAND

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    import pytest
    from pyspark.sql import DataFrame, SparkSession

    from asynclock import sync
    from asynclock.spark.results import RunReport
    from asynclock.spark.spec.model import Spec

Row = dict[str, object]
FIELDS = {"a": ["k", "at", "x", "note"], "b": ["deleted", "k", "seen", "not.`used`", "y"]}
EPOCH = 1_700_000_000
DEADLINE = 90.0

SPEC = """\
[table]
path = "table"
key = ["k"]
buckets = 1

[locks]
url = "locks"
validity = 5.0

[services]
compaction = { every_commits = 2 }
cleaning = { retain_commits = 1 }
archiving = { keep_min_commits = 2, keep_max_commits = 3 }

[streams.a]
source = "in/a/*"
format = "csv"
ordering = "at"
checkpoint = "checkpoints/a"
max_files_per_trigger = 1
columns = { at = "bigint", x = "int", note = "string" }

[streams.b]
source = "in/b/*"
format = "csv"
ordering = "seen"
checkpoint = "checkpoints/b"
max_files_per_trigger = 1
on_bad_row = "quarantine"
columns = { seen = "timestamp", y = "double", deleted = "boolean" }
"""

SUMMED = {'note = "string" }': 'note = "string" }\nmerge = { x = "sum" }'}
"""The change of the spec by which stream a adds up x, so that a batch must count once."""


class Pipeline:
    """Delivers files, writes specs and looks at what came of them."""

    def __init__(self, folder: Path, spark: SparkSession) -> None:
        self.folder = folder
        self.spark = spark
        self.files = 0
        for stream in ("a", "b"):
            (folder / "in" / stream).mkdir(parents=True, exist_ok=True)

    def spec(self, changes: Mapping[str, str] | None = None, *, name: str = "spec.toml") -> Spec:
        """The spec above, with pieces of its text replaced."""
        text = SPEC
        for old, new in (changes or {}).items():
            assert old in text
            text = text.replace(old, new)
        path = self.folder / name
        path.write_text(text)
        return load_spec(path)

    def deliver(self, stream: str, *rows: Row) -> Path:
        """One more CSV file of a stream; later files are younger."""
        names = FIELDS[stream]
        lines = [",".join("" if row.get(n) is None else str(row[n]) for n in names) for row in rows]
        return self.place(stream, "csv", "\n".join([",".join(names), *lines, ""]))

    def place(self, stream: str, suffix: str, text: str) -> Path:
        """One more file of a stream, as it stands."""
        self.files += 1
        hidden = self.folder / "in" / stream / f".{self.files}"
        hidden.write_text(text)
        os.utime(hidden, (EPOCH + self.files, EPOCH + self.files))
        return hidden.rename(hidden.with_name(f"{self.files:04}.{suffix}"))

    def run(self, spec: Spec, **options: Any) -> RunReport:  # noqa: ANN401  as run has them
        """Feed what is there, and end."""
        return run(spec, once=True, spark=self.spark, **options)

    def endless(self, spec: Spec, **options: Any) -> RunReport:  # noqa: ANN401  as run has them
        """Feed what comes, until ``stop`` is set."""
        return run(spec, spark=self.spark, **options)

    def timeline(self, spec: Spec) -> Timeline:
        """The timeline."""
        return Timeline(self.spark, spec.table.path)

    def table(self, spec: Spec) -> Table:
        """The table, its commits read now."""
        table = Table(spec, self.spark)
        table.commits.refresh()
        return table

    def unguard(self, spec: Spec) -> None:
        """Take the guard out of the properties of the table."""
        jvm: Any = self.spark._jvm
        names, entries = jvm.java.util.HashSet(), jvm.java.util.Properties()
        for name in guard_properties(spec):
            names.add(name)
        kind = "SIMPLE" if spec.table.partition_by else "NON_PARTITION"
        entries.setProperty(hoodie.TABLE_KEYGENERATOR_TYPE, kind)
        meta = self.timeline(spec).meta()
        folder = meta.getMetaPath()
        table_config = jvm.org.apache.hudi.common.table.HoodieTableConfig
        table_config.delete(meta.getStorage(), folder, names)
        table_config.update(meta.getStorage(), folder, entries)

    def age_heartbeats(self) -> None:
        """Make every heartbeat look as if it had stopped long ago."""
        for heartbeat in (self.folder / "table" / ".hoodie" / ".heartbeat").iterdir():
            os.utime(heartbeat, (1, 1))

    def forget_last_batch(self, stream: str) -> int:
        """What a kill between the commit of a batch and its checkpoint leaves behind."""
        commits = self.folder / "checkpoints" / stream / "commits"
        last = max(int(path.name) for path in commits.iterdir() if path.name.isdigit())
        (commits / str(last)).unlink()
        (commits / f".{last}.crc").unlink(missing_ok=True)
        return last

    def quarantined(self, stream: str) -> list[dict[str, str]]:
        """The rows put aside, in the order of their files."""
        folder = self.folder / "checkpoints" / f"{stream}-quarantine"
        lines = [line for path in sorted(folder.rglob("*.json")) for line in path.read_text().split("\n")]
        return [json.loads(line) for line in lines if line]

    def everything(self) -> set[str]:
        """Every file of the folder."""
        return {str(path.relative_to(self.folder)) for path in self.folder.rglob("*") if path.is_file()}


class Kept:
    """A pipeline that several tests begin with: made once, and put back in its place before each of them.

    A table that is copied to another place would be one that has moved.
    """

    def __init__(self, pipeline: Pipeline) -> None:
        self._folder = pipeline.folder
        self._copy = self._folder.with_name(f"{self._folder.name}-kept")
        self._files = pipeline.files
        self._spark = pipeline.spark
        shutil.copytree(self._folder, self._copy)

    def as_it_was(self) -> Pipeline:
        """The pipeline with the files that it had when it was kept."""
        shutil.rmtree(self._folder)
        shutil.copytree(self._copy, self._folder)
        pipeline = Pipeline(self._folder, self._spark)
        pipeline.files = self._files
        return pipeline


def deliver(pipeline: Pipeline, *numbers: int) -> None:
    """Files of both streams, one of each a number."""
    for number in numbers:
        pipeline.deliver("a", {"k": "N1", "at": number, "x": number}, {"k": f"A{number}", "at": 1, "x": 1})
        pipeline.deliver("b", {"k": "N1", "seen": f"2024-05-01T12:00:{number:02}Z", "y": number})


def asynclock(*words: str) -> subprocess.CompletedProcess[str]:
    """Run the command to its end, with the time that a session of its own needs to start."""
    return subprocess.run(
        [*COMMAND, *words],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=4 * DEADLINE,
        check=False,
    )


def command_here(*words: str) -> subprocess.CompletedProcess[str]:
    """Run a verb of the pipeline to its end in this process, over the running session of the tests.

    For tests of its output and exit code: a JVM of its own costs more than all else. What the command does
    with processes, signals, its log and the standard streams needs :func:`asynclock`.
    """
    command = ["pipeline", *words]
    with (
        contextlib.redirect_stdout(io.StringIO()) as out,
        contextlib.redirect_stderr(io.StringIO()) as errors,
    ):
        code = run_command(command)
    return subprocess.CompletedProcess(command, code, out.getvalue(), errors.getvalue())


def waiting(frame: DataFrame, gate: Path) -> DataFrame:
    """The frame, whose rows wait until the file ``gate`` exists."""
    path = str(gate)

    @F.udf("boolean")  # type: ignore[untyped-decorator]
    def is_open(_: object) -> bool:
        while not os.path.exists(path):  # noqa: PTH110  runs in a worker of Spark
            time.sleep(0.05)
        return True

    return frame.where(is_open(frame.columns[0]))


class Background:
    """A call in a thread of its own, whose result or error is asked for later."""

    def __init__(self, call: Callable[[], Any]) -> None:
        self._call = call
        self._result: Any = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._work)
        self._thread.start()

    def _work(self) -> None:
        try:
            self._result = self._call()
        except BaseException as error:  # noqa: BLE001  raised again by result()
            self._error = error

    def result(self, *, within: float = DEADLINE) -> Any:  # noqa: ANN401  whatever the call gives
        """The call's result, which must come within that many seconds; its error is raised."""
        self._thread.join(within)
        assert not self._thread.is_alive(), f"no result within {within:.0f} s"
        if self._error is not None:
            raise self._error
        return self._result


def two_streams(folder: Path, spark: SparkSession) -> Pipeline:
    """Return a pipeline to whose two streams a few rows are delivered; one row has both."""
    made = Pipeline(folder, spark)
    made.deliver("a", *({"k": f"N{i}", "at": 10, "x": i, "note": "streamed"} for i in range(4)))
    made.deliver("b", {"k": "N0", "seen": "2024-05-01T12:00:00Z", "y": 0.5})
    return made


def break_whatever_is_renewed(lock: sync.Lock) -> None:
    """Break a lock, also where its holder renews between the look and the write."""
    while True:
        try:
            lock.break_lock(lock.status(), force=True)
        except LockChangedError:
            continue
        return


def retries(patch: pytest.MonkeyPatch, **changes: Any) -> None:  # noqa: ANN401  as the policy has them
    """Change how work on a table is tried again."""
    patch.setattr(worker, "PASSING", dataclasses.replace(vars(worker)["PASSING"], **changes))


def wait_for(condition: Callable[[], Any]) -> None:
    """Return as soon as the condition holds."""
    deadline = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def misread(spec: Spec, spark: SparkSession, frame: DataFrame, stream: str) -> None:
    """Commit rows as a batch that a stream read from its source, which has no such rows."""
    splice = Splice(spec, spark)
    splice.write(frame, stream, batch_id=0, query_id=str(uuid.uuid4()), offset='{"logOffset":0}')
