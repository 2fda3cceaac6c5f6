"""Jobs beside the streams: statements of SQL, and deletes of persons' rows."""

from __future__ import annotations

import threading
import time
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Final

from asynclock.spark import Splice, register
from asynclock.spark.faults import is_passing, sentence
from tests.laboratory.restarts.orders import EPOCH, SPAN, VIEW
from tests.laboratory.soak.tables import SHARED_NUMBERS

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    from asynclock.spark.writer.deletion import UpTo
    from tests.laboratory.restarts.orders import Key
    from tests.laboratory.soak.tables import Orders

PERSON: Final = "a person"
STATEMENT: Final = "SQL"
_PAUSE_SECONDS: Final = 3.0
_LOOK_SECONDS: Final = 0.5
_LATER: Final = EPOCH + 2 * SPAN
_EMPTY: Final = dict.fromkeys(name for names in VIEW.values() for name in names.values())


class Jobs(threading.Thread):
    """Does one job after the other until it is stopped.

    Every second person is erased for good: later events of theirs, which then are delivered, must not show.

    Args:
        table: The table.
        spark: A session.

    Attributes:
        deletes: Persons that were erased.
        statements: Statements of SQL.
        differences: What a job has not done.
        stop: Ends the jobs.
        did_each: Set once each kind of job was done.
        working: Held while a job is at work.
    """

    def __init__(self, table: Orders, spark: SparkSession) -> None:
        super().__init__(name=f"jobs on {table.name}")
        self.deletes = 0
        self.statements = 0
        self.differences: list[str] = []
        self.stop = threading.Event()
        self.did_each = threading.Event()
        self._table = table
        self._spark = spark
        self.working = threading.Lock()
        self._numbers = count(SHARED_NUMBERS)
        self._view = f"soak_{table.place.name}"

    def run(self) -> None:
        """Work until the end; a job that meets an error that passes is done again."""
        while not self.stop.wait(_PAUSE_SECONDS):
            number = next(self._numbers)
            if not self._erase((PERSON, number), for_good=number % 2 == 1):
                continue
            self._state((STATEMENT, number), deleted=number % 3 == 1)
            self.did_each.set()

    def finish(self) -> None:
        """Delete what statements have written, which no source has."""
        self._spark.sql(f"DELETE FROM {self._view}_stored WHERE shop = '{STATEMENT}'")

    def _erase(self, key: Key, *, for_good: bool) -> bool:
        files = self._table.ask(key)
        while not self._table.is_committed(files):
            if self.stop.wait(_LOOK_SECONDS):
                return False
        limits: dict[str, UpTo] = {"orders": _time(_LATER), "payments": _time(_LATER), "shipments": _LATER}
        splice = Splice(self._table.spec, self._spark)
        person = [{"shop": key[0], "number": key[1]}]
        if not self._done(key, lambda: splice.delete(person, up_to=limits if for_good else None)):
            return False
        self._table.erased(key)
        self.deletes += 1
        if self._done(key, lambda: self._check_erased(key)) and for_good:
            self._table.ask(key)
        return True

    def _check_erased(self, key: Key) -> None:
        if self._table.has(self._spark, key):
            self.differences.append(f"{self._table.name}: {key} is erased, and the view has it")

    def _state(self, key: Key, *, deleted: bool) -> None:
        table = f"{self._view}_stored"
        row = f"'{key[0]}', {key[1]}, timestamp '2030-01-01 00:00:00', 'inserted'"
        statements = [
            f"INSERT INTO {table} (shop, number, orders__ts, orders__status) VALUES ({row})",
            f"UPDATE {table} SET orders__status = 'updated' WHERE shop = '{key[0]}' AND number = {key[1]}",
        ]
        if deleted:
            statements.append(f"DELETE FROM {table} WHERE shop = '{key[0]}' AND number = {key[1]}")
        register(self._table.spec, self._spark, name=self._view)
        for statement in statements:
            # Each may be repeated: whether it was committed before its error makes no difference.
            if not self._done(key, partial(self._spark.sql, statement)):
                return
            self.statements += 1
        written = {"orders__updated_at": "2030-01-01 00:00:00", "order_status": "updated"}
        self._table.by_sql(key, None if deleted else _EMPTY | written)

    def _done(self, key: Key, job: Callable[[], object]) -> bool:
        """Do a job, again after an error that passes; without success nothing is expected of the key."""
        while True:
            try:
                with self.working:
                    job()
            except Exception as error:  # noqa: BLE001  the others go on, and the run fails by it
                if not is_passing(error):
                    text = f"{self._table.name}: a job on {key} failed: {sentence(error)}"
                    self.differences.append(text[:500])
                elif not self.stop.wait(_PAUSE_SECONDS):
                    continue
                self._table.unknown.add(key)
                return False
            return True


def _time(second: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(second))
