"""A Docker engine that runs programs of this machine: enough of Docker's API for testcontainers.

An image is a program. Its container is a process of that program with the container's own command and
environment, in a folder that takes the place of the container's root: ``/data`` becomes ``FOLDER/data``.
The container's port becomes a free port of the loopback.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import socket
import struct
import subprocess
import sys
import tarfile
import tempfile
import threading
import uuid
from dataclasses import dataclass, field
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socketserver import ThreadingMixIn, UnixStreamServer
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, unquote, urlsplit

from tests.laboratory.servers import free_ports

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

API = "1.44"
DIGEST = "sha256:" + "1" * 64


def programs() -> dict[str, list[str]]:
    """Return what the servers' images start, as their Dockerfiles say, with the programs of this machine."""
    from tests.laboratory._installed import go_binary, npm_binary  # noqa: PLC0415
    from tests.laboratory.servers import AZURITE, FAKE_GCS, MINIO  # noqa: PLC0415

    azurite = npm_binary("azurite-blob", AZURITE)
    return {
        "pgsty/minio": [go_binary("minio", MINIO)],
        "fsouza/fake-gcs-server": [go_binary("fake-gcs-server", FAKE_GCS), "-data", "/data"],
        # This image has no program: its command begins with one.
        "mcr.microsoft.com/azure-storage/azurite": [
            "env",
            f"PATH={Path(azurite).parent}:{os.environ['PATH']}",
        ],
        "motoserver/moto": ["moto_server"],
    }


def pinned(image: str) -> str:
    """Return what an image is pinned to: if its name has a digest, the tag counts no more."""
    name, at, digest = image.partition("@")
    return name.partition(":")[0] + at + digest if at else name


@dataclass
class FakeContainer:
    """A container: its configuration, and its process once it is started."""

    id: str
    name: str
    config: dict[str, Any]
    ports: dict[str, int]
    root: tempfile.TemporaryDirectory[str]
    process: subprocess.Popen[bytes] | None = None
    reaper: socket.socket | None = None
    stopped: threading.Event = field(default_factory=threading.Event)

    @property
    def environment(self) -> dict[str, str]:
        """The variables of its program."""
        return dict(each.split("=", 1) for each in self.config.get("Env") or ())

    @property
    def running(self) -> bool:
        """Whether its program runs."""
        return self.reaper is not None or (self.process is not None and self.process.poll() is None)

    @property
    def log(self) -> Path:
        """Where its program writes."""
        return Path(self.root.name) / ".log"

    def put(self, archive: bytes, path: str) -> None:
        """Unpack an archive below a folder of the container."""
        with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
            for member in tar.getmembers():
                member.name = f"{path}/{member.name}".lstrip("/")
                tar.extract(member, self.root.name, filter="data")

    def start(self, program: list[str]) -> None:
        """Start its program, with ports and folders of this machine in place of the container's."""
        command = [*(self.config.get("Entrypoint") or program), *(self.config.get("Cmd") or ())]
        if command[0] == "python":
            command[0] = sys.executable
        (Path(self.root.name) / "data").mkdir(exist_ok=True)
        kept = program[:1] if command[0] == program[0] else command[:1]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [*kept, *(self._here(argument) for argument in command[1:])],
                env=os.environ | self.environment,
                cwd=self.root.name,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def _here(self, argument: str) -> str:
        if argument.startswith(("/data", "/certificates")):
            return self.root.name + argument
        for inside, port in self.ports.items():
            argument = re.sub(rf"^(:?){inside.partition('/')[0]}$", rf"\g<1>{port}", argument)
        return re.sub(r"^(0\.0\.0\.0)?$|^(0\.0\.0\.0)?(?=:\d)", "127.0.0.1", argument)

    def stop(self) -> None:
        """Kill its program."""
        self.stopped.set()
        if self.process is not None:
            self.process.kill()
            self.process.wait()
        if self.reaper is not None:
            self.reaper.close()

    def described(self) -> dict[str, Any]:
        """Return what the engine says of it, in a list of all and by itself."""
        state = "running" if self.running else "exited" if self.process else "created"
        bridge = {"bridge": {"Gateway": "127.0.0.1", "IPAddress": "127.0.0.1"}}
        return {
            "Id": self.id,
            "Name": f"/{self.name}",
            "Image": DIGEST,
            "Config": {
                "Image": self.config["Image"],
                "Labels": self.config.get("Labels") or {},
                "Tty": False,
            },
            "State": {"Status": state, "Running": self.running},
            "HostConfig": {"NetworkMode": "bridge"},
            "NetworkSettings": {
                "Networks": bridge,
                "Ports": {
                    inside: [{"HostIp": "127.0.0.1", "HostPort": str(port)}]
                    for inside, port in self.ports.items()
                    if self.running
                },
            },
        }


