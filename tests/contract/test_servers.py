"""The servers that the tests run against."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest

from asynclock.backends import open_backend
from asynclock.testing._proxy import TapProxy
from tests.laboratory import servers
from tests.laboratory.servers import running

if TYPE_CHECKING:
    from tests.laboratory.servers import Server

ROOT = Path(__file__).parents[2]

PROGRAM = """
import time
from tests.laboratory.servers import running
with running("moto") as server:
    print(server.endpoint, flush=True)
    time.sleep(60)
"""


def answers(endpoint: str) -> bool:
    """Return whether anything takes connections there."""
    address = urlsplit(endpoint)
    try:
        socket.create_connection((address.hostname or "", address.port or 0), timeout=5.0).close()
    except (ConnectionRefusedError, ConnectionResetError):  # reset: it closes just now
        return False
    return True


def test_a_killed_test_run_leaves_no_server() -> None:
    """After ``kill -9`` of the process that started a server, the server ends too."""
    with subprocess.Popen([sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None
        endpoint = program.stdout.readline().strip()
        assert answers(endpoint)

        program.send_signal(signal.SIGKILL)

    deadline = time.monotonic() + 30.0
    while answers(endpoint):
        assert time.monotonic() < deadline
        time.sleep(0.1)


async def test_the_contract_runs_against_a_store_that_is_named(minio: Server, tmp_path: Path) -> None:
    """Named by its URL, a store is tested under that prefix by contract, locks and probe, and left clean."""
    folder = f"named-{uuid.uuid4()}"
    backend = open_backend(f"{minio.url}/{folder}", **minio.options)
    await backend.put("own.json", b"the user's")
    async with TapProxy(minio.endpoint) as proxy:
        named = {
            "ASYNCLOCK_TEST_S3_URL": f"{minio.url}/{folder}/",
            "ASYNCLOCK_TEST_S3_OPTIONS": json.dumps(minio.through(proxy.url)),
        }
        suites = [f"tests/contract/test_{name}.py" for name in ("backends", "locks", "probe")]
        chosen = ["-k", "(TestMinio and not Tls) or real_server_is_trusted and s3"]
        run = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "pytest", "-q", f"--basetemp={tmp_path}/run", *chosen, *suites),
            cwd=ROOT,
            env=os.environ | named,
            stdout=subprocess.PIPE,
        )
        said = (await run.communicate())[0].decode()
    left = [entry.key async for entry in backend.list("")]
    await backend.aclose()

    assert run.returncode == 0, said
    assert "s3: from the environment" in said
    assert left == ["own.json"]
    touched = {tap.target.partition("?")[0] for tap in proxy.journal if "list-type" not in tap.target}
    assert len(touched) > 50
    assert all(target.startswith(f"/locks/{folder}/asynclock-") for target in touched)


def test_a_server_that_cannot_be_had_is_an_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Neither there nor to be installed, a server fails the tests and says what is missing: no skip."""
    monkeypatch.setenv("ASYNCLOCK_CACHE", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(servers, "engine_answers", lambda: False)

    for name, tool in (("s3", "go"), ("gcs", "go"), ("azure", "npm")):
        with pytest.raises(RuntimeError, match=f"{tool} is missing"), running(name, own=True):
            pass


@pytest.mark.parametrize("name", ["minio", "azurite-blob"])
def test_a_program_that_is_there_is_used(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A server on PATH is started as it is, and its own version is reported, not the one we would install."""
    package = tmp_path / "package"
    package.mkdir()
    (package / "package.json").write_text('{"name": "theirs", "version": "1.2"}')
    (package / name).write_text("#!/bin/sh\nexec sleep 60\n")
    (package / name).chmod(0o755)
    monkeypatch.setenv("ASYNCLOCK_CACHE", str(tmp_path))
    monkeypatch.setenv("PATH", str(package), prepend=os.pathsep)

    command, version = servers._COMMANDS["s3" if name == "minio" else "azure"](1, str(tmp_path))

    assert command[0] == str(package / name)
    assert version == ("theirs@1.2" if name == "azurite-blob" else "minio of an unknown version")
