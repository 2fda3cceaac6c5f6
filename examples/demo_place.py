"""Where the demo's table lies and its drivers run: on this machine, or on a cluster and an S3 server."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from typing import TYPE_CHECKING, Any, Final, Protocol, Self

from examples.demo_children import SCRATCH, DemoError
from examples.demo_table import LocalFolder, StoreFolder, TableFiles

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from asynclock.spark.spec.model import Spec
    from tests.laboratory.cluster import Cluster
    from tests.laboratory.servers import Server

HERE: Final = "here"
CLUSTER: Final = "cluster"
PREFIX: Final = "fleet"
# Of each driver and executor.
_DRIVER: Final = "1g"
_EXECUTOR: Final = "640m"


class Place(Protocol):
    """A place of the demo: a context, which ends with everything that it has started."""

    def __enter__(self) -> Self:
        """Start what the place needs."""
        ...

    def __exit__(self, *_: object) -> None:
        """End it."""
        ...

    def settle(self, spec: Path) -> Path:
        """Bring the event files to the place.

        Args:
            spec: A spec whose paths are all in its folder.

        Returns:
            The spec for the drivers.
        """
        ...

    def table(self, spec: Spec) -> TableFiles:
        """The files of the table."""
        ...


class Here:
    """This machine: every driver has two cores, and the table is a folder.

    Args:
        folder: Of the run.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def settle(self, spec: Path) -> Path:
        """Let Spark run on this machine."""
        settings = {"spark.driver.memory": _DRIVER, "spark.sql.shuffle.partitions": "2"}
        here = spec.with_name("here.toml")
        here.write_text(spec.read_text(encoding="utf-8") + _spark("local[2]", self._folder, settings))
        return here

    def table(self, spec: Spec) -> TableFiles:
        """The files of the table."""
        return TableFiles(LocalFolder(spec.table.path))


class OnCluster:
    """A Spark cluster and an S3 server, both on the loopback addresses of this machine.

    They come from the tests, which install the server. Hudi's own client of its lock on S3 is a jar that
    users add; the tests' client takes its place.

    Args:
        folder: Of the run.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._running = contextlib.ExitStack()
        self._server: Server
        self._cluster: Cluster
        self._jars: tuple[str, str]

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self._running.close()
            raise
        return self

    def _start(self) -> None:
        try:
            from tests.hudi.harness import compile_harness, lock_client_jar, s3a_jars  # noqa: PLC0415
            from tests.laboratory.cluster import running_cluster  # noqa: PLC0415
            from tests.laboratory.servers import running  # noqa: PLC0415
        except ImportError as error:
            raise DemoError(
                f"the cluster and the server come with the tests: {error}; use make demo"
            ) from error
        scratch = self._folder / SCRATCH
        scratch.mkdir()
        self._server = self._running.enter_context(running("s3", own=True, folder=scratch))
        # Numbers only: each of the five drivers gets an executor with one core.
        self._cluster = self._running.enter_context(running_cluster(scratch, workers=2, cores=4, memory="8g"))
        classes = scratch / "classes"
        classes.mkdir()
        client = lock_client_jar(compile_harness(classes), scratch)
        shutil.rmtree(classes)
        self._jars = (":".join(s3a_jars()), client)
        options = self._server.options
        # The demo and its drivers have them from here; a spec holds no secret.
        os.environ["AWS_ENDPOINT_URL_S3"] = self._server.endpoint
        os.environ["AWS_REGION"] = options["region"]
        os.environ["AWS_ACCESS_KEY_ID"] = options["access_key_id"]
        os.environ["AWS_SECRET_ACCESS_KEY"] = options["secret_access_key"]
        os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"

    def __exit__(self, *_: object) -> None:
        self._running.close()

    def settle(self, spec: Path) -> Path:
        """Upload the event files, in the order of their delivery, and lead every path to the store."""
        store = StoreFolder(f"{self._server.url}/{PREFIX}", self._server.options)
        for file in sorted((self._folder / "data").rglob("*.csv")):
            store.write(file.relative_to(self._folder).as_posix(), file.read_bytes())
        store.close()
        base = f"{self._server.url}/{PREFIX}".replace("s3://", "s3a://")
        text = spec.read_text(encoding="utf-8")
        text = text.replace(f"file://{self._folder}", base).replace(str(self._folder), base)
        text = text.replace("[locks]\n", f"[locks]\n{_locks(self._server)}")
        path = spec.with_name("cluster.toml")
        path.write_text(text + _spark(self._cluster.url, self._folder, self._settings()))
        return path

    def _settings(self) -> dict[str, str]:
        s3a, client = self._jars
        return {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.memory": _DRIVER,
            "spark.executor.memory": _EXECUTOR,
            "spark.executor.cores": "1",
            "spark.cores.max": "1",
            "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
            "spark.ui.enabled": "false",
            "spark.jars": client,
            "spark.driver.extraClassPath": s3a,
            "spark.executor.extraClassPath": s3a,
            "spark.hadoop.fs.s3a.endpoint": self._server.endpoint,
            "spark.hadoop.fs.s3a.path.style.access": "true",
            "spark.hadoop.fs.s3a.connection.ssl.enabled": "false",
        }

    def table(self, spec: Spec) -> TableFiles:
        """The files of the table."""
        url = spec.table.path.replace("s3a://", "s3://")
        store = StoreFolder(url, self._server.options)
        self._running.callback(store.close)
        return TableFiles(store)


PLACES: Final[Mapping[str, Any]] = {HERE: Here, CLUSTER: OnCluster}


def _locks(server: Server) -> str:
    return (
        f'endpoint_url = "{server.endpoint}"\n'
        f'region = "{server.options["region"]}"\n'
        "allow_http = true\n"
        'access_key_id = { env = "AWS_ACCESS_KEY_ID" }\n'
        'secret_access_key = { env = "AWS_SECRET_ACCESS_KEY" }\n'
    )


def _spark(master: str, folder: Path, settings: Mapping[str, str]) -> str:
    scratch = folder / SCRATCH
    given = {
        **settings,
        "spark.local.dir": str(scratch),
        "spark.sql.warehouse.dir": (scratch / "warehouse").as_uri(),
    }
    lines = [f"{name} = {json.dumps(value, ensure_ascii=False)}" for name, value in given.items()]
    if master.startswith("spark:"):
        for name, variable in (("access", "AWS_ACCESS_KEY_ID"), ("secret", "AWS_SECRET_ACCESS_KEY")):
            lines.append(f'spark.hadoop.fs.s3a.{name}.key = {{ env = "{variable}" }}')
    return "\n".join([f'\n[spark]\nmaster = "{master}"\n\n[spark.conf]', *lines, ""])
