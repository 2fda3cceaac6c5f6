"""``table_lock`` where the store's answer is lost, refused or put off, beside what Hudi makes of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from asynclock import hudi
from asynclock._core.record import parse_record
from asynclock.errors import AccessDeniedError
from asynclock.testing._proxy import TapProxy, Wire

if TYPE_CHECKING:
    from tests.hudi.conftest import Table
    from tests.laboratory.servers import Server


@pytest.mark.parametrize("status", [409, 429, 503])
async def test_a_renewal_without_a_clear_answer_leaves_the_lock_ours(
    table: Table, minio: Server, status: int
) -> None:
    """Throttled or in doubt is not lost, as with Hudi; the deadline decides."""
    async with TapProxy(upstream=minio.endpoint, seed=3) as proxy:
        lock = hudi.table_lock(
            table.base, table.options | {"asynclock.endpoint_url": proxy.url, "asynclock.verify": "false"}
        )
        assert await lock.try_lock()
        proxy.inject(Wire.ANSWER, writes=True, status=status)
        assert await lock.renew_lock()
        await lock.aclose()


async def test_a_renewal_that_is_denied_is_an_error_and_no_loss(table: Table, minio: Server) -> None:
    """Hudi's answers false and stops renewing; here the lease holds until its deadline."""
    async with TapProxy(upstream=minio.endpoint, seed=6) as proxy:
        lock = hudi.table_lock(
            table.base, table.options | {"asynclock.endpoint_url": proxy.url, "asynclock.verify": "false"}
        )
        assert await lock.try_lock()
        proxy.inject(Wire.ANSWER, writes=True, status=403)
        with pytest.raises(AccessDeniedError, match="nothing was written"):
            await lock.renew_lock()
        assert await lock.renew_lock()
        await lock.aclose()


@pytest.mark.parametrize("fault", [Wire.CUT_AFTER, Wire.DUPLICATE])
async def test_a_write_that_landed_without_saying_so_is_ours(
    table: Table, minio: Server, fault: Wire
) -> None:
    """Answer lost, or sent again below us and refused with 412: Hudi leaves a ghost, ours is read back."""
    async with TapProxy(upstream=minio.endpoint, seed=4) as proxy:
        lock = hudi.table_lock(
            table.base, table.options | {"asynclock.endpoint_url": proxy.url, "asynclock.verify": "false"}
        )
        proxy.inject(fault, writes=True)
        assert await lock.try_lock()
        proxy.inject(fault, writes=True)
        assert await lock.renew_lock()
        proxy.inject(fault, writes=True)
        await lock.unlock()
        assert parse_record(await table.lock_file()).expired
        await lock.aclose()


@pytest.mark.parametrize("status", [429, 503])
async def test_an_unlock_that_is_throttled_or_fails_is_sent_again(
    table: Table, minio: Server, status: int
) -> None:
    """Hudi 1.2 sends it again after 429 but not after 503, which leaves the lock dangling."""
    async with TapProxy(upstream=minio.endpoint, seed=5) as proxy:
        lock = hudi.table_lock(
            table.base, table.options | {"asynclock.endpoint_url": proxy.url, "asynclock.verify": "false"}
        )
        assert await lock.try_lock()
        proxy.inject(Wire.ANSWER, writes=True, status=status)
        await lock.unlock()
        assert parse_record(await table.lock_file()).expired
        await lock.aclose()
