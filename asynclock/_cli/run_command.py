"""``asynclock run``: runs a command only while a lock is held."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
from typing import TYPE_CHECKING, Final, TypeVar

import click

from asynclock._cli.arguments import store_options, target_argument
from asynclock._cli.child import Child
from asynclock._cli.durations import duration
from asynclock._cli.exit_codes import DONE, LOST, NOT_EXECUTABLE, NOT_FOUND, SIGNALLED, exit_code
from asynclock._cli.output import tell
from asynclock._cli.run_words import CMD, RunCommand
from asynclock._cli.target import connect_to, holder_with_note, refuse_hudi_table, split_target
from asynclock._codes import Code
from asynclock._core.handles import checked_at_least
from asynclock._kinds import BAD_ENDS, BEGINS
from asynclock.clock import SystemClock
from asynclock.errors import AcquireTimeoutError, ConfigError, LeaseTakenOverError
from asynclock.events import logger

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence
    from typing import Any, Self

    from asynclock.client import LockClient
    from asynclock.errors import LeaseLostError
    from asynclock.lease import Lease
    from asynclock.lock import Lock

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


@click.command("run", cls=RunCommand)
@target_argument
@click.argument("command", metavar=CMD, nargs=-1, required=True, type=click.UNPROCESSED)
@click.option(
    "--wait", type=duration, metavar="TIME", help="Longest wait for the lock; default: no limit; 0: one try."
)
@click.option("--validity", type=duration, metavar="TIME",
              help="A dead holder blocks others for about this long; default 5m.")  # fmt: skip
@click.option("--at-least", type=duration, default=0.0, metavar="TIME",
              help="Keep the lock at least this long, even if CMD and this process end earlier.")  # fmt: skip
@click.option("--at-most", type=duration, metavar="TIME",
              help="End CMD and give up the lock after this time, even if CMD hangs.")  # fmt: skip
@click.option("--skip-if-held", is_flag=True,
              help="If another holds it, run nothing and exit with 0; without --wait: one try.")  # fmt: skip
@click.option("--ticket", metavar="TEXT", help="Take the lock over by a ticket of Lease.transfer().")
@click.option("--holder", metavar="TEXT", help="The holder's name for others; default host:pid:program.")
@click.option("--note", metavar="TEXT", help="Shown to others after the holder, in parentheses.")
@click.option("-q", "--quiet", is_flag=True, help="Print only errors: nothing about a wait or the store.")
@click.option("-v", "--verbose", is_flag=True, help="Print each step: acquired, renewed, released.")
@store_options
def run_locked_command(
    *,
    target: str,
    command: tuple[str, ...],
    wait: float | None,
    validity: float | None,
    at_least: float,
    at_most: float | None,
    skip_if_held: bool,
    ticket: str | None,
    holder: str | None,
    note: str | None,
    quiet: bool,
    verbose: bool,
    max_clock_skew: float | None,
    options: dict[str, object],
) -> int:
    """Run CMD while holding the lock, and release it when CMD ends.

    Options of asynclock come before CMD. All words after CMD's first word belong to CMD.

    CMD finds ASYNCLOCK_LOCK, ASYNCLOCK_FENCING_TOKEN, ASYNCLOCK_OWNER and ASYNCLOCK_VALID_UNTIL_MS in its
    environment and gets the signals of this process. If the lease is lost, CMD and everything it started get
    SIGTERM, then SIGKILL before others may take over (at most 1 s later if the lock was taken over or
    broken), and the exit code is 76. It is also 76 if the release finds that the lock was lost while CMD ran.
    If this process is killed, or is stopped when the lease ends, a second process ends CMD in time.

    --at-most TIME ends a CMD that hangs: the lease is lost then, however well it is renewed.

    --at-least TIME with --skip-if-held runs CMD once per period, on the machine that comes first. TIME counts
    from the start of CMD. If this machine crashes, the lock is free after its validity.

    Exit codes: CMD's own, 128 + n if signal n ended it, 126 or 127 if it could not be started. If CMD was not
    run: 75 if others held the lock or the ticket was spent, 69 if the store was the reason.
    """
    url, name = split_target(target)
    if skip_if_held and wait is None:
        wait = 0.0
    # Cron mails all output, and neither a wait nor a skip is news there.
    usual = logging.WARNING if skip_if_held else logging.INFO
    level = logging.ERROR if quiet else logging.DEBUG if verbose else usual
    keep = checked_at_least(at_least)
    client = connect_to(
        url,
        options,
        validity=validity,
        max_clock_skew=max_clock_skew,
        holder=holder_with_note(holder, note),
    )

    async def run() -> int:
        await refuse_hudi_table(client, name, target)
        return await run_under(
            client,
            client.lock(name),
            command,
            target=target,
            wait=wait,
            at_least=keep,
            at_most=at_most,
            ticket=ticket,
            level=level,
        )

    try:
        return asyncio.run(run())
    except AcquireTimeoutError as error:
        skip = skip_if_held and error.reason is None
        if verbose or not skip:
            tell(f"{target}: CMD was {'skipped' if skip else 'not run'}: {error}")
        return DONE if skip else exit_code(error)


async def run_under(
    client: LockClient,
    lock: Lock,
    command: Sequence[str],
    *,
    target: str,
    wait: float | None,
    at_least: float = 0.0,
    at_most: float | None = None,
    ticket: str | None = None,
    ready: Callable[[Lease], Awaitable[None]] | None = None,
    finish: Callable[[Lease], Awaitable[None]] | None = None,
    level: int = logging.INFO,
) -> int:
    """Run a command while holding a lock of ``client``, close the client and return the exit code.

    Args:
        client: The locks.
        lock: One of them.
        command: Program and arguments.
        target: URL and name of the lock, for the command.
        wait: Longest wait for the lock, in seconds; None: no limit.
        ticket: Take the lock over by it.
        at_least: Seconds from the command's start to keep the lock, even if the command ends earlier.
        at_most: Seconds after which the lock is given up and the command is ended; None: never.
        ready: Awaited with the lease before the command starts; a signal cancels it.
        finish: Awaited with the lease after the command has ended, before the client releases it.
        level: Least level of the printed records of the log ``asynclock``.
    """
    with _Printed(level, once=wait == 0) as printed, _Signals() as signals:
        async with client:
            lease = await signals.interrupt(lock.acquire(timeout=wait, at_most=at_most, ticket=ticket))
            printed.once = False
            if lease is None:
                return SIGNALLED + signals.interrupted
            if ready is not None:
                await signals.interrupt(ready(lease))
            code = await _hold(client, lease, target, command, signals, at_least)
            if finish is not None:
                await finish(lease)
            lease._engine.finish_later(
                lease._held
            )  # closing the client waits for it, within the time that an exit may take
        return _code_after_release(client, lease, code)


class _Printed(logging.Filter):
    """Chooses the printed records of the log ``asynclock``, without those that this command reports itself.

    Args:
        level: The least level.

    Attributes:
        once: Whether this is a single try. It does not wait, and the exit code and its line report the
            result.
    """

    def __init__(self, level: int, *, once: bool) -> None:
        super().__init__()
        self.once = once
        self._level = level

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether to print a record."""
        kind = getattr(record, "asynclock.event", None)
        if self.once:
            return record.levelno >= logging.ERROR or kind in BEGINS
        # The command reports bad ends itself, with its reaction.
        return record.levelno == logging.DEBUG or kind not in BAD_ENDS

    def __enter__(self) -> Self:
        self._before = logger.level
        logger.setLevel(self._level)
        logger.addFilter(self)
        return self

    def __exit__(self, *_: object) -> None:
        logger.removeFilter(self)
        logger.setLevel(self._before)


