"""The checker of a history sees what it is there to see."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from asynclock._core.record import parse_record
from asynclock.errors import LeaseLostError
from asynclock.testing._clocks import EPOCH
from tests.laboratory.checker import Invariant
from tests.laboratory.explore import Bench
from tests.laboratory.kept import Keeping
from tests.laboratory.names import KEY, NAME


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


def test_a_call_of_a_closed_backend_is_seen() -> None:
    """What is asked of the store after ``aclose`` is reported, with who asks."""
    bench = Bench(1)

    async def main() -> None:
        await bench.start(0, bench.clients[0].lock(NAME).acquire())
        await bench.clients[0].aclose()
        await bench.backends[0].get(KEY)

    violations = bench.run(main())

    assert [each.invariant for each in violations] == [Invariant.CLOSED]
    assert "client-0 sends a get" in violations[0].detail


@pytest.mark.parametrize("behind", [0.0, 5.0])
def test_a_token_from_the_future_is_seen(behind: float) -> None:
    """A token that is handed out while every clock of the store shows an earlier time is reported."""
    bench = Bench(1)
    bench.checker.store_time = lambda: EPOCH + bench.loop.time() - behind

    async def program() -> None:
        lease = await bench.clients[0].lock(NAME).acquire()
        await bench.hold(0, lease, asyncio.sleep(0))

    async def main() -> None:
        await bench.start(0, program())

    violations = bench.run(main())

    assert (Invariant.NOT_AHEAD in {each.invariant for each in violations}) is bool(behind)


@pytest.mark.parametrize("overwritten", [False, True])
def test_a_lease_whose_record_is_gone_is_known_before_its_release(*, overwritten: bool) -> None:
    """Its release must tell of a loss if, and only if, another record stands there while it believes."""
    bench = Bench(1)
    gone: list[bool] = []

    async def program() -> None:
        lease = await bench.clients[0].lock(NAME).acquire()

        async def work() -> None:
            if overwritten:
                bench.store.serve("nobody", "put", KEY, b'{"expired":true,"validUntil":0,"owner":"x"}', None)
            gone.extend(bench.checker.gone(each) for each in bench.checker.holdings_of(bench.processes[0]))

        with suppress(LeaseLostError):
            await bench.hold(0, lease, work())

    async def main() -> None:
        await bench.start(0, program())

    bench.run(main())

    assert gone == [overwritten]


def test_a_closed_client_that_still_believes_is_seen() -> None:
    """Where a call of ``aclose`` returns, no lease of the client may say that it is held."""
    bench = Bench(1)

    async def program() -> None:
        lease = await bench.clients[0].lock(NAME).acquire()

        async def work() -> None:
            bench.checker.closed(bench.processes[0], closing=False)

        await bench.hold(0, lease, work())

    async def main() -> None:
        await bench.start(0, program())

    violations = bench.run(main())

    assert [each.invariant for each in violations] == [Invariant.CLOSED]


@pytest.mark.parametrize("late", [False, True])
def test_a_lock_that_is_not_kept_is_seen(*, late: bool) -> None:
    """Who gets it before its time is up is reported, and nobody after that."""
    bench = Bench(2)

    async def program() -> None:
        first = await bench.clients[0].lock(NAME).acquire()
        until = bench.loop.time() + 5.0
        bench.checker.kept.add(first.owner, Keeping(first, bench.processes[0], until))
        await bench.hold(0, first, asyncio.sleep(6.0 if late else 1.0))

    async def main() -> None:
        await bench.start(0, program())
        second = await bench.start(1, bench.clients[1].lock(NAME).acquire())
        await bench.start(1, bench.hold(1, second, asyncio.sleep(0)))
        bench.checker.check_fenced()

    violations = bench.run(main())

    assert (Invariant.KEPT in {each.invariant for each in violations}) is not late


@pytest.mark.parametrize("taken", [False, True])
def test_a_false_loss_at_release_is_seen(*, taken: bool) -> None:
    """A release may tell of a takeover if, and only if, somebody else displaced the lease's live record."""
    bench = Bench(1)

    async def program() -> None:
        lease = await bench.clients[0].lock(NAME).acquire()
        foreign = b'{"expired":false,"validUntil":0,"owner":"x"}'

        async def work() -> None:
            if not taken:
                bench.store.serve(
                    "client-0", "put", KEY, parse_record(body()).released(nonce="f" * 32).encode(), None
                )
            bench.store.serve("nobody", "put", KEY, foreign, None)

        with suppress(LeaseLostError):
            await bench.hold(0, lease, work())

    def body() -> bytes:
        found = bench.store.body(KEY)
        assert found is not None
        return found

    async def main() -> None:
        await bench.start(0, program())

    violations = bench.run(main())

    assert (Invariant.LOSS_IS_TRUE in {each.invariant for each in violations}) is not taken
