"""What does `import asynclock` cost, how long does a process take to its first lock, and does that block?"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from benchmarks.measure import SCRATCH, Line, interleaved, ratio
from tests.laboratory.servers import running

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

ROUNDS = 21
FIRST_ROUNDS = 9
IMPORT_TARGET = 1.3
FIRST_TARGET = 1.2
BLOCKED = 50.0
REFERENCE = "import asyncio, anyio, orjson"
IMPORTS = {
    "asyncio, anyio, orjson": REFERENCE,
    "asynclock": f"{REFERENCE}; import asynclock",
    "asynclock.sync": f"{REFERENCE}; import asynclock.sync",
    "aiobotocore": "import aiobotocore.session",
}
FIRST_LOCK = """
import asyncio, json
import asynclock
url, options, key = json.loads(sys.argv[1])
client = asynclock.connect(url, **options)

async def longest_block():
    longest = 0.0
    try:
        while True:
            began = time.perf_counter()
            await asyncio.sleep(0.001)
            longest = max(longest, time.perf_counter() - began - 0.001)
    except asyncio.CancelledError:
        return longest

async def main():
    watch = asyncio.create_task(longest_block())
    await asyncio.sleep(0)
    lease = await client.lock(key).acquire()
    took()
    watch.cancel()
    print(await watch)
    await lease.release()
    await client.aclose()

asyncio.run(main())
"""
FIRST_WRITES = {
    "s3": """
import asyncio, json
import aiobotocore.session
bucket, options, key = json.loads(sys.argv[1])

async def main():
    async with aiobotocore.session.get_session().create_client(
        "s3",
        region_name=options["region"],
        endpoint_url=options["endpoint_url"],
        aws_access_key_id=options["access_key_id"],
        aws_secret_access_key=options["secret_access_key"],
    ) as client:
        await client.put_object(Bucket=bucket, Key=key, Body=b"{}", IfNoneMatch="*")
        took()

asyncio.run(main())
""",
    "gcs": """
import asyncio, json
from gcloud.aio.storage import Storage
bucket, options, key = json.loads(sys.argv[1])

async def main():
    async with Storage(api_root=options["endpoint_url"]) as storage:
        condition = {"ifGenerationMatch": "0"}
        await storage.upload(bucket, key, b"{}", parameters=condition, force_resumable_upload=False)
        took()

asyncio.run(main())
""",
    "azure": """
import asyncio, json
from azure.storage.blob.aio import BlobServiceClient
bucket, options, key = json.loads(sys.argv[1])

async def main():
    async with BlobServiceClient(options["account_url"], credential=options["credential"]) as service:
        await service.get_blob_client(bucket, key).upload_blob(b"{}")
        took()

asyncio.run(main())
""",
}


def lines() -> Iterator[Line]:
    """Times in processes of their own, from the first line of the program, with bytecode in a cache.

    Those of imports are CPU time: they wait for nothing, so other programs must not count.
    """
    imports = {name: lambda text=text: program(text)[0] for name, text in IMPORTS.items()}
    samples = interleaved(imports, rounds=ROUNDS)
    for name, seconds in samples.items():
        yield milliseconds(f"import {name}, CPU", seconds)
    reference = samples["asyncio, anyio, orjson"]
    for name in ("asynclock", "asynclock.sync"):
        yield ratio(f"import {name} over its reference", samples[name], reference, target=IMPORT_TARGET)
    yield ratio("import asynclock over aiobotocore", samples["asynclock"], samples["aiobotocore"])
    for name in FIRST_WRITES:
        yield from first(name)


def first(name: str) -> Iterator[Line]:
    """A new process's first lock next to its SDK's first write, and how long its loop stands still for it."""
    blocked: list[float] = []
    with running(name) as server:
        options = {**server.options, "verify": False}  # as at the provider's own address

        def lock() -> float:
            words = json.dumps([server.url, options, str(uuid.uuid4())])
            seconds, longest = program(FIRST_LOCK, words)
            blocked.append(longest)
            return seconds

        def write() -> float:
            words = json.dumps([urlsplit(server.url).netloc, options, str(uuid.uuid4())])
            return program(FIRST_WRITES[name], words)[0]

        samples = interleaved({"first lock": lock, "bare SDK's first write": write}, rounds=FIRST_ROUNDS)
    for what, seconds in samples.items():
        yield milliseconds(f"{name} {what}, imports included", seconds)
    yield ratio(f"{name} first lock over the bare SDK's first write", *samples.values(), target=FIRST_TARGET)
    yield milliseconds(f"{name} longest block of the loop by the first lock", blocked[1:], target=BLOCKED)


def program(text: str, *words: str) -> list[float]:
    """Run a program in a new interpreter: the seconds to its end or to ``took``, and what it prints."""
    clock = "perf_counter" if "took" in text else "process_time"
    body = text if "took" in text else f"{text}\ntook()"
    whole = f"import sys, time\ntook = lambda: print(time.{clock}() - began)\nbegan = time.{clock}()\n{body}"
    # As in an installation: bytecode is kept, and the warm-up round has made it.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment["PYTHONPYCACHEPREFIX"] = str(SCRATCH / "bytecode")
    command: Sequence[str] = [sys.executable, "-c", whole, *words]
    told = subprocess.run(command, env=environment, capture_output=True, check=True, text=True).stdout
    return [float(number) for number in told.split()]


def milliseconds(name: str, samples: Sequence[float], *, target: float | None = None) -> Line:
    """A line of absolute times."""
    return Line(name=name, unit="ms", samples=[each * 1e3 for each in samples], target=target)