def _code_after_release(client: LockClient, lease: Lease, code: int) -> int:
    """Return the exit code after the client was closed. A loss that only the release found counts too."""
    if lease.lost is not None:
        if code != LOST:
            tell(f"{lease.lost}; CMD had already ended with {code}")
        return LOST
    if not lease._held.ending.confirmed:
        validity = client.settings.validity
        tell(
            f"warning: the store did not confirm the release of {client.url}/{lease.name} within "
            f"{client._core.exit_bound:g} s; if it was not released, it is free after {validity:g} s",
            Code.RELEASE_UNCONFIRMED,
        )
    return code


async def _hold(  # noqa: PLR0917  all of one call
    client: LockClient,
    lease: Lease,
    target: str,
    command: Sequence[str],
    signals: _Signals,
    at_least: float,
) -> int:
    if signals.interrupted:  # a signal arrived together with the lease
        return SIGNALLED + signals.interrupted
    watch = _Watch(lease, client.settings.safety_margin)
    try:
        child = watch.start(command, os.environ | _environment(lease, target))
    except FileNotFoundError as error:
        tell(f"CMD was not run: {error}{_for_a_shell(command)}", Code.CMD_NOT_STARTED)
        return NOT_FOUND
    except OSError as error:
        tell(f"CMD was not run: {error}", Code.CMD_NOT_STARTED)
        return NOT_EXECUTABLE
    lease._held.release.keep(at_least)  # a command that did not start leaves the lock to another machine
    signals.forward(child.signal)
    try:
        return await watch.until_end(child)
    finally:
        child.close()


