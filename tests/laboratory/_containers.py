"""The servers as containers, for a machine with a Docker engine.

Each image is pinned to a tag. MinIO's own images were withdrawn in September 2026: its image is a build of
the same source by others, and is pinned to a digest too.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.laboratory._certificate import issue_certificate

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from docker.models.containers import Container  # type: ignore[import-untyped]

_CERTIFICATES: Final = "/certificates"
_PUBLIC: Final = f"{_CERTIFICATES}/public.crt"
_PRIVATE: Final = f"{_CERTIFICATES}/private.key"


@dataclass(frozen=True, kw_only=True)
class Image:
    """An image and how to run it.

    Attributes:
        name: Its name, with its tag.
        port: The port that it serves, in the container.
        command: The arguments of its program.
        entrypoint: The program, if it is not the image's own.
        tmpfs: The folder of its data, if that is not in memory anyway.
    """

    name: str
    port: int
    command: tuple[str, ...]
    entrypoint: str | None = None
    tmpfs: str | None = None

    def with_arguments(self, *more: str) -> Image:
        """Return the same image with more arguments."""
        return Image(
            name=self.name,
            port=self.port,
            command=(*self.command, *more),
            entrypoint=self.entrypoint,
            tmpfs=self.tmpfs,
        )


_MINIO: Final = Image(
    name="pgsty/minio:RELEASE.2026-08-04T00-00-00Z"
    "@sha256:b6bfe7239bfc83fb90d31612d9704d86039dd714f7904b3f1ad68f211e602372",
    port=9000,
    command=("server", "--quiet", "--address", ":9000", "/data"),
    tmpfs="/data",
)
_FAKE_GCS: Final = Image(
    name="fsouza/fake-gcs-server:1.56.1",
    port=4443,
    command=("-backend", "memory", "-scheme", "http", "-host", "0.0.0.0", "-port", "4443"),  # noqa: S104
)
_AZURITE: Final = Image(
    name="mcr.microsoft.com/azure-storage/azurite:3.35.0",
    port=10000,
    command=(
        *("azurite-blob", "--blobHost", "0.0.0.0", "--blobPort", "10000"),  # noqa: S104
        # The SDK speaks a newer version of the protocol than the emulator knows.
        *("--inMemoryPersistence", "--skipApiVersionCheck", "--disableTelemetry", "--silent"),
    ),
)
_MOTO: Final = Image(
    name="motoserver/moto:5.2.3",
    port=5000,
    # The image's own program writes two objects at a time.
    entrypoint="python",
    command=(
        "-c",
        Path(__file__).with_name("moto_server.py").read_text(),
        *("-H", "0.0.0.0", "-p", "5000"),  # noqa: S104
    ),
)
IMAGES: Final[Mapping[str, Image]] = {
    "s3": _MINIO,
    "s3-tls": _MINIO.with_arguments("--certs-dir", _CERTIFICATES),
    "moto": _MOTO,
    "gcs": _FAKE_GCS,
    # The last one of a flag counts.
    "gcs-tls": _FAKE_GCS.with_arguments(
        "-scheme", "https", "-cert-location", _PUBLIC, "-private-key-location", _PRIVATE
    ),
    "azure": _AZURITE,
    "azure-tls": _AZURITE.with_arguments("--oauth", "basic", "--cert", _PUBLIC, "--key", _PRIVATE),
}
"""What runs as the server of that name."""


@dataclass(frozen=True)
class RunningContainer:
    """A container that has been started.

    Attributes:
        address: Host and port at which this machine reaches it.
        ca_file: The certificate to trust, over TLS; else an empty string.
    """

    address: str
    ca_file: str
    _container: Container

    def runs(self) -> bool:
        """Say whether its program still runs."""
        self._container.reload()
        return bool(self._container.status == "running")

    def log(self) -> str:
        """Return what its program has written."""
        return bytes(self._container.logs()).decode(errors="replace")


def engine_answers() -> bool:
    """Say whether a Docker engine answers: the one of ``DOCKER_HOST``, else this machine's."""
    # Looked for first: the client leaks its socket if there is no engine to talk to.
    if "DOCKER_HOST" not in os.environ and not Path("/var/run/docker.sock").is_socket():
        return False
    import docker  # type: ignore[import-untyped]  # noqa: PLC0415  only the tests have it

    try:
        client = docker.from_env(timeout=2)
    except docker.errors.DockerException:
        return False
    try:
        return bool(client.ping())
    except (docker.errors.DockerException, OSError):
        return False
    finally:
        client.close()


@contextlib.contextmanager
def run_container(
    name: str, environment: Mapping[str, str], *, in_memory: bool = True
) -> Iterator[RunningContainer]:
    """Run the image of that server for the time of the block; the engine removes it even if we are killed."""
    from testcontainers.core.container import DockerContainer  # noqa: PLC0415  only the tests have it

    image = IMAGES[name]
    container = DockerContainer(image.name).with_exposed_ports(image.port).with_command(list(image.command))
    container.with_envs(**environment)
    if image.entrypoint is not None:
        container.with_kwargs(entrypoint=[image.entrypoint])
    if image.tmpfs is not None and in_memory:
        container.with_tmpfs_mount(image.tmpfs)
    with tempfile.TemporaryDirectory(prefix="asynclock-") as folder:
        public = ""
        if name.endswith("-tls"):
            issued, private = issue_certificate(Path(folder))
            container.with_copy_into_container(issued, _PUBLIC)
            container.with_copy_into_container(private, _PRIVATE)
            public = str(issued)
        with container:
            started = container.get_wrapped_container()
            started.reload()
            ports = started.ports.get(f"{image.port}/tcp") or [{"HostPort": "0"}]  # it has ended already
            yield RunningContainer(f"127.0.0.1:{ports[0]['HostPort']}", public, started)
