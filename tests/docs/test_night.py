"""The sentences of docs/howto/night.md are those that the software prints."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import re
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final
from unittest.mock import MagicMock

import pytest

from asynclock import AccessDeniedError, AcquireTimeoutError, sync
from asynclock._cli import main
from asynclock._cli.app import run_command
from asynclock._codes import Code
from asynclock._core import client as client_module
from asynclock._core import probing
from asynclock.spark.errors import (
    BadRowsError,
    ChangesLostError,
    CutFilesError,
    StrayFilesError,
    StreamFailedError,
    TableBusyError,
    UnfinishedRebucketError,
    UnfinishedRestoreError,
)
from asynclock.spark.services.leaders import _Leader
from asynclock.spark.writer.batch import Batches
from asynclock.spark.writer.stream_writer import StreamWriter
from asynclock.testing._faulty import Fault, FaultyBackend
from asynclock.testing._world import VirtualWorld
from tests.cli.command import COMMAND, asynclock
from tests.docs.night import AT_A_DESK, SENTENCES, is_said
from tests.docs.story import FOLDER
from tests.docs.test_codes import EXAMPLES, Denies, execute, old_table

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from asynclock.testing._world import FaultyClient

    Play = Callable[[FaultyClient, VirtualWorld], Awaitable[None]]

EXAMPLES_OF: Final = {
    "The store is unavailable": Code.STORE_UNAVAILABLE,
    "A write without an answer": Code.OUTCOME_UNKNOWN,
    "The lease has expired": Code.LEASE_EXPIRED,
    "The lease was taken over": Code.LEASE_TAKEN_OVER,
    "The lease has ended": Code.LEASE_LOST,
    "A ticket is spent": Code.TICKET_SPENT,
    "A stale token": Code.STALE_TOKEN,
    "A task waits for itself": Code.WAITS_FOR_ITSELF,
    "A corrupt lock": Code.RECORD_CORRUPT,
    "Others held the lock": Code.ACQUIRE_TIMEOUT,
    "The store cannot hold a lock": Code.STORE_UNSUPPORTED,
    "The output is full": Code.OUTPUT,
    "A callback has failed": Code.CALLBACK_FAILED,
    "A foreign clustering plan": Code.CLUSTERING_PLAN,
}
"""By section: the code whose example in docs/reference/codes.md makes the sentence."""
COMMANDS: Final = {
    "The job was ended": ["run", "{url}/a", "--validity", "2s", "--at-most", "1s", "--", "sleep", "60"],
    "The job has ended without its lock": [
        *("run", "{url}/a", "--", *COMMAND),
        *("break", "{url}/a", "--yes", "--force"),
    ],
    "The job does not exist": ["run", "{url}/a", "--", "no-such-program"],
}
"""By section: a command line that prints the sentence."""
TABLE_COMMANDS: Final = {
    "A writer holds the lock of a table": ["hudi", "freeze", "s3a://bucket/t", "--wait", "0", "--", "true"],
    "An old writer may hold the lock": ["hudi", "status", "s3a://bucket/t"],
}
"""By section: a command line that prints the sentence while a Hudi writer holds the lock of the table."""
FAULTS: Final = {
    "Access is denied": AccessDeniedError(backend="s3", operation="get", key="a", detail="403 AccessDenied"),
    "A stream has ended": StreamFailedError(stream="a", reason="the disk is full", passing=False),
    "Bad rows": BadRowsError(stream="a", batch_id=3, rows=2, sample="a.csv:7: at is no bigint"),
    "An unfinished restore": UnfinishedRestoreError(path="t", savepoint="20261101", spec="s.toml"),
    "An unfinished rebucket": UnfinishedRebucketError(path="t", buckets=8, reason="full", spec="s.toml"),
    "The table is reserved": TableBusyError(key="k", timeout=5, path="t", busy=("stream a",)),
    "Cut files": CutFilesError(path="t", files=("f of 3 bytes, was 9",)),
    "Stray files": StrayFilesError(path="t", files=("f",)),
    "A consumer is too far behind": ChangesLostError(path="t", since="20261101", reason="f is cleaned away"),
}
"""Errors whose text is a section's sentence; tests/faults and tests/spark show what raises each."""


@pytest.fixture
def said() -> Iterator[list[str]]:
    """What the log ``asynclock`` says."""
    lines: list[str] = []

    def note(record: logging.LogRecord) -> bool:
        lines.append(record.getMessage())
        return True

    logger = logging.getLogger("asynclock")
    logger.addFilter(note)
    logger.setLevel(logging.INFO)
    yield lines
    logger.setLevel(logging.NOTSET)
    logger.removeFilter(note)