def _for_a_shell(command: Sequence[str]) -> str:
    """Return a hint if a whole shell command was given as the name of a program."""
    return "; for a shell command write: sh -c '...'" if len(command) == 1 and " " in command[0] else ""


def _environment(lease: Lease, target: str) -> dict[str, str]:
    environment = {
        "ASYNCLOCK_LOCK": target,
        "ASYNCLOCK_OWNER": lease.owner,
        "ASYNCLOCK_VALID_UNTIL_MS": str(lease.valid_until_ms),
    }
    with contextlib.suppress(ConfigError):  # the lock of a Hudi table has no token
        environment["ASYNCLOCK_FENCING_TOKEN"] = str(lease.fencing_token)
    return environment


class _Watch:
    """Waits until a command ends or its lease is lost."""

    def __init__(self, lease: Lease, margin: float) -> None:
        self._lease = lease
        self._margin = margin
        self._clock = SystemClock()
        self._lost = asyncio.Event()
        loop = asyncio.get_running_loop()
        lease.on_lost(lambda _: loop.call_soon_threadsafe(self._lost.set))

    def start(self, command: Sequence[str], environment: Mapping[str, str]) -> Child:
        """Start the command.

        Raises:
            OSError: It could not be started.
        """
        return Child(command, environment, deadline=self._deadline(), grace=self._margin * _GRACE_SHARE)

    async def until_end(self, child: Child) -> int:
        """Return the command's exit code; after a loss, end the command and return the code for a loss."""
        lost: asyncio.Future[Any] = asyncio.ensure_future(self._lost.wait())
        # Read it before the loss: a suspended machine sees the loss long after the deadline.
        deadline = self._deadline()
        while not lost.done() and not child.ended.done():
            deadline = self._deadline() or deadline
            if deadline:
                child.guard_until(deadline)
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
        """Return the boot-clock time at which belief ends; 0.0 if it has ended."""
        left = self._lease.remaining()
        return self._clock.boot() + left if left > 0 else 0.0

    def _grace(self, loss: LeaseLostError, deadline: float) -> float:
        """Return the seconds between SIGTERM and SIGKILL."""
        grace = self._margin * _GRACE_SHARE
        if isinstance(loss, LeaseTakenOverError):
            return min(grace, _BROKEN_GRACE)
        return min(grace, max(0.0, deadline + grace - self._clock.boot()))


class _Signals:
    """Signals of this process: first they interrupt the wait for the lock, later the command gets them.

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
