"""Rule 22: which objects a prune may delete, and that it deletes no other."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import pytest

from asynclock import ConfigError, LeaseSettings, LockClient, UnsupportedBackendError, connect
from asynclock._core.prune import prune
from asynclock.backend import Absent, Stored
from asynclock.backends._memory import MemoryBackend, _Object, _store

if TYPE_CHECKING:
    from collections.abc import Callable

    from asynclock.backend import Written

DAY = 86_400.0
LEASE = 300.0
SETTINGS = LeaseSettings(validity=LEASE, max_clock_skew=0)


class Aged(MemoryBackend):
    """Objects whose age can be chosen.

    Attributes:
        before_delete: Called before each delete on condition.
    """

    def __init__(self) -> None:
        super().__init__("prune-tests")
        _store("prune-tests").objects.clear()
        self.before_delete: Callable[[], None] = lambda: None

    def put_aged(self, name: str, age: float, **fields: object) -> None:
        """Write a lock that was released ``age`` seconds ago."""
        written = time.time() - age
        record = {
            "expired": True,
            "validUntil": int((written + LEASE) * 1000),
            "owner": "somebody",
            "nonce": "0" * 32,
            "epoch": int((written - 10) * 1e6),
            "leaseMs": int(LEASE * 1000),
            "holder": "tester",
        } | fields
        body = json.dumps({key: value for key, value in record.items() if value is not None}).encode()
        self._store.writes += 1
        self._store.objects[f"{name}.json"] = _Object(body, str(self._store.writes), written)

    async def delete_if_match(self, key: str, version: str) -> None:
        """Delete one version."""
        if not key.startswith(".asynclock-prune"):
            self.before_delete()
        await super().delete_if_match(key, version)


class Careless(Aged):
    """Ignores the condition of a delete, as some stores do."""

    async def delete_if_match(self, key: str, version: str) -> None:  # noqa: ARG002
        """Delete any version."""
        await self.delete(key)


class WithoutDelete:
    """A backend that has no delete on condition."""

    def __init__(self, inner: MemoryBackend) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        if name == "delete_if_match":
            raise AttributeError(name)
        return getattr(self._inner, name)


async def pruned(backend: Any, older_than: float = DAY, **words: Any) -> tuple[str, ...]:  # noqa: ANN401
    """Prune; return the names that were deleted."""
    async with LockClient(url="memory://prune-tests", backend=backend, settings=SETTINGS) as client:
        return (await prune(client._core, older_than=older_than, **words)).deleted


FREED: dict[str, tuple[float, dict[str, Any]]] = {
    "released long ago": (2 * DAY, {}),
    "not released, but free for long": (2 * DAY, {"expired": False}),
    "with a long lease, free for longer": (9 * DAY, {"leaseMs": int(7 * DAY * 1000)}),
}
KEPT: dict[str, tuple[float, dict[str, Any]]] = {
    "released an hour ago": (3600, {}),
    "released just less than a day ago": (DAY - 5, {}),
    "not released, and free for less than a day": (DAY + LEASE - 5, {"expired": False}),
    "with a lease of a week, free for less": (6 * DAY, {"leaseMs": int(7 * DAY * 1000)}),
    "of a Hudi writer": (9 * DAY, {"nonce": None, "epoch": None, "leaseMs": None, "holder": None}),
    "with a token from the future": (2 * DAY, {"epoch": int((time.time() + 3600) * 1e6)}),
    "corrupt": (9 * DAY, {"expired": "yes"}),
}


@pytest.mark.parametrize("case", FREED)
async def test_what_has_been_free_for_long_is_deleted(case: str) -> None:
    """Its object is gone, and the lock can be taken again under a higher token."""
    backend = Aged()
    age, fields = FREED[case]
    backend.put_aged("a", age, **fields)
    before = json.loads(backend._store.objects["a.json"].body)["epoch"]

    assert await pruned(backend) == ("a",)

    assert isinstance(await backend.get("a.json"), Absent)
    async with (
        LockClient(url="memory://prune-tests", backend=backend, settings=SETTINGS) as client,
        client.lock("a").hold() as lease,
    ):
        assert lease.fencing_token > before


@pytest.mark.parametrize("case", KEPT)
async def test_everything_else_stays(case: str) -> None:
    """Not a byte of it changes."""
    backend = Aged()
    age, fields = KEPT[case]
    backend.put_aged("a", age, **fields)
    before = dict(backend._store.objects)

    assert await pruned(backend) == ()

    assert backend._store.objects == before


async def test_a_held_lock_stays() -> None:
    """A lock that is held is kept, however old its first record is."""
    backend = Aged()
    async with (
        LockClient(url="memory://prune-tests", backend=backend, settings=SETTINGS) as client,
        client.lock("a").hold() as lease,
    ):
        assert await pruned(backend) == ()
        await lease.confirm()


async def test_older_than_counts() -> None:
    """Only what has been free for as long as is asked is deleted."""
    backend = Aged()
    for days in (2, 20, 40):
        backend.put_aged(f"free-for-{days}", days * DAY)

    assert await pruned(backend, 30 * DAY) == ("free-for-40",)


async def test_a_lock_that_is_taken_meanwhile_is_not_deleted() -> None:
    """The delete names the version that was judged: a lock acquired in between stays."""
    backend = Aged()
    backend.put_aged("a", 2 * DAY)
    backend.before_delete = lambda: backend.put_aged("a", 0, expired=False)

    assert await pruned(backend) == ()

    stored = await backend.get("a.json")
    assert isinstance(stored, Stored)
    assert json.loads(stored.body)["expired"] is False


@pytest.mark.parametrize("kind", [Careless, lambda: WithoutDelete(Aged())])
async def test_a_store_without_such_a_delete_is_refused(kind: Any) -> None:  # noqa: ANN401
    """No lock is deleted where the condition would not count, and nothing of the trial is left."""
    backend = kind()
    inner = backend if isinstance(backend, Aged) else backend._inner
    inner.put_aged("a", 2 * DAY)

    with pytest.raises(UnsupportedBackendError, match="no lock was deleted"):
        await pruned(backend)

    assert list(inner._store.objects) == ["a.json"]


async def test_a_dry_run_deletes_nothing() -> None:
    """It names what would be deleted, and does not even try the store."""
    backend = Careless()
    backend.put_aged("a", 2 * DAY)
    named: list[str] = []

    assert await pruned(backend, dry_run=True, on_delete=named.append) == ("a",)

    assert named == ["a"]
    assert list(backend._store.objects) == ["a.json"]


@pytest.mark.parametrize("seconds", [DAY - 1, 0.0, -1.0, float("nan")])
async def test_less_than_a_day_is_refused(seconds: float) -> None:
    """A late write could still come, so nothing is deleted."""
    async with connect("memory://") as client:
        with pytest.raises(ConfigError, match="must be a day"):
            await prune(client._core, older_than=seconds)


async def test_what_is_no_lock_stays() -> None:
    """Fenced objects and other files beside the locks are not touched."""
    backend = Aged()
    written: Written = await backend.put("counter", b'{"fencingToken":1}\nx')
    await backend.put("notes.json", b"[1, 2]")

    assert await pruned(backend) == ()

    stored = await backend.get("counter")
    assert isinstance(stored, Stored)
    assert stored.version == written.version
