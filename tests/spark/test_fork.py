"""Locks on Spark's Python workers, processes that its daemon forks."""

from __future__ import annotations

import asyncio
import os
import pickle
import sys
from typing import TYPE_CHECKING

import pytest

import asynclock
from asynclock import LeaseSettings, sync

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

SETTINGS = LeaseSettings(validity=60.0, max_clock_skew=0.2, poll_interval=0.1)
TASKS = 8


@pytest.fixture
def url(tmp_path: Path) -> str:
    """Return the URL of a folder of its own."""
    return f"{tmp_path.as_uri()}/locks"


@pytest.mark.parametrize("what", ["client", "lock", "lease", "async client", "async lock", "async lease"])
def test_what_the_driver_holds_cannot_be_sent_to_a_worker(spark: SparkSession, url: str, what: str) -> None:
    """A task whose closure has hold of a client, a lock or a lease is refused, and told what to do."""
    other = asynclock.connect(url, settings=SETTINGS)
    async_lease = asyncio.run(other.lock("other").acquire())
    with sync.connect(url, settings=SETTINGS) as client, client.lock("table").hold() as lease:
        bound = {
            "client": client,
            "lock": client.lock("table"),
            "lease": lease,
            "async client": other,
            "async lock": other.lock("other"),
            "async lease": async_lease,
        }[what]

        with pytest.raises(pickle.PicklingError, match=r"cannot be pickled.*(connect again|fencing_token)"):
            spark.sparkContext.parallelize([0], 1).map(lambda _: repr(bound)).collect()

        assert lease.held
    assert async_lease.held
    asyncio.run(other.aclose())


def test_workers_that_connect_themselves_take_turns(spark: SparkSession, url: str, tmp_path: Path) -> None:
    """Each task connects in its worker, forked by Spark's daemon; one at a time is inside."""
    counter = tmp_path / "counter"
    counter.write_text("0")

    def count(_: int) -> tuple[str, int]:
        with sync.connect(url, settings=SETTINGS) as client, client.lock("table").hold(timeout=60) as lease:
            before = int(counter.read_text())
            counter.write_text(str(before + 1))
            return sys.modules["__main__"].__spec__.name, lease.fencing_token

    seen = spark.sparkContext.parallelize(range(TASKS), TASKS).map(count).collect()

    assert counter.read_text() == str(TASKS)
    assert {program for program, _ in seen} == {"pyspark.daemon"}
    assert len({token for _, token in seen}) == TASKS


def test_a_worker_does_not_get_what_the_driver_holds(spark: SparkSession, url: str) -> None:
    """A worker shares nothing with the driver: to it the driver is another holder."""

    def try_it(_: int) -> bool:
        with sync.connect(url, settings=SETTINGS) as client:
            return client.lock("table").try_acquire() is not None

    task = spark.sparkContext.parallelize([0], 1).map(try_it)
    with sync.connect(url, settings=SETTINGS) as client:
        with client.lock("table").hold() as lease:
            assert task.collect() == [False]
            lease.confirm()

        assert task.collect() == [True]


def test_a_fork_of_a_worker_holds_nothing(spark: SparkSession, url: str) -> None:
    """Forked with a held lock, a worker keeps its lease and the child has lost it."""

    def fork(_: int) -> Iterator[str]:
        with sync.connect(url, settings=SETTINGS) as client, client.lock("table").hold() as lease:
            reading, writing = os.pipe()
            child = os.fork()
            if child == 0:
                os.write(writing, f"child: {lease.held}, {type(lease.lost).__name__}".encode())
                os._exit(0)
            os.waitpid(child, 0)
            yield os.read(reading, 100).decode()
            lease.confirm()
            yield f"worker: {lease.held}"

    said = spark.sparkContext.parallelize([0], 1).flatMap(fork).collect()

    assert said == ["child: False, LeaseLostError", "worker: True"]
