"""The event loop that a client runs on, and why it cannot be used any more."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal

from asynclock._core.patched import refuse_patched
from asynclock._core.portal import Host, prepare, running_loop
from asynclock.errors import ConfigError

if TYPE_CHECKING:
    import asyncio

Renewal = Literal["thread", "loop"]


class Home:
    """The event loop that everything of one client runs on, from its first use to its end.

    Args:
        url: Of the client.
        renewal: ``"thread"``: a loop of asynclock's own; ``"loop"``: that of the first use.

    Attributes:
        loop: The loop; None before the first use.
        ended: Why the client cannot be used any more; None: it can.
    """

    def __init__(self, url: str, renewal: Renewal) -> None:
        if renewal not in {"thread", "loop"}:
            raise ConfigError(setting="renewal", value=renewal, reason='must be "thread" or "loop"')
        self.loop: asyncio.AbstractEventLoop | None = None
        self.ended: str | None = None
        self._url = url
        self._renewal = renewal

    def prepare(self) -> None:
        """Import what the first use needs, so that it reads no files."""
        if self._renewal == "thread":
            prepare()

    def get(self) -> asyncio.AbstractEventLoop:
        """Return the loop; the first use decides which it is.

        Raises:
            ConfigError: The client was closed, or belongs to another loop.
        """
        if self.ended is not None:
            raise self.error()
        if self._renewal == "thread":
            if self.loop is None:
                self.loop = Host.get().loop
            return self.loop
        here = running_loop()
        if self.loop is None:
            refuse_patched()
            self.loop = here
        elif self.loop is not here:
            raise ConfigError(
                setting="renewal",
                value="loop",
                reason="this client belongs to another event loop; use renewal='thread', or connect "
                "in each loop",
            )
        return here

    def time(self) -> float:
        """Read the loop's clock, from any thread; infinite before the first use."""
        return self.loop.time() if self.loop is not None else math.inf

    def error(self) -> ConfigError:
        """Return the error of a use after the end."""
        return ConfigError(setting="client", value=self._url, reason=f"{self.ended}; connect again")
