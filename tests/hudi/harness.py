"""Hudi's own lock provider in a JVM beside the tests, driven line by line."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Final

from asynclock.spark.hudi.session import MERGER_JAR, maven_repositories
from tests.spark.jvm import Jvm, class_path, java

if TYPE_CHECKING:
    from tests.laboratory.servers import Server

SOURCES: Final = Path(__file__).parent / "java"
S3A: Final = ("org.apache.hadoop:hadoop-aws:3.3.4", "com.amazonaws:aws-java-sdk-bundle:1.12.262")


def maven_jar(name: str) -> Path:
    """A jar of the local Maven repository, downloaded the first time."""
    group, artifact, version = name.split(":")
    below = Path(*group.split("."), artifact, version, f"{artifact}-{version}.jar")

    def found() -> Path | None:
        return next((path / below for path in maven_repositories() if (path / below).is_file()), None)

    if found() is None:
        command = [
            "mvn",
            "--quiet",
            "--batch-mode",
            "dependency:get",
            f"-Dartifact={name}",
            "-Dtransitive=false",
        ]
        subprocess.run(command, check=True)
    jar = found()
    assert jar is not None, f"Maven did not bring {name}"
    return jar


def compile_harness(folder: Path) -> Path:
    """Compile the harness and the S3 client that Hudi loads by reflection."""
    files = [str(file) for file in SOURCES.rglob("*.java")]
    path = class_path(MERGER_JAR)
    subprocess.run([java("javac"), "-nowarn", "-d", str(folder), "--class-path", path, *files], check=True)
    return folder


def s3a_jars() -> list[str]:
    """Hadoop's client of S3."""
    return [str(maven_jar(name)) for name in S3A]


def lock_client_jar(classes: Path, folder: Path) -> str:
    """The tests' client of Hudi's lock as a jar.

    Args:
        classes: The compiled harness.
        folder: Where the jar goes.
    """
    jar = folder / "lock-client.jar"
    Path(shutil.make_archive(str(jar.with_suffix("")), "zip", classes)).rename(jar)
    return str(jar)


class Providers(Jvm):
    """A JVM with the harness, speaking to one S3 server."""

    def __init__(
        self, classes: Path, server: Server, *, endpoint: str | None = None, flags: tuple[str, ...] = ()
    ) -> None:
        super().__init__(
            "Harness",
            path=class_path(classes, MERGER_JAR),
            flags=("-Xmx256m", *flags),
            environment={"AWS_ENDPOINT_URL_S3": endpoint or server.endpoint},
        )
        self.options = {
            "hoodie.aws.access.key": server.options["access_key_id"],
            "hoodie.aws.secret.key": server.options["secret_access_key"],
        }

    def provider(self, name: str, base: str, *, skew_ms: int = 0, **options: str) -> None:
        """Make a provider; its options are Hudi's, with underscores for dots."""
        answer = self.ask("new", name, str(skew_ms), *self.properties(base, **options))
        assert answer == "ok", answer

    def store_provider(self, name: str, base: str, *, validity: int = 10) -> None:
        """Make one of asynclock's, which adds to Hudi's; its times are in Hadoop's configuration."""
        properties = {"hoodie.base.path": base, **self.options}
        given = [f"{key}={value}" for key, value in properties.items()]
        answer = self.ask("newStore", name, str(validity), *given)
        assert answer == "ok", answer

    def use(self, base: str) -> list[int]:
        """How often asynclock's provider took the lock of a table, the nanoseconds waited, and held."""
        found: list[int] = json.loads(self.ask("use", base))
        return found

    def properties(self, base: str, **options: str) -> list[str]:
        """The options of a provider, as words of a command."""
        given = {
            "hoodie.base.path": base,
            "hoodie.write.lock.storage.validity.timeout.secs": "10",
            "hoodie.write.lock.storage.renew.interval.secs": "1",
            **self.options,
            **{f"hoodie.{key.replace('_', '.')}": value for key, value in options.items()},
        }
        return [f"{key}={value}" for key, value in given.items()]

    def parse(self, body: bytes) -> str:
        """What Hudi's reader makes of a lock file."""
        return self.ask("parse", base64.b64encode(body).decode()).strip()
