"""A process that takes locks of every kind, counts in fenced objects, and notes when calls began and ended.

A line is written before a call and another after it, each by one system call: a process that is killed
leaves whole lines. Times are those of the machine's monotonic clock, which all processes share.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import random
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from asynclock import (
    AcquireTimeoutError,
    BackendError,
    FencedObject,
    LeaseLostError,
    StaleTokenError,
    connect,
)
from asynclock.settings import LeaseSettings
from asynclock.telemetry import JsonFormatter
from tests.laboratory.linearizable.histories import SLOTS

if TYPE_CHECKING:
    from asynclock import LockClient
    from asynclock.lease import Lease
    from asynclock.lock import Holdable

LOCKS: Final = 3
SETTINGS: Final = LeaseSettings(validity=1.5, safety_margin=0.4, max_clock_skew=0.2, poll_interval=0.1)
_TASKS: Final = 2
"""Coroutines of a process that contend through one client."""
READERS: Final = 3
"""Of the reader-writer lock: few, so that they are all there at times. No process knows of more."""
_WRITERS: Final = 0.3
_WAIT: Final = 3.0
_LONGEST_IDLE: Final = 0.1
_LONGEST_STEP: Final = 0.05
_STEPS: Final = 4
_NOTHING: Final = "nothing"


class Recorder:
    """Appends what happens to the file of one process."""

    def __init__(self, path: str, process: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self._process = process
        self._calls = 0

    def name(self) -> str:
        """Return a new name, for one call."""
        self._calls += 1
        return f"{self._process}-{self._calls}"

    def note(self, what: str, call: str, *, at: int | None = None, **more: Any) -> None:  # noqa: ANN401  JSON
        """Write down that ``what`` happened to ``call``: now, or at an instant that was taken before."""
        line = {"what": what, "call": call, "at": at or time.monotonic_ns(), **more}
        os.write(self._file, json.dumps(line).encode() + b"\n")


@dataclass(frozen=True, slots=True)
class _Counted:
    """The body of a fenced object: the count, and the name of the call that wrote it."""

    value: int
    writer: str

    @classmethod
    def of(cls, body: bytes | None) -> _Counted:
        if body is None:
            return cls(0, "")
        value, writer = body.decode().split()
        return cls(int(value), writer)

    def body(self) -> bytes:
        return f"{self.value} {self.writer}".encode()


class Worker:
    """Contends for the locks of one folder until it is killed."""

    def __init__(self, client: LockClient, recorder: Recorder, rng: random.Random) -> None:
        self._client = client
        self._recorder = recorder
        self._rng = rng

    async def run(self) -> None:
        """Contend until the process ends, in several coroutines."""
        await asyncio.gather(
            *(self._contend() for _ in range(_TASKS)), self._take_slots(), self._read_write()
        )

    async def _contend(self) -> None:
        while True:
            await asyncio.sleep(self._rng.random() * _LONGEST_IDLE)
            lock = self._rng.randrange(LOCKS)
            if self._rng.random() < 1 / _STEPS:
                await self._read(lock)
            else:
                await self._hold(lock)

    async def _take_slots(self) -> None:
        semaphore = self._client.semaphore("semaphore", SLOTS)
        while True:
            await asyncio.sleep(self._rng.random() * _LONGEST_IDLE)
            await self._share(semaphore, "semaphore")

    async def _read_write(self) -> None:
        rw = self._client.rwlock("rwlock")
        self._client._core.readers("rwlock").slots = READERS
        while True:
            await asyncio.sleep(self._rng.random() * _LONGEST_IDLE)
            if self._rng.random() < _WRITERS:
                await self._share(rw.write, "rwlock", "write")
            else:
                await self._share(rw.read, "rwlock", "read")

    async def _share(self, lock: Holdable, of: str, side: str = "") -> None:
        """Hold what several may hold for a while."""
        note, hold = self._recorder.note, self._recorder.name()
        note("acquire", hold, of=of, side=side)
        try:
            lease = await lock.acquire(timeout=_WAIT)
        except (AcquireTimeoutError, BackendError):
            return
        note("acquired", hold, token=lease.fencing_token, slot=lease.slot)
        for _ in range(self._rng.randrange(_STEPS)):
            if not self._believes(hold, lease):
                break
            await asyncio.sleep(self._rng.random() * _LONGEST_STEP)
        self._believes(hold, lease)
        with suppress(BackendError, LeaseLostError):
            await lease.release()
        note("ended", hold)

    async def _hold(self, lock: int) -> None:
        note, hold = self._recorder.note, self._recorder.name()
        note("acquire", hold, lock=lock)
        try:
            lease = await self._client.lock(f"lock-{lock}").acquire(timeout=_WAIT)
        except (AcquireTimeoutError, BackendError):  # nobody believes to hold the lock
            return
        note("acquired", hold, token=lease.fencing_token)
        if self._believes(hold, lease):
            for _ in range(self._rng.randrange(_STEPS)):
                await self._add(lock, lease)
                await asyncio.sleep(self._rng.random() * _LONGEST_STEP)
                if not self._believes(hold, lease):
                    break
        with suppress(BackendError, LeaseLostError):  # belief has ended either way
            await lease.release()
        note("ended", hold)

    def _believes(self, hold: str, lease: Lease) -> bool:
        at = time.monotonic_ns()  # taken first: a process may be stopped between the two
        if held := lease.held:
            self._recorder.note("believes", hold, at=at)
        return held

    async def _add(self, lock: int, lease: Lease) -> None:
        note, call = self._recorder.note, self._recorder.name()
        seen = [_Counted(0, _NOTHING)]

        def increased(body: bytes | None) -> bytes:
            seen.append(_Counted.of(body))
            # Before the write, which may be applied though nobody lives to say so.
            note("sees", call, seen=seen[-1].writer)
            return _Counted(seen[-1].value + 1, call).body()

        counter = FencedObject(self._client, f"counter-{lock}")
        note("add", call, lock=lock, token=lease.fencing_token)
        try:
            written = await counter.update(increased, lease=lease)
        except (StaleTokenError, LeaseLostError) as refused:
            what = "stale" if isinstance(refused, StaleTokenError) else "failed"
            note(what, call, sent=refused.__cause__ is not None)
        except BackendError as failed:
            note("failed", call, sent=failed.written != "no")
        else:
            note("added", call, value=_Counted.of(written.body).value, seen=seen[-1].writer)

    async def _read(self, lock: int) -> None:
        note, call = self._recorder.note, self._recorder.name()
        note("read", call, lock=lock)
        try:
            found = await FencedObject(self._client, f"counter-{lock}").read()
        except BackendError:
            return
        counted = _Counted.of(found.body if found else None)
        note("saw", call, value=counted.value, seen=counted.writer, token=found.fencing_token if found else 0)


async def _main(url: str, options: dict[str, Any], path: str, process: str, seed: int) -> None:
    async with connect(url, settings=SETTINGS, **options) as client:
        await Worker(client, Recorder(path, process), random.Random(seed)).run()


def _log_to(path: str) -> None:
    """Log events to a file, and nothing to the terminal: faults and losses are what this is for."""
    handler = logging.FileHandler(path)
    handler.setFormatter(JsonFormatter())
    library = logging.getLogger("asynclock")
    library.addHandler(handler)
    library.setLevel(logging.DEBUG)
    library.propagate = False


if __name__ == "__main__":
    _url, _options, _path, _log, _process, _seed = sys.argv[1:]
    _log_to(_log)
    asyncio.run(_main(_url, json.loads(_options), _path, _process, int(_seed)))
