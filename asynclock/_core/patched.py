"""Finds out whether gevent or eventlet has replaced the threads and sockets that asynclock needs."""

from __future__ import annotations

import sys
from typing import Final

from asynclock.errors import ConfigError

_NEEDED: Final = {
    "gevent.monkey": ("is_module_patched", ("threading", "_thread", "queue", "socket", "select", "ssl")),
    "eventlet.patcher": ("is_monkey_patched", ("thread", "socket", "select")),
}
"""By patching module: its function that reports on one module, and the modules it must not patch."""


def refuse_patched() -> None:
    """Return only if this process has real threads and sockets.

    asynclock renews leases on a thread of its own. If threads are greenlets, that thread runs only while the
    caller waits in the library that patched them, or never.

    Raises:
        ConfigError: gevent or eventlet has patched them; the error says which, and what to do.
    """
    for name, (ask, modules) in _NEEDED.items():
        if (patcher := sys.modules.get(name)) is None:
            continue
        is_patched = getattr(patcher, ask)
        if patched := [module for module in modules if is_patched(module)]:
            library = name.partition(".")[0]
            raise ConfigError(
                setting=library,
                value=", ".join(patched),
                reason=f"{library} has monkey-patched these modules of the process, and asynclock needs real "
                "ones to renew a lease while your code works; nothing was locked. Use workers of threads or "
                "processes (gunicorn -k gthread, celery --pool prefork or threads), or lock from outside of "
                "the process: asynclock run URL/NAME -- COMMAND",
            )