@dataclass
class FakeDocker:
    """A running engine.

    Attributes:
        url: For ``DOCKER_HOST``.
        images: The programs by the names of their images, without a tag.
        containers: Those that exist, by their ids.
        created: The images of all containers that were ever created.
        pulled: The images that were pulled; no other can be run.
    """

    url: str
    images: Mapping[str, list[str]]
    containers: dict[str, FakeContainer] = field(default_factory=dict)
    created: list[str] = field(default_factory=list)
    pulled: set[str] = field(default_factory=set)

    def remove(self, container: FakeContainer) -> None:
        """Kill a container and forget it."""
        if self.containers.pop(container.id, None) is not None:
            container.stop()
            container.root.cleanup()

    def remove_labelled(self, label: str, value: str) -> None:
        """Kill and forget the containers with that label."""
        for container in list(self.containers.values()):
            if (container.config.get("Labels") or {}).get(label) == value:
                self.remove(container)

    def reap(self, container: FakeContainer) -> None:
        """Be Ryuk: once the program that connects to us is gone, remove its containers."""
        (port,) = container.ports.values()
        container.reaper = socket.create_server(("127.0.0.1", port))

        def wait() -> None:
            wanted: list[list[str]] = []
            with contextlib.suppress(OSError):  # reset by a kill, or closed with the container
                connection, _ = container.reaper.accept()  # type: ignore[union-attr]
                with connection, connection.makefile("rwb") as lines:
                    for line in lines:
                        wanted.append(line.decode().strip().split("=", 2)[1:])
                        lines.write(b"ACK\n")
                        lines.flush()
            # As Ryuk does: a program that has closed its connection in good order removes its own.
            if not container.stopped.wait(float(container.environment["RYUK_RECONNECTION_TIMEOUT"][:-1])):
                for label, value in wanted:
                    self.remove_labelled(label, value)

        threading.Thread(target=wait, daemon=True).start()


