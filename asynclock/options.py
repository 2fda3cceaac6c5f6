"""The options of the backends of asynclock, for type checkers and editors."""

from __future__ import annotations

from typing import TypedDict


class BackendOptions(TypedDict, total=False):
    """Options of ``connect`` and ``probe`` besides their own arguments; None counts as not given.

    Each backend takes some of them, which its page in ``docs/backends`` lists, and refuses the others with
    a ``ConfigError``. Options of a backend of your own that are not here go through a ``dict[str, Any]``:
    ``connect(url, **options)``.
    """

    # All.
    min_write_interval: float | None
    trust_env: bool | None
    verify: bool | None
    # file://
    fsync: bool | None
    # s3://, gs:// and az://
    allow_http: bool | None
    # s3:// and gs://
    endpoint_url: str | None
    # s3://
    region: str | None
    path_style: bool | None
    access_key_id: str | None
    secret_access_key: str | None
    session_token: str | None
    sse: str | None
    sse_kms_key_id: str | None
    sse_customer_key: bytes | None
    requester_pays: bool | None
    ca_file: str | None
    # gs://
    token: object
    project: str | None
    user_project: str | None
    # az://
    account_url: str | None
    connection_string: str | None
    sas_token: str | None
    credential: object
