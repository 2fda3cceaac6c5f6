"""At an address outside the clouds, four writes show first whether conditions are kept."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

import asynclock
from asynclock import AcquireTimeoutError, LeaseSettings
from asynclock._core import verification
from asynclock._core.defects import Defect
from asynclock.backends import open_backend
from asynclock.errors import BackendError, ConfigError, UnsupportedBackendError
from tests.servers.scripted import Quirk, ScriptedStore

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

SETTINGS = LeaseSettings(validity=6.0, max_clock_skew=1.0)
DIALECTS = ["s3", "gcs", "azure"]
ALL = [
    (Quirk.CREATES_TWICE, Defect.CREATES_TWICE),
    (Quirk.REPLACES_ANY, Defect.REPLACES_ANY),
    (Quirk.DROPS_CONDITIONS, Defect.NO_CONDITIONS),
    (Quirk.INVERTED, Defect.INVERTED),
    (Quirk.TWO_STEPS, Defect.NOT_ATOMIC),
    (Quirk.REFUSES_SHOWN, Defect.REFUSES_SHOWN),
    (Quirk.NEVER_FOUND, Defect.STALE_READS),
    (Quirk.STALE, Defect.STALE_READS),
    (Quirk.CHANGES_BODIES, Defect.BODY_CHANGED),
    (Quirk.WRITES_REFUSED, Defect.WRITES_REFUSED),
    (Quirk.NO_IF_MATCH, Defect.UNSUPPORTED),
]
BY_ETAG = [
    (Quirk.WEAK, Defect.VERSION_CHANGED),
    (Quirk.COMPRESSED, Defect.VERSION_CHANGED),
    (Quirk.CHANGING, Defect.VERSION_CHANGED),
]


@pytest.fixture(autouse=True)
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Return the folder that processes remember verdicts in; nothing is known yet."""
    monkeypatch.setenv("ASYNCLOCK_CACHE", str(tmp_path / "cache"))
    verification.forget()
    return tmp_path / "cache"


def _client(store: ScriptedStore, **options: object) -> asynclock.LockClient:
    return asynclock.connect(store.url, settings=SETTINGS, renewal="loop", **{**store.options, **options})


async def _hold(store: ScriptedStore, name: str = "orders", **options: object) -> None:
    async with _client(store, **options) as client, client.lock(name).hold(timeout=10):
        pass


def _trials(store: ScriptedStore) -> int:
    """Return how many writes were made to try the store out."""
    return sum(".asynclock-probe-" in each.key for each in store.writes())


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize(("quirk", "defect"), ALL, ids=[quirk.name for quirk, _ in ALL])
async def test_nobody_holds_a_lock_on_a_store_with_a_known_defect(
    dialect: str, quirk: Quirk, defect: Defect
) -> None:
    """The error names the defect and the remedy, and no lock was written."""
    async with ScriptedStore(dialect, quirk) as store:
        with pytest.raises(UnsupportedBackendError) as caught:
            await _hold(store)
        assert all(".asynclock-probe-" in each.key for each in store.writes())
        assert not store.objects
    assert f"{defect}: " in str(caught.value)
    assert defect.remedy in str(caught.value)
    assert f"asynclock doctor {store.url}" in str(caught.value)


@pytest.mark.parametrize("dialect", ["s3", "azure"])
@pytest.mark.parametrize(("quirk", "defect"), BY_ETAG, ids=[quirk.name for quirk, _ in BY_ETAG])
async def test_etags_that_are_changed_on_the_way_are_named(
    dialect: str, quirk: Quirk, defect: Defect
) -> None:
    """Weak ETags, those with a suffix and those of a proxy's own are one kind of defect."""
    async with ScriptedStore(dialect, quirk) as store:
        with pytest.raises(UnsupportedBackendError, match=f"{defect}: "):
            await _hold(store)


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_good_store_is_tried_out_by_four_writes_and_left_clean(dialect: str) -> None:
    """Once for all clients of the process, beside the lock, under a name that no lock can have."""
    async with ScriptedStore(dialect) as store:
        await _hold(store, "team/orders")
        assert _trials(store) == 4
        key = next(each.key for each in store.writes())
        assert key.startswith("team/.asynclock-probe-")
        assert set(store.objects) == {"team/orders.json"}
        async with _client(store) as client:
            with pytest.raises(ConfigError):
                client.lock(key.removesuffix(".json"))
        await _hold(store, "others")
        assert _trials(store) == 4


async def test_all_locks_of_a_client_wait_for_one_trial() -> None:
    """Twenty locks that are taken at a time cost four writes more."""
    async with ScriptedStore("s3") as store, _client(store) as client:
        async with contextlib.AsyncExitStack() as stack:
            holds = [client.lock(f"lock-{number}").hold() for number in range(20)]
            await asyncio.gather(*(stack.enter_async_context(hold) for hold in holds))
        assert _trials(store) == 4