async def wait_for_another(client: FaultyClient, world: VirtualWorld) -> None:
    """A lock that a second client holds."""
    async with client.lock("a").hold():
        waiting = asyncio.create_task(world.client().lock("a").acquire())
        await asyncio.sleep(20)
        waiting.cancel()
        await asyncio.wait([waiting])


async def run_out_of_time(client: FaultyClient, _: VirtualWorld) -> None:
    """A store that fails for longer than an acquisition may take."""
    backend(client).inject(Fault.UNAVAILABLE, times=10_000)
    await client.lock("a").acquire(timeout=5)


async def fail(client: FaultyClient, _: VirtualWorld) -> None:
    """A store that fails once."""
    backend(client).inject(Fault.UNAVAILABLE)
    async with client.lock("a").hold():
        pass


async def wait_for_an_answer(client: FaultyClient, _: VirtualWorld) -> None:
    """A store that is slower than its users expect."""
    backend(client).delay = (4.0, 4.0)
    backend(client).inject(Fault.SLOW)
    async with client.lock("a").hold():
        pass


async def lose(client: FaultyClient, _: VirtualWorld) -> None:
    """A store that fails while a lock is held, until the lease ends."""
    with contextlib.suppress(Exception):
        async with client.lock("a").hold():
            backend(client).inject(Fault.UNAVAILABLE, times=10_000)
            await asyncio.sleep(400)


async def release_in_vain(client: FaultyClient, _: VirtualWorld) -> None:
    """A store that fails when a lock is released."""
    lease = await client.lock("a").acquire()
    backend(client).inject(Fault.UNAVAILABLE, times=10)
    await lease.release()
    await asyncio.sleep(60)


async def fail_as_leader(client: FaultyClient, _: VirtualWorld) -> None:
    """A leader whose work raises."""

    async def work(_: object) -> None:
        raise ValueError

    with contextlib.suppress(ValueError):
        await client.lock("a").lead(work)


def backend(client: FaultyClient) -> FaultyBackend:
    """Return what makes the faults of a client."""
    assert isinstance(client.backend, FaultyBackend)
    return client.backend


PLAYS: Final[dict[str, Play]] = {
    "Waiting for a holder": wait_for_another,
    "The store fails": fail,
    "No answer from the store": wait_for_an_answer,
    "A renewal fails": lose,
    "The lease was lost": lose,
    "A release without an answer": release_in_vain,
    "The leader's work failed": fail_as_leader,
}


@pytest.mark.parametrize("section", PLAYS)
def test_a_client_says_the_sentence(section: str, said: list[str]) -> None:
    """In the log ``asynclock``."""
    with VirtualWorld() as world:

        async def run() -> None:
            async with world.client() as client:
                await PLAYS[section](client, world)

        world.run(run())

    assert is_said(section, said), said


@pytest.mark.parametrize("section", FAULTS)
def test_an_error_is_the_sentence(section: str) -> None:
    """Word by word."""
    assert is_said(section, [str(FAULTS[section])])


