"""The server that the pages of the documentation talk to."""

from __future__ import annotations

from typing import TYPE_CHECKING

import boto3
import pytest

from tests.servers.fixtures import minio

if TYPE_CHECKING:
    from tests.laboratory.servers import Server

__all__ = ["minio"]


@pytest.fixture
def bucket(minio: Server) -> dict[str, str]:
    """Make the buckets of the pages on a real server; return the environment that leads to it."""
    options = minio.options
    environment = {
        "AWS_ENDPOINT_URL": minio.endpoint,
        "AWS_ACCESS_KEY_ID": str(options["access_key_id"]),
        "AWS_SECRET_ACCESS_KEY": str(options["secret_access_key"]),
        "AWS_REGION": str(options["region"]),
    }
    s3 = boto3.resource(
        "s3",
        endpoint_url=environment["AWS_ENDPOINT_URL"],
        region_name=environment["AWS_REGION"],
        aws_access_key_id=environment["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=environment["AWS_SECRET_ACCESS_KEY"],
    )
    for name in ("my-bucket", "bucket"):
        found = s3.Bucket(name)
        if found.creation_date is None:
            found.create()
        found.objects.all().delete()
    properties = s3.Object("bucket", "warehouse/orders/.hoodie/hoodie.properties")
    properties.put(Body=b"hoodie.table.version=9\n")
    s3.meta.client.close()
    return environment
