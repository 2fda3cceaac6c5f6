"""A pipeline whose table, checkpoints, sources, quarantine and locks are on s3a, run on a cluster."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

import botocore.session
import pyarrow as pa
import pyarrow.parquet as pq
import pyspark

from asynclock.spark.hudi.session import MERGER_JAR, hudi_bundle
from tests.cli.command import COMMAND
from tests.hudi.harness import s3a_jars
from tests.laboratory.cores import SHORT_LIVED_JVM
from tests.laboratory.servers import BUCKET
from tests.spark.oracle import Event, splice

if TYPE_CHECKING:
    from tests.laboratory.servers import Server

DEADLINE: Final = 500.0
ROOT: Final = Path(__file__).parents[2]
SUBMIT: Final = ROOT / "examples" / "submit.py"
BARE: Final = "/no/python/on/the/executors"

SPEC: Final = """\
[table]
path = "s3a://{bucket}/{prefix}/table"
key = ["k"]
buckets = {buckets}

[locks]
url = "s3a://{bucket}/{prefix}/locks"
validity = 10.0
endpoint_url = "{endpoint}"
region = "us-east-1"
path_style = true
allow_http = true
access_key_id = {{ env = "AWS_ACCESS_KEY_ID" }}
secret_access_key = {{ env = "AWS_SECRET_ACCESS_KEY" }}

[services]
compaction = {{ every_commits = 4 }}

[spark]
master = "{master}"

[spark.conf]
spark.driver.host = "127.0.0.1"
spark.driver.bindAddress = "127.0.0.1"
spark.driver.memory = "768m"
spark.executor.memory = "512m"
spark.executor.cores = 1
spark.executor.extraJavaOptions = "{jvm}"
spark.ui.enabled = false
spark.local.dir = "{folder}/local"
spark.jars = "{lock_client}"
spark.driver.extraClassPath = "{s3a}"
spark.executor.extraClassPath = "{s3a}"
spark.hadoop.fs.s3a.endpoint = "{endpoint}"
spark.hadoop.fs.s3a.path.style.access = true
spark.hadoop.fs.s3a.connection.ssl.enabled = false
"spark.hadoop.fs.s3a.access.key" = {{ env = "AWS_ACCESS_KEY_ID" }}
"spark.hadoop.fs.s3a.secret.key" = {{ env = "AWS_SECRET_ACCESS_KEY" }}

[streams.a]
source = "s3a://{bucket}/{prefix}/in/a/*.csv"
format = "csv"
ordering = "at"
checkpoint = "s3a://{bucket}/{prefix}/checkpoints/a"
max_files_per_trigger = 1
on_bad_row = "quarantine"
columns = {{ at = "bigint", x = "int", note = "string" }}