@pytest.mark.parametrize("section", EXAMPLES_OF)
def test_an_example_makes_the_sentence(
    section: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    said: list[str],
    capfd: pytest.CaptureFixture[str],
) -> None:
    """As an error, in the log or on the standard error."""
    monkeypatch.setenv("PATH", os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"])))
    program = dict(EXAMPLES)[EXAMPLES_OF[section]].text.replace(FOLDER, str(tmp_path))

    error = execute(program)

    assert is_said(section, [error, *said, *capfd.readouterr().err.splitlines()])


def test_a_store_that_fails_until_the_timeout_makes_the_sentence() -> None:
    """With its reason, and without a holder."""
    with VirtualWorld() as world, pytest.raises(AcquireTimeoutError) as caught:
        world.run(run_out_of_time(world.client(), world))

    assert is_said("The store failed until the timeout", [str(caught.value)])


def test_a_wrong_key_makes_the_sentence() -> None:
    """Of a server that answers as S3 does."""

    class Refuse(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = b"<Error><Code>SignatureDoesNotMatch</Code></Error>"
            self.send_response(403)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Refuse) as server:
        Thread(target=server.serve_forever).start()
        key = {"region": "us-east-1", "access_key_id": "a", "secret_access_key": "b"}
        url = f"http://127.0.0.1:{server.server_port}"
        try:
            with (
                sync.connect("s3://bucket/locks", endpoint_url=url, verify=False, **key) as client,
                pytest.raises(AccessDeniedError) as caught,
            ):
                client.lock("a").acquire(timeout=0)
        finally:
            server.shutdown()

    assert is_said("The key is refused", [str(caught.value)])


def test_a_job_under_a_lock_of_another_makes_the_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """And is not run."""
    url = tmp_path.as_uri()
    with sync.connect(url) as holder, holder.lock("a").hold():
        assert run_command(["run", f"{url}/a", "--wait", "0", "--", "true"]) == 75

    assert is_said("The job was not run", capsys.readouterr().err.splitlines())


@pytest.mark.parametrize("section", COMMANDS)
def test_a_command_prints_the_sentence(section: str, tmp_path: Path) -> None:
    """To the standard error. It is a process of its own, since it ends all descendants of its process."""
    done = asynclock(*(word.format(url=tmp_path.as_uri()) for word in COMMANDS[section]))

    assert is_said(section, done.stderr.splitlines())


@pytest.mark.parametrize("section", TABLE_COMMANDS)
def test_a_command_on_a_table_prints_the_sentence(
    section: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """While a Hudi writer holds the lock."""
    table = asyncio.run(old_table())
    monkeypatch.setattr(client_module, "open_backend", lambda *_, **__: table)

    run_command(TABLE_COMMANDS[section])

    assert is_said(section, capsys.readouterr().err.splitlines())


def test_the_doctor_of_a_silent_store_prints_the_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A store that shows nothing was not tested."""
    monkeypatch.setattr(probing, "open_backend", lambda *_, **__: Denies())

    assert run_command(["doctor", "s3://locks"]) == 69

    assert is_said("A store that was not tested", capsys.readouterr().err.splitlines())


def test_the_doctor_ends_with_the_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of a place in which no lock can be kept."""
    (tmp_path / "file").touch()

    with pytest.raises(SystemExit):
        main(["doctor", f"{tmp_path.as_uri()}/file/locks"])

    assert is_said("A store that is not safe", capsys.readouterr().out.splitlines())


@pytest.mark.parametrize(
    "error", [FAULTS["Access is denied"], ValueError("a")], ids=["with a code", "without"]
)
def test_a_retry_of_a_pipeline_says_the_sentence(caplog: pytest.LogCaptureFixture, error: Exception) -> None:
    """Of a stream and of a service; tests/spark/test_faults.py and test_services.py make both fail."""
    stream: Any = SimpleNamespace(name="a", _account=MagicMock())
    worker: Any = SimpleNamespace(retry=SimpleNamespace(count=1, most=5))
    service: Any = SimpleNamespace(name="compaction")

    StreamWriter._tell_retry(stream, worker, error, 2.0)
    _Leader._tell_retry(service, error, 2.0)

    assert is_said("A stream tries again", caplog.messages[:1])
    assert is_said("A service tries again", caplog.messages[1:])


def test_rows_in_quarantine_make_the_sentence(caplog: pytest.LogCaptureFixture) -> None:
    """Of a stream that puts them aside and goes on."""
    batches: Any = MagicMock()
    batches._stream.name = "a"
    batches._stream.on_bad_row = "quarantine"

    Batches._put_aside(batches, MagicMock(), batch_id=3, rows=2)

    assert is_said("Rows in quarantine", caplog.messages)


def test_every_section_has_its_test() -> None:
    """A sentence that nothing produces would mislead its reader."""
    alone = {
        "The store failed until the timeout",
        "The key is refused",
        "The job was not run",
        "A store that was not tested",
        "A store that is not safe",
        "A clock or time zone that differs",  # tests/spark/test_instant_order.py
        "A stream tries again",
        "A service tries again",
        "Rows in quarantine",
        # The summaries of alerts, in tests/telemetry/test_prometheus.py.
        "A stream is behind",
        "A stream falls behind its topic",
        "A stream commits nothing",
        "A compaction is behind",
    }
    tested = [*alone, *FAULTS, *PLAYS, *EXAMPLES_OF, *COMMANDS, *TABLE_COMMANDS]

    assert sorted(SENTENCES) == sorted(tested)


def test_every_code_that_may_wake_somebody_has_a_section() -> None:
    """And a code that has one is not among those that nobody meets at night."""
    shown = {Code(code) for code in re.findall(r"AL-\d{3}", " ".join(SENTENCES.values()))}

    assert shown == set(Code) - AT_A_DESK
