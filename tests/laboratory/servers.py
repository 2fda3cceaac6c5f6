"""Real servers to test against: MinIO and moto (S3), fake-gcs-server, Azurite.

Each is taken from the first of: an endpoint named in the environment, a container if a Docker engine
answers, a binary of the pinned version in the cache, one on ``PATH``, an installation into the cache
(``ASYNCLOCK_CACHE``, default ``$XDG_CACHE_HOME/asynclock``). A server that cannot be had is an
error, never a skip. ``python -m tests.laboratory servers`` installs them all beforehand.

``ASYNCLOCK_TEST_S3_URL=s3://bucket/prefix`` (likewise ``MOTO``, ``GCS``, ``AZURE``) names a
store that is there already, a real account too; its options come from
``ASYNCLOCK_TEST_S3_OPTIONS``, JSON. All is written into a folder of its own under that prefix,
which is emptied at the end.

``s3-tls``, ``gcs-tls`` and ``azure-tls`` are the same behind a certificate of their own; MinIO knows
a key for encryption, Azurite takes the tokens of any identity provider.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import ssl
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
import uuid
from base64 import b64encode
from dataclasses import dataclass, field
from importlib.metadata import version as package_version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from asynclock._cli.run_guard import Guard
from asynclock.backends import open_backend
from tests.laboratory._certificate import issue_certificate
from tests.laboratory._containers import IMAGES, engine_answers, run_container
from tests.laboratory._installed import go_binary, go_version, npm_binary, npm_version

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

BUCKET: Final = "locks"
MINIO: Final = "github.com/minio/minio@v0.0.0-20260212201848-7aac2a2c5b7c"
FAKE_GCS: Final = "github.com/fsouza/fake-gcs-server@v1.56.1"
AZURITE: Final = Path(__file__).with_name("azurite")
"""Its ``package.json`` and ``package-lock.json``."""
USER: Final = "minioadmin"
KMS_KEY: Final = "lock-key"
"""Name of the key that MinIO encrypts by where it is asked to."""
AZURE_ACCOUNT: Final = "devstoreaccount1"
AZURE_KEY: Final = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""The emulator's key, the same on every machine and published by Microsoft."""
_READY_WITHIN: Final = 60.0
_STOP_WITHIN: Final = 10.0


@dataclass(frozen=True, kw_only=True)
class Server:
    """A running store.

    Attributes:
        name: ``s3``, ``moto``, ``gcs``, ``azure``, ``s3-tls``, ``gcs-tls``, ``azure-tls``.
        url: URL of its bucket, for ``asynclock.connect``.
        options: Options for that URL.
        version: What answered, for the report.
        endpoint: Its address, or an empty string where the provider's own is used.
        ca_file: The certificate to trust, over TLS; else an empty string.
    """

    name: str
    url: str
    options: dict[str, Any] = field(repr=False)
    version: str
    endpoint: str
    ca_file: str = ""

    def through(self, endpoint: str) -> dict[str, Any]:
        """Return the options that lead to this server through a proxy at ``endpoint``.

        The store is not tried out before the first lock, since what is sent through a proxy is counted.
        """
        options = self.options | {"verify": False}
        if "account_url" in options:
            return options | {"account_url": f"{endpoint}/{AZURE_ACCOUNT}"}
        return options | {"endpoint_url": endpoint}


def is_named(name: str) -> bool:
    """Say whether the environment names a store for the server of that name."""
    return _variable(name, "URL") in os.environ


@contextlib.contextmanager
def running(name: str, *, own: bool = False, folder: Path | None = None) -> Iterator[Server]:
    """Run a server, or find it, for the time of the block.

    Args:
        name: See ``Server.name``.
        own: Run one even where the environment names a store: to be broken, or administered.
        folder: Where a process keeps its data; a container keeps it on its own disk. None: in memory.

    Raises:
        RuntimeError: It can neither be found, nor installed, nor started.
    """
    if is_named(name) and not own:
        with _named(name) as server:
            yield server
        return
    started = _container(name, folder) if engine_answers() else _process(name, folder)
    with started as (endpoint, version, ca_file):
        _make_bucket(name, endpoint, ca_file)
        yield Server(
            name=name,
            url=f"{_SCHEMES[name]}://{BUCKET}",
            options=_options(name, endpoint, ca_file),
            version=version,
            endpoint=endpoint,
            ca_file=ca_file,
        )


@contextlib.contextmanager
def _named(name: str) -> Iterator[Server]:
    url = f"{os.environ[_variable(name, 'URL')].rstrip('/')}/asynclock-{uuid.uuid4()}"
    options = json.loads(os.environ.get(_variable(name, "OPTIONS"), "{}"))
    try:
        yield Server(name=name, url=url, options=options, version="from the environment", endpoint="")
    finally:
        asyncio.run(_empty(url, options))


