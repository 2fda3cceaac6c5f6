"""A store whose clock is an hour off: locks work by the rules, and nothing is wrongly taken over."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

import pytest

import asynclock
from asynclock import LeaseSettings
from asynclock._core.probing import probe
from asynclock.errors import AcquireTimeoutError
from asynclock.testing._proxy import TapProxy, Wire

if TYPE_CHECKING:
    from tests.laboratory.servers import Server

HOUR = 3600.0
SETTINGS = LeaseSettings(validity=3.0, max_clock_skew=0.5, poll_interval=0.2)


@pytest.mark.parametrize("error", [HOUR, -HOUR], ids=["ahead", "behind"])
async def test_a_live_lock_is_kept_and_a_dead_one_freed_by_observation(minio: Server, error: float) -> None:
    """A waiter gets a lock neither at once nor never: only once it has seen it unchanged for a lease."""
    url, name = f"{minio.url}/hour", f"a-{uuid.uuid4()}"
    async with (
        TapProxy(minio.endpoint, clock_error=error) as ours,
        TapProxy(minio.endpoint, clock_error=error) as theirs,
        asynclock.connect(url, settings=SETTINGS, renewal="loop", **minio.through(ours.url)) as one,
        asynclock.connect(url, settings=SETTINGS, renewal="loop", **minio.through(theirs.url)) as two,
    ):
        lease = await one.lock(name).acquire(timeout=20)
        with pytest.raises(AcquireTimeoutError):
            await two.lock(name).acquire(timeout=SETTINGS.validity + 1)
        lease.check()
        await lease.confirm()

        ours.inject(Wire.SWALLOW, times=1_000_000, seconds=60)
        async with two.lock(name).hold(timeout=20) as successor:
            assert not lease.held
            assert successor.fencing_token > lease.fencing_token


@pytest.mark.parametrize("error", [HOUR, -HOUR], ids=["ahead", "behind"])
async def test_the_probe_tells_of_it(cloud: Server, error: float) -> None:
    """The report says in one sentence by how much the clocks differ, and the store is not safe."""
    async with TapProxy(cloud.endpoint, clock_error=error) as proxy:
        report = await probe(f"{cloud.url}/hour", **cloud.through(proxy.url))

    assert not report.safe
    assert len(report.reasons) == 1
    assert "differ by 3600 s" in report.reasons[0].replace("3599", "3600")
    assert report.clock_offset == pytest.approx(error, abs=2)
