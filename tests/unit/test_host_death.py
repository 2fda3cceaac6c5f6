"""If the thread that renews dies, every caller gets an error: none waits forever."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import asyncio, ctypes, faulthandler, os, sys, threading, time
import asynclock
from asynclock import AsyncLockError, ConfigError, LeaseLostError, sync
from asynclock._core.portal import Host

faulthandler.dump_traceback_later(20, exit=True)
how = sys.argv[1]
told = {}
client = sync.connect("memory://dying")
lease = client.lock("orders").acquire()
lease.on_lost(lambda loss: told.setdefault("on_lost", loss.reason))

def wait(name, call):
    try:
        told[name] = call()
    except AsyncLockError as error:
        told[name] = error

async def wait_async():
    async with asynclock.connect("memory://dying") as other:
        await other.lock("orders").acquire()

waiting = [
    threading.Thread(target=wait, args=("blocked", client.lock("orders").acquire), daemon=True),
    threading.Thread(target=wait, args=("awaiting", lambda: asyncio.run(wait_async())), daemon=True),
]
for thread in waiting:
    thread.start()
time.sleep(0.3)
(host,) = [thread for thread in threading.enumerate() if thread.name == "asynclock-host"]
loop = Host.get().loop
if how == "descriptors":
    os.close(loop._selector.fileno())
else:
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(host.ident), ctypes.py_object(GeneratorExit))
loop.call_soon_threadsafe(lambda: None)
for thread in waiting:
    thread.join()
for name in ("blocked", "awaiting"):
    assert isinstance(told[name], ConfigError), told
    assert "asynclock's thread has died" in str(told[name]), told
try:
    client.lock("orders").status()
except ConfigError as error:
    assert "connect again" in str(error)
else:
    raise AssertionError
assert not lease.held
while "on_lost" not in told:
    time.sleep(0.01)
assert "has died" in told["on_lost"], told
try:
    lease.release()
except LeaseLostError as error:
    assert "has died" in error.reason
client.close()
with sync.connect("memory://afterwards") as another, another.lock("orders").hold() as held:
    assert held.held
print("told")
"""


@pytest.mark.parametrize("how", ["descriptors", "exception"])
def test_a_thread_that_dies_is_reported_to_every_caller(how: str) -> None:
    """A program that closes all descriptors, or an exception raised in the thread, hangs nobody."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, how], capture_output=True, text=True, timeout=60, check=False
    )

    assert done.stdout == "told\n", done.stderr
    assert "asynclock's thread has died" in done.stderr
