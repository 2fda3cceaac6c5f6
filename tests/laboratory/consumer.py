# ruff: noqa: T201  a command that prints
"""``python -m tests.laboratory changes --commits 200``: a copy that is kept by ``changes`` alone.

Three streams write the orders of the restarts at once, while a leader compacts, cleans and archives and some
rows are deleted. Meanwhile a consumer polls, each time from where it was, and applies what it is given to its
copy. In the end the copy must equal the view, cell by cell.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from asynclock.spark import Splice, changes, load_spec, read, run, run_services, session
from asynclock.spark.hudi.commits import Commits
from asynclock.spark.hudi.instants import COMPACTED, DELETES
from asynclock.spark.hudi.timeline import Timeline
from tests.laboratory.restarts.compare import as_texts
from tests.laboratory.restarts.orders import SCHEMA_CHANGES, Shop, spec, streams

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from pyspark.sql import SparkSession

    from asynclock.spark import Spec

Key = tuple[str, int]

_RETAINED: Final = 25  # a consumer that is further behind would have to start again
_SERVICES: Final = {
    "retain_commits = 4": f"retain_commits = {_RETAINED}",
    "keep_min_commits = 8, keep_max_commits = 12": "keep_min_commits = 27, keep_max_commits = 30",
}
_DELETES_EVERY: Final = 5
_LONGEST_PAUSE: Final = 3.0


@dataclass
class Consumed:
    """What was done, and what came of it."""

    commits: int = 0
    late: int = 0
    archived: int = 0
    compactions: int = 0
    deletes: int = 0
    polls: int = 0
    rows: int = 0
    gone: int = 0
    keys: int = 0
    columns: int = 0
    differences: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return (
            f"changes: {self.commits} commits of streams, {self.late} late, {self.deletes} deletes, "
            f"{self.archived} archived, {self.compactions} compactions, {self.polls} polls, {self.rows} rows "
            f"told, {self.gone} of them deleted, {self.keys} keys x {self.columns} columns compared, "
            f"{len(self.differences)} differences"
        )


class Copy:
    """A copy of a table of the restarts that is kept by ``changes`` alone.

    Args:
        spec: The table.
        spark: A session.

    Attributes:
        rows: The values by key, in the order of the view's columns.
        since: Up to where it has read; None: nothing yet.
    """

    def __init__(self, spec: Spec, spark: SparkSession) -> None:
        self.rows: dict[Key, tuple[Any, ...]] = {}
        self.since: str | None = None
        self._spec = spec
        self._spark = spark

    def poll(self) -> tuple[int, int]:
        """Apply what has changed; return the number of rows told, and of the deleted among them."""
        got = changes(self._spec, self._spark, since=self.since)
        rows = [row.asDict() for row in as_texts(got.frame).collect()]
        gone = 0
        for row in rows:
            key = row.pop("shop"), row.pop("number")
            is_deleted = row.pop("_deleted")
            gone += is_deleted
            if is_deleted:
                self.rows.pop(key, None)
            else:
                self.rows[key] = tuple(row.values())
        self.since = got.until
        return len(rows), gone

    def differences(self) -> tuple[int, int, list[str]]:
        """Compare with the view; return the number of its rows and of its columns, and what differs."""
        view = as_texts(read(self._spec, self._spark))
        found = {}
        for row in view.collect():
            values = row.asDict()
            key = values.pop("shop"), values.pop("number")
            found[key] = tuple(values.values())
        return (
            len(found),
            len(view.columns),
            [
                f"{key}: the view has {found.get(key)}, the copy {self.rows.get(key)}"
                for key in sorted(found.keys() | self.rows.keys())
                if found.get(key) != self.rows.get(key)
            ],
        )


class Play:
    """The streams, the services and the consumer over one folder.

    Args:
        folder: An empty folder.
        spark: A session.
        seed: Of the data and of the pauses.
        say: Told of each poll.
    """

    def __init__(
        self, folder: Path, spark: SparkSession, *, seed: int = 0, say: Callable[[str], object] = print
    ) -> None:
        self.done = Consumed()
        self._spark = spark
        self._say = say
        self._random = random.Random(f"pauses of {seed}")
        self._shop = Shop(folder, seed)
        text = spec(SCHEMA_CHANGES)
        for old, new in _SERVICES.items():
            text = text.replace(old, new)
        (folder / "spec.toml").write_text(text)
        self._spec: Spec = load_spec(folder / "spec.toml")
        self._copy = Copy(self._spec, spark)
        self._reads: list[tuple[str, str]] = []
        self._instants: dict[str, str] = {}

    def play(self, commits: int) -> None:
        """Let the streams commit that many batches, and compare."""
        names = streams(SCHEMA_CHANGES)
        for number in range(commits):
            self._shop.deliver(names[number % len(names)], SCHEMA_CHANGES)
        stop = threading.Event()
        writing = _Thread(lambda: run(self._spec, once=True, spark=self._spark))
        services = _Thread(lambda: run_services(self._spec, spark=self._spark, stop=stop))
        try:
            known = Commits(Timeline(self._spark, self._spec.table.path))
            while writing.is_alive() and not _has_commits(known):
                writing.join(0.1)
            since = None
            while writing.is_alive():
                since = self._poll(since)
                if self.done.polls % _DELETES_EVERY == 0:
                    self._delete()
                writing.join(self._random.uniform(0, _LONGEST_PAUSE))
        finally:
            stop.set()
            services.join()
            writing.join()
        services.check()
        writing.check()
        self._poll(since)
        self._count()
        self._compare()

    def _poll(self, since: str | None) -> str:
        told, gone = self._copy.poll()
        until = str(self._copy.since)
        self.done.polls += 1
        self.done.rows += told
        self.done.gone += gone
        self._reads.append((since or "", until))
        timeline = Timeline(self._spark, self._spec.table.path)
        self._instants |= {one.requested: one.action for one in timeline.instants() if one.completed}
        self._say(f"poll {self.done.polls}: {told} keys up to {until}")
        return until

    def _delete(self) -> None:
        shop, number = self._random.choice(sorted(self._copy.rows))
        Splice(self._spec, self._spark).delete([{"shop": shop, "number": number}])
        self.done.deletes += 1

    def _count(self) -> None:
        timeline = Timeline(self._spark, self._spec.table.path)
        commits = timeline.commits
        active = {one.requested for one in timeline.instants()}
        self.done.commits = sum(one.stream != DELETES for one in commits)
        self.done.archived = sum(one.requested not in active for one in commits)
        self.done.compactions = sum(action == COMPACTED for action in self._instants.values())
        # Requested before the end of an earlier read and completed after it: by request time it is missed.
        self.done.late = sum(
            one.requested < since < one.completed <= until for one in commits for since, until in self._reads
        )

    def _compare(self) -> None:
        self.done.keys, self.done.columns, self.done.differences = self._copy.differences()


class _Thread(threading.Thread):
    """A call beside others; its error is kept."""

    def __init__(self, call: Callable[[], object]) -> None:
        super().__init__()
        self._call = call
        self._error: Exception | None = None
        self.start()

    def run(self) -> None:
        """Make the call."""
        try:
            self._call()
        except Exception as error:  # noqa: BLE001  raised again by check()
            self._error = error

    def check(self) -> None:
        """Raise the call's error."""
        if self._error is not None:
            raise self._error


def _has_commits(commits: Commits) -> bool:
    commits.refresh()
    return commits.newest() is not None


def main() -> int:
    """Play with the number of commits that is asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--commits", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args()
    spark = session("asynclock-changes", master="local[2]")
    try:
        with tempfile.TemporaryDirectory(prefix="asynclock-changes-") as scratch:
            play = Play(Path(scratch), spark, seed=chosen.seed)
            play.play(chosen.commits)
    finally:
        spark.stop()
    for difference in play.done.differences[:20]:
        print(difference)
    print(play.done)
    return 1 if play.done.differences else 0


if __name__ == "__main__":
    sys.exit(main())
