"""The tutorials of the lock, done as their readers do them; the one with Spark is in ``tests/spark``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import boto3
import pytest
from moto.server import ThreadedMotoServer

from tests.docs.story import ROOT, Story, blocks

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(scope="module")
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
    s3.close()
    yield environment
    server.stop()


@pytest.mark.parametrize("name", ["service", "cron"])
def test_a_tutorial_does_what_it_says(tmp_path: Path, bucket: dict[str, str], name: str) -> None:
    """Its files, programs and commands work in their order, and print what stands below them."""
    page = ROOT / "docs" / "tutorials" / f"{name}.md"
    story = Story(page, tmp_path, bucket)

    story.play()

    assert story.ran >= len(blocks(page)) - 1  # the page shows the file of a job, which has a name
