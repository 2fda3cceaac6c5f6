"""The threads on which a loop has others block."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from typing import TYPE_CHECKING

from asynclock.backends._offload import Workers

if TYPE_CHECKING:
    import pytest

HANGS = """
import asyncio, threading, time
from asynclock.portal import Host
begun = threading.Event()
def hang():
    begun.set()
    time.sleep(60)
asyncio.run_coroutine_threadsafe(asyncio.to_thread(hang), Host.get().loop)
begun.wait()
"""


async def test_a_call_waits_for_a_thread_where_no_more_may_be_started(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """From Python 3.12 on an interpreter that shuts down starts no thread; those that run serve on."""

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't create new thread at interpreter shutdown")

    workers, held = Workers("test", 2), threading.Event()
    await workers.run(lambda: None)
    monkeypatch.setattr(threading.Thread, "start", refuse)
    first = asyncio.create_task(workers.run(held.wait))
    await asyncio.sleep(0)
    others = [asyncio.create_task(workers.run(lambda number=number: number)) for number in range(3)]
    await asyncio.sleep(0)
    held.set()

    assert await asyncio.wait_for(asyncio.gather(first, *others), 5) == [True, 0, 1, 2]
    workers.close()


def test_a_call_that_hangs_on_the_host_does_not_keep_the_process() -> None:
    """A name that takes a minute to look up is not waited for at the end."""
    subprocess.run([sys.executable, "-c", HANGS], timeout=20, check=True)
