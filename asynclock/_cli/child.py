"""CMD: started in its own process group, watched, signalled and ended."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import threading
from typing import TYPE_CHECKING, Final

from asynclock._cli.descendants import adopt_orphans, boot_seconds, ended_children, signal_all
from asynclock._cli.exit_codes import SIGNALLED
from asynclock._cli.run_guard import Guard
from asynclock._cli.terminal import Terminal

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_LOOK_SECONDS: Final = 0.02
_GUARD_LATER: Final = 0.2
_REAP_SECONDS: Final = 1.0


class Child:
    """A running command. Made and used on one loop.

    Args:
        command: Program and arguments.
        environment: Its complete environment.
        deadline: When belief in the lease ends, by the boot clock.
        grace: Seconds from the deadline until all processes of the command must be gone. If this process is
            killed, also the seconds between the command's SIGTERM and SIGKILL.

    Attributes:
        ended: Done with the command's exit code, or 128 + n if signal n ended it.

    Raises:
        OSError: The command could not be started.
    """

    def __init__(
        self, command: Sequence[str], environment: Mapping[str, str], *, deadline: float, grace: float
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self.ended: asyncio.Future[int] = self._loop.create_future()
        adopt_orphans()
        self._terminal = Terminal()
        # Start the guard first, so that the command is never without one.
        self._guard = Guard(grace=grace)
        self._grace = grace
        self.guard_until(deadline)
        try:
            self._process = subprocess.Popen(list(command), env=environment, process_group=0)  # noqa: S603  the user's own
        except BaseException:
            self._guard.dismiss()
            raise
        self._guard.begin(self._group)
        self._terminal.give(self._group)
        # The system may have stopped it for reading the terminal before it owned it.
        self.signal(signal.SIGCONT)
        threading.Thread(target=self._watch, name="asynclock-child", daemon=True).start()
        self._reaping = self._loop.create_task(self._reap_orphans())

    @property
    def _group(self) -> int:
        return self._process.pid

    def signal(self, number: int) -> None:
        """Send a signal to the command's process group; SIGCONT also gives the terminal back to it."""
        if number == signal.SIGCONT:
            self._terminal.give(self._group)
        # Only ``close`` reaps the group's leader, so its number cannot belong to another group yet.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._group, number)

    def guard_until(self, deadline: float) -> None:
        """Make the guard end the command if this process is stopped at ``deadline``, by the boot clock."""
        # A little later than this process would act, so that only one of the two sends SIGTERM.
        later = deadline + self._grace * _GUARD_LATER
        self._guard.watch(terminate_at=later, kill_at=deadline + self._grace)

    async def end_all(self, *, grace: float) -> None:
        """End the command and all its descendants with SIGTERM, and after ``grace`` seconds with SIGKILL."""
        until = self._loop.time() + grace
        if grace > 0:
            if not self._guard.has_terminated():
                self._guard.note_ending(kill_at=boot_seconds() + grace)
                self._signal_all(signal.SIGTERM)
            self._terminal.give(self._group)
            # A stopped process handles SIGTERM only after SIGCONT.
            self._signal_all(signal.SIGCONT)
        # We can only wait for the end of our own children; descendants must be polled.
        while self._signal_all(0) and (left := until - self._loop.time()) > 0:  # noqa: ASYNC110
            await asyncio.sleep(min(_LOOK_SECONDS, left))
        while self._signal_all(signal.SIGKILL):  # noqa: ASYNC110  as above
            await asyncio.sleep(_LOOK_SECONDS)
        await self.ended

    def close(self) -> None:
        """Take the terminal back and reap the command, which has ended."""
        self._reaping.cancel()
        self._terminal.take_back(self._group)
        self._guard.dismiss()
        self._process.wait()

    def _signal_all(self, number: int) -> bool:
        """Signal each process of the group and each descendant; return whether any of them is alive."""
        alive = signal_all(number, group=self._group, root=os.getpid(), spare=self._guard.pid)
        return alive > 0 or not self.ended.done()

    def _watch(self) -> None:
        """Wait for the end of the command, and for no other child. Runs in its own thread.

        A credential helper of a cloud SDK is a child of this process too, and the SDK needs its exit code.
        """
        while True:
            seen = os.waitid(os.P_PID, self._group, os.WEXITED | os.WSTOPPED | os.WNOWAIT)
            assert seen is not None  # noqa: S101  without WNOHANG
            if seen.si_code != os.CLD_STOPPED:
                code = seen.si_status if seen.si_code == os.CLD_EXITED else SIGNALLED + seen.si_status
                self._loop.call_soon_threadsafe(self.ended.set_result, code)
                return
            os.waitid(os.P_PID, self._group, os.WSTOPPED | os.WNOHANG)
            self._stop_too()

    async def _reap_orphans(self) -> None:
        """Reap descendants of the command that this process has adopted and that have ended.

        Code that starts a process in this one reaps it soon after its end. So a child that is still there at
        the second look is an orphan.
        """
        seen: set[int] = set()
        while True:
            seen = self._reap(seen)
            await asyncio.sleep(_REAP_SECONDS)

    def _reap(self, seen: set[int]) -> set[int]:
        """Reap the ended children that were seen before; return the others."""
        with contextlib.suppress(ChildProcessError):
            if os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
                return set()  # no child has ended, which costs no look at all processes
        ended = ended_children(os.getpid()) - {self._group, self._guard.pid}
        for pid in ended & seen:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
        return ended - seen

    def _stop_too(self) -> None:
        """Stop this process too if the command was stopped at the terminal, so that the shell takes over.

        The shell later sends SIGCONT, which is forwarded. A lease that expired in the meantime is lost.
        """
        if self._terminal.present:
            self._terminal.take_back(self._group)
            os.kill(os.getpid(), signal.SIGSTOP)
