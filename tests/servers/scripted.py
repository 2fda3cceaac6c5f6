"""A small store that speaks S3, Cloud Storage or Azure Blob, and has the defects of stores in bug reports.

::

    async with ScriptedStore("s3", Quirk.DELETE_MARKER) as store:
        await asynclock.probe(store.url, **store.options)
        store.requests  # method, key and status of each

Several ``nodes`` are addresses of the same objects. It checks no credentials.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
import time
import uuid
from dataclasses import dataclass
from email.utils import formatdate
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self
from urllib.parse import unquote

from aiohttp import web

from tests.laboratory.servers import AZURE_ACCOUNT, AZURE_KEY

if TYPE_CHECKING:
    from types import TracebackType

_MULTIPART: Final = re.compile(
    rb"--[^\r\n]+\r\n.*?\r\n\r\n(.*?)\r\n--[^\r\n]+\r\n.*?\r\n\r\n(.*)\r\n--[^\r\n]+--\r\n", re.DOTALL
)


class Quirk(StrEnum):
    """What is wrong with the store, or with what stands before it."""

    NONE = "none"
    CREATES_TWICE = "ignores If-None-Match"
    REPLACES_ANY = "ignores If-Match"
    DROPS_CONDITIONS = "drops all conditions on the way"
    INVERTED = "does what a condition forbids"
    TWO_STEPS = "checks, and writes a moment later"
    BY_ONE_NODE = "the first node keeps conditions, the others do not"
    EACH_FOR_ITSELF = "each node keeps conditions for what it has written itself"
    DELETE_MARKER = "a deleted object cannot be created"
    REFUSES_SHOWN = "matches no version that it shows"
    WEAK = "reads show weak ETags"
    COMPRESSED = "reads show ETags that end in -gzip"
    CHANGING = "each read shows another ETag"
    NEVER_FOUND = "reads show no object"
    STALE = "reads show what was there before"
    CHANGES_BODIES = "reads show another body"
    WRITES_REFUSED = "a refused write is written"
    REPLACES_NOTHING = "If-Match creates a missing object"
    NO_IF_MATCH = "501 to If-Match"
    ONE_A_SECOND = "429 to a second write of one object within a second"


class Answered(NamedTuple):
    """A request that was answered."""

    method: str
    key: str
    conditional: bool
    status: int


@dataclass(slots=True)
class _Object:
    body: bytes
    version: str
    written_at: float
    node: int
    before: _Object | None = None


class ScriptedStore:
    """A store on ports of the loopback.

    Args:
        dialect: ``s3``, ``gcs`` or ``azure``.
        quirk: What is wrong with it.
        nodes: How many addresses it has.

    Attributes:
        quirk: May be changed at any time.
        requests: What was answered, in order.
        endpoints: The address of each node.
        objects: By key.
    """

    def __init__(self, dialect: str, quirk: Quirk = Quirk.NONE, *, nodes: int = 1) -> None:
        self.dialect, self.quirk = dialect, quirk
        self.requests: list[Answered] = []
        self.endpoints: list[str] = []
        self.objects: dict[str, _Object] = {}
        self._markers: set[str] = set()
        self._written: dict[str, float] = {}
        self._nodes = nodes
        self._runners: list[web.AppRunner] = []
        self._reads = self._generation = 0
        # Another store may have been found good at the same port within the day.
        self._bucket = f"locks-{uuid.uuid4().hex}"

    @property
    def url(self) -> str:
        """URL of the locks."""
        return f"{ {'s3': 's3', 'gcs': 'gs', 'azure': 'az'}[self.dialect] }://{self._bucket}"

    @property
    def options(self) -> dict[str, Any]:
        """Options for it, by its first address."""
        return self.options_of(0)

    def options_of(self, node: int) -> dict[str, Any]:
        """Return the options for it by the address of a node."""
        endpoint = self.endpoints[node]
        if self.dialect == "azure":
            return {"account_url": endpoint, "credential": AZURE_KEY}
        if self.dialect == "gcs":
            return {"endpoint_url": endpoint, "min_write_interval": 0.0}
        return {
            "endpoint_url": endpoint,
            "access_key_id": "key",
            "secret_access_key": "secret",
            "region": "us-east-1",
        }

    async def __aenter__(self) -> Self:
        for node in range(self._nodes):
            app = web.Application(client_max_size=2**20)
            app.router.add_route("*", "/{path:.*}", partial(self._answer, node=node))
            runner = web.AppRunner(app)
            await runner.setup()
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            self._runners.append(runner)
            account = f"/{AZURE_ACCOUNT}" if self.dialect == "azure" else ""
            self.endpoints.append(f"http://127.0.0.1:{runner.addresses[0][1]}{account}")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for runner in self._runners:
            await runner.cleanup()

    def writes(self) -> list[Answered]:
        """Return the writes so far."""
        return [each for each in self.requests if each.method in {"PUT", "POST"}]

    # The dialects.

    async def _answer(self, request: web.Request, node: int) -> web.Response:
        body = await request.read()
        key, absent, version = self._key(request), False, None
        if self.dialect == "gcs":
            condition = request.query.get("ifGenerationMatch")
            absent, version = condition == "0", None if condition == "0" else condition
            if request.method == "POST":
                found = _MULTIPART.fullmatch(body)
                assert found is not None
                key, body = json.loads(found[1])["name"], found[2]
        else:
            absent, version = "If-None-Match" in request.headers, request.headers.get("If-Match")
        if request.method == "GET":
            answer = self._get(key)
        elif request.method == "DELETE":
            self.objects.pop(key, None)
            self._markers.add(key)
            answer = web.Response(status=202 if self.dialect == "azure" else 204)
        else:
            answer = await self._put(key, body, node, absent=absent, version=version)
        self.requests.append(Answered(request.method, key, absent or version is not None, answer.status))
        return answer

    def _key(self, request: web.Request) -> str:
        if self.dialect == "gcs":
            return unquote(request.raw_path.partition("?")[0].rpartition("/o/")[2])
        return request.match_info["path"].partition(f"{self._bucket}/")[2]

    def _error(self, status: int, code: str) -> web.Response:
        if self.dialect == "gcs":
            return web.json_response({"error": {"errors": [{"reason": code}]}}, status=status)
        text = f"<?xml version='1.0'?><Error><Code>{code}</Code></Error>"
        headers = {"x-ms-error-code": code} if self.dialect == "azure" else {}
        return web.Response(status=status, text=text, content_type="application/xml", headers=headers)

    def _refusal(self, *, creation: bool) -> web.Response:
        if self.dialect == "azure" and creation:
            return self._error(409, "BlobAlreadyExists")
        code = {"s3": "PreconditionFailed", "gcs": "conditionNotMet", "azure": "ConditionNotMet"}
        return self._error(412, code[self.dialect])

    def _get(self, key: str) -> web.Response:
        found = self.objects.get(key)
        self._reads += 1
        if found is not None and self.quirk is Quirk.STALE:
            found = found.before or found
        if found is None or self.quirk is Quirk.NEVER_FOUND:
            return self._error(
                404, {"s3": "NoSuchKey", "gcs": "notFound", "azure": "BlobNotFound"}[self.dialect]
            )
        version, headers = found.version, {"Last-Modified": formatdate(found.written_at, usegmt=True)}
        if self.quirk is Quirk.WEAK:
            version = f"W/{version}"
        elif self.quirk is Quirk.COMPRESSED:
            version = f'{version[:-1]}-gzip"'
        elif self.quirk is Quirk.CHANGING:
            version = f'"{self._reads}"'
        headers["X-Goog-Generation" if self.dialect == "gcs" else "ETag"] = version
        body = found.body + b" " if self.quirk is Quirk.CHANGES_BODIES else found.body
        return web.Response(body=body, headers=headers)

    async def _put(
        self, key: str, body: bytes, node: int, *, absent: bool, version: str | None
    ) -> web.Response:
        quirk = self.quirk
        if quirk is Quirk.NO_IF_MATCH and version is not None:
            return self._error(501, "NotImplemented")
        if quirk is Quirk.ONE_A_SECOND and self._is_too_soon(key):
            return self._error(429, "TooManyRequests")
        met = self._is_met(key, node, absent=absent, version=version)
        if quirk is Quirk.TWO_STEPS:
            await asyncio.sleep(0.2)
        if met or quirk is Quirk.WRITES_REFUSED:
            self._generation += 1
            made = self._version(body)
            self.objects[key] = _Object(body, made, time.time(), node, self.objects.get(key))
        if not met:
            return self._refusal(creation=absent)
        if self.dialect == "gcs":
            return web.json_response({"generation": made})
        return web.Response(status=201 if self.dialect == "azure" else 200, headers={"ETag": made})

    def _is_too_soon(self, key: str) -> bool:
        now = time.monotonic()
        if now - self._written.get(key, -1.0) < 1.0:
            return True
        self._written[key] = now
        return False

    def _version(self, body: bytes) -> str:
        if self.dialect == "s3":
            return f'"{hashlib.sha256(body).hexdigest()}"'
        return str(self._generation) if self.dialect == "gcs" else f'"0x{self._generation:X}"'

    def _is_met(self, key: str, node: int, *, absent: bool, version: str | None) -> bool:
        quirk, found = self.quirk, self.objects.get(key)
        if (quirk is Quirk.BY_ONE_NODE and node) or quirk is Quirk.DROPS_CONDITIONS:
            return True
        if quirk is Quirk.EACH_FOR_ITSELF and found is not None and found.node != node:
            return True
        if absent:
            if quirk is Quirk.DELETE_MARKER and key in self._markers:
                return False
            return quirk is Quirk.CREATES_TWICE or (found is None) is not (quirk is Quirk.INVERTED)
        return version is None or self._matches(found, version)

    def _matches(self, found: _Object | None, version: str) -> bool:
        if self.quirk is Quirk.REPLACES_ANY or (found is None and self.quirk is Quirk.REPLACES_NOTHING):
            return True
        matches = found is not None and found.version == version and self.quirk is not Quirk.REFUSES_SHOWN
        return matches is not (self.quirk is Quirk.INVERTED)
