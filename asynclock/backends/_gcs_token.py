"""Access tokens for Cloud Storage: where they come from, and how concurrent requests share a fetch."""

from __future__ import annotations

import asyncio
import inspect
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol, cast

import orjson
from gcloud.aio.auth import Token

from asynclock.backends._http import SharedFetch
from asynclock.errors import ConfigError

if TYPE_CHECKING:
    import aiohttp

_ACCOUNT_FILE: Final = "GOOGLE_APPLICATION_CREDENTIALS"
_SCOPES: Final = ["https://www.googleapis.com/auth/devstorage.read_write"]
_STALE: Final = 0.5
"""After this share of a token's lifetime the next one is fetched, as in the SDK."""


class AccessTokens(Protocol):
    """A source of access tokens: ``gcloud.aio.auth.Token``, or an object with the same two methods."""

    async def get(self) -> str | None:
        """Return a token that is valid now."""
        ...

    async def close(self) -> None:
        """Free connections."""
        ...


def checked_token(given: object) -> AccessTokens | None:
    """Return the option ``token`` as a source of access tokens.

    Args:
        given: An access token as text, or an object with ``async get()``. None: the SDK looks for
            credentials itself, in the file named by ``GOOGLE_APPLICATION_CREDENTIALS`` and other places.

    Returns:
        None if ``given`` is None.

    Raises:
        ConfigError: ``given`` is neither, or the file of credentials is not JSON.
    """
    if given is None:
        _check_account_file(os.environ.get(_ACCOUNT_FILE))
        return None
    if isinstance(given, str):
        return _FixedToken(given)
    if isinstance(given, Token) and type(given).get is Token.get:
        return SharedToken(given)
    if not inspect.iscoroutinefunction(getattr(given, "get", None)):
        raise ConfigError(setting="token", value="...", reason="must be a str or have async get()")
    return cast("AccessTokens", given)


async def default_token(session: aiohttp.ClientSession) -> SharedToken:
    """Return a token made of the credentials that the SDK finds by itself."""
    # In a thread, because it reads the file of credentials.
    return SharedToken(await asyncio.to_thread(Token, session=session, scopes=_SCOPES))


class SharedToken:
    """The SDK's token, shared: one fetch serves all requests, and runs in the background if there is time.

    ``Token.get`` shares one fetch too, but if one waiting request is cancelled, the fetch fails for all.
    And in the last minutes of a token it waits for the next one: if that fetch hangs, leases would be lost
    that the present token could still renew.

    Args:
        inner: The SDK's token.
    """

    def __init__(self, inner: Token) -> None:
        self._inner = inner
        self._text: str | None = None
        self._stale_at = self._expires_at = 0.0
        self._fetching: SharedFetch[str | None] = SharedFetch(self._fetch)

    async def get(self) -> str | None:
        """Return a token that is valid now."""
        now = time.time()
        if now >= self._expires_at:
            return await self._fetching.wait()
        if now >= self._stale_at:
            self._fetching.start()
        return self._text

    async def close(self) -> None:
        """Cancel a running fetch. The SDK's token itself is not closed."""
        await self._fetching.aclose()

    async def _fetch(self) -> str | None:
        now = time.time()
        await self._inner.acquire_access_token()
        self._text = self._inner.access_token
        self._expires_at = now + self._inner.access_token_duration
        self._stale_at = now + self._inner.access_token_duration * _STALE
        return self._text


class _FixedToken:
    """An access token given as text; it is never refreshed."""

    def __init__(self, text: str) -> None:
        self._text = text

    async def get(self) -> str:
        return self._text

    async def close(self) -> None:
        """Do nothing."""


def _check_account_file(path: str | None) -> None:
    """Refuse a file of credentials that is not JSON.

    The SDK would ignore it without a word and ask the metadata server of Google's machines instead, which
    nowhere else answers.
    """
    if not path or not Path(path).is_file():
        return
    try:
        account = orjson.loads(Path(path).read_bytes())
    except OSError:
        return  # the first request fails and says so, as for a missing file
    except orjson.JSONDecodeError:
        account = None
    if not isinstance(account, dict):
        raise ConfigError(setting=_ACCOUNT_FILE, value=path, reason="it is no JSON file of credentials")
