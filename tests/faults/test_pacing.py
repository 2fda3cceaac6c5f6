"""Cloud Storage takes one write a second of one object, and the user need not know."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

import asynclock
from asynclock import LeaseSettings
from asynclock.backends import open_backend
from asynclock.testing.proxy import TapProxy, Wire

if TYPE_CHECKING:
    from asynclock.testing.servers import Server

SETTINGS = LeaseSettings(validity=12.0, max_clock_skew=0.5, poll_interval=0.1)


async def _three_holds(server: Server, proxy: TapProxy, **changed: object) -> list[int]:
    options = {**server.through(proxy.url), **changed}
    url = f"{server.url}/pace-{uuid.uuid4()}"
    tokens = []
    async with asynclock.connect(url, settings=SETTINGS, renewal="loop", **options) as client:
        for _ in range(3):
            async with client.lock("a").hold(timeout=10) as lease:
                tokens.append(lease.fencing_token)
    return tokens


def test_the_default_leaves_a_second_between_two_writes() -> None:
    """Nobody has to set it: the backend knows what Cloud Storage takes."""
    assert open_backend("gs://bucket", endpoint_url="http://127.0.0.1:1").min_write_interval == 1.0


async def test_paced_writes_are_never_throttled(fake_gcs: Server) -> None:
    """Before a server that takes one write a second, acquire and release meet no 429."""
    async with TapProxy(fake_gcs.endpoint, writes_every=0.95) as proxy:
        tokens = await _three_holds(fake_gcs, proxy, min_write_interval=1.0)

    assert proxy.faults() == 0
    assert tokens == sorted(set(tokens))


async def test_throttled_writes_are_tried_again(fake_gcs: Server) -> None:
    """Where pacing was turned off, the 429s of the same server cost time and nothing else."""
    async with TapProxy(fake_gcs.endpoint, writes_every=0.5) as proxy:
        tokens = await _three_holds(fake_gcs, proxy, min_write_interval=0.0)

    assert proxy.faults(Wire.ANSWER) > 0
    assert tokens == sorted(set(tokens))