@pytest.mark.parametrize("verify", [False, True])
async def test_verify_false_leaves_it_out(*, verify: bool) -> None:
    """The option is one of the backends: connect, the command and a spec have it."""
    async with ScriptedStore("s3") as store:
        await _hold(store, verify=verify)
        assert _trials(store) == (4 if verify else 0)


@pytest.mark.parametrize("url", ["memory://", "file://{}"])
async def test_stores_without_an_address_have_the_option_too(url: str, tmp_path: Path) -> None:
    """One spec or script serves every store."""
    async with (
        asynclock.connect(url.format(tmp_path), renewal="loop", verify=False) as client,
        client.lock("a").hold(),
    ):
        pass
    with pytest.raises(ConfigError, match="must be of type bool"):
        asynclock.connect("s3://locks", verify="no")  # type: ignore[arg-type]


async def test_a_bad_verdict_is_not_remembered() -> None:
    """A store that was mended works at once."""
    async with ScriptedStore("s3", Quirk.REPLACES_ANY) as store:
        with pytest.raises(UnsupportedBackendError):
            await _hold(store)
        store.quirk = Quirk.NONE
        await _hold(store)


@pytest.mark.parametrize(
    ("url", "options"),
    [
        ("s3://bucket", {"region": "eu-central-1"}),
        ("s3://bucket", {"endpoint_url": "https://s3.us-east-1.amazonaws.com"}),
        ("s3://bucket", {"endpoint_url": "https://bucket.vpce-1.s3.us-east-1.vpce.amazonaws.com"}),
        ("gs://bucket", {"token": "t"}),
        ("az://container", {"account_url": "https://account.blob.core.windows.net", "credential": "a2V5"}),
    ],
)
async def test_a_clouds_own_address_is_not_tried_out(
    url: str, options: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """So a first acquisition there costs two requests, as documented."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    backend = open_backend(url, **options)
    try:
        assert await backend.place() is None  # type: ignore[attr-defined]
    finally:
        await backend.aclose()


async def test_interoperable_addresses_of_another_cloud_are_tried_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Google's address as an S3 store is not Amazon's own; credentials are in no name that is kept."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "very-secret")
    backend = open_backend("s3://bucket", endpoint_url="https://storage.googleapis.com", region="auto")
    try:
        place = await backend.place()  # type: ignore[attr-defined]
    finally:
        await backend.aclose()
    assert place is not None
    assert "secret" not in place


PROGRAM = """
import asyncio, json, sys, asynclock
async def main(url, options):
    async with asynclock.connect(url, **json.loads(options)) as client, client.lock("orders").hold():
        pass
asyncio.run(main(*sys.argv[1:]))
"""


async def _run(store: ScriptedStore, **environment: str) -> None:
    import json  # noqa: PLC0415  for the program only

    command = (sys.executable, "-c", PROGRAM, store.url, json.dumps(store.options))
    ran = await asyncio.to_thread(
        lambda: subprocess.run(
            command, env=os.environ | environment, capture_output=True, text=True, timeout=60, check=False
        )
    )
    assert ran.returncode == 0, ran.stderr


async def test_the_next_process_remembers_the_verdict_for_a_day(cache: Path) -> None:
    """The file has no content, only a hash for its name; a day later the store is tried out again."""
    async with ScriptedStore("s3") as store:
        await _run(store)
        await _run(store)
        assert _trials(store) == 4
        (file,) = await asyncio.to_thread(lambda: list(cache.iterdir()))
        assert await asyncio.to_thread(file.read_bytes) == b""
        old = time.time() - verification.DAY - 1
        await asyncio.to_thread(os.utime, file, (old, old))
        await _run(store)
        assert _trials(store) == 8


@pytest.mark.parametrize("folder", ["a-file/below", "/proc/nothing"])
async def test_a_cache_that_cannot_be_written_costs_a_trial_for_each_process(
    folder: str, tmp_path: Path
) -> None:
    """A read-only disk or home changes nothing else."""
    await asyncio.to_thread((tmp_path / "a-file").touch)
    async with ScriptedStore("s3") as store:
        for _ in range(2):
            await _run(store, ASYNCLOCK_CACHE=str(tmp_path / folder))
        assert _trials(store) == 8


class _Scripted(ScriptedStore):
    """Answers some requests of a trial otherwise."""

    refuse: Callable[[str, str], tuple[int, str] | None]

    async def _answer(self, request, node):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
        key = self._key(request)
        if ".asynclock-probe-" in key and (said := self.refuse(request.method, key)) is not None:
            return self._error(*said)
        return await super()._answer(request, node)


@pytest.fixture
async def scripted() -> AsyncIterator[_Scripted]:
    """Return a store whose answers about the trial's object can be scripted."""
    async with _Scripted("s3") as store:
        yield store


@pytest.mark.parametrize(
    "said", [(403, "AccessDenied"), (400, "InvalidArgument"), (405, "MethodNotAllowed")], ids=str
)
async def test_a_key_that_may_not_write_beside_the_lock_holds_it_all_the_same(
    scripted: _Scripted, said: tuple[int, str]
) -> None:
    """A policy for single objects, or a gateway that refuses such names, makes nothing worse than before."""
    scripted.refuse = lambda method, _: said if method != "GET" else None
    await _hold(scripted)
    assert set(scripted.objects) == {"orders.json"}


async def test_a_key_that_may_not_delete_leaves_one_object(scripted: _Scripted) -> None:
    """Locks do not need the right to delete; lists of locks skip what is left."""
    scripted.refuse = lambda method, _: (403, "AccessDenied") if method == "DELETE" else None
    await _hold(scripted)
    await _hold(scripted)
    left = {key for key in scripted.objects if key != "orders.json"}
    assert len(left) == 1
    async with _client(scripted) as client:
        with contextlib.suppress(BackendError):  # this store has no listing
            assert [each.name for each in await client.list()] == ["orders"]


@pytest.mark.parametrize(
    "said", [(503, "SlowDown"), (500, "InternalError"), (429, "TooManyRequests")], ids=str
)
async def test_an_answer_that_says_nothing_is_no_verdict(scripted: _Scripted, said: tuple[int, str]) -> None:
    """A busy store is asked again until the time is out, and the timeout says why."""
    scripted.refuse = lambda method, _: said if method == "PUT" else None
    with pytest.raises(AcquireTimeoutError, match=said[1]):
        async with _client(scripted) as client:
            await client.lock("orders").acquire(timeout=3)
    assert "orders.json" not in scripted.objects
    scripted.refuse = lambda *_: None
    await _hold(scripted)


async def test_one_busy_answer_in_a_race_is_asked_again(scripted: _Scripted) -> None:
    """A store that takes one write a second is tried out too."""
    taken = [0.0]

    def throttle(method: str, _: str) -> tuple[int, str] | None:
        now = time.monotonic()
        if method == "PUT" and now - taken[0] < 0.9:
            return 429, "TooManyRequests"
        if method == "PUT":
            taken[0] = now
        return None

    scripted.refuse = throttle
    await _hold(scripted)


async def test_a_trial_goes_on_when_its_acquisition_gives_up(scripted: _Scripted) -> None:
    """Short timeouts get the lock in the end: the trial belongs to the client."""
    async with _client(scripted) as client:
        scripted.refuse = lambda *_: None
        lock = client.lock("orders")
        scripted.quirk = Quirk.NONE
        task = asyncio.create_task(lock.acquire())
        await asyncio.sleep(0.01)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        async with lock.hold(timeout=10) as lease:
            assert lease.held
    assert set(scripted.objects) == {"orders.json"}


async def test_a_delete_marker_is_no_contention() -> None:
    """With the trial left out or passed, three refusals over nothing end the wait (rule 23)."""
    async with ScriptedStore("s3", Quirk.DELETE_MARKER) as store:
        await _hold(store)
        await store_delete(store, "orders.json")
        async with _client(store) as client:
            with pytest.raises(UnsupportedBackendError, match="a delete marker may refuse If-None-Match"):
                await client.lock("orders").acquire()


async def store_delete(store: ScriptedStore, key: str) -> None:
    """Delete an object as an operator does."""
    backend = open_backend(store.url, **store.options)
    await backend.delete(key)
    await backend.aclose()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ((), "conditions-inverted: "),
        (("-o", "verify=false"), "3 times in a row"),
        (("-o", "verify=false", "--wait", "0"), "refused once"),
        (("-o", "verify=false", "--skip-if-held"), "refused once"),
    ],
    ids=lambda words: " ".join(words) or "as it is" if isinstance(words, tuple) else "",
)
async def test_the_command_ends_with_69(words: tuple[str, ...], says: str) -> None:
    """A broken store is never "held by others" to a script: not 75, and no skip with 0."""
    async with ScriptedStore("s3", Quirk.INVERTED) as store:
        keys = {"AWS_ACCESS_KEY_ID": "k", "AWS_SECRET_ACCESS_KEY": "s", "AWS_REGION": "us-east-1"}
        where = [f"{store.url}/orders", "-o", f"endpoint_url={store.endpoints[0]}"]
        ran = await asyncio.to_thread(
            lambda: subprocess.run(
                [sys.executable, "-m", "asynclock", "run", *words, *where, "--", "echo", "ran"],
                env=os.environ | keys,
                capture_output=True,
                text=True,
                timeout=60,
                check=False,
            )
        )

    assert (ran.returncode, ran.stdout) == (69, "")
    assert says in ran.stderr
    assert f"asynclock doctor {store.url}" in ran.stderr
