"""``asynclock run``: run a command only while a lock is held."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from typing import TYPE_CHECKING, Final, TypeVar

import click

from asynclock.cli.child import Child
from asynclock.cli.exit_codes import LOST, NOT_EXECUTABLE, NOT_FOUND, SIGNALLED
from asynclock.cli.locks import store_options
from asynclock.cli.output import tell
from asynclock.cli.target import connect_to, split_target
from asynclock.clock import SystemClock
from asynclock.errors import LeaseLostError, LeaseTakenOverError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from typing import Any, Self

    from asynclock.client import LockClient
    from asynclock.lease import Lease

T = TypeVar("T")

_FORWARDED: Final = tuple(
    getattr(signal, name)
    for name in ("SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGCONT")
)
_INTERRUPTING: Final = frozenset({signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT})
_GRACE_SHARE: Final = 0.8
"""Share of the safety margin, so that SIGKILL ends the command before others may take over."""
_BROKEN_GRACE: Final = 1.0
"""Longest grace, in seconds, if others may already hold the lock."""


@click.command("run")
@click.argument("target", metavar="URL/NAME")
@click.argument("command", metavar="-- CMD...", nargs=-1, required=True, type=click.UNPROCESSED)
@click.option(
    "--wait", type=float, metavar="S", help="Longest wait for the lock; default: no limit; 0: one try."
)
@click.option("--validity", type=float, metavar="S",
              help="A dead holder blocks others for about this long; default 300.")  # fmt: skip
@store_options
def run_locked_command(
    *,
    target: str,
    command: tuple[str, ...],
    wait: float | None,
    validity: float | None,
    max_clock_skew: float | None,
    options: dict[str, object],
) -> int:
    """Run CMD while holding the lock, and release it when CMD ends.

    CMD finds ASYNCLOCK_LOCK, ASYNCLOCK_FENCING_TOKEN, ASYNCLOCK_OWNER and
    ASYNCLOCK_VALID_UNTIL_MS in its environment and gets the signals of this process. If the lease
    is lost, CMD and everything it started get SIGTERM, then SIGKILL before others may take over
    (at most 1 s later if the lock was taken over or broken), and the exit code is 76.

    Exit codes: CMD's own, 128 + n if signal n ended it, 126 or 127 if it could not be started; 75
    if the lock was not acquired, so CMD was not run.
    """
    url, name = split_target(target)
    client = connect_to(url, options, validity=validity, max_clock_skew=max_clock_skew)
    return asyncio.run(run_under(client, name, command, target=target, wait=wait))


async def run_under(
    client: LockClient,
    name: str,
    command: Sequence[str],
    *,
    target: str,
    wait: float | None,
    ready: Callable[[Lease], Awaitable[None]] | None = None,
) -> int:
    """Run a command while holding a lock of ``client``, which is closed, and return its exit code.

    Args:
        client: The locks.
        name: Name of the lock.
        command: Program and arguments.
        target: URL and name of the lock, for the command.
        wait: Longest wait for the lock, in seconds; None: no limit.
        ready: Awaited with the lease before the command is started; a signal cancels it.
    """
    with _Signals() as signals:
        async with client:
            lease = await signals.interrupt(client.lock(name).acquire(timeout=wait))
            if lease is None:
                return SIGNALLED + signals.interrupted
            try:
                if ready is not None:
                    await signals.interrupt(ready(lease))
                return await _hold(client, lease, target, command, signals)
            finally:
                with contextlib.suppress(LeaseLostError):
                    await lease.release()


async def _hold(
    client: LockClient, lease: Lease, target: str, command: Sequence[str], signals: _Signals
) -> int:
    if signals.interrupted:  # a signal arrived together with the lease
        return SIGNALLED + signals.interrupted
    margin = client.settings.safety_margin
    try:
        child = Child(command, os.environ | _environment(lease, target), grace=margin * _GRACE_SHARE)
    except FileNotFoundError as error:
        tell(f"CMD was not run: {error}")
        return NOT_FOUND
    except OSError as error:
        tell(f"CMD was not run: {error}")
        return NOT_EXECUTABLE
    signals.forward(child.signal)
    try:
        return await _Watch(lease, margin).until_end(child)
    finally:
        child.close()


def _environment(lease: Lease, target: str) -> dict[str, str]:
    return {
        "ASYNCLOCK_LOCK": target,
        "ASYNCLOCK_FENCING_TOKEN": str(lease.fencing_token),
        "ASYNCLOCK_OWNER": lease.owner,
        "ASYNCLOCK_VALID_UNTIL_MS": str(lease.valid_until_ms),
    }


class _Watch:
    """Waits until a command ends or its lease is lost."""

    def __init__(self, lease: Lease, margin: float) -> None:
        self._lease = lease
        self._margin = margin
        self._clock = SystemClock()
        self._lost = asyncio.Event()
        loop = asyncio.get_running_loop()
        lease.on_lost(lambda _: loop.call_soon_threadsafe(self._lost.set))

    async def until_end(self, child: Child) -> int:
        """Return the command's exit code; after a loss, end the command and return the code for a loss."""
        lost: asyncio.Future[Any] = asyncio.ensure_future(self._lost.wait())
        # Read before the loss, because a suspended machine sees the loss long after the deadline.
        deadline = self._deadline()
        while not lost.done() and not child.ended.done():
            deadline = self._deadline() or deadline
            await asyncio.wait(
                [lost, child.ended], timeout=self._margin / 4, return_when=asyncio.FIRST_COMPLETED
            )
        lost.cancel()
        loss = self._lease.lost
        if loss is None:
            return child.ended.result()
        tell(f"{loss}; ending CMD")
        await child.end_all(grace=self._grace(loss, deadline))
        return LOST

    def _deadline(self) -> float:
        """Return the boot clock's reading at the end of belief; 0.0 if it has ended."""
        left = self._lease.remaining()
        return self._clock.boot() + left if left > 0 else 0.0

    def _grace(self, loss: LeaseLostError, deadline: float) -> float:
        """Return seconds between SIGTERM and SIGKILL."""
        grace = self._margin * _GRACE_SHARE
        if isinstance(loss, LeaseTakenOverError):
            return min(grace, _BROKEN_GRACE)
        return min(grace, max(0.0, deadline + grace - self._clock.boot()))


