"""``python -m tests.laboratory.soak.spoiler LOG ENDPOINT SEED``: a proxy that spoils what its input names.

It is a process of its own, because a connection of a driver is two sockets of the proxy.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import TYPE_CHECKING, Any, Final

from asynclock.testing._proxy import TapProxy, Wire
from tests.laboratory.mechanisms.child import Child

if TYPE_CHECKING:
    from pathlib import Path

_JOURNAL_KEPT: Final = 500
_SLOW_DOWN: Final = b'<?xml version="1.0"?><Error><Code>SlowDown</Code><Message>soak</Message></Error>'


class Spoiler(Child):
    """The process, as the soak sees it.

    Args:
        endpoint: Of the server behind it.
        seed: Of its choices.
        folder: Of its log.

    Attributes:
        url: Its address.
    """

    def __init__(self, endpoint: str, seed: int, folder: Path) -> None:
        super().__init__("spoiler", folder / "spoiler", endpoint, seed, package=__package__)
        self.url = self.answer()

    @property
    def faults(self) -> int:
        """How many requests it has spoiled."""
        return self._ask(what="faults")

    def spoil(self, what: str, times: int, *, seconds: float, status: int) -> str:
        """Spoil the next requests, and say how.

        Args:
            what: ``cut``, ``delay`` or ``throttle``.
            times: How many.
            seconds: How long a delay is.
            status: Of the answer that throttles.
        """
        self._ask(what=what, times=times, seconds=seconds, status=status)
        return {
            "cut": f"the answers to {times} requests are cut, half of them after they were applied",
            "delay": f"the answers to {times} requests come {seconds:.1f} s late",
            "throttle": f"{times} requests are answered with {status}",
        }[what]

    def _ask(self, **order: object) -> int:
        self.tell(json.dumps(order))
        return int(self.answer())


async def main(_: str, endpoint: str, seed: str) -> None:
    """Say the address; carry out one order a line, and answer with the number of faults so far."""
    faults = 0
    # Hadoop's client waits three seconds for ``100 Continue`` before each write.
    async with TapProxy(endpoint, seed=int(seed), continues=True) as proxy:

        def forget() -> None:
            """Keep the journal short: it has the bodies of all requests."""
            nonlocal faults
            if len(proxy.journal) > _JOURNAL_KEPT:
                faults += proxy.faults()
                proxy.journal.clear()
            asyncio.get_running_loop().call_later(1.0, forget)

        forget()
        print(proxy.url, flush=True)  # noqa: T201  talks to its parent
        while line := await asyncio.to_thread(sys.stdin.readline):
            _carry_out(proxy, **json.loads(line))
            print(faults + proxy.faults(), flush=True)  # noqa: T201


def _carry_out(proxy: TapProxy, *, what: str, times: int = 0, **options: Any) -> None:  # noqa: ANN401  of JSON
    if what == "delay":
        proxy.inject(Wire.DELAY, times=times, seconds=options["seconds"])
    elif what == "throttle":
        headers = {"Content-Type": "application/xml"}
        proxy.inject(Wire.ANSWER, times=times, status=options["status"], headers=headers, body=_SLOW_DOWN)
    elif what == "cut":
        for number in range(times):
            fault = (Wire.CUT_AFTER, Wire.CUT_BEFORE, Wire.CUT_MIDDLE, Wire.CUT_BEFORE)[number % 4]
            proxy.inject(fault, reset=number % 3 == 0)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
