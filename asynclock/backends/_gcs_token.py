"""Access tokens for Cloud Storage: their sources, and one fetch that concurrent requests share."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol, cast

import aiohttp
import jwt
import orjson
from gcloud.aio.auth import Token

from asynclock._text import printable
from asynclock.backends._answers import CredentialsError
from asynclock.backends._credentials import SharedCredentials
from asynclock.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator

_ACCOUNT_FILE: Final = "GOOGLE_APPLICATION_CREDENTIALS"
_SCOPES: Final = ["https://www.googleapis.com/auth/devstorage.read_write"]
_FETCH: Final = 10
"""Time limit for one fetch of a token in seconds, as in the SDK."""
_SAID: Final = 200
_METADATA: Final = "metadata.google.internal"
_STALE: Final = 0.5
"""The next token is fetched after this share of the lifetime, as in the SDK."""


class AccessTokens(Protocol):
    """A source of access tokens: ``gcloud.aio.auth.Token``, or an object with the same method."""

    async def get(self) -> str | None:
        """Return a token that is valid now."""


def checked_token(given: object) -> AccessTokens | None:
    """Return a source of access tokens for the option ``token``.

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
        return GcsToken(given)
    if not inspect.iscoroutinefunction(getattr(given, "get", None)):
        raise ConfigError(setting="token", value="...", reason="must be a str or have async get()")
    return cast("AccessTokens", given)


async def default_token(session: aiohttp.ClientSession) -> GcsToken:
    """Return a token from the credentials that the SDK finds itself."""
    with _explained():
        # In a thread, because it reads the file of credentials.
        return GcsToken(await asyncio.to_thread(Token, session=session, scopes=_SCOPES))


@contextlib.contextmanager
def _explained() -> Iterator[None]:
    """Raise ``CredentialsError`` if the SDK cannot use the credentials that it found."""
    try:
        yield
    except (FileNotFoundError, PermissionError):
        raise CredentialsError(f"their file cannot be read; check {_ACCOUNT_FILE}") from None
    except aiohttp.ClientConnectorDNSError as error:
        if error.host != _METADATA:
            raise
        raise CredentialsError(
            f"none were found: no {_ACCOUNT_FILE}, no sign-in by gcloud, and this is not a machine of Google"
        ) from None
    except jwt.exceptions.PyJWTError:
        raise CredentialsError(f"the private key cannot be used; check {_ACCOUNT_FILE}") from None
    except KeyError as error:
        missing = printable(error.args[0] if error.args else "", limit=64)
        raise CredentialsError(f"a field is missing, {missing}; check {_ACCOUNT_FILE}") from None
    except ValueError as error:
        if type(error) is not ValueError or "invalid literal" in str(error):  # quotes what it was given
            raise
        # A sentence of the SDK, for example about a kind of credentials that it does not know.
        raise CredentialsError(f"{printable(error, limit=_SAID)}; check {_ACCOUNT_FILE}") from None


class GcsToken(SharedCredentials[str]):
    """The SDK's token, renewed in parallel with the requests. The SDK's own object is never closed.

    ``Token.get`` shares one fetch too, but if one waiting request is cancelled, the fetch fails for all.

    Args:
        inner: The SDK's token.
    """

    def __init__(self, inner: Token) -> None:
        super().__init__()
        self._inner = inner
        self._stale_at = self._expires_at = 0.0

    async def _fetch(self) -> str:
        now = time.time()
        with _explained():
            # A single try: Token.acquire_access_token would try five times, which takes longer than a request
            # may.
            fetched = await self._inner.refresh(timeout=_FETCH)
        self._expires_at = now + fetched.expires_in
        self._stale_at = now + fetched.expires_in * _STALE
        return str(fetched.value)

    def _over(self, _last: str, *, soon: bool) -> bool:
        return time.time() >= (self._stale_at if soon else self._expires_at)


class _FixedToken:
    """A fixed access token given as text. It is never refreshed, and no ``repr`` shows it."""

    def __init__(self, text: str) -> None:
        self._text = text

    async def get(self) -> str:
        return self._text


def _check_account_file(path: str | None) -> None:
    """Refuse a file of credentials that is not JSON.

    The SDK would silently ignore it and ask the metadata server instead, which only exists on Google's
    machines.
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
        raise ConfigError(setting=_ACCOUNT_FILE, value=path, reason="it is not a JSON file of credentials")
