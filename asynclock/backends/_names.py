"""The providers' rules for names of buckets, containers and accounts.

A name that the provider does not allow is refused before anything is sent. It may be a mistake
(``s3://../x``), or a secret typed instead of a bucket. Such a secret would appear in errors, and reach a name
server as part of a host name.

Source: Amazon S3, "General purpose bucket naming rules" (the reserved names are allowed here: they belong to
access points, which a client uses like buckets); Google Cloud Storage, "Bucket name requirements"; Azure,
"Naming and referencing containers, blobs, and metadata", "Storage account name", and the endpoints of "Azure
Government" and "Azure in China".
"""

from __future__ import annotations

import re
from typing import Final

# Patterns are compiled on first use, not on import; ``re`` caches them.
_ADDRESS: Final = r"(?!\d+\.\d+\.\d+\.\d+$)"
_S3: Final = rf"(?!.*\.\.){_ADDRESS}[a-z0-9][a-z0-9.-]{{1,61}}[a-z0-9]"
_GCS: Final = rf"(?=.{{3,222}}$){_ADDRESS}(?![._-])[a-z0-9_-]{{1,63}}(\.[a-z0-9_-]{{1,63}})*(?<![._-])"
_CONTAINER: Final = r"\$(root|web)|(?!.*--)[a-z0-9][a-z0-9-]{1,61}[a-z0-9]"
_ACCOUNT: Final = (
    r"(?P<account>[a-z0-9]{3,24})\.(?:blob|dfs)\."
    r"(?P<cloud>core\.(?:windows\.net|chinacloudapi\.cn|usgovcloudapi\.net))"
)
_RULES: Final = {
    "s3": (_S3, "a bucket has 3 to 63 characters a-z 0-9 . -, a letter or digit first and last, no '..'"),
    "gs": (_GCS, "a bucket has 3 to 63 characters a-z 0-9 . _ -, a letter or digit first and last, no '..'"),
    "az": (_CONTAINER, "a container has 3 to 63 characters a-z 0-9 -, none of them '-' at an end or twice"),
}


def name_problem(provider: str, name: str) -> str | None:
    """Return the provider's rule for names if ``name`` breaks it, else None.

    Args:
        provider: ``s3``, ``gs`` or ``az``.
        name: Name of the bucket or container.
    """
    pattern, rule = _RULES[provider]
    return None if re.fullmatch(pattern, name) else rule


def is_account_name(name: str) -> bool:
    """Return whether an Azure storage account can have this name."""
    return re.fullmatch(r"[a-z0-9]{3,24}", name) is not None


def azure_account(host: str) -> tuple[str, str] | None:
    """Return account and cloud of a host name, such as ``account`` and ``core.windows.net``.

    Args:
        host: Host of an account's Blob or Data Lake service, such as ``account.blob.core.windows.net``.

    Returns:
        None if the host is not in a known Azure cloud.
    """
    found = re.fullmatch(_ACCOUNT, host.lower())
    return (found["account"], found["cloud"]) if found else None
