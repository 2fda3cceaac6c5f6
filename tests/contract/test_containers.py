"""The servers as containers, on an engine that speaks Docker's API and runs programs of this machine."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from testcontainers.core.config import testcontainers_config

from tests.laboratory import servers
from tests.laboratory._containers import IMAGES
from tests.laboratory.servers import running
from tests.servers.fake_docker import FakeDocker, fake_docker, programs

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
HOLDER = """
import time
from tests.laboratory.servers import running
with running("moto", own=True) as server:
    print(server.version, flush=True)
    time.sleep(60)
"""


@pytest.fixture(autouse=True)
def no_ryuk(monkeypatch: pytest.MonkeyPatch) -> None:
    """In this process, containers end with their blocks: Ryuk would outlive the engine of one test."""
    monkeypatch.setattr(testcontainers_config, "ryuk_disabled", True)


@pytest.fixture
def engine() -> Iterator[FakeDocker]:
    """Run an engine that has the images of all servers."""
    with fake_docker(programs()) as engine:
        yield engine


def test_every_server_has_an_image() -> None:
    """There is no server that a machine with Docker would still run as a process."""
    assert set(IMAGES) == set(servers._COMMANDS)


def test_the_contract_runs_in_containers(engine: FakeDocker, tmp_path: Path) -> None:
    """On a machine with Docker, every store's contract runs against a container, and none is left."""
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            f"--basetemp={tmp_path}/run",
            "tests/contract/test_backends.py",
        ],
        cwd=ROOT,
        env=os.environ | {"DOCKER_HOST": engine.url},
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stdout
    for name in ("s3", "s3-tls", "moto", "gcs", "azure"):
        assert f"{name}: {IMAGES[name].name.partition('@')[0]} in a container" in done.stdout
    assert not engine.containers


@pytest.mark.parametrize("name", ["gcs-tls", "azure-tls"])
def test_a_container_serves_https(name: str, engine: FakeDocker, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server behind a certificate gets it copied into its container."""
    monkeypatch.setenv("DOCKER_HOST", engine.url)

    with running(name, own=True) as server:
        assert server.endpoint.startswith("https://127.0.0.1:")
        assert "in a container" in server.version


def test_a_killed_test_run_leaves_no_container(engine: FakeDocker) -> None:
    """After ``kill -9`` of the process that started a container, it is removed."""
    environment = os.environ | {"DOCKER_HOST": engine.url, "RYUK_RECONNECTION_TIMEOUT": "1s"}
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER], cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True
    ) as program:
        assert program.stdout is not None
        assert "in a container" in program.stdout.readline()
        program.send_signal(signal.SIGKILL)

    deadline = time.monotonic() + 30.0
    while any("moto" in container.config["Image"] for container in engine.containers.values()):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_container_that_ends_fails_with_its_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that ends at once fails the tests with what it wrote, not with a timeout."""
    broken = {"fsouza/fake-gcs-server": [sys.executable, "-c", "raise SystemExit('no memory left')"]}
    with fake_docker(broken) as engine:
        monkeypatch.setenv("DOCKER_HOST", engine.url)

        with pytest.raises(RuntimeError, match="no memory left"), running("gcs", own=True):
            pass


def test_an_image_that_cannot_be_pulled_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """An image that the registry does not have fails the tests and names it: no skip, no process instead."""
    with fake_docker({}) as engine:
        monkeypatch.setenv("DOCKER_HOST", engine.url)

        with pytest.raises(Exception, match="pull access denied for pgsty/minio"), running("s3", own=True):
            pass


def test_containers_run_the_versions_of_the_processes() -> None:
    """fake-gcs-server and Azurite are of one version, however they are started."""
    azurite = json.loads((servers.AZURITE / "package.json").read_text())["dependencies"]["azurite"]

    assert IMAGES["gcs"].name.partition(":")[2] == servers.FAKE_GCS.partition("@v")[2]
    assert IMAGES["azure"].name.partition(":")[2] == azurite