[streams.b]
source = "s3a://{bucket}/{prefix}/in/b"
format = "parquet"
ordering = "seen"
checkpoint = "s3a://{bucket}/{prefix}/checkpoints/b"
max_files_per_trigger = 1
columns = {{ seen = "bigint", y = "double" }}
"""


class Remote:
    """The pipeline: delivers files, runs commands, looks at what came of them.

    Args:
        folder: Scratch of the drivers.
        master: URL of the cluster.
        server: The store.
        lock_client: Jar with the client of Hudi's lock.

    Attributes:
        path: The spec.
        events: What was delivered, in the order of arrival, by key.
    """

    def __init__(self, folder: Path, master: str, server: Server, lock_client: str) -> None:
        self.folder = folder
        self.master = master
        self.server = server
        self.jars = [str(MERGER_JAR), str(hudi_bundle()), lock_client]
        # On every machine of the cluster already, as in most clusters: it is large.
        self.s3a = os.pathsep.join(s3a_jars())
        self.prefix = folder.name
        self.path = self.spec("spec.toml")
        self.events: dict[str, list[Event]] = {}
        self._client: Any = botocore.session.get_session().create_client(
            "s3",
            region_name=server.options["region"],
            endpoint_url=server.endpoint,
            aws_access_key_id=server.options["access_key_id"],
            aws_secret_access_key=server.options["secret_access_key"],
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def spec(self, name: str, **changes: str) -> Path:
        """Write the spec, with other values than usual."""
        values = {
            "bucket": BUCKET,
            "prefix": self.prefix,
            "buckets": "2",
            "endpoint": self.server.endpoint,
            "master": self.master,
            "folder": str(self.folder),
            "lock_client": self.jars[-1],
            "s3a": self.s3a,
            "jvm": SHORT_LIVED_JVM,
        }
        path = self.folder / name
        path.write_text(SPEC.format(**(values | changes)))
        return path

    def deliver(self, number: int, keys: int) -> None:
        """One more file of each stream; older and newer events of a key take turns."""
        lines = ["k,at,x,note"]
        rows: dict[str, list[Any]] = {"k": [], "seen": [], "y": []}
        for key in range(keys):
            name, newer = f"k{key}", number * (1 if (key + number) % 3 else -1)
            x, y = None if key % 5 == number % 5 else key * 100 + number, key + number / 8
            lines.append(f"{name},{newer},{'' if x is None else x},{'ä' * (key % 3) or 'o'}")
            self._note("a", name, newer, {"x": x, "note": "ä" * (key % 3) or "o"})
            for column, value in zip(rows, (name, -newer, y), strict=True):
                rows[column].append(value)
            self._note("b", name, -newer, {"y": y})
        lines.append(f"k0,{number},no number,bad row of file {number}")
        self.put(f"in/a/{number:03} ü.csv", "\n".join([*lines, ""]).encode())
        file = io.BytesIO()
        pq.write_table(pa.table(rows), file)
        self.put(f"in/b/{number:03}.parquet", file.getvalue())

    def _note(self, stream: str, key: str, ts: int, values: dict[str, Any]) -> None:
        self.events.setdefault(key, []).append(Event(stream, ts, values))

    def expected(self) -> dict[str, dict[str, Any]]:
        """The rows that the view must have, by key."""
        rows = {}
        for key, events in self.events.items():
            row = splice(events) or {}
            rows[key] = {
                "k": key,
                "at": row["a__ts"],
                "x": row["a__x"],
                "note": row["a__note"],
                "seen": row["b__ts"],
                "y": row["b__y"],
            }
        return rows

    def put(self, key: str, body: bytes) -> None:
        """Write an object below the prefix."""
        self._client.put_object(Bucket=BUCKET, Key=f"{self.prefix}/{key}", Body=body)

    def get(self, key: str) -> bytes:
        """Read an object below the prefix."""
        found: bytes = self._client.get_object(Bucket=BUCKET, Key=f"{self.prefix}/{key}")["Body"].read()
        return found

    def keys(self, below: str = "") -> list[str]:
        """Every object below the prefix, without it."""
        pages = self._client.get_paginator("list_objects_v2").paginate(
            Bucket=BUCKET, Prefix=f"{self.prefix}/{below}"
        )
        return [each["Key"][len(self.prefix) + 1 :] for page in pages for each in page.get("Contents", ())]

    def environment(self) -> dict[str, str]:
        """What a driver is given: the store's credentials, and no Python for the executors."""
        options = self.server.options
        return {
            **os.environ,
            "AWS_ENDPOINT_URL_S3": self.server.endpoint,
            "AWS_REGION": options["region"],
            "AWS_ACCESS_KEY_ID": options["access_key_id"],
            "AWS_SECRET_ACCESS_KEY": options["secret_access_key"],
            "PYTHONPATH": str(ROOT),
            "PYSPARK_PYTHON": BARE,
            "PYSPARK_DRIVER_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_SUBMIT_OPTS": SHORT_LIVED_JVM,
        }

    def start(self, *words: str) -> subprocess.Popen[str]:
        """Start a program in the drivers' folder."""
        with (self.folder / "driver.log").open("a") as log:
            return subprocess.Popen(
                words,
                env=self.environment(),
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
            )

    def command(self, *words: str | Path) -> subprocess.Popen[str]:
        """Start a verb of ``asynclock pipeline``; what its JVM says is in the drivers' log too."""
        return self.start(*COMMAND, *map(str, words), "--log", str(self.folder / "driver.log"))

    def submit(self, script: Path, *words: str | Path, jars: bool = True, **conf: str) -> list[str]:
        """The words of ``spark-submit`` on the cluster.

        Args:
            script: The driver.
            words: What it is given.
            jars: Ship the jars.
            conf: More settings, with underscores for dots.
        """
        launcher = Path(next(iter(pyspark.__path__))) / "bin" / "spark-submit"
        given = {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.memory": "768m",
            "spark.executor.memory": "512m",
            "spark.driver.extraClassPath": self.s3a,
            "spark.executor.extraClassPath": self.s3a,
            **{name.replace("_", "."): value for name, value in conf.items()},
        }
        settings = [word for name, value in given.items() for word in ("--conf", f"{name}={value}")]
        shipped = ["--jars", ",".join(self.jars)] if jars else []
        return [str(launcher), "--master", self.master, *shipped, *settings, str(script), *map(str, words)]


def finish(process: subprocess.Popen[str]) -> tuple[int, str]:
    """Wait for the end: the exit code, and what was printed."""
    with process:
        output, _ = process.communicate(timeout=DEADLINE)
    return process.returncode, output


def objects(output: str) -> list[Any]:
    """The objects that were printed, one a line."""
    return [json.loads(line) for line in output.splitlines() if line.startswith("{")]
