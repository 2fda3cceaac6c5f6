"""``gs://``: Google Cloud Storage, through gcloud-aio-storage.

A lock needs two headers of an answer: the generation of the object and the Date. The SDK drops them, so the
session that sends its requests (``_session``) notes them. The table ``asynclock.backends._tables.GCS`` says
what each answer means; ``docs/backends/answers.md`` shows it.

Objects are written with ``Cache-Control: no-store``. Without it, Google may answer reads of a public object
from a cache.

Source: Cloud Storage JSON API, "Objects: insert"; "Request preconditions".
"""

from __future__ import annotations

import os
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

import aiohttp
import orjson
from gcloud.aio.storage import Storage

from asynclock.backends._answers import Fault, FaultError, is_web_page
from asynclock.backends._cloud import CloudBackend, Item
from asynclock.backends._credentials import awaiting_credentials
from asynclock.backends._gcs_token import GcsToken, checked_token, default_token
from asynclock.backends._http import (
    check_certificates,
    check_endpoint,
    environment_proxy,
    trusting,
)
from asynclock.backends._resolver import Resolver
from asynclock.backends._session import new_session, session_for_credentials
from asynclock.backends._tables import GCS
from asynclock.backends._url import bucket_of, object_prefix, split_url, take_options
from asynclock.errors import PreconditionFailedError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from asynclock.backend import Written
    from asynclock.backends._cloud import BackendCall
    from asynclock.backends._gcs_token import AccessTokens

_ENDPOINT: Final = "https://storage.googleapis.com"
_EMULATOR: Final = "STORAGE_EMULATOR_HOST"
_WRITE_INTERVAL: Final = 1.0
"""Seconds between two writes of one object: Cloud Storage accepts one a second and answers 429 to more."""
_DIGITS: Final = 20
"""Digits of the longest generation, a 64-bit number."""
_NOT_FOUND: Final = 404


class GcsBackend(CloudBackend[Any]):  # Storage has parameters without a type
    """Objects in one bucket of Cloud Storage.

    Args:
        bucket: Name of the bucket.
        prefix: Put before every key; default empty.
        min_write_interval: Seconds that a lock leaves between two writes of one object; default 1.
        endpoint_url: Address of the service, without a trailing slash; default Google's.
        token: Source of access tokens. Default: the credentials that the SDK finds itself. A plain http
            endpoint is an emulator and needs no token.
        user_project: The project to bill if the requester pays; default none.
        ca_file: Certificates to trust besides those of the machine; default none.
        trust_env: Whether to use the proxies that the environment names; default False.
    """

    name = "gcs"
    answers = GCS
    own_hosts = r"(.+\.)?googleapis\.com"
    if_absent: Mapping[str, str] = {"ifGenerationMatch": "0"}

    def __init__(
        self,
        bucket: str,
        *,
        prefix: str = "",
        min_write_interval: float = _WRITE_INTERVAL,
        endpoint_url: str = _ENDPOINT,
        token: AccessTokens | None = None,
        user_project: str | None = None,
        ca_file: str | None = None,
        trust_env: bool = False,
    ) -> None:
        super().__init__(prefix=prefix, min_write_interval=min_write_interval, trust_env=trust_env)
        self._endpoint, self._bucket = endpoint_url, bucket
        self._token = token
        self._billed = {"x-goog-user-project": user_project} if user_project else {}
        self._ca_file = ca_file
        self._resolver = Resolver()
        self._sessions: list[aiohttp.ClientSession] = []

    async def put_if_match(self, key: str, body: bytes, version: str) -> Written:
        """Replace one generation of an object; see ``Backend.put_if_match``."""
        if not _is_generation(version):
            # ifGenerationMatch=0 means "only if there is no object" and would create one.
            raise PreconditionFailedError(
                backend=self.name,
                operation="put_if_match",
                key=key,
                detail="the version is not a generation",
                written="no",
            )
        return await super().put_if_match(key, body, version)

    def _if_match(self, version: str) -> Mapping[str, str]:
        return {"ifGenerationMatch": version}

    async def _read(self, call: BackendCall, client: Storage, name: str) -> tuple[bytes, str] | None:
        try:
            body = await client.download(self._bucket, name, headers={**self._billed}, timeout=self._timeout)
        except aiohttp.ClientResponseError:
            missing = call.status == _NOT_FOUND and b"bucket does not exist" not in call.body
            if missing and not is_web_page(call.body):
                return None
            raise
        return body, _generation(call.headers.get("X-Goog-Generation"))

    async def _write(
        self, _call: BackendCall, client: Storage, name: str, body: bytes, condition: Mapping[str, str]
    ) -> str:
        written = await client.upload(
            self._bucket,
            name,
            body,
            content_type="application/json",
            parameters={**condition},
            headers={**self._billed},
            metadata={"Cache-Control": "no-store"},
            force_resumable_upload=False,
            timeout=self._timeout,
        )
        return _generation(str(written["generation"]))

    async def _page(self, client: Storage, prefix: str, token: str | None) -> tuple[list[Item], str | None]:
        page = await client.list_objects(
            self._bucket,
            params={"prefix": prefix, **({"pageToken": token} if token else {})},
            headers={**self._billed},
            timeout=self._timeout,
        )
        items = [
            Item(item["name"], int(item["size"]), datetime.fromisoformat(item["updated"]).timestamp())
            for item in page.get("items", ())
        ]
        return items, str(page.get("nextPageToken") or "") or None

    async def _remove(
        self, call: BackendCall, client: Storage, name: str, condition: Mapping[str, str]
    ) -> None:
        try:
            await client.delete(
                self._bucket,
                name,
                params={**condition},
                headers={**self._billed},
                timeout=self._timeout,
            )
        except aiohttp.ClientResponseError:
            if call.status != _NOT_FOUND:
                raise

    async def _open(self) -> Storage:
        proxy = environment_proxy(self._endpoint) if self._trust_env else None
        session = new_session(self._resolver, tls=trusting(self._ca_file), proxy=proxy)
        self._sessions.append(session)
        self._timeout: Any = session.timeout  # in place of the 10 s of the SDK's methods
        # A plain http address without a token is an emulator, which needs no credentials.
        anonymous = self._token is None and self._endpoint.startswith("http://")
        try:
            if self._token is None and not anonymous:
                # The SDK does not pass on a proxy: it needs a session that looks for one itself.
                own = session_for_credentials(session, trust_env=self._trust_env)
                self._sessions.insert(0, own)
                self._token = await default_token(own)
        except BaseException:
            await self._close_sessions()
            raise
        return Storage(
            token=_Asked(self._token), session=session, api_root=self._endpoint, api_is_dev=anonymous
        )

    def _location(self, _client: Storage) -> tuple[str, str]:
        return self._endpoint, self._bucket

    async def _close(self, _client: Storage) -> None:
        if isinstance(self._token, GcsToken):  # the caller closes any other source of tokens
            await self._token.aclose()
        await self._close_sessions()
        await self._resolver.close()

    async def _close_sessions(self) -> None:
        while self._sessions:
            await self._sessions.pop(0).close()

    def _read_failure(self, error: Exception) -> tuple[int | None, str]:
        # Of a token service. With a cause, aiohttp could not read the answer and made up the status.
        if isinstance(error, aiohttp.ClientResponseError) and error.__cause__ is None:
            return error.status, ""
        return super()._read_failure(error)

    def _code(self, call: BackendCall, _error: Exception) -> str:
        try:
            return str(orjson.loads(call.body)["error"]["errors"][0]["reason"])
        except (orjson.JSONDecodeError, KeyError, IndexError, TypeError):
            return ""


