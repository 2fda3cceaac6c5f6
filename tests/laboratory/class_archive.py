"""An archive of the classes of Spark and Hudi: with it a JVM of the tests starts with a third less work.

A JVM maps the archive (class data sharing) in place of reading, checking and linking 15,000 classes. It is
made once for a Java and an installation of PySpark, and lies in the cache of the laboratory. A JVM with
another class path leaves it aside; a class that has changed since is read as without it.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tests.laboratory._installed import cache
from tests.laboratory.cores import SHORT_LIVED_JVM

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# A class path that is not that of the archive is no fault: the JVM would print a warning and go on without.
_QUIET: Final = "-Xlog:cds*=off -Xlog:class+path=off"
_ENDS_WITHIN: Final = 300.0
_SPEC: Final = """\
[table]
path = "table"
key = ["k"]
buckets = 1

[locks]
url = "locks"

[services]
compaction = { every_commits = 2 }

[streams.a]
source = "in/*.csv"
ordering = "at"
checkpoint = "checkpoint"
columns = { at = "bigint", x = "int" }
max_files_per_trigger = 1
"""


def jvm_options() -> str:
    """Return the options of a JVM that a test starts, with the archive if it is there."""
    try:
        file = _archive()
    except PackageNotFoundError:  # an environment for the lock alone
        return SHORT_LIVED_JVM
    return f'{SHORT_LIVED_JVM} "-XX:SharedArchiveFile={file}" {_QUIET}' if file.exists() else SHORT_LIVED_JVM


def make() -> Path:
    """Return the archive, made if it is not there, which takes half a minute.

    Raises:
        RuntimeError: The JVM has not written it.
    """
    from asynclock.spark.hudi.session import jvm_output_to, session  # noqa: PLC0415  who asks for the options has no Spark

    file = _archive()
    if file.exists():
        return file
    file.parent.mkdir(parents=True, exist_ok=True)
    partial = file.with_name(f"{os.getpid()}.part")
    # Our jars stay off its class path: an archive serves a JVM whose class path begins with that of its own.
    os.environ["PYSPARK_SUBMIT_ARGS"] = "--name classes pyspark-shell"
    os.environ["SPARK_SUBMIT_OPTS"] = f'{SHORT_LIVED_JVM} "-XX:ArchiveClassesAtExit={partial}" {_QUIET}'
    with tempfile.TemporaryDirectory(prefix="asynclock-classes-") as name:
        log = Path(name) / "log"
        with jvm_output_to(lambda: log.open("wb")):
            spark = session("classes", master="local[2]", conf={"spark.local.dir": name})
        _use(Path(name), spark)
        gateway: Any = spark.sparkContext._gateway  # no public way to its process
        spark.stop()
        gateway.shutdown()
        gateway.proc.stdin.close()  # by which the JVM ends
        gateway.proc.wait(_ENDS_WITHIN)
        said = log.read_text(errors="replace")
    if not partial.exists():
        raise RuntimeError(f"the JVM has not written {partial}: {said[-500:]}")
    for other in file.parent.glob(f"{file.name.partition('-')[0]}-*.jsa"):
        other.unlink()  # of jars that were there before
    return partial.replace(file)


def _use(folder: Path, spark: SparkSession) -> None:
    """Load what most tests load: a stream, a compaction, a validation."""
    from asynclock.spark import load_spec, run, validate  # noqa: PLC0415  who asks for the options has no Spark

    (folder / "in").mkdir()
    for number in range(3):
        (folder / "in" / f"{number}.csv").write_text(f"k,at,x\nN1,{number},1\nN{number},{number},2\n")
    (folder / "spec.toml").write_text(_SPEC)
    spec = load_spec(folder / "spec.toml")
    run(spec, once=True, spark=spark)
    validate(spec, spark)


def _archive() -> Path:
    """Return the path of the archive, which names the Java and the jars of PySpark that it is for."""
    home = os.environ.get("JAVA_HOME")
    java = Path(home, "bin", "java") if home else Path(shutil.which("java") or "java")
    installed = Path(str(distribution("pyspark").locate_file("pyspark")))
    # The JVM leaves an archive aside, without a word, if a jar is of another size or time.
    jars = [f"{jar.stat().st_size} {jar.stat().st_mtime_ns}" for jar in sorted(installed.glob("jars/*.jar"))]
    return cache() / "classes" / f"{_digest(java.resolve(), installed)}-{_digest(*jars)}.jsa"


def _digest(*parts: object) -> str:
    return sha256("\n".join(map(str, parts)).encode()).hexdigest()[:16]


def main() -> None:
    """Make the archive."""
    sys.stdout.write(f"classes of Spark: {make()}\n")


if __name__ == "__main__":
    main()
