"""A Spark write and Python respect each other's hold on one table on s3a."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Final
from uuid import uuid4

import pytest

from asynclock import hudi
from asynclock._core.record import parse_record
from asynclock.backend import Stored
from asynclock.backends import open_backend
from tests.hudi.conftest import LOCK_KEY, lock_options
from tests.hudi.harness import lock_client_jar, s3a_jars

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.laboratory.servers import Server

HOLD: Final = 4.0


class Writer:
    """The Spark driver's process."""

    def __init__(self, server: Server, folder: Path, classes: Path) -> None:
        jars = ",".join([*s3a_jars(), lock_client_jar(classes, folder)])
        self.errors = (folder / "driver.log").open("w+")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.hudi.spark_writer", str(folder), jars],
            env=os.environ
            | {
                "AWS_ENDPOINT_URL_S3": server.endpoint,
                "AWS_ACCESS_KEY_ID": server.options["access_key_id"],
                "AWS_SECRET_ACCESS_KEY": server.options["secret_access_key"],
                "AWS_REGION": server.options["region"],
            },
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            text=True,
        )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.stdin, self.stdout = self.process.stdin, self.process.stdout
        assert self._answer() == "ready"

    def ask(self, *words: object) -> str:
        """Give one command and wait for its answer."""
        self.stdin.write(json.dumps(words) + "\n")
        self.stdin.flush()
        return self._answer()

    def _answer(self) -> str:
        answer = self.stdout.readline()
        if not answer:
            self.process.wait()
            self.errors.seek(0)
            pytest.fail(f"the driver ended: {self.errors.read()[-4000:]}")
        return answer.rstrip("\n")

    def close(self) -> None:
        """End the driver."""
        self.stdin.close()
        self.process.wait(60)
        self.stdout.close()
        self.errors.close()


@pytest.fixture(scope="module")
def writer(minio: Server, classes: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Writer]:
    """One Spark driver for the module."""
    started = Writer(minio, tmp_path_factory.mktemp("driver"), classes)
    yield started
    started.close()


@pytest.mark.timeout(240)
async def test_spark_and_python_wait_for_each_other(writer: Writer, minio: Server) -> None:
    """A write waits while Python holds, goes on after; Python waits for a commit; the trails agree."""
    base = f"{minio.url}/spark-{uuid4().hex}".replace("s3://", "s3a://")
    options = lock_options(minio)
    assert await asyncio.to_thread(writer.ask, "write", base, 1) == "1"
    await hudi.audit_enable(base, options)

    began = time.monotonic()
    async with hudi.table_lock(base, options):
        write = asyncio.create_task(asyncio.to_thread(writer.ask, "write", base, 2))
        await asyncio.sleep(HOLD)
        assert not write.done()
    assert await write == "2"
    assert time.monotonic() - began > HOLD

    backend = open_backend(base, **minio.options)
    lock = hudi.table_lock(base, options)
    value, met = 2, False
    while not met:  # the commit's lock lasts milliseconds; the next write gives another chance
        value += 1
        write = asyncio.create_task(asyncio.to_thread(writer.ask, "write", base, value))
        while not write.done() and not met:
            stored = await backend.get(LOCK_KEY)
            assert isinstance(stored, Stored)
            record = parse_record(stored.body)
            met = not record.is_ours and not record.expired
        if met:
            assert await lock.try_lock(30)
            await lock.unlock()
        assert await write == str(value)
    await lock.aclose()
    await backend.aclose()

    theirs = await asyncio.to_thread(writer.ask, "validate", base)
    ours = await hudi.audit_validate(base, options)
    assert theirs.startswith("PASSED"), theirs
    assert ours.result == "PASSED", ours
    assert ours.transactions == int(theirs.split()[1]) > 2


@pytest.mark.timeout(240)
def test_a_splice_write_under_the_own_table_lock_is_refused(
    writer: Writer, minio: Server, tmp_path: Path
) -> None:
    """The process that holds the table's lock gets an error instead of waiting for itself."""
    base = f"{minio.url}/splice-{uuid4().hex}".replace("s3://", "s3a://")
    (tmp_path / "a.csv").write_text("id,happened_at,x\na,2026-01-01T00:00:00,1\n")  # a spec names one
    spec = tmp_path / "spec.toml"
    spec.write_text(
        f"""[table]
path = "{base}"
key = ["id"]
buckets = 1
[locks]
url = "{(tmp_path / "locks").as_uri()}"
[streams.a]
source = "{tmp_path}/*.csv"
format = "csv"
ordering = "happened_at"
checkpoint = "{tmp_path}/checkpoint"
columns = {{ happened_at = "timestamp", x = "bigint" }}
"""
    )

    refused = writer.ask("splice", str(spec), lock_options(minio))

    assert "this process holds the table's lock" in refused
    assert "nothing was written" in refused
