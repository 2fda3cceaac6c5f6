"""What S3-compatible stores ask for: encryption, a bill, a certificate, a retention, a public bucket."""

from __future__ import annotations

import asyncio
import json
import uuid
from typing import TYPE_CHECKING, Any

import botocore.session
import pytest

import asynclock
from asynclock import LeaseSettings
from asynclock.backends import open_backend
from asynclock.errors import (
    AccessDeniedError,
    BackendError,
    BackendUnavailableError,
    UnsupportedBackendError,
)
from asynclock.testing._proxy import TapProxy, Wire
from tests.laboratory.servers import KMS_KEY

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.laboratory.servers import Server

# The server is one node.
SETTINGS = LeaseSettings(validity=60.0, max_clock_skew=0.5)
CUSTOMER_KEY = b"0123456789abcdef0123456789abcdef"


async def _by_hand(server: Server, work: Callable[[Any], Any]) -> Any:  # noqa: ANN401  the SDK has no types
    """Do something with the SDK's own client."""

    def run() -> Any:  # noqa: ANN401  likewise
        client = botocore.session.get_session().create_client(
            "s3",
            region_name="us-east-1",
            endpoint_url=server.endpoint,
            aws_access_key_id=server.options["access_key_id"],
            aws_secret_access_key=server.options["secret_access_key"],
            verify=server.ca_file or None,
        )
        try:
            return work(client)
        finally:
            client.close()

    return await asyncio.to_thread(run)


async def _hold_twice(url: str, **options: Any) -> list[int]:  # noqa: ANN401  options are of any type
    """Have a lock, confirm it and release it, twice; return the tokens."""
    tokens = []
    async with asynclock.connect(url, settings=SETTINGS, renewal="loop", **options) as client:
        for _ in range(2):
            async with client.lock("a").hold(timeout=60) as lease:
                await lease.confirm()
                tokens.append(lease.fencing_token)
    return tokens


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"sse": "AES256"}, {"ServerSideEncryption": "AES256"}),
        ({"sse": "aws:kms"}, {"ServerSideEncryption": "aws:kms"}),
        (
            {"sse": "aws:kms", "sse_kms_key_id": KMS_KEY},
            {"ServerSideEncryption": "aws:kms", "SSEKMSKeyId": f"arn:aws:kms:{KMS_KEY}"},
        ),
    ],
    ids=["by the store's key", "by KMS", "by a key of KMS"],
)
async def test_a_lock_is_encrypted_at_rest(
    minio_tls: Server, options: dict[str, str], told: dict[str, str]
) -> None:
    """The store says of the object that it is encrypted as was asked, and the lock works as ever."""
    prefix = f"sse-{uuid.uuid4()}"

    tokens = await _hold_twice(f"{minio_tls.url}/{prefix}", **minio_tls.options, **options)
    facts = await _by_hand(minio_tls, lambda s3: s3.head_object(Bucket="locks", Key=f"{prefix}/a.json"))

    assert tokens == sorted(set(tokens))
    assert told.items() <= facts.items()


async def test_a_lock_is_encrypted_by_the_customers_key(minio_tls: Server) -> None:
    """With a key of one's own the lock works; without it, or with another one, nobody can read it."""
    url = f"{minio_tls.url}/customer-{uuid.uuid4()}"
    await _hold_twice(url, **minio_tls.options, sse_customer_key=CUSTOMER_KEY)

    for others in ({}, {"sse_customer_key": b"x" * 32}):
        backend = open_backend(url, **minio_tls.options, **others)
        with pytest.raises(BackendError, match=r"40[03]"):
            await backend.get("a.json")
        await backend.aclose()


@pytest.mark.parametrize(
    ("options", "kind", "says"),
    [
        ({"sse": "aws:kms", "sse_kms_key_id": "no-such-key"}, UnsupportedBackendError, "KeyNotFound"),
        ({"sse": "aws:kms:dsse"}, UnsupportedBackendError, "InvalidArgument"),
        ({"ca_file": None}, BackendUnavailableError, "the certificate is not trusted .* set ca_file"),
    ],
    ids=["unknown key", "not in this store", "unknown certificate"],
)
async def test_what_the_store_refuses_is_told_in_one_sentence(
    minio_tls: Server, options: dict[str, str], kind: type[BackendError], says: str
) -> None:
    """Nothing is written, and the error says what was refused."""
    backend = open_backend(f"{minio_tls.url}/refused", **(minio_tls.options | options))

    with pytest.raises(kind, match=says) as caught:
        await backend.put_if_absent("a.json", b"body")
    await backend.aclose()

    assert caught.value.written == "no"
    assert "\n" not in str(caught.value)


