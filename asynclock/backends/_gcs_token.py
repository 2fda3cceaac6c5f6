"""Where the access tokens for Cloud Storage come from, and how the callers that wait for one share it."""

from __future__ import annotations

import asyncio
import inspect
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol, cast

import orjson
from gcloud.aio.auth import Token

from asynclock.backends._http import Joined
from asynclock.errors import ConfigError

if TYPE_CHECKING:
    import aiohttp

_ACCOUNT_FILE: Final = "GOOGLE_APPLICATION_CREDENTIALS"
_SCOPES: Final = ["https://www.googleapis.com/auth/devstorage.read_write"]
_STALE: Final = 0.5
"""The share of a token's life after which the next one is fetched, as in the SDK."""


class AccessTokens(Protocol):
    """Where access tokens come from: ``gcloud.aio.auth.Token`` or anything like it."""

    async def get(self) -> str | None:
        """Return a token that is valid now."""
        ...

    async def close(self) -> None:
        """Free what it holds."""
        ...


def checked_token(given: object) -> AccessTokens | None:
    """Return the option ``token`` as a source of tokens; None stands for the SDK's chain.

    Raises:
        ConfigError: It is no source of tokens, or the chain's file is no JSON.
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
    """Return the token of the SDK's chain of credentials."""
    # In a thread, since it reads the credentials' file.
    return SharedToken(await asyncio.to_thread(Token, session=session, scopes=_SCOPES))


class SharedToken:
    """The SDK's token, fetched for all who wait at once, and in the background while the old one is valid.

    ``Token.get`` shares one fetch too, but the cancellation of one waiter ends it for all; and in
    the last minutes of a token it waits for the next one, so that a fetch that hangs would cost
    leases which the present token could still renew (rule 5 of the protocol).

    Args:
        inner: The SDK's token.
    """

    def __init__(self, inner: Token) -> None:
        self._inner = inner
        self._text: str | None = None
        self._stale_at = self._expires_at = 0.0
        self._fetching: Joined[str | None] = Joined(self._fetch)

    async def get(self) -> str | None:
        """Return a token that is valid now."""
        now = time.time()
        if now >= self._expires_at:
            return await self._fetching.join()
        if now >= self._stale_at:
            self._fetching.start()
        return self._text

    async def close(self) -> None:
        """End a fetch that is under way; the SDK's token stays open."""
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
    """Refuse a file that the SDK would ignore without a word, to wait for a metadata server instead."""
    if not path or not Path(path).is_file():
        return
    try:
        account = orjson.loads(Path(path).read_bytes())
    except OSError:
        return  # an error on first use, as for a file that is missing
    except orjson.JSONDecodeError:
        account = None
    if not isinstance(account, dict):
        raise ConfigError(setting=_ACCOUNT_FILE, value=path, reason="it is no JSON file of credentials")
