"""``memory://``: stores of one process."""

from __future__ import annotations

import asynclock
from asynclock.backend import Stored


async def test_memory_stores_are_shared_by_name() -> None:
    """``memory://NAME`` is one store of the process, ``memory://`` is private."""
    async with (
        asynclock.connect("memory://shared-by-name") as one,
        asynclock.connect("memory://shared-by-name") as two,
        asynclock.connect("memory://") as alone,
        asynclock.connect("memory://shared-by-name/deep") as deep,
        one.lock("orders").hold(),
    ):
        assert await two.lock("orders").try_acquire() is None
        assert [each.name for each in await two.list()] == ["orders"]
        assert await alone.list() == []
        assert await deep.list() == []


async def test_a_memory_store_reads_64_kib_and_a_byte_at_most() -> None:
    """An oversized object is cut there, as every store does."""
    backend = asynclock.connect("memory://").backend
    await backend.put("orders.json", b"x" * 100_000)
    stored = await backend.get("orders.json")

    assert isinstance(stored, Stored)
    assert len(stored.body) == 65_537


async def test_a_named_memory_store_outlives_its_clients() -> None:
    """A later client of the process finds the token of the last holder, and goes on from it."""
    tokens = []
    for _ in range(2):
        async with asynclock.connect("memory://long-lived") as client, client.lock("orders").hold() as lease:
            tokens.append(lease.fencing_token)
            found = await client.list()
        del client

    assert [each.name for each in found] == ["orders"]
    assert tokens[0] < tokens[1]