async def test_a_wrong_region_is_told(minio: Server) -> None:
    """Where the bucket is in another region nothing is sent there: the error says what to set."""
    async with TapProxy(minio.endpoint) as proxy:
        told = b"<Error><Code>AuthorizationHeaderMalformed</Code><Region>eu-west-9</Region></Error>"
        proxy.inject(Wire.ANSWER, times=1, status=400, body=told)
        async with asynclock.connect(
            f"{minio.url}/region", renewal="loop", **minio.through(proxy.url)
        ) as client:
            with pytest.raises(UnsupportedBackendError, match="set region") as caught:
                await client.lock("a").acquire(timeout=60)

    assert caught.value.written == "no"
    assert len(proxy.journal) == 1


async def test_the_requester_pays(minio: Server) -> None:
    """Every request says who pays, and without the option none does."""
    for pays in (True, False):
        async with TapProxy(minio.endpoint) as proxy:
            backend = open_backend(
                f"{minio.url}/payer-{uuid.uuid4()}", **minio.through(proxy.url), requester_pays=pays
            )
            written = await backend.put_if_absent("a.json", b"1")
            await backend.put_if_match("a.json", b"2", written.version)
            await backend.get("a.json")
            assert [entry.key async for entry in backend.list("")] == ["a.json"]
            await backend.delete("a.json")
            await backend.aclose()

        said = [tap.headers.get("x-amz-request-payer") for tap in proxy.journal]
        assert said == ["requester" if pays else None] * 5


async def test_a_bucket_whose_requester_must_pay_says_so(minio: Server) -> None:
    """Where the store refuses because nobody pays, nothing is written and the error is about access."""
    async with TapProxy(minio.endpoint) as proxy:
        proxy.inject(Wire.ANSWER, times=9, status=403, body=b"<Error><Code>AccessDenied</Code></Error>")
        async with asynclock.connect(
            f"{minio.url}/payer", renewal="loop", **minio.through(proxy.url)
        ) as client:
            with pytest.raises(AccessDeniedError, match="requester_pays"):
                await client.lock("a").acquire(timeout=60)

    assert not any(tap.applied for tap in proxy.journal)


async def test_an_object_under_retention_holds_locks(minio: Server) -> None:
    """Where a bucket retains versions, a lock is renewed all the same: each write is a new version."""
    bucket = f"retained-{uuid.uuid4()}"
    rule = {"DefaultRetention": {"Mode": "GOVERNANCE", "Days": 1}}

    def make(s3: Any) -> None:  # noqa: ANN401  the SDK has no types
        s3.create_bucket(Bucket=bucket, ObjectLockEnabledForBucket=True)
        s3.put_object_lock_configuration(
            Bucket=bucket, ObjectLockConfiguration={"ObjectLockEnabled": "Enabled", "Rule": rule}
        )

    await _by_hand(minio, make)
    tokens = await _hold_twice(f"s3://{bucket}/locks", verify=False, **minio.options)
    kept = await _by_hand(minio, lambda s3: s3.list_object_versions(Bucket=bucket)["Versions"])

    assert tokens == sorted(set(tokens))
    assert len(kept) == 6


async def test_a_public_bucket_is_written_by_nobody_else(minio: Server) -> None:
    """A lock in a bucket that all may read is had as ever; who has no right to write cannot take it."""
    bucket = f"public-{uuid.uuid4()}"
    everyone = {
        "Effect": "Allow",
        "Principal": "*",
        "Action": ["s3:GetObject", "s3:ListBucket"],
        "Resource": [f"arn:aws:s3:::{bucket}", f"arn:aws:s3:::{bucket}/*"],
    }

    def make(s3: Any) -> None:  # noqa: ANN401  the SDK has no types
        s3.create_bucket(Bucket=bucket)
        s3.put_bucket_policy(
            Bucket=bucket, Policy=json.dumps({"Version": "2012-10-17", "Statement": [everyone]})
        )

    await _by_hand(minio, make)
    url = f"s3://{bucket}/locks"
    tokens = await _hold_twice(url, **minio.options)
    stranger = minio.options | {"access_key_id": "stranger"}
    async with asynclock.connect(url, settings=SETTINGS, renewal="loop", **stranger) as client:
        with pytest.raises(AccessDeniedError, match="access key is unknown") as caught:
            await client.lock("a").acquire(timeout=60)

    assert caught.value.written == "no"
    assert await _hold_twice(url, **minio.options) > tokens
