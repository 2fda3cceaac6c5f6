"""The sentences of docs/howto/night.md are those that the software prints."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING, Final

import pytest

from asynclock import AccessDeniedError, AcquireTimeoutError, RecordCorruptError, sync
from asynclock._cli import main
from asynclock.spark.errors import (
    BadRowsError,
    ChangesLostError,
    CutFilesError,
    StrayFilesError,
    StreamFailedError,
    TableBusyError,
    UnfinishedRestoreError,
)
from asynclock.testing._faulty import Fault, FaultyBackend
from asynclock.testing._world import VirtualWorld
from tests.docs.night import SENTENCES, is_said

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator
    from pathlib import Path

    from asynclock.testing._world import FaultyClient

    Play = Callable[[FaultyClient, VirtualWorld], Awaitable[None]]

FAULTS: Final = {
    "Access is denied": AccessDeniedError(backend="s3", operation="get", key="a", detail="403 AccessDenied"),
    "A stream has ended": StreamFailedError(stream="a", reason="the disk is full", passing=False),
    "Bad rows": BadRowsError(stream="a", batch_id=3, rows=2, sample="a.csv:7: at is no bigint"),
    "An unfinished restore": UnfinishedRestoreError(path="t", savepoint="20261101", spec="s.toml"),
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


def test_a_timeout_is_the_sentence(tmp_path: Path) -> None:
    """Of a lock that another client holds."""
    url = tmp_path.as_uri()
    with (
        sync.connect(url) as holder,
        holder.lock("a").hold(),
        sync.connect(url) as other,
        pytest.raises(AcquireTimeoutError) as caught,
    ):
        other.lock("a").acquire(timeout=0)

    assert is_said("Not acquired in time", [str(caught.value)])


def test_a_corrupt_lock_is_the_sentence(tmp_path: Path) -> None:
    """A file that is no record."""
    (tmp_path / "a.json").write_text("garbage")
    with sync.connect(tmp_path.as_uri()) as client, pytest.raises(RecordCorruptError) as caught:
        client.lock("a").acquire(timeout=0)

    assert is_said("A corrupt lock", [str(caught.value)])


def test_the_doctor_ends_with_the_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of a place in which no lock can be kept."""
    (tmp_path / "file").touch()

    with pytest.raises(SystemExit):
        main(["doctor", f"{tmp_path.as_uri()}/file/locks"])

    assert is_said("A store that is not safe", capsys.readouterr().out.splitlines())


def test_every_section_has_its_test() -> None:
    """A sentence that nothing produces would mislead its reader."""
    tested = {"Not acquired in time", "A corrupt lock", "A store that is not safe", *FAULTS, *PLAYS}
    assert SENTENCES.keys() == tested | {
        "A clock or time zone that differs"
    }  # tests/spark/test_instant_order.py