class _Signals:
    """Signals of this process: they first interrupt the wait for the lock, later go to the command.

    Signals that were ignored when this process started (``nohup``, background jobs) stay ignored,
    here and in the command.
    """

    def __init__(self) -> None:
        self.interrupted = 0
        """Number of the first interrupting signal; 0 if there was none."""
        self._loop = asyncio.get_running_loop()
        self._act: Callable[[int], object] = self._note
        self._task: asyncio.Task[Any] | None = None

    async def interrupt(self, coroutine: Awaitable[T]) -> T | None:
        """Await a coroutine; the first signal cancels it, and the result is then None."""
        task = asyncio.ensure_future(coroutine)
        self._task = task
        if self.interrupted:
            task.cancel()
        try:
            return await task
        except asyncio.CancelledError:
            if not self.interrupted:
                raise
            return None
        finally:
            self._task = None

    def forward(self, act: Callable[[int], object]) -> None:
        """Pass signals to ``act`` from now on."""
        self._act = act

    def _dispatch(self, number: int) -> None:
        self._act(number)

    def _note(self, number: int) -> None:
        if self.interrupted or number not in _INTERRUPTING:
            return
        self.interrupted = number
        if self._task is not None:
            self._task.cancel()

    def __enter__(self) -> Self:
        self._caught = [number for number in _FORWARDED if signal.getsignal(number) != signal.SIG_IGN]
        for number in self._caught:
            self._loop.add_signal_handler(number, self._dispatch, number)
        return self

    def __exit__(self, *_: object) -> None:
        for number in self._caught:
            self._loop.remove_signal_handler(number)
