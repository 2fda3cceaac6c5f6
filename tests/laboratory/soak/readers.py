"""What looks on while a soak goes on: a polling reader, a consumer of changes, and a look at the locks."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final

from asynclock.errors import BackendUnavailableError
from asynclock.spark import ChangesLostError, timeline
from asynclock.spark.faults import is_passing, sentence
from tests.laboratory.consumer import Copy
from tests.laboratory.soak.checks import Tokens

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.laboratory.soak.tables import Table

_PAUSE_SECONDS: Final = 1.0
_CONSUME_EVERY: Final = 3
_MOST_DIFFERENCES: Final = 50


class Onlooker(threading.Thread):
    """Polls a table until it is stopped: its rows, its locks and, of a splice table, its changes.

    Args:
        table: The table.
        spark: A session.

    Attributes:
        differences: What must not have been seen.
        instants: The completed instants that were seen.
        polls: Number of snapshots.
        stop: Ends the polling.
        working: Held during a poll.
        copy: What the consumer has; None for a plain table.
    """

    def __init__(self, table: Table, spark: SparkSession, *, consumes: bool) -> None:
        super().__init__(name=f"onlooker of {table.name}")
        self.differences: list[str] = []
        self.instants: set[str] = set()
        self.polls = 0
        self.stop = threading.Event()
        self.working = threading.Lock()
        self.copy = Copy(table.spec, spark) if consumes else None
        self._table = table
        self._spark = spark
        self._tokens = Tokens()

    def run(self) -> None:
        """Poll until the end; an error that passes is met with the next poll."""
        while not self.stop.wait(_PAUSE_SECONDS):
            try:
                with self.working:
                    self._poll()
            except Exception as error:  # noqa: BLE001  the others go on, and the run fails by it
                if not is_passing(error):
                    self._differ(f"{self._table.name} cannot be read: {sentence(error)}"[:500])

    def _poll(self) -> None:
        if not any(self._table.committed(stream) for stream in self._table.states):
            return  # there is no table yet
        for difference in self._table.look(self._spark):
            self._differ(difference)
        self.polls += 1
        instants = timeline(self._table.spec, self._spark)
        self.instants |= {one.requested for one in instants if one.completed}
        self._look_at_locks()
        if self.copy is not None and self.polls % _CONSUME_EVERY == 0:
            self.consume()

    def consume(self) -> None:
        """Bring the consumer's copy up to date; start over if its changes are gone, as the error advises."""
        if self.copy is None:
            return
        try:
            self.copy.poll()
        except ChangesLostError:
            self.copy = Copy(self._table.spec, self._spark)
            self.copy.poll()

    def _look_at_locks(self) -> None:
        try:
            with self._table.spec.locks.connect() as client:
                locks = client.list()
        except BackendUnavailableError:
            return
        for lock in locks:
            if lock.owner is not None and lock.fencing_token is not None:
                for difference in self._tokens.look(lock.name, lock.owner, lock.fencing_token):
                    self._differ(f"{self._table.name}: {difference}")

    def _differ(self, difference: str) -> None:
        if len(self.differences) < _MOST_DIFFERENCES:
            self.differences.append(difference)
