"""Conditional writes without a lock: lean bare SDKs, obstore, and raw aiohttp (on S3 with a signature)."""

from __future__ import annotations

import hashlib
import hmac
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

import aiobotocore.config
import aiobotocore.session
import aiohttp
import botocore.handlers
import obstore
from azure.core import MatchConditions
from azure.core.pipeline.transport import AioHttpTransport
from azure.storage.blob import ContainerSasPermissions, generate_container_sas
from azure.storage.blob.aio import BlobServiceClient
from gcloud.aio.storage import Storage
from obstore.store import AzureStore, S3Store
from yarl import URL

from tests.laboratory.servers import AZURE_ACCOUNT, AZURE_KEY, BUCKET

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping
    from contextlib import AsyncExitStack

    from tests.laboratory.servers import Server

    Writer = Callable[[str, bytes, str | None], Awaitable[str]]
    """Writes a key over a version, or creates it; returns the new version."""


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
    store = S3Store(
        BUCKET,
        endpoint=options["endpoint_url"],
        access_key_id=options["access_key_id"],
        secret_access_key=options["secret_access_key"],
        region=options["region"],
        virtual_hosted_style_request=False,
        client_options={"allow_http": True},
    )
    signature = _signature(options)

    async def sdk(key: str, body: bytes, version: str | None) -> str:
        condition = {"IfNoneMatch": "*"} if version is None else {"IfMatch": version}
        answer = await client.put_object(Bucket=BUCKET, Key=key, Body=body, **condition)
        return str(answer["ETag"])

    async def raw(key: str, body: bytes, version: str | None) -> str:
        address = f"{options['endpoint_url']}/{BUCKET}/{key}"
        return await _put(session, address, body, version, signature(f"/{BUCKET}/{key}", body))

    return {"bare SDK": sdk, "obstore": _obstore(store), "raw aiohttp": raw}


def _signature(options: Mapping[str, Any]) -> Callable[[str, bytes], dict[str, str]]:
    """Return what signs a PUT by AWS4-HMAC-SHA256 with the fewest headers."""
    host = urlsplit(options["endpoint_url"]).netloc
    names = "host;x-amz-content-sha256;x-amz-date"

    def sign(path: str, body: bytes) -> dict[str, str]:
        now = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
        digest = hashlib.sha256(body).hexdigest()
        headers = f"host:{host}\nx-amz-content-sha256:{digest}\nx-amz-date:{now}\n"
        canonical = f"PUT\n{path}\n\n{headers}\n{names}\n{digest}"
        scope = f"{now[:8]}/{options['region']}/s3/aws4_request"
        text = f"AWS4-HMAC-SHA256\n{now}\n{scope}\n{hashlib.sha256(canonical.encode()).hexdigest()}"
        key = f"AWS4{options['secret_access_key']}".encode()
        for part in scope.split("/"):
            key = hmac.digest(key, part.encode(), "sha256")
        proof = hmac.digest(key, text.encode(), "sha256").hex()
        credential = f"AWS4-HMAC-SHA256 Credential={options['access_key_id']}/{scope}"
        return {
            "X-Amz-Date": now,
            "X-Amz-Content-SHA256": digest,
            "Authorization": f"{credential}, SignedHeaders={names}, Signature={proof}",
        }

    return sign


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
    store = AzureStore(
        BUCKET,
        account_name=AZURE_ACCOUNT,
        account_key=AZURE_KEY,
        endpoint=options["account_url"],
        client_options={"allow_http": True},
    )
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

    return {"bare SDK": sdk, "obstore": _obstore(store), "raw aiohttp": raw}


def _gcs(options: Mapping[str, Any], session: aiohttp.ClientSession) -> dict[str, Writer]:
    # Without obstore: the emulator has no XML API, which is what obstore writes by.
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

    return {"bare SDK": sdk, "raw aiohttp": raw}


def _obstore(store: S3Store | AzureStore) -> Writer:
    async def write(key: str, body: bytes, version: str | None) -> str:
        mode: Any = "create" if version is None else {"e_tag": version}
        answer = await obstore.put_async(store, key, body, mode=mode, use_multipart=False)
        return str(answer["e_tag"])

    return write


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
