"""The permissions in the documentation, each tried with a key that may do that and nothing else."""

from __future__ import annotations

import json
import re
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import asynclock
from asynclock import FencedObject, LeaseSettings, hudi
from asynclock._cli.policy import s3_policy
from asynclock.backends import open_backend
from asynclock.backends._url import split_url
from asynclock.errors import AccessDeniedError
from asynclock.testing._proxy import TapProxy
from tests.contract.keys import Statement, temporary_key
from tests.laboratory.servers import BUCKET, KMS_KEY

if TYPE_CHECKING:
    from tests.laboratory.servers import Server

PAGE = Path(__file__).parents[2] / "docs" / "backends" / "s3.md"
# The servers are one node each.
SETTINGS = LeaseSettings(validity=60.0, max_clock_skew=0.5)
GET, PUT, DELETE = "s3:GetObject", "s3:PutObject", "s3:DeleteObject"


def documented(name: str, **words: str) -> Any:  # noqa: ANN401  JSON
    """Return a policy of the page, with these words in place of its own."""
    found = re.search(rf"<!-- policy: {name} -->\n```json\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert found is not None
    text = found[1]
    for word, value in words.items():
        text = text.replace(word, value)
    return json.loads(text)


s3_policy(split_url(f"s3://{BUCKET}"))  # reads its template before a loop runs


def printed(prefix: str, **words: bool) -> list[Statement]:
    """Return the statements that ``asynclock policy`` prints for a prefix."""
    statements: list[Statement] = s3_policy(split_url(f"s3a://{BUCKET}/{prefix}"), **words)["Statement"]
    return statements


def may(actions: list[str], *resources: str) -> Statement:
    """Return the permission to do that to objects of the bucket."""
    names = [f"arn:aws:s3:::{BUCKET}/{resource}" for resource in resources]
    return {"Effect": "Allow", "Action": actions, "Resource": names}


def may_list(prefix: str) -> Statement:
    """Return the permission to list what is under a prefix."""
    return printed(prefix)[1]


def table_options(options: dict[str, Any]) -> dict[str, str]:
    """Return the options of a table's lock with that key."""
    return {
        "hoodie.write.lock.storage.validity.timeout.secs": "10",
        "hoodie.write.lock.storage.renew.interval.secs": "1",
        "asynclock.max_clock_skew": "0",
        **{f"asynclock.{name}": value for name, value in options.items()},
    }


async def everything(url: str, options: dict[str, Any]) -> None:
    """Do all that is done with locks, but clean up after a probe."""
    async with asynclock.connect(url, settings=SETTINGS, **options) as client:
        lock = client.lock("a")
        fenced = FencedObject(client, "counter")
        assert (await lock.status()).state == "absent"
        for _ in range(2):
            async with lock.hold(timeout=60) as lease:
                await lease.confirm()
                await fenced.write(uuid.uuid4().bytes, lease=lease)
        broken = client.lock("b")
        _held = await broken.acquire(timeout=60)
        await broken.break_lock(await broken.status(), force=True)
        assert [status.name for status in await client.list()] == ["a", "b"]
    assert (await asynclock.probe(url, **options)).safe


async def test_the_documented_policy_is_enough_for_locks_and_for_no_more(minio: Server) -> None:
    """Under its prefix a key may do all that is done with locks; beside it nothing, not even list."""
    prefix = f"policy-{uuid.uuid4()}"
    options = await temporary_key(minio, *printed(prefix))

    await everything(f"{minio.url}/{prefix}", options)

    async with asynclock.connect(f"{minio.url}/{prefix}x", settings=SETTINGS, **options) as client:
        with pytest.raises(AccessDeniedError):
            await client.lock("a").acquire(timeout=60)
        with pytest.raises(AccessDeniedError):
            await client.list()


async def test_reading_is_enough_for_a_status_and_a_list(minio: Server) -> None:
    """A key that may read and list sees who holds, and cannot acquire."""
    prefix = f"policy-{uuid.uuid4()}"
    options = await temporary_key(minio, *printed(prefix, read_only=True))
    url = f"{minio.url}/{prefix}"

    async with (
        asynclock.connect(url, **minio.options) as holder,
        asynclock.connect(url, settings=SETTINGS, **options) as reader,
        holder.lock("a").hold(),
    ):
        assert (await reader.lock("a").status()).state == "held"
        assert [status.state for status in await reader.list()] == ["held"]
        with pytest.raises(AccessDeniedError):
            await reader.lock("b").acquire(timeout=60)


async def test_without_the_right_to_list_only_a_list_is_refused(minio: Server) -> None:
    """Locks are held where MinIO lets a key not list; the list says that it may not."""
    prefix = f"policy-{uuid.uuid4()}"
    options = await temporary_key(minio, may([GET, PUT], f"{prefix}/*"))

    async with asynclock.connect(f"{minio.url}/{prefix}", settings=SETTINGS, **options) as client:
        async with client.lock("a").hold(timeout=60):
            pass
        with pytest.raises(AccessDeniedError, match="s3:ListBucket"):
            await client.list()


async def test_a_probe_that_may_delete_leaves_nothing(minio: Server) -> None:
    """With the right to delete besides, a probe takes all of its objects away."""
    prefix = f"policy-{uuid.uuid4()}"
    options = await temporary_key(minio, *printed(prefix, prune=True))

    report = await asynclock.probe(f"{minio.url}/{prefix}", **options)

    backend = open_backend(f"{minio.url}/{prefix}", **minio.options)
    assert (report.safe, report.left) == (True, ())
    assert [entry async for entry in backend.list("")] == []
    await backend.aclose()


async def test_each_call_of_the_audit_needs_what_is_documented(minio: Server) -> None:
    """Reading, switching, holding and cleaning up, each with a key that may do just that."""
    base = f"table-{uuid.uuid4()}"
    url, locks = f"{minio.url}/{base}", f"{base}/.hoodie/.locks/*"
    backend = open_backend(url, **minio.options)
    await backend.put(".hoodie/hoodie.properties", b"hoodie.table.name=t\nhoodie.table.version=9\n")
    await backend.aclose()
    reads = (may([GET], f"{base}/.hoodie/hoodie.properties*", locks), may_list(base))
    reader = table_options(await temporary_key(minio, *reads))
    writer = table_options(await temporary_key(minio, *reads, may([PUT], locks)))
    cleaner = table_options(await temporary_key(minio, *reads, may([DELETE], locks)))
    sweeper = table_options(await temporary_key(minio, *reads, may([PUT, DELETE], locks)))

    with pytest.raises(AccessDeniedError):
        await hudi.audit_enable(url, reader)
    await hudi.audit_enable(url, writer)
    async with hudi.table_lock(url, writer):
        pass
    assert (await hudi.audit_status(url, reader)).files == 1
    report = await hudi.audit_validate(url, reader)
    assert (report.result, report.transactions) == ("PASSED", 1)
    with pytest.raises(AccessDeniedError):
        await hudi.audit_cleanup(url, writer, age_days=0)
    assert len((await hudi.audit_cleanup(url, cleaner, age_days=0)).files) == 1
    async with hudi.table_lock(url, writer):
        pass
    await hudi.audit_disable(url, writer)
    with pytest.raises(AccessDeniedError):
        await hudi.audit_disable(url, writer, keep_files=False)
    await hudi.audit_disable(url, sweeper, keep_files=False)
    status = await hudi.audit_status(url, reader)
    assert (status.enabled, status.files) == (False, 0)


async def test_a_policy_that_asks_for_a_key_of_kms_refuses_all_else(minio_tls: Server) -> None:
    """A client that names the key has its locks; one that does not acquires nothing."""
    prefix = f"policy-{uuid.uuid4()}"
    url = f"{minio_tls.url}/{prefix}"
    options = await temporary_key(
        minio_tls,
        *printed(prefix),
        documented("encrypted", BUCKET=BUCKET, PREFIX=prefix, KEY=KMS_KEY),
    )

    await everything(url, options | {"sse": "aws:kms", "sse_kms_key_id": KMS_KEY})

    for less in ({}, {"sse": "AES256"}, {"sse": "aws:kms"}):
        async with asynclock.connect(url, settings=SETTINGS, **options, **less) as client:
            with pytest.raises(AccessDeniedError) as caught:
                await client.lock("c").acquire(timeout=60)
        assert caught.value.written == "no"


async def test_a_policy_that_refuses_writes_without_a_condition_refuses_none_of_ours(minio: Server) -> None:
    """Each upload of locks, fenced objects and a probe has one of the conditions that the policy asks for."""
    asked = documented("conditional")["Condition"]["Null"]
    headers = {name.removeprefix("s3:") for name in asked}

    async with TapProxy(minio.endpoint) as proxy:
        await everything(f"{minio.url}/policy-{uuid.uuid4()}", minio.through(proxy.url))

    uploads = [tap for tap in proxy.journal if tap.method == "PUT"]
    assert len(uploads) > 100
    assert headers == {"if-match", "if-none-match"}
    assert all(len(headers & tap.headers.keys()) == 1 for tap in uploads)
