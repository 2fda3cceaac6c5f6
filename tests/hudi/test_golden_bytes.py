"""GCS and Azure: what Hudi's real provider left on S3 is honoured there, and what we write is what it reads.

Hudi's own clients of these clouds are not in its Spark bundle, so its bytes are carried over by the test.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import pytest

from asynclock import hudi
from asynclock._core.record import parse_record
from asynclock.backend import Stored
from asynclock.backends import open_backend
from tests.hudi.conftest import LOCK_KEY, lock_options
from tests.servers.fixtures import server

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from asynclock.backend import Backend
    from tests.hudi.conftest import Table
    from tests.hudi.harness import Providers
    from tests.laboratory.servers import Server

_numbers = itertools.count()

FORMS: Final = {
    # scheme: (server, base path of a folder in a bucket or container)
    "gs": ("gcs", "gs://{bucket}/{folder}"),
    "abfs": ("azure", "abfs://{bucket}@devstoreaccount1.dfs.core.windows.net/{folder}"),
    "abfss": ("azure", "abfss://{bucket}@devstoreaccount1.dfs.core.windows.net/{folder}"),
    "wasb": ("azure", "wasb://{bucket}@devstoreaccount1.blob.core.windows.net/{folder}"),
    "wasbs": ("azure", "wasbs://{bucket}@devstoreaccount1.blob.core.windows.net/{folder}"),
}
S3_FORMS: Final = {"s3": "s3://{bucket}/{folder}", "s3a": "s3a://{bucket}/{folder}"}
SLASHES: Final = ("", "/", "//")


@dataclass
class CloudTable:
    """A table in another cloud, seen from above its base path.

    Attributes:
        base: Its base path.
        options: Those of ``table_lock``.
        folder: Its folder in the bucket or container.
        store: The bucket or container.
    """

    base: str
    options: dict[str, Any]
    folder: str
    store: Backend

    @property
    def key(self) -> str:
        """The lock's key in the bucket."""
        return f"{self.folder}/{LOCK_KEY}"

    async def lock_file(self) -> bytes:
        """The bytes of the lock."""
        stored = await self.store.get(self.key)
        assert isinstance(stored, Stored)
        return stored.body


@pytest.fixture
def cloud(scheme: str) -> Server:
    """The server that a scheme leads to; a fixture of its own, since starting one blocks."""
    return server(FORMS[scheme][0])


@pytest.fixture
async def cloud_table(cloud: Server, scheme: str, slashes: str) -> AsyncIterator[CloudTable]:
    """A Hudi table of version 9 without data, its base path in one of the spellings."""
    place = urlsplit(cloud.url)
    folder = f"{place.path}/warehouse/golden-{next(_numbers)}".strip("/")
    bucket = place.netloc.partition("@")[0]
    store = open_backend(f"{place.scheme}://{place.netloc}", **cloud.options)
    try:
        await store.put(f"{folder}/.hoodie/hoodie.properties", b"hoodie.table.version=9\n")
        base = FORMS[scheme][1].format(bucket=bucket, folder=folder) + slashes
        yield CloudTable(base, lock_options(cloud), folder, store)
    finally:
        await store.aclose()


@pytest.mark.parametrize("slashes", SLASHES)
@pytest.mark.parametrize("scheme", FORMS)
async def test_what_hudi_left_is_honoured_and_what_we_write_it_reads(
    jvm: Providers, table: Table, cloud_table: CloudTable
) -> None:
    """Held while Hudi's record says so, free after its release; our bytes are its own and our four fields."""
    held, released = await left_by_hudi(jvm, table)
    owner = parse_record(held).owner
    lock = hudi.table_lock(cloud_table.base, cloud_table.options)

    await cloud_table.store.put(cloud_table.key, held)
    assert not await lock.try_lock()
    status = await lock.status()
    assert (status.state, status.owner, status.table_version) == ("held", owner, 9)
    assert await cloud_table.lock_file() == held

    await cloud_table.store.put(cloud_table.key, released)
    assert await lock.try_lock()
    live = await cloud_table.lock_file()
    await lock.unlock()
    freed = await cloud_table.lock_file()
    await lock.aclose()

    assert live == bytes_of(jvm, live, expired="false", ours=True)
    # Released at once after a Hudi holder, it is Hudi's record and nothing else: the token is not due yet.
    assert freed == bytes_of(jvm, freed, expired="true", ours=parse_record(freed).is_ours)

    keys = [entry.key async for entry in cloud_table.store.list(f"{cloud_table.folder}/")]
    assert sorted(keys) == [cloud_table.key, f"{cloud_table.folder}/.hoodie/hoodie.properties"]


@pytest.mark.parametrize("slashes", SLASHES)
@pytest.mark.parametrize("scheme", [*S3_FORMS, *FORMS])
def test_hudis_own_path_code_names_the_same_object(jvm: Providers, scheme: str, slashes: str) -> None:
    """Bucket and key of the lock, as Hudi finds them for every scheme and any number of slashes."""
    form = S3_FORMS[scheme] if scheme in S3_FORMS else FORMS[scheme][1]
    base = form.format(bucket="locks", folder="warehouse/orders") + slashes

    authority, key = jvm.ask("place", base).split()

    # Azure's account stands behind the container.
    assert authority.partition("@")[0] == "locks"
    assert key == f"warehouse/orders/{LOCK_KEY}"


async def left_by_hudi(jvm: Providers, table: Table) -> tuple[bytes, bytes]:
    """The lock file that Hudi's provider leaves while it holds the lock, and after its release."""
    jvm.provider("golden", table.base)
    assert jvm.ask("tryLock", "golden") == "true"
    held = await table.lock_file()
    assert jvm.ask("close", "golden") == "ok"
    return held, await table.lock_file()


def bytes_of(jvm: Providers, body: bytes, *, expired: str, ours: bool) -> bytes:
    """What Hudi writes for a lock file's three values, and our four fields behind; Hudi reads the three."""
    record = parse_record(body)
    words = (expired, str(record.valid_until_ms), record.owner)
    assert jvm.parse(body) == " ".join(words)
    theirs = jvm.ask("encode", *words)
    if not ours:
        return theirs.encode()
    fields = f'"nonce":"{record.nonce}","epoch":{record.epoch},"leaseMs":10000,"holder":"{record.holder}"'
    return f"{theirs.removesuffix('}')},{fields}}}".encode()
