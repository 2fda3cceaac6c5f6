"""Finds the Azure account and its credential from the URL, the options or the environment."""

from __future__ import annotations

import base64
import inspect
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from urllib.parse import urlsplit

from azure.core.credentials import AzureNamedKeyCredential, AzureSasCredential

from asynclock.backends._names import azure_account, is_account_name
from asynclock.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

Sdk: TypeAlias = Any
"""An object of the SDK, whose types are not checked here."""
_SUFFIX: Final = "core.windows.net"
_DEVELOPMENT: Final = (
    "http://127.0.0.1:10000/devstoreaccount1",
    # The emulator's key, the same on every machine and published by Microsoft.
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==",
)


@dataclass(frozen=True, slots=True, repr=False)
class Account:
    """An Azure storage account. It has no repr, because that would show secrets.

    Attributes:
        url: Address of its Blob service.
        credential: An object of the SDK; None for ``DefaultAzureCredential``.
    """

    url: str
    credential: Sdk | None


def find_account(host: str, taken: Mapping[str, Sdk]) -> Account:
    """Return the account that the options, the URL or the environment name, in this order.

    Args:
        host: Host of the account in the URL; empty for a URL like ``az://container``.
        taken: The backend's checked options.

    Raises:
        ConfigError: Nothing names an account, an option or variable is wrong, or more than one credential
            was given.
    """
    given = {name: taken.get(name) for name in ("connection_string", "sas_token", "credential")}
    if sum(value is not None for value in given.values()) > 1:
        raise ConfigError(
            setting="credential", value="...", reason="give one of connection_string, sas_token, credential"
        )
    _check_credential(given["credential"])
    if given["connection_string"] is not None:
        return _from_connection_string(given["connection_string"])
    address = taken.get("account_url") or _host_address(host)
    sas, credential = given["sas_token"], given["credential"]
    if address is None:
        if (text := os.environ.get("AZURE_STORAGE_CONNECTION_STRING")) is not None:
            return _from_connection_string(text)
        if (name := os.environ.get("AZURE_STORAGE_ACCOUNT")) is None:
            raise ConfigError(
                setting="account_url",
                value=None,
                reason="names no account; set account_url, connection_string or AZURE_STORAGE_ACCOUNT",
            )
        if not is_account_name(name):
            raise ConfigError(
                setting="AZURE_STORAGE_ACCOUNT", value=name, reason="must be 3 to 24 characters a-z 0-9"
            )
        address = f"https://{name}.blob.{_SUFFIX}"
    if sas is None and credential is None:
        credential, sas = os.environ.get("AZURE_STORAGE_KEY"), os.environ.get("AZURE_STORAGE_SAS_TOKEN")
    if credential is None and sas is not None:
        return Account(address, AzureSasCredential(sas.removeprefix("?")))
    return Account(address, _key(address, credential) if isinstance(credential, str) else credential)


def _check_credential(credential: Sdk) -> None:
    if credential is None or isinstance(credential, str | AzureNamedKeyCredential | AzureSasCredential):
        return
    if not inspect.iscoroutinefunction(getattr(credential, "get_token", None)):
        raise ConfigError(
            setting="credential",
            value="...",
            reason="must be an account key or an async token credential such as those of azure.identity.aio",
        )


def _host_address(host: str) -> str | None:
    """Return the address of the Blob service for a host like ``account.dfs.core.windows.net``; None if empty.

    Only hosts of Azure's clouds are accepted, because the host receives the credential. A URL often comes
    from somebody else. They may choose an account, but not who receives the credential.
    """
    if not host:
        return None
    found = azure_account(host)
    if found is None:
        raise ConfigError(
            setting="url",
            value=host,
            reason=f"the account must be like account.blob.{_SUFFIX}, or the same in Azure's other clouds; "
            "for any other host set account_url, which says who receives the credential",
        )
    account, cloud = found
    return f"https://{account}.blob.{cloud}"


def _from_connection_string(text: str) -> Account:
    parts = dict(part.split("=", 1) for part in text.split(";") if "=" in part)
    if parts.get("UseDevelopmentStorage", "").lower() == "true":
        return Account(_DEVELOPMENT[0], _key(*_DEVELOPMENT))
    name, address = parts.get("AccountName"), parts.get("BlobEndpoint")
    if address is None and name is not None:
        protocol = parts.get("DefaultEndpointsProtocol", "https")
        address = f"{protocol}://{name}.blob.{parts.get('EndpointSuffix', _SUFFIX)}"
    key, sas = parts.get("AccountKey"), parts.get("SharedAccessSignature")
    if address is None or (key is None) == (sas is None):
        raise ConfigError(
            setting="connection_string",
            value="...",
            reason="needs AccountName or BlobEndpoint, and AccountKey or SharedAccessSignature",
        )
    if sas is not None:
        return Account(address, AzureSasCredential(sas.removeprefix("?")))
    return Account(address, _key(address, key or "", name))


def _key(address: str, key: str, name: str | None = None) -> AzureNamedKeyCredential:
    """Return an account key as the SDK needs it.

    Args:
        address: Address of the Blob service.
        key: The key, in base64.
        name: Name of the account. Default: the path of the address, as emulators have it, else the first
            label of its host.
    """
    try:
        base64.b64decode(key, validate=True)
    except ValueError:
        raise ConfigError(setting="credential", value="...", reason="the account key is not base64") from None
    parts = urlsplit(address)
    return AzureNamedKeyCredential(name or parts.path.strip("/") or (parts.hostname or "").split(".")[0], key)
