"""The checker of a history sees what it is there to see."""

from __future__ import annotations

from contextlib import suppress

import pytest

from asynclock.errors import LeaseLostError
from asynclock.testing.checker import Invariant
from asynclock.testing.explore import Bench
from asynclock.testing.names import KEY, NAME


@pytest.mark.parametrize("overwritten", [False, True])
def test_a_believer_whose_own_older_record_stands_in_the_store_is_seen(*, overwritten: bool) -> None:
    """The owner in the store is right and the record is live, but it is not the one believed by."""
    bench = Bench(1)

    async def program() -> None:
        lease = await bench.clients[0].lock(NAME).acquire()
        acquired = bench.store.body(KEY)

        async def work() -> None:
            await lease.confirm()
            if overwritten:
                bench.store.serve("nobody", "put", KEY, acquired, None)

        with suppress(LeaseLostError):
            await bench.hold(0, lease, work())

    async def main() -> None:
        await bench.start(0, program())

    violations = bench.run(main())

    assert (Invariant.HEADS_CHAIN in {each.invariant for each in violations}) is overwritten