async def _empty(url: str, options: dict[str, Any]) -> None:
    backend = open_backend(url, **options)
    try:
        for key in [entry.key async for entry in backend.list("")]:
            await backend.delete(key)
    finally:
        await backend.aclose()


def _variable(name: str, what: str) -> str:
    return f"ASYNCLOCK_TEST_{name.upper().replace('-', '_')}_{what}"


_SCHEMES: Final = {
    "s3": "s3",
    "s3-tls": "s3",
    "moto": "s3",
    "gcs": "gs",
    "gcs-tls": "gs",
    "azure": "az",
    "azure-tls": "az",
}
_READY_PATHS: Final = {
    "s3": "/minio/health/ready",
    "s3-tls": "/minio/health/ready",
    "moto": "/moto-api/",
    "gcs": "/_internal/healthcheck",
    "gcs-tls": "/_internal/healthcheck",
    "azure": f"/{AZURE_ACCOUNT}?comp=list",
    "azure-tls": f"/{AZURE_ACCOUNT}?comp=list",
}


def _options(name: str, endpoint: str, ca_file: str) -> dict[str, Any]:
    if _SCHEMES[name] == "gs":
        # The emulator takes any number of writes a second.
        return {"endpoint_url": endpoint, "min_write_interval": 0.0}
    if _SCHEMES[name] == "az":
        return {"account_url": f"{endpoint}/{AZURE_ACCOUNT}", "credential": AZURE_KEY}
    trusted = {"ca_file": ca_file} if ca_file else {}
    return trusted | {
        "endpoint_url": endpoint,
        "access_key_id": USER,
        "secret_access_key": USER,
        "region": "us-east-1",
    }


@contextlib.contextmanager
def _process(name: str, kept_in: Path | None = None) -> Iterator[tuple[str, str, str]]:
    (port,) = free_ports(1)
    memory = kept_in or Path("/dev/shm")  # noqa: S108  a tmpfs: the disk's noise is not what is tested
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(
            tempfile.TemporaryDirectory(
                prefix="asynclock-",
                dir=memory if os.access(memory, os.W_OK) else None,
                ignore_cleanup_errors=True,
            )
        )
        command, version = _COMMANDS[name](port, folder)
        log = stack.enter_context((Path(folder) / "server.log").open("wb"))
        process = subprocess.Popen(
            command,
            env=os.environ | _environment(),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            cwd=folder,
            start_new_session=True,
        )
        # A killed test run leaves no server behind.
        stack.callback(Guard(process.pid, grace=_STOP_WITHIN).dismiss)
        stack.callback(_stop, process)
        ca_file = str(_certificates(folder) / "public.crt") if name.endswith("-tls") else ""
        endpoint = f"{'https' if ca_file else 'http'}://127.0.0.1:{port}"
        _await_ready(
            endpoint + _READY_PATHS[name],
            ca_file,
            runs=lambda: process.poll() is None,
            log=lambda: Path(log.name).read_text(errors="replace"),
        )
        yield endpoint, version, ca_file


def _environment() -> dict[str, str]:
    return {
        "MINIO_ROOT_USER": USER,
        "MINIO_ROOT_PASSWORD": USER,
        "MINIO_BROWSER": "off",
        "MINIO_UPDATE": "off",
        "MINIO_CI_CD": "1",
        "MINIO_KMS_SECRET_KEY": f"{KMS_KEY}:{b64encode(os.urandom(32)).decode()}",
    }


@contextlib.contextmanager
def _container(name: str, kept_in: Path | None) -> Iterator[tuple[str, str, str]]:
    with run_container(name, _environment(), in_memory=kept_in is None) as container:
        endpoint = f"{'https' if container.ca_file else 'http'}://{container.address}"
        _await_ready(endpoint + _READY_PATHS[name], container.ca_file, runs=container.runs, log=container.log)
        yield endpoint, f"{IMAGES[name].name.partition('@')[0]} in a container", container.ca_file


def _certificates(folder: str) -> Path:
    return Path(folder) / "certificates"


def _minio(port: int, folder: str) -> tuple[list[str], str]:
    binary = go_binary("minio", MINIO)
    data = Path(folder) / "data"
    data.mkdir()
    command = [binary, "server", "--quiet", "--address", f"127.0.0.1:{port}", str(data)]
    return command, go_version(binary)


def _minio_tls(port: int, folder: str) -> tuple[list[str], str]:
    command, version = _minio(port, folder)
    issue_certificate(_certificates(folder))
    return [*command, "--certs-dir", str(_certificates(folder))], version


def _moto(port: int, folder: str) -> tuple[list[str], str]:  # noqa: ARG001  it keeps its data in memory
    program = Path(__file__).with_name("moto_server.py")
    return [sys.executable, str(program), "-H", "127.0.0.1", "-p", str(port)], (
        f"moto {package_version('moto')}"
    )


