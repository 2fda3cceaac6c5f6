"""Drivers that have their Spark session before they are told what to do."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final

from tests.laboratory.restarts.drivers import DriverError, Process

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from asynclock.spark.spec.model import Spec

_ROOT: Final = Path(__file__).parents[3]
# Half of the processor time of a JVM that lives for seconds is the optimizing compiler's.
_SHORT_LIVED: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
PATIENCE: Final = 300.0


class WarmDriver(Process):
    """A process with a session, which waits for its order.

    Args:
        name: Name of the log, too.
        folder: Where it runs.
        conf: Further settings of its session.
        scratch: Where it keeps temporary files; it is made. None: where every program does.
        variables: Further ones of its environment.
    """

    def __init__(
        self,
        name: str,
        folder: Path,
        *,
        conf: Mapping[str, str] | None = None,
        scratch: Path | None = None,
        variables: Mapping[str, str] | None = None,
    ) -> None:
        options = _SHORT_LIVED if scratch is None else f"{_SHORT_LIVED} -Djava.io.tmpdir={scratch}"
        environment = os.environ | {"JAVA_TOOL_OPTIONS": options, "PYTHONPATH": str(_ROOT)}
        environment |= variables or {}
        settings = dict(conf or {})
        if scratch is not None:
            scratch.mkdir()
            environment["TMPDIR"] = settings["spark.local.dir"] = str(scratch)
        super().__init__(
            name,
            folder,
            folder / f"{name}.log",
            [sys.executable, "-m", "tests.laboratory.mechanisms.driver", json.dumps(settings)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
        )

    def go(
        self,
        spec: Spec,
        streams: Sequence[str] = (),
        *,
        services: bool = False,
        once: bool = False,
        clock: float = 0.0,
        run_dir: Path | None = None,
    ) -> None:
        """Wait for the session, and give the order.

        Args:
            spec: The table.
            streams: What to write; none: run the services.
            services: Run the services beside the streams.
            once: Do what is due now, and end.
            clock: Seconds by which the wall clock of its leases is fast.
            run_dir: Where it records the run; None: it does not.
        """
        self._said()
        order = {
            "spec": str(spec.path),
            "streams": list(streams),
            "services": services or not streams,
            "once": once,
            "clock": clock,
            "run_dir": None if run_dir is None else str(run_dir),
        }
        print(json.dumps(order), file=self._pipe(self._process.stdin), flush=True)

    def result(self) -> dict[str, float]:
        """Wait for the end of what was ordered; return what the commit lock has cost this driver.

        ``taken`` is how often it was taken, ``waited`` and ``held`` are seconds.
        """
        said = self._said()
        self._process.wait(PATIENCE)
        return said

    def _said(self) -> dict[str, Any]:
        for line in self._pipe(self._process.stdout):
            if line.startswith("{"):  # Java libraries write there, too
                said: dict[str, Any] = json.loads(line)
                return said
        raise DriverError(f"{self.name} ended with {self._process.wait(PATIENCE)}: {self.tail()}")

    @staticmethod
    def _pipe(pipe: IO[str] | None) -> IO[str]:
        if pipe is None:
            raise TypeError("the process has no pipe")
        return pipe
