"""The JVM beside the tests: Hudi's own lock provider, driven line by line."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final

import pyspark
import pytest

from asynclock.spark.session import hudi_bundle, maven_repositories

if TYPE_CHECKING:
    from typing import Self

    from asynclock.testing.servers import Server

SOURCES: Final = Path(__file__).parent / "java"
# What Spark's own launcher opens, as far as Hudi's objects need it.
_OPENS: Final = [
    f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in ("java.nio", "java.lang", "java.util")
]


def java(name: str) -> str:
    """The path of a program of the JDK."""
    home = os.environ.get("JAVA_HOME")
    found = str(Path(home) / "bin" / name) if home else shutil.which(name)
    assert found is not None, f"{name} is missing: install a JDK 17"
    return found


def class_path() -> str:
    """Hudi's bundle, which brings the provider, and Spark's jars, which bring Hadoop and the log."""
    bundle = hudi_bundle()
    assert bundle is not None, "no Hudi bundle on this machine: run `make jar`"
    return f"{bundle}:{Path(next(iter(pyspark.__path__))) / 'jars' / '*'}"


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
    subprocess.run(
        [java("javac"), "-nowarn", "-d", str(folder), "--class-path", class_path(), *files], check=True
    )
    return folder


class Jvm:
    """A JVM with the harness, speaking to one S3 server."""

    def __init__(self, classes: Path, server: Server, *, endpoint: str | None = None) -> None:
        self._errors = tempfile.TemporaryFile(mode="w+")  # noqa: SIM115  closed with the program
        self.options = {
            "hoodie.aws.access.key": server.options["access_key_id"],
            "hoodie.aws.secret.key": server.options["secret_access_key"],
        }
        self.process = subprocess.Popen(
            [
                java("java"),
                "-XX:TieredStopAtLevel=1",
                "-Xmx256m",
                *_OPENS,
                "--class-path",
                f"{classes}:{class_path()}",
                "Harness",
            ],
            env=os.environ | {"AWS_ENDPOINT_URL_S3": endpoint or server.endpoint},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            encoding="utf-8",
        )

    def ask(self, *words: str) -> str:
        """Send one command, return the answer."""
        stdin, stdout = self._pipes()
        stdin.write(" ".join(words) + "\n")
        stdin.flush()
        answer = stdout.readline()
        if not answer:
            self._errors.seek(0)
            pytest.fail(f"the JVM ended with {self.process.wait()}: {self._errors.read()[-3000:]}")
        return answer.rstrip("\n")

    def provider(self, name: str, base: str, *, skew_ms: int = 0, **options: str) -> None:
        """Make a provider; its options are Hudi's, with underscores for dots."""
        answer = self.ask("new", name, str(skew_ms), *self.properties(base, **options))
        assert answer == "ok", answer

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

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone."""
        self.process.kill()
        self.process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        for file in (*self._pipes(), self._errors):
            file.close()

    def _pipes(self) -> tuple[IO[str], IO[str]]:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        return self.process.stdin, self.process.stdout