def _fake_gcs(port: int, folder: str) -> tuple[list[str], str]:  # noqa: ARG001  it keeps its data in memory
    address = f"127.0.0.1:{port}"
    binary = go_binary("fake-gcs-server", FAKE_GCS)
    command = [binary, "-backend", "memory", "-scheme", "http"]
    command += ["-host", "127.0.0.1", "-port", str(port), "-public-host", address]
    command += ["-external-url", f"http://{address}", "-log-level", "error"]
    return command, go_version(binary)


def _fake_gcs_tls(port: int, folder: str) -> tuple[list[str], str]:
    command, version = _fake_gcs(port, folder)
    public, private = issue_certificate(_certificates(folder))
    # The last one of a flag counts.
    command += ["-scheme", "https", "-external-url", f"https://127.0.0.1:{port}"]
    return [*command, "-cert-location", str(public), "-private-key-location", str(private)], version


def _azurite(port: int, folder: str) -> tuple[list[str], str]:  # noqa: ARG001  it keeps its data in memory
    binary = npm_binary("azurite-blob", AZURITE)
    command = [binary, "--blobHost", "127.0.0.1", "--blobPort", str(port)]
    # The SDK speaks a newer version of the protocol than the emulator knows of.
    command += ["--inMemoryPersistence", "--skipApiVersionCheck", "--disableTelemetry", "--silent"]
    return command, npm_version(binary)


def _azurite_tls(port: int, folder: str) -> tuple[list[str], str]:
    command, version = _azurite(port, folder)
    public, private = issue_certificate(_certificates(folder))
    return [*command, "--oauth", "basic", "--cert", str(public), "--key", str(private)], version


_COMMANDS: Final[dict[str, Callable[[int, str], tuple[list[str], str]]]] = {
    "s3": _minio,
    "s3-tls": _minio_tls,
    "moto": _moto,
    "gcs": _fake_gcs,
    "gcs-tls": _fake_gcs_tls,
    "azure": _azurite,
    "azure-tls": _azurite_tls,
}


def free_ports(number: int) -> list[int]:
    """Return ports of the loopback that nobody listens on, each another one."""
    with contextlib.ExitStack() as probes:
        sockets = [probes.enter_context(socket.socket()) for _ in range(number)]
        for probe in sockets:
            probe.bind(("127.0.0.1", 0))
        return [probe.getsockname()[1] for probe in sockets]


def _await_ready(url: str, ca_file: str, *, runs: Callable[[], bool], log: Callable[[], str]) -> None:
    deadline = time.monotonic() + _READY_WITHIN
    trusted = ssl.create_default_context(cafile=ca_file) if ca_file else None
    while time.monotonic() < deadline and runs():
        try:
            with urllib.request.urlopen(url, timeout=2, context=trusted):  # noqa: S310  our own loopback address
                return
        except urllib.error.HTTPError as error:
            error.close()
            if error.code < 500:  # Azurite refuses, but answers
                return
        except OSError:
            pass
        time.sleep(0.05)
    message = f"the server did not get ready: {log()[-2000:]}"
    raise RuntimeError(message)


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(_STOP_WITHIN)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _make_bucket(name: str, endpoint: str, ca_file: str) -> None:
    if _SCHEMES[name] == "gs":
        trusted = ssl.create_default_context(cafile=ca_file) if ca_file else None
        request = urllib.request.Request(  # noqa: S310  our own loopback address
            f"{endpoint}/storage/v1/b?project=test",
            data=json.dumps({"name": BUCKET}).encode(),
            headers={"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=10, context=trusted):  # noqa: S310  likewise
            return
    if _SCHEMES[name] == "az":
        from azure.storage.blob import BlobServiceClient  # noqa: PLC0415  an extra

        account = f"{endpoint}/{AZURE_ACCOUNT}"
        with BlobServiceClient(account, credential=AZURE_KEY, connection_verify=ca_file or True) as service:
            service.create_container(BUCKET)
        return
    import botocore.session  # noqa: PLC0415  an extra

    client = botocore.session.get_session().create_client(
        "s3",
        region_name="us-east-1",
        endpoint_url=endpoint,
        aws_access_key_id=USER,
        aws_secret_access_key=USER,
        verify=ca_file or None,
    )
    client.create_bucket(Bucket=BUCKET)
    client.close()


def main() -> None:
    """Install what is missing, so that no test waits for a build, and no two processes build at once."""
    if engine_answers():
        return
    for name in ("s3", "gcs", "azure"):
        with tempfile.TemporaryDirectory() as folder, contextlib.suppress(RuntimeError):
            # What cannot be had fails the tests that need it, and those alone.
            _COMMANDS[name](0, folder)


if __name__ == "__main__":
    main()
