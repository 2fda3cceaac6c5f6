"""Base paths in Hudi's spelling, and the lock object of each.

Source: Hudi's ``StoragePath``, ``StorageSchemes`` and ``StorageLockClient.parseBucketAndPath``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, NoReturn

from asynclock.backends._names import name_problem
from asynclock.backends._url import AZURE_OF_HADOOP, refuse_credentials, wrong_url
from asynclock.errors import ConfigError
from asynclock.hudi._core import hoodie

LOCKS_FOLDER: Final = ".hoodie/.locks"
LOCK_NAME: Final = f"{LOCKS_FOLDER}/table_lock"
AUDIT_SWITCH: Final = f"{LOCKS_FOLDER}/audit_enabled.json"
AUDIT_FOLDER: Final = f"{LOCKS_FOLDER}/audit/"
PROPERTIES: Final = (".hoodie/hoodie.properties", ".hoodie/hoodie.properties.backup")
"""Hudi replaces the first file by way of the second, so for a moment only the second one exists."""

_FAMILIES: Final = {
    "s3": "s3",
    "s3a": "s3",
    "gs": "gs",
    **dict.fromkeys(AZURE_OF_HADOOP, "az"),
}
STORAGE_LOCK_SCHEMES: Final = frozenset(_FAMILIES)
"""Schemes of base paths that Hudi's storage-based lock can lock."""

_SPLIT: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://([^/]*)(/.*)?", re.DOTALL)
# Hudi decodes %XX in the path of the lock but not in that of the table. It fails on the other characters.
_UNSAFE: Final = re.compile(r"[%?#\\\s\x00-\x1f\x7f\"<>^`{|}\[\]]")
_ACCOUNT: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9.-]*")


@dataclass(frozen=True, slots=True)
class TablePath:
    """A table's base path.

    Attributes:
        url: The base path without trailing or doubled slashes, for a backend and for Hudi's options.
        identity: One text for all spellings of a table, such as ``s3://bucket/orders`` also for ``s3a``.
    """

    url: str
    identity: str

    @classmethod
    def parse(cls, base_path: str) -> TablePath:
        """Parse a base path; no I/O.

        Raises:
            ConfigError: Hudi's storage-based lock cannot lock a table at this path.
        """

        def refuse(reason: str) -> NoReturn:
            if isinstance(base_path, str):
                raise wrong_url(hoodie.BASE_PATH, base_path, reason)
            raise ConfigError(setting=hoodie.BASE_PATH, value=type(base_path).__name__, reason=reason)

        if not isinstance(base_path, str) or not base_path:
            refuse("is required: the full URL of the table, such as s3a://bucket/warehouse/orders")
        refuse_credentials(hoodie.BASE_PATH, base_path)
        found = _SPLIT.fullmatch(base_path)
        if found is None:
            # file:/data and /data are local files to Hudi as well.
            refuse(_LOCAL if base_path.startswith(("/", "file:")) else _RELATIVE)
        scheme, authority, path = found[1].lower(), found[2], found[3] or ""
        if scheme == "file":
            refuse(_LOCAL)
        if scheme not in _FAMILIES:
            known = ", ".join(f"{name}://" for name in _FAMILIES)
            refuse(f"Hudi's storage-based lock only supports {known}")
        if reason := _unfit(scheme, authority):
            refuse(reason)
        if _UNSAFE.search(authority + path):
            refuse("has characters that make Hudi lock the wrong object, or none")
        segments = [segment for segment in path.split("/") if segment]
        if {".", ".."} & set(segments):
            refuse("must have no segment '.' or '..'")
        folder = "".join(f"/{segment}" for segment in segments)
        return cls(f"{scheme}://{authority}{folder}", _place(scheme, authority) + folder)


def _unfit(scheme: str, authority: str) -> str | None:
    """Return why Hudi would find no bucket or container in an authority, or None if it would."""
    if not authority:
        return "names no bucket or container"
    if _FAMILIES[scheme] != "az":
        return name_problem(_FAMILIES[scheme], authority)
    container, at, account = authority.partition("@")
    if container and at and _ACCOUNT.fullmatch(account):
        return name_problem("az", container)
    service = "dfs" if scheme.startswith("abfs") else "blob"
    return f"must name container and account, like container@account.{service}.core.windows.net"


def _place(scheme: str, authority: str) -> str:
    family = _FAMILIES[scheme]
    if family != "az":
        return f"{family}://{authority}"
    container, _, host = authority.partition("@")
    # One container has two endpoints: account.dfs.… and account.blob.….
    return f"az://{host.partition('.')[0].lower()}/{container}"


_LOCAL: Final = (
    "Hudi's storage-based lock cannot lock a table on a local disk. To exclude other Python processes use "
    "asynclock.connect('file:///...').lock(...); Spark writers of splice tables use "
    "io.asynclock.hudi.FileLockProvider"
)
_RELATIVE: Final = (
    "is not a full URL, and a relative path names a different table in each process; write s3a://bucket/..."
)
