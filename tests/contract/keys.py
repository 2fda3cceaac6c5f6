"""Temporary keys of MinIO that may do only what a test says."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import botocore.session

if TYPE_CHECKING:
    from tests.laboratory.servers import Server

Statement = dict[str, Any]


async def temporary_key(server: Server, *statements: Statement) -> dict[str, Any]:
    """Return the options of a temporary key that may do only that."""
    return await asyncio.to_thread(_assume_role, server, statements)


def _assume_role(server: Server, statements: tuple[Statement, ...]) -> dict[str, Any]:
    client = botocore.session.get_session().create_client(
        "sts",
        region_name="us-east-1",
        endpoint_url=server.endpoint,
        aws_access_key_id=server.options["access_key_id"],
        aws_secret_access_key=server.options["secret_access_key"],
        verify=server.ca_file or None,
    )
    given = client.assume_role(
        RoleArn="arn:aws:iam::123456789012:role/locker",
        RoleSessionName="locker",
        Policy=json.dumps({"Version": "2012-10-17", "Statement": statements}),
    )["Credentials"]
    client.close()
    return server.options | {
        "access_key_id": given["AccessKeyId"],
        "secret_access_key": given["SecretAccessKey"],
        "session_token": given["SessionToken"],
    }
