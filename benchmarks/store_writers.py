"""Conditional writes without a lock: by the bare SDKs, and by aiohttp to signed addresses."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

import aiobotocore.config
import aiobotocore.session
import aiohttp
import botocore.handlers
from azure.core import MatchConditions
from azure.core.pipeline.transport import AioHttpTransport
from azure.storage.blob import ContainerSasPermissions, generate_container_sas
from azure.storage.blob.aio import BlobServiceClient
from gcloud.aio.storage import Storage
from yarl import URL

from tests.laboratory.servers import AZURE_ACCOUNT, AZURE_KEY, BUCKET

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping
    from contextlib import AsyncExitStack

    from tests.laboratory.servers import Server

    Writer = Callable[[str, bytes, str | None], Awaitable[str]]
    """Writes a key over a version, or creates it; returns the new version."""

SDK: Final = "bare SDK"
HTTP: Final = "aiohttp, signed before"


async def writers(server: Server, options: Mapping[str, Any], stack: AsyncExitStack) -> dict[str, Writer]:
    """Open every way to write to this server without a lock."""
    session = await stack.enter_async_context(
        aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar(), auto_decompress=False)
    )
    if server.name == "s3":
        return await _s3(options, session, stack)
    if server.name == "azure":
        return await _azure(options, session, stack)
    return _gcs(options, session)


async def _s3(
    options: Mapping[str, Any], session: aiohttp.ClientSession, stack: AsyncExitStack
) -> dict[str, Writer]:
    config = aiobotocore.config.AioConfig(
        signature_version="s3v4",
        retries={"total_max_attempts": 1},
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
        parameter_validation=False,
        s3={"addressing_style": "path", "payload_signing_enabled": False},
    )
    client = await stack.enter_async_context(
        aiobotocore.session.get_session().create_client(
            "s3",
            region_name=options["region"],
            endpoint_url=options["endpoint_url"],
            aws_access_key_id=options["access_key_id"],
            aws_secret_access_key=options["secret_access_key"],
            config=config,
        )
    )
    client.meta.events.unregister("before-call.s3", botocore.handlers.add_expect_header)
    addresses: dict[str, str] = {}

    async def sdk(key: str, body: bytes, version: str | None) -> str:
        condition = {"IfNoneMatch": "*"} if version is None else {"IfMatch": version}
        answer = await client.put_object(Bucket=BUCKET, Key=key, Body=body, **condition)
        return str(answer["ETag"])

    async def raw(key: str, body: bytes, version: str | None) -> str:
        if key not in addresses:
            place = {"Bucket": BUCKET, "Key": key}
            addresses[key] = await client.generate_presigned_url("put_object", Params=place)
        return await _put(session, addresses[key], body, version)

    return {SDK: sdk, HTTP: raw}


async def _azure(
    options: Mapping[str, Any], session: aiohttp.ClientSession, stack: AsyncExitStack
) -> dict[str, Writer]:
    service = await stack.enter_async_context(
        BlobServiceClient(
            options["account_url"],
            credential=options["credential"],
            transport=AioHttpTransport(session=session, session_owner=False, use_env_settings=False),
            retry_total=0,
        )
    )
    container = service.get_container_client(BUCKET)
    sas = generate_container_sas(
        AZURE_ACCOUNT,
        BUCKET,
        account_key=AZURE_KEY,
        permission=ContainerSasPermissions(read=True, write=True, create=True),
        expiry=datetime.now(UTC) + timedelta(hours=1),
    )

    async def sdk(key: str, body: bytes, version: str | None) -> str:
        condition: dict[str, Any] = {"overwrite": False}
        if version is not None:
            condition = {"overwrite": True, "etag": version, "match_condition": MatchConditions.IfNotModified}
        answer = await container.get_blob_client(key).upload_blob(body, length=len(body), **condition)
        return str(answer["etag"])

    async def raw(key: str, body: bytes, version: str | None) -> str:
        address = f"{options['account_url']}/{BUCKET}/{key}?{sas}"
        return await _put(session, address, body, version, {"x-ms-blob-type": "BlockBlob"})

    return {SDK: sdk, HTTP: raw}


def _gcs(options: Mapping[str, Any], session: aiohttp.ClientSession) -> dict[str, Writer]:
    storage = Storage(session=session, api_root=options["endpoint_url"])
    uploads = f"{options['endpoint_url']}/upload/storage/v1/b/{BUCKET}/o"

    async def sdk(key: str, body: bytes, version: str | None) -> str:
        answer = await storage.upload(
            BUCKET,
            key,
            body,
            content_type="application/json",
            parameters={"ifGenerationMatch": version or "0"},
            metadata={"Cache-Control": "no-store"},
            force_resumable_upload=False,
        )
        return str(answer["generation"])

    async def raw(key: str, body: bytes, version: str | None) -> str:
        query = f"uploadType=media&name={quote(key, safe='')}&ifGenerationMatch={version or '0'}"
        async with session.post(f"{uploads}?{query}", data=body) as answer:
            answer.raise_for_status()
            return str((await answer.json())["generation"])

    return {SDK: sdk, HTTP: raw}


async def _put(
    session: aiohttp.ClientSession,
    address: str,
    body: bytes,
    version: str | None,
    headers: Mapping[str, str] | None = None,
) -> str:
    condition = {"If-None-Match": "*"} if version is None else {"If-Match": version}
    url = URL(address, encoded=True)
    async with session.put(url, data=body, headers={**condition, **(headers or {})}) as answer:
        answer.raise_for_status()
        return answer.headers["ETag"]
