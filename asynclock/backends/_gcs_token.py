"""Where the access tokens for Cloud Storage come from, and how those who wait for one share it."""

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


class AccessTokens(Protocol):
    """Where access tokens come from: ``gcloud.aio.auth.Token`` or anything like it."""

    async def get(self) -> str | None:
        """Return a token that is valid now."""
        ...

    async def close(self) -> None:
        """Free what it holds."""
        ...


def checked_token(given: object) -> AccessTokens | None:
    """Return the option ``token`` as a source of tokens; None: the SDK's chain.

    Raises:
        ConfigError: It is none, or the chain's file is no JSON.
    """
    if given is None:
        _check_account_file(os.environ.get(_ACCOUNT_FILE))
        return None
    if isinstance(given, str):
        return _FixedToken(given)
    if isinstance(given, Token):
        return SharedToken(given, owned=False)
    if not inspect.iscoroutinefunction(getattr(given, "get", None)):
        raise ConfigError(setting="token", value="...", reason="must be a str or have async get()")
    return cast("AccessTokens", given)


async def default_token(session: aiohttp.ClientSession) -> SharedToken:
    """Return the token of the SDK's chain of credentials."""
    # Off the loop: it reads the credentials' file.
    inner = await asyncio.to_thread(Token, session=session, scopes=_SCOPES)
    return SharedToken(inner, owned=True)


class SharedToken:
    """The SDK's token, refreshed for all who wait at once and beside those whom the old one serves.

    The SDK shares one refresh task and lets any waiter's cancellation kill it for all; and it
    waits for the refresh though the present token is valid for minutes yet.

    Args:
        inner: The SDK's token.
        owned: Nobody else uses it.
    """

    def __init__(self, inner: Token, *, owned: bool) -> None:
        self._inner = inner
        self._owned = owned
        self._refresh: Joined[str | None] = Joined(self._inner.get)

    async def get(self) -> str | None:
        inner, now = self._inner, time.time()
        if inner.access_token and now < inner.access_token_refresh_after:
            if now > inner.access_token_preempt_after:
                self._refresh.start()
            return cast("str", inner.access_token)
        if inner.access_token:
            expires = inner.access_token_acquired_at.timestamp() + inner.access_token_duration
            if now < expires:
                self._refresh.start()
                return cast("str", inner.access_token)
        return await self._refresh.join()

    async def close(self) -> None:
        await self._refresh.aclose()
        if self._owned and (running := self._inner.acquiring) is not None:
            running.cancel()


class _FixedToken:
    """An access token given as text; whoever gave it replaces it before it expires."""

    def __init__(self, text: str) -> None:
        self._text = text

    async def get(self) -> str:
        return self._text

    async def close(self) -> None:
        """Do nothing."""


def _check_account_file(path: str | None) -> None:
    """Refuse what the SDK would pass over in silence, to wait for a metadata server instead."""
    if not path or not Path(path).is_file():
        return
    try:
        account = orjson.loads(Path(path).read_bytes())
    except OSError:
        return  # told on first use, as is a file that is missing
    except orjson.JSONDecodeError:
        account = None
    if not isinstance(account, dict):
        raise ConfigError(setting=_ACCOUNT_FILE, value=path, reason="it is no JSON file of credentials")
