"""A server for the examples of the pages."""

from __future__ import annotations

from typing import TYPE_CHECKING

import boto3
import pytest
from moto.server import ThreadedMotoServer

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="session")
def bucket() -> Iterator[dict[str, str]]:
    """Start a server with the buckets of the pages; return the environment that leads to it."""
    server = ThreadedMotoServer("127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    environment = {
        "AWS_ENDPOINT_URL": f"http://{host}:{port}",
        "AWS_ACCESS_KEY_ID": "any",
        "AWS_SECRET_ACCESS_KEY": "any",
        "AWS_REGION": "us-east-1",
    }
    s3 = boto3.client(
        "s3",
        endpoint_url=environment["AWS_ENDPOINT_URL"],
        region_name="us-east-1",
        aws_access_key_id="any",
        aws_secret_access_key="any",  # noqa: S106  the server takes any
    )
    s3.create_bucket(Bucket="my-bucket")
    s3.create_bucket(Bucket="bucket")
    s3.put_object(
        Bucket="bucket", Key="warehouse/orders/.hoodie/hoodie.properties", Body=b"hoodie.table.version=9\n"
    )
    s3.close()
    yield environment
    server.stop()
