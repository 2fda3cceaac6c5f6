"""The token credential of the Azure backend. No lease is lost while it fetches the next token."""

from __future__ import annotations

import asyncio
import re
import time
from typing import TYPE_CHECKING, Final

from azure.core.exceptions import ClientAuthenticationError

from asynclock.backends._answers import CredentialsError
from asynclock.backends._credentials import SharedCredentials

if TYPE_CHECKING:
    from asynclock.backends._azure_account import Sdk

_FETCHED_BEFORE: Final = 300.0
"""The next token is fetched this many seconds before the last one expires, as the SDK does."""
_SERVER: Final = 500
_LATER: Final = frozenset({408, 429})
_SAID: Final = 4096


class AzureToken(SharedCredentials["Sdk"]):
    """An async token credential for the SDK. It renews its token in parallel with the requests.

    Some credentials cache no token: ``AzureCliCredential`` starts a process for each one.

    Args:
        credential: An async credential. None: the first fetch makes a ``DefaultAzureCredential``.
    """

    def __init__(self, credential: Sdk | None) -> None:
        super().__init__()
        self._credential = credential
        self._ours = credential is None
        self._scopes: tuple[str, ...] = ()

    async def get_token(self, *scopes: str, **_: object) -> Sdk:
        """Return a token that has not expired. Errors of the credential propagate.

        Args:
            scopes: The token's scopes, the same in each call.
            _: Claims and tenant of a challenge. They are not passed on: a store must not choose the tenant.
        """
        self._scopes = scopes
        return await self.get()

    async def aclose(self) -> None:
        """Cancel a running fetch, and close the credential if it was made here."""
        await super().aclose()
        if self._ours and self._credential is not None:
            await self._credential.close()

    async def _fetch(self) -> Sdk:
        credential: Sdk = self._credential or await asyncio.to_thread(_default_credential)
        self._credential = credential
        try:
            return await credential.get_token(*self._scopes)
        except ClientAuthenticationError as error:
            status = error.status_code
            if status is not None and (status >= _SERVER or status in _LATER):
                raise
            # Do not quote the message, which may contain a secret. Entra's error number contains none.
            number = re.search(r"AADSTS[0-9]{4,8}", str(error.message)[:_SAID])
            raise CredentialsError(
                f"the credential gave no token ({number[0] if number else type(error).__name__}); "
                "check its settings, or sign in again"
            ) from None

    def _over(self, last: Sdk, *, soon: bool) -> bool:
        return time.time() >= float(last.expires_on) - (_FETCHED_BEFORE if soon else 0)


def _default_credential() -> Sdk:
    from azure.identity.aio import DefaultAzureCredential  # noqa: PLC0415  takes 200 ms and is seldom needed

    return DefaultAzureCredential()