class _Server(ThreadingMixIn, UnixStreamServer):
    daemon_threads = True
    engine: FakeDocker


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    @property
    def engine(self) -> FakeDocker:
        return self.server.engine  # type: ignore[attr-defined,no-any-return]

    def address_string(self) -> str:
        return "unix"

    def log_message(self, *_: object) -> None:
        """Say nothing."""

    def _answer(self, status: int, body: object = None) -> None:
        raw = body if isinstance(body, bytes) else json.dumps(body).encode() if body is not None else b""
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Api-Version", API)
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(raw)

    def _serve(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.headers.get("Transfer-Encoding") == "chunked":
            while size := int(self.rfile.readline(), 16):
                body += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
        url = urlsplit(self.path)
        path = re.sub(r"^/v1\.\d+", "", unquote(url.path))
        query = {name: values[-1] for name, values in parse_qs(url.query).items()}
        for pattern, answer in _ROUTES.items():
            if found := re.fullmatch(pattern, f"{self.command} {path}"):
                answer(self, *found.groups(), query=query, body=body)
                return
        self._answer(HTTPStatus.NOT_FOUND, {"message": f"the fake engine knows no {self.command} {path}"})

    do_GET = do_POST = do_PUT = do_DELETE = do_HEAD = _serve  # noqa: N815  http.server's names

    def _container(self, known_as: str) -> FakeContainer | None:
        for container in self.engine.containers.values():
            if container.id.startswith(known_as):
                return container
        self._answer(HTTPStatus.NOT_FOUND, {"message": f"no such container: {known_as}"})
        return None

    def ping(self, **_: object) -> None:
        self._answer(HTTPStatus.OK, b"OK")

    def version(self, **_: object) -> None:
        said = {"Version": "28.0", "ApiVersion": API, "MinAPIVersion": "1.24", "Os": "linux", "Arch": "amd64"}
        self._answer(HTTPStatus.OK, said)

    def info(self, **_: object) -> None:
        self._answer(HTTPStatus.OK, {"OperatingSystem": "fake", "OSType": "linux", "Labels": []})

    def image(self, name: str, **_: object) -> None:
        if pinned(name) in self.engine.pulled:
            self._answer(HTTPStatus.OK, {"Id": DIGEST, "RepoTags": [name], "Config": {}})
        else:
            self._answer(HTTPStatus.NOT_FOUND, {"message": f"no such image: {name}"})

    def pull(self, query: dict[str, str], **_: object) -> None:
        name, tag = query["fromImage"], query["tag"]
        if name not in {*self.engine.images, "testcontainers/ryuk"}:
            self._answer(HTTPStatus.NOT_FOUND, {"message": f"pull access denied for {name}"})
            return
        self.engine.pulled.add(f"{name}{'@' if ':' in tag else ':'}{tag}")
        self._answer(HTTPStatus.OK, b'{"status":"Pull complete"}\r\n')

    def create(self, query: dict[str, str], body: bytes, **_: object) -> None:
        config = json.loads(body)
        if pinned(config["Image"]) not in self.engine.pulled:
            self._answer(HTTPStatus.NOT_FOUND, {"message": f"no such image: {config['Image']}"})
            return
        inside = list(config.get("ExposedPorts") or {})
        container = FakeContainer(
            id=uuid.uuid4().hex * 2,
            name=query.get("name", "nameless"),
            config=config,
            ports=dict(zip(inside, free_ports(len(inside)), strict=True)),
            root=tempfile.TemporaryDirectory(prefix="asynclock-", ignore_cleanup_errors=True),
        )
        self.engine.containers[container.id] = container
        self.engine.created.append(config["Image"])
        self._answer(HTTPStatus.CREATED, {"Id": container.id, "Warnings": []})

    def all(self, query: dict[str, str], **_: object) -> None:
        wanted = json.loads(query.get("filters", "{}")).get("id", [])
        listed = [each.described() for each in self.engine.containers.values()]
        for said in listed:
            ports = said["NetworkSettings"]["Ports"]
            said["State"] = said["State"]["Status"]
            said["Ports"] = [
                {"PrivatePort": int(inside.split("/")[0]), "PublicPort": int(host["HostPort"]), "Type": "tcp"}
                for inside, (host,) in ports.items()
            ]
        self._answer(HTTPStatus.OK, [said for said in listed if not wanted or said["Id"] in wanted])

    def networks(self, **_: object) -> None:
        self._answer(HTTPStatus.OK, [])

    def start(self, known_as: str, **_: object) -> None:
        if container := self._container(known_as):
            image = re.split("[:@]", container.config["Image"])[0]
            if image == "testcontainers/ryuk":
                self.engine.reap(container)
            else:
                container.start(self.engine.images[image])
            self._answer(HTTPStatus.NO_CONTENT)

    def inspect(self, known_as: str, **_: object) -> None:
        if container := self._container(known_as):
            self._answer(HTTPStatus.OK, container.described())

    def archive(self, known_as: str, query: dict[str, str], body: bytes) -> None:
        if container := self._container(known_as):
            container.put(body, query["path"])
            self._answer(HTTPStatus.OK)

    def logs(self, known_as: str, **_: object) -> None:
        if container := self._container(known_as):
            said = container.log.read_bytes()
            self._answer(HTTPStatus.OK, struct.pack(">BxxxL", 1, len(said)) + said)

    def stop(self, known_as: str, **_: object) -> None:
        if container := self._container(known_as):
            container.stop()
            self._answer(HTTPStatus.NO_CONTENT)

    def delete(self, known_as: str, **_: object) -> None:
        if container := self._container(known_as):
            self.engine.remove(container)
            self._answer(HTTPStatus.NO_CONTENT)


_ID = "/containers/([0-9a-f]+)"
_ROUTES = {
    "(?:GET|HEAD) /_ping": _Handler.ping,
    "GET /version": _Handler.version,
    "GET /info": _Handler.info,
    "GET /networks": _Handler.networks,
    "GET /images/(.+)/json": _Handler.image,
    "POST /images/create": _Handler.pull,
    "POST /containers/create": _Handler.create,
    "GET /containers/json": _Handler.all,
    f"PUT {_ID}/archive": _Handler.archive,
    f"POST {_ID}/start": _Handler.start,
    f"GET {_ID}/json": _Handler.inspect,
    f"GET {_ID}/logs": _Handler.logs,
    f"POST {_ID}/(?:stop|kill)": _Handler.stop,
    f"DELETE {_ID}": _Handler.delete,
}


@contextlib.contextmanager
def fake_docker(images: Mapping[str, list[str]]) -> Iterator[FakeDocker]:
    """Run an engine with these images for the time of the block; its containers end with it."""
    with tempfile.TemporaryDirectory(prefix="docker-") as folder:
        path = f"{folder}/engine"
        with _Server(path, _Handler) as server:
            server.engine = engine = FakeDocker(f"unix://{path}", images)
            threading.Thread(target=server.serve_forever, daemon=True).start()
            try:
                yield engine
            finally:
                server.shutdown()
                for container in list(engine.containers.values()):
                    engine.remove(container)
