"""What does `import asynclock` cost, and how long does a new process take to its first lock?"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from typing import TYPE_CHECKING

from benchmarks.measure import SCRATCH, Line, interleaved, ratio
from tests.laboratory.servers import running

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

ROUNDS = 21
FIRST_ROUNDS = 15
IMPORT_TARGET = 1.3
FIRST_TARGET = 1.2
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

async def main():
    client = asynclock.connect(url, **options)
    lease = await client.lock(key).acquire()
    took()
    await lease.release()
    await client.aclose()

asyncio.run(main())
"""
FIRST_WRITE = """
import asyncio, json
import aiobotocore.session
url, options, key = json.loads(sys.argv[1])

async def main():
    async with aiobotocore.session.get_session().create_client(
        "s3",
        region_name=options["region"],
        endpoint_url=options["endpoint_url"],
        aws_access_key_id=options["access_key_id"],
        aws_secret_access_key=options["secret_access_key"],
    ) as client:
        await client.put_object(Bucket=url.split("/")[2], Key=key, Body=b"{}", IfNoneMatch="*")
        took()

asyncio.run(main())
"""


def lines() -> Iterator[Line]:
    """Times in processes of their own, from the first line of the program, with bytecode in a cache.

    Those of imports are CPU time: they wait for nothing, so other programs must not count.
    """
    samples = interleaved({name: program(text) for name, text in IMPORTS.items()}, rounds=ROUNDS)
    for name, seconds in samples.items():
        yield milliseconds(f"import {name}, CPU", seconds)
    reference = samples["asyncio, anyio, orjson"]
    for name in ("asynclock", "asynclock.sync"):
        yield ratio(f"import {name} over its reference", samples[name], reference, target=IMPORT_TARGET)
    yield ratio("import asynclock over aiobotocore", samples["asynclock"], samples["aiobotocore"])
    with running("s3") as server:

        def first(text: str) -> Callable[[], float]:
            def run() -> float:
                return program(text, json.dumps([server.url, dict(server.options), str(uuid.uuid4())]))()

            return run

        starts = {"first lock": first(FIRST_LOCK), "bare SDK's first write": first(FIRST_WRITE)}
        samples = interleaved(starts, rounds=FIRST_ROUNDS)
    for name, seconds in samples.items():
        yield milliseconds(f"s3 {name}, imports included", seconds)
    yield ratio(
        "s3 first lock over the bare SDK's first write",
        samples["first lock"],
        samples["bare SDK's first write"],
        target=FIRST_TARGET,
    )


def program(text: str, *words: str) -> Callable[[], float]:
    """Return what runs a program in a new interpreter and returns the seconds to its end, or to ``took``."""
    clock = "perf_counter" if "took" in text else "process_time"
    body = text if "took" in text else f"{text}\ntook()"
    whole = f"import sys, time\ntook = lambda: print(time.{clock}() - began)\nbegan = time.{clock}()\n{body}"
    # As in an installation: bytecode is kept, and the warm-up round has made it.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment["PYTHONPYCACHEPREFIX"] = str(SCRATCH / "bytecode")

    def run() -> float:
        command: Sequence[str] = [sys.executable, "-c", whole, *words]
        return float(subprocess.run(command, env=environment, capture_output=True, check=True).stdout)

    return run


def milliseconds(name: str, samples: Sequence[float]) -> Line:
    """A line of absolute times."""
    return Line(name=name, unit="ms", samples=[each * 1e3 for each in samples])
