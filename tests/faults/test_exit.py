"""A process that ends frees its locks, also where that needs a new connection to a host known by name."""

from __future__ import annotations

import asyncio
import json
import sys
import threading
import time
import uuid
from asyncio.subprocess import PIPE
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest

import asynclock

if TYPE_CHECKING:
    from tests.laboratory.servers import Server

IDLE = 16.0
"""Seconds without a request: aiohttp keeps a connection for 15 s (the S3 SDK: 12 s), an address for 10 s."""
GONE_WITHIN = 2.0
"""Seconds from the last word of a process until it is gone: min(2 s, validity / 5)."""
TEARDOWN = 1.0
"""Seconds in which the interpreter itself ends."""
HEAD = """
import asyncio, atexit, json, sys, time
import asynclock
from asynclock import sync
url, options, idle = sys.argv[1], json.loads(sys.argv[2]), float(sys.argv[3])
def say(word):
    print(word, flush=True)
"""
PROGRAMS = {
    "thread": """
sync.connect(url, **options).lock("a").acquire()
say("held")
time.sleep(idle)
say("ends")
""",
    # What an exit releases by itself is on the host's thread; this one brings a loop of its own.
    "loop": """
loop = asyncio.new_event_loop()
async def acquire():
    client = asynclock.connect(url, renewal="loop", **options)
    await client.lock("a").acquire()
    return client
client = loop.run_until_complete(acquire())
say("held")
loop.run_until_complete(asyncio.sleep(idle))
atexit.register(lambda: loop.run_until_complete(client.aclose()))
say("ends")
""",
}


async def _left_by(server: Server, program: str, *, idle: float = 0.0, **options: object) -> str:
    """Run a program that holds a lock until it ends, and return the state of the lock then."""
    url = f"{server.url}/exit-{uuid.uuid4()}"
    by_name = f"http://localhost:{urlsplit(server.endpoint).port}"
    process = await asyncio.create_subprocess_exec(
        *(
            sys.executable,
            "-c",
            HEAD + program,
            url,
            json.dumps(server.through(by_name) | options),
            str(idle),
        ),
        stdout=PIPE,
        stderr=PIPE,
    )
    assert process.stdout is not None
    try:
        words = [await asyncio.wait_for(process.stdout.readline(), 30 + idle) for _ in range(2)]
        last_word = time.monotonic()
        _, errors = await asyncio.wait_for(process.communicate(), 60)
        took = time.monotonic() - last_word
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert words == [b"held\n", b"ends\n"], errors
    assert process.returncode == 0, errors
    assert took < GONE_WITHIN + TEARDOWN
    async with asynclock.connect(url, **server.options) as client:
        return (await client.lock("a").status()).state


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS.keys())
async def test_an_exit_releases_when_the_name_of_the_store_must_be_looked_up(
    minio: Server, fake_gcs: Server, azurite: Server, program: str
) -> None:
    """A program ends after a pause that closed its connections: its locks in all three clouds are free."""
    servers = (minio, fake_gcs, azurite)
    states = await asyncio.gather(*(_left_by(server, program, idle=IDLE) for server in servers))

    assert dict(zip(("s3", "gcs", "azure"), states, strict=True)) == dict.fromkeys(
        ("s3", "gcs", "azure"), "free"
    )


async def test_an_exit_releases_where_the_proxies_of_the_environment_are_used(
    minio: Server, fake_gcs: Server, azurite: Server
) -> None:
    """With ``trust_env`` the proxy of the environment was found before: an exit looks for none."""
    servers = (minio, fake_gcs, azurite)
    states = await asyncio.gather(
        *(_left_by(server, PROGRAMS["thread"], trust_env=True) for server in servers)
    )

    assert dict(zip(("s3", "gcs", "azure"), states, strict=True)) == dict.fromkeys(
        ("s3", "gcs", "azure"), "free"
    )


async def test_the_threads_that_look_names_up_end_with_their_client(cloud: Server) -> None:
    """A client that reached its store by name leaves none of these threads behind."""
    options = cloud.through(f"http://localhost:{urlsplit(cloud.endpoint).port}")
    async with asynclock.connect(f"{cloud.url}/names-{uuid.uuid4()}", **options) as client:
        await client.list()
        found = [each for each in threading.enumerate() if each.name.startswith("asynclock-names-")]
        assert [each.name for each in found] == ["asynclock-names-1"]

    for each in found:
        await asyncio.to_thread(each.join, 5)
    assert not any(each.is_alive() for each in found)
