"""How a blocking call waits for a coroutine on the host's loop."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final, TypeVar

import asynclock
from asynclock._core.patched import refuse_patched
from asynclock._core.portal import Host, block_on

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from typing import Unpack

    from asynclock._core.probing import ProbeReport
    from asynclock.options import BackendOptions

T = TypeVar("T")
_ENDS: Final = frozenset({"Lease.release", "LockClient.aclose", "LockClient.hold_all"})
"""Calls that are allowed even if threads were patched later: the host may have started before that."""


def block(
    name: str,
    start: Callable[[], Coroutine[Any, Any, T]],
    undo: Callable[[T], Coroutine[Any, Any, object]] | None = None,
) -> T:
    """Run a coroutine on the host's loop, wait for its end and return its result.

    Args:
        name: Name of the caller, for errors.
        start: Makes the coroutine.
        undo: Undoes a result that arrives after an interrupt, when the caller is gone.

    Raises:
        RuntimeError: This thread runs an event loop, which waiting would block.
        ConfigError: gevent or eventlet has patched threads or sockets.
    """
    refuse_loop(name, "await")
    if name not in _ENDS:
        refuse_patched()  # perhaps patched after the client was made
    return block_on(Host.get().loop, start, undo)


def refuse_loop(name: str, word: str) -> None:
    """Raise an error if this thread runs an event loop, which the call would block.

    Args:
        name: Name of the caller.
        word: Keyword of the async call: ``await`` or ``async with``.

    Raises:
        RuntimeError: This thread runs an event loop.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise RuntimeError(
        f"asynclock.sync.{name} would block the event loop running in this thread; "
        f"use: {word} asynclock.{name}"
    )


def probe(url: str, *, also: str | None = None, **backend_options: Unpack[BackendOptions]) -> ProbeReport:
    """Test whether ``url`` is safe for locks; see ``asynclock.probe``."""
    return block("probe", lambda: asynclock.probe(url, also=also, **backend_options))
