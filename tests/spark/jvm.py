"""JVMs beside the tests, on the class path that Spark has but without Spark: a line in, a line out."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final

import pyspark
import pytest

from asynclock.spark.hudi.session import MERGER_JAR, hudi_bundle
from tests.laboratory.cores import SHORT_LIVED_JVM

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Self

_SOURCES: Final = Path(__file__).parent / "java"
# What Spark's own launcher opens, as far as rows and Hudi's objects need it.
_OPENS: Final = [
    f"--add-opens=java.base/{package}=ALL-UNNAMED"
    for package in ("java.nio", "sun.nio.ch", "java.lang", "java.util", "sun.util.calendar")
]


def java(name: str) -> str:
    """The path of a program of the JDK."""
    home = os.environ.get("JAVA_HOME")
    found = str(Path(home) / "bin" / name) if home else shutil.which(name)
    assert found is not None, f"{name} is missing: install a JDK 17"
    return found


def class_path(*first: Path) -> str:
    """Hudi's bundle and Spark's jars, behind what the program itself brings."""
    bundle = hudi_bundle()
    assert bundle is not None, "no Hudi bundle on this machine: run `make jar`"
    spark_jars = Path(next(iter(pyspark.__path__))) / "jars" / "*"
    return os.pathsep.join(str(path) for path in (*first, bundle, spark_jars))


class Jvm:
    """A running JVM that answers each line of its input with one line.

    Args:
        arguments: The main class or source file, and what it is given.
        path: The class path.
        flags: More options of the JVM.
        environment: More environment variables.
        user: Number of the user that runs it, without any group but ``groups``; default: that of the tests.
        groups: Groups of that user.
        umask: Its umask; default: that of the tests.
    """

    def __init__(
        self,
        *arguments: str,
        path: str,
        flags: tuple[str, ...] = (),
        environment: Mapping[str, str] | None = None,
        user: int | None = None,
        groups: tuple[int, ...] = (),
        umask: int = -1,
    ) -> None:
        self._errors = tempfile.TemporaryFile(mode="w+")  # noqa: SIM115  closed with the program
        self.process = subprocess.Popen(
            [
                java("java"),
                *SHORT_LIVED_JVM.split(),
                "-Djol.skipDynamicAttach=true",
                "-Djol.skipHotspotSAAttach=true",
                *_OPENS,
                *flags,
                "--class-path",
                path,
                *arguments,
            ],
            env={**os.environ, **(environment or {})},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            encoding="utf-8",
            user=user,
            group=user,
            extra_groups=None if user is None else groups,
            umask=umask,
        )

    def ask(self, *words: str) -> str:
        """Send one line, return the answer."""
        stdin, stdout = self._pipes()
        stdin.write(" ".join(words) + "\n")
        stdin.flush()
        answer = stdout.readline()
        if not answer:
            self._errors.seek(0)
            pytest.fail(f"the JVM ended with {self.process.wait()}: {self._errors.read()[-3000:]}")
        return answer.rstrip("\n")

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


class JavaProgram(Jvm):
    """A program of this folder, run from source.

    Args:
        name: Of the program.
        arguments: What it is given.
        jars: What comes first on the class path.
        user: As of ``Jvm``; so ``groups`` and ``umask``.
    """

    def __init__(
        self,
        name: str,
        *arguments: str,
        jars: tuple[Path, ...] = (),
        user: int | None = None,
        groups: tuple[int, ...] = (),
        umask: int = -1,
    ) -> None:
        super().__init__(
            str(_SOURCES / f"{name}.java"),
            *arguments,
            path=class_path(*jars, MERGER_JAR),
            user=user,
            groups=groups,
            umask=umask,
        )
