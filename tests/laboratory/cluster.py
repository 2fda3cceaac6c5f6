"""A standalone Spark cluster of this machine: a master and workers from PySpark's own jars, on loopback."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyspark

from asynclock._cli.run_guard import Guard
from tests.laboratory.cores import SHORT_LIVED_JVM

if TYPE_CHECKING:
    from collections.abc import Iterator

_READY_WITHIN: Final = 60.0
_GRACE: Final = 5.0
_MASTER: Final = re.compile(r"Starting Spark master at (spark://\S+)")
_REGISTERED: Final = re.compile(r"(Successfully registered with master)")


class Daemon:
    """A master or a worker, with the executors that it starts.

    Args:
        name: Of its log.
        arguments: The class and what it is given.
        folder: Where log and working files go.
        ready: What its log says once it serves.

    Attributes:
        log: Its log.
        said: What the log said.

    Raises:
        RuntimeError: It did not start.
    """

    def __init__(self, name: str, *arguments: str, folder: Path, ready: re.Pattern[str]) -> None:
        self.log = folder / f"{name}.log"
        self._killed = False
        launcher = Path(next(iter(pyspark.__path__))) / "bin" / "spark-class"
        environment = {
            **os.environ,
            "SPARK_LOCAL_IP": "127.0.0.1",  # of the web pages too, which listen everywhere otherwise
            "SPARK_DAEMON_MEMORY": "192m",
            "SPARK_DAEMON_JAVA_OPTS": f"{SHORT_LIVED_JVM} -Djava.io.tmpdir={folder}",
        }
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                [str(launcher), *arguments],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=folder,
                start_new_session=True,
            )
        # If this process is killed, the guard ends the daemon and its executors.
        self._guard = Guard(self._process.pid, grace=_GRACE)
        self.said = self._await(ready)

    def _await(self, ready: re.Pattern[str]) -> str:
        deadline = time.monotonic() + _READY_WITHIN
        while time.monotonic() < deadline and self._process.poll() is None:
            if found := ready.search(self.log.read_text(errors="replace")):
                return found[1]
            time.sleep(0.05)
        self.kill()
        message = f"the cluster did not get ready: {self.log.read_text(errors='replace')[-2000:]}"
        raise RuntimeError(message)

    def kill(self) -> None:
        """SIGKILL the daemon and the executors that it has started, at once."""
        if self._killed:
            return
        self._killed = True
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._guard.dismiss()


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """A running cluster.

    Attributes:
        url: URL of the master.
        master: The master.
        workers: The workers.
    """

    url: str
    master: Daemon
    workers: list[Daemon]


@contextlib.contextmanager
def running_cluster(
    folder: Path, *, workers: int = 2, cores: int = 1, memory: str = "1g", apart: bool = False
) -> Iterator[Cluster]:
    """Run a cluster for the time of the block.

    Args:
        folder: Where logs and the executors' files go; one that exists.
        workers: How many.
        cores: Cores that each worker offers; a number only, which may exceed those of the machine.
        memory: Memory that each worker offers.
        apart: Whether each worker has a loopback address of its own, as Spark runs two attempts of a task at
            the same time only on two machines.

    Raises:
        RuntimeError: It did not start.
    """
    with contextlib.ExitStack() as stack:
        deploy = "org.apache.spark.deploy"
        ports = ("--port", "0", "--webui-port", "0")
        place = ("--host", "127.0.0.1", *ports)
        master = Daemon("master", f"{deploy}.master.Master", *place, folder=folder, ready=_MASTER)
        stack.callback(master.kill)
        started = []
        for number in range(workers):
            work = folder / f"worker-{number}"
            size = ("--cores", str(cores), "--memory", memory, "--work-dir", str(work))
            # Every executor copies its jars there.
            stack.callback(shutil.rmtree, work, ignore_errors=True)
            worker = Daemon(
                f"worker-{number}",
                f"{deploy}.worker.Worker",
                *(("--host", f"127.0.0.{number + 2}", *ports) if apart else place),
                *size,
                master.said,
                folder=folder,
                ready=_REGISTERED,
            )
            stack.callback(worker.kill)
            started.append(worker)
        yield Cluster(url=master.said, master=master, workers=started)
