"""Plain Java programs of the tests, run from source on the class path that Spark has, without Spark."""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final

import pyspark
import pytest

from asynclock.spark.session import MERGER_JAR, hudi_bundle

if TYPE_CHECKING:
    from typing import Self

_SOURCES: Final = Path(__file__).parent / "java"
# What Spark's own launcher opens, as far as rows need it.
_OPENS: Final = [
    f"--add-opens=java.base/{package}=ALL-UNNAMED"
    for package in ("java.nio", "sun.nio.ch", "java.lang", "java.util", "sun.util.calendar")
]


class JavaProgram:
    """A running program that answers each line of its input with one line."""

    def __init__(self, name: str, *arguments: str) -> None:
        spark_jars = Path(next(iter(pyspark.__path__))) / "jars" / "*"
        bundle = hudi_bundle()
        assert bundle is not None, "no Hudi bundle on this machine: run `make jar`"
        home = os.environ.get("JAVA_HOME")
        self._errors = tempfile.TemporaryFile(mode="w+")  # noqa: SIM115 - closed with the program
        self.process = subprocess.Popen(
            [
                str(Path(home) / "bin" / "java") if home else "java",
                "-XX:TieredStopAtLevel=1",
                "-Djol.skipDynamicAttach=true",
                "-Djol.skipHotspotSAAttach=true",
                *_OPENS,
                "--class-path",
                f"{MERGER_JAR}:{bundle}:{spark_jars}",
                str(_SOURCES / f"{name}.java"),
                *arguments,
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            encoding="utf-8",
        )

    def ask(self, line: str) -> str:
        """Send one line, return the answer."""
        stdin, stdout = self._pipes()
        stdin.write(line + "\n")
        stdin.flush()
        answer = stdout.readline()
        if not answer:
            self._errors.seek(0)
            pytest.fail(f"the Java program ended with {self.process.wait()}: {self._errors.read()}")
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