class _Asked:
    """The token for the SDK. The running call notes that it waits for one."""

    def __init__(self, source: AccessTokens | None) -> None:
        self._source = source

    async def get(self) -> str | None:
        """Return an access token; None: an emulator, which needs none."""
        if self._source is None:
            return None
        with awaiting_credentials():
            return await self._source.get()


def open_gcs(url: str, **options: object) -> GcsBackend:
    """Return the backend for ``gs://bucket/prefix``. Nothing is sent before the first call.

    Args:
        url: ``gs://bucket/prefix``.
        options: ``endpoint_url`` (default: ``STORAGE_EMULATOR_HOST``, else Google), ``token`` (an
            access token, or an object with ``async get()``; default: the credentials that the SDK finds
            itself), ``ca_file`` (certificates to trust besides those of the machine), ``user_project`` or
            ``project`` (billed if the requester pays), ``allow_http`` (default False), ``trust_env`` (default
            False: proxies of the environment are not used), ``min_write_interval`` (seconds; default 1, the
            rate that Cloud Storage accepts), ``verify`` (default True: a store at an address other than
            Google's is probed before the first lock).

    Raises:
        ConfigError: The URL or an option is wrong.
    """
    parts = split_url(url)
    taken = take_options(
        options,
        endpoint_url=str,
        token=object,
        project=str,
        user_project=str,
        ca_file=str,
        allow_http=bool,
        min_write_interval=float,
        verify=bool,
    )
    endpoint = taken.get("endpoint_url") or os.environ.get(_EMULATOR) or _ENDPOINT
    if "://" not in endpoint:
        endpoint = f"http://{endpoint}"
    endpoint = check_endpoint("endpoint_url", endpoint, allow_http=taken.get("allow_http", False))
    if (ca_file := taken.get("ca_file")) is not None:
        check_certificates(ca_file)
    backend = GcsBackend(
        bucket_of(parts, "gs"),
        prefix=object_prefix(parts),
        min_write_interval=taken.get("min_write_interval", _WRITE_INTERVAL),
        endpoint_url=endpoint,
        token=checked_token(taken.get("token")),
        user_project=taken.get("user_project") or taken.get("project"),
        ca_file=ca_file,
        trust_env=bool(options.get("trust_env", False)),
    )
    backend.verify = taken.get("verify", True)
    return backend


def _generation(text: str | None) -> str:
    """Return the generation in an answer; raises ``FaultError`` if there is none."""
    if text is None or not _is_generation(text):
        raise FaultError(Fault.NO_VERSION, "no generation")
    return text


def _is_generation(text: str) -> bool:
    # 0 would mean "only if there is no object" and create one.
    return text.isascii() and text.isdecimal() and len(text) <= _DIGITS and text.strip("0") != ""
