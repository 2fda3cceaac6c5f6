"""A child process of the demo: it feeds streams, runs the table services, or validates.

Run by ``examples.demo`` as ``python -m examples.demo_worker ROLE SPEC ...``. It reports to its parent in JSON
objects, one per line, on a separate pipe, since the JVM prints on the others. It dies with its
parent.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import json
import logging
import os
import signal
import sys
import threading
import time
from dataclasses import asdict, replace
from glob import glob
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from asynclock import spark
from asynclock.errors import AsyncLockError
from asynclock.spark.hudi.timeline import Timeline
from examples import fleet_oracle
from examples.demo_validation import validate

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    from asynclock.events import Event
    from asynclock.spark.results import BatchReport
    from asynclock.spark.spec.model import Spec

REHEARSED_LINES: Final = 500
_LOOK_SECONDS: Final = 0.02
_PR_SET_PDEATHSIG: Final = 1


class Worker:
    """One role of the demo, with the pipe to its parent.

    Args:
        spec: Path of the spec.
        sources: Path of the spec whose sources are files of this machine.
        events: Descriptor of the pipe.
    """

    def __init__(self, spec: Path, sources: Path, events: int) -> None:
        self._path = spec
        self._sources = sources
        self._spec: Spec = spark.load_spec(spec)
        self._events = os.fdopen(events, "w", encoding="utf-8", buffering=1)
        self._telling = threading.Lock()
        self._running = contextlib.ExitStack()
        self._watches = False
        self._pause_after: int | None = None
        self._batches = 0

    def close(self) -> None:
        """Stop Spark."""
        self._running.close()

    def feed(self, streams: list[str], *, pause_after: int | None = None) -> None:
        """Feed the streams until every file is committed; after some batches wait for a line on stdin."""
        session = self._session(" ".join(streams))
        threading.Thread(target=self._tell_instants, args=(session,), daemon=True).start()
        self._pause_after = pause_after
        self._feed(streams, session)

    def standby(self, streams: list[str]) -> None:
        """Warm up, wait for a line on stdin, then for the leases of the streams, and feed what is left."""
        session = self._session(" ".join(streams), ready=False)
        self._rehearse(streams, session)
        self._tell("ready")
        sys.stdin.readline()
        self._spec = replace(self._spec, locks=replace(self._spec.locks, listener=self._on_event))
        self._feed(streams, session)

    def _on_event(self, event: Event) -> None:
        """Tell the first time that somebody else is seen to have the lease."""
        if event.kind == "waiting" and not self._watches:
            self._watches = True
            self._tell("watches")

    def _rehearse(self, streams: list[str], session: SparkSession) -> None:
        """Write a few rows into a separate table, since the first batch of a JVM takes much longer."""
        folder = self._path.parent / "rehearsal"
        rehearsed = []
        for stream in map(spark.load_spec(self._sources).stream, streams):
            path = folder / stream.name / "first.csv"
            path.parent.mkdir(parents=True)
            with min(Path(name) for name in glob(stream.source)).open("rb") as source:  # noqa: PTH207
                path.write_bytes(b"".join(islice(source, REHEARSED_LINES)))
            checkpoint = str(folder / "checkpoints" / stream.name)
            rehearsed.append(replace(stream, source=str(path.parent), checkpoint=checkpoint))
        spec = replace(
            self._spec,
            table=replace(self._spec.table, path=(folder / "table").as_uri()),
            locks=replace(self._spec.locks, url=(folder / "locks").as_uri(), options={}),
            streams=tuple(rehearsed),
        )
        spark.run(spec, once=True, spark=session)

    def _feed(self, streams: list[str], session: SparkSession) -> None:
        report = spark.run(self._spec, streams=streams, once=True, spark=session, on_batch=self._on_batch)
        for stream in report.streams:
            self._tell("stream", **asdict(stream))
        self._tell("done")

    def services(self) -> None:
        """Compact, clean and roll back until SIGTERM, then compact what is left."""
        session = self._session("services")
        spark.run_services(self._spec, spark=session, on_event=self._on_service)
        services = replace(self._spec.services, compact_every_commits=1)
        final = replace(self._spec, services=services)
        spark.run_services(final, once=True, spark=session, on_event=self._on_service)
        self._tell("done")

    def validate(self) -> None:
        """Work out what the table must hold, wait for a line on stdin, then compare every cell."""
        session = self._session("validation")
        expected = fleet_oracle.expect(self._sources)
        sys.stdin.readline()
        found = validate(self._path, session, expected=expected)
        self._tell(
            "validated",
            keys=found.keys,
            columns=found.columns,
            differences=[str(difference) for difference in found.differences],
            statistics={name: asdict(one) for name, one in expected.statistics.items()},
            commits=self._commits(session),
            sample=[
                {name: "" if row[name] is None else str(row[name]) for name in row} for row in found.sample
            ],
        )
        self._tell("done")

    def fail(self, error: AsyncLockError) -> None:
        """Tell why the role ends early."""
        self._tell("failed", reason=str(error))

    def _commits(self, session: SparkSession) -> list[dict[str, Any]]:
        """Every commit of a batch, the archived ones included, in the order of completion."""
        timeline = Timeline(session, self._spec.table.path)
        return [asdict(commit) for commit in timeline.commits]

    def _session(self, app: str, *, ready: bool = True) -> SparkSession:
        session = self._running.enter_context(spark.session_for(self._spec, f"asynclock demo {app}"))
        if ready:
            self._tell("ready")
        return session

    def _tell_instants(self, session: SparkSession) -> None:
        """Tell each new instant that this driver has begun, as long as the process lives."""
        jvm: Any = session._jvm  # noqa: SLF001
        generator = jvm.org.apache.hudi.common.table.timeline.HoodieInstantTimeGenerator
        told = generator.getLastInstantTime()
        while True:
            if (newest := generator.getLastInstantTime()) != told:
                told = newest
                self._tell("instant", instant=newest)
            time.sleep(_LOOK_SECONDS)

    def _on_batch(self, batch: BatchReport) -> None:
        self._tell("batch", **asdict(batch))
        self._batches += 1
        if self._batches == self._pause_after:
            sys.stdin.readline()

    def _on_service(self, sentence: str) -> None:
        self._tell("service", sentence=sentence)

    def _tell(self, event: str, **fields: object) -> None:
        with self._telling:
            self._events.write(json.dumps({"event": event, **fields}) + "\n")


def _die_with(parent: int) -> None:
    """Let the kernel kill this process when its parent ends, however it ends; the JVM follows."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG) failed")
    if os.getppid() != parent:
        sys.exit("the demo has ended meanwhile")


def main() -> None:
    """Play one role."""
    parser = argparse.ArgumentParser(prog="python -m examples.demo_worker", description=__doc__)
    parser.add_argument("role", choices=("feed", "standby", "services", "validate"))
    parser.add_argument("spec", type=Path)
    parser.add_argument("streams", nargs="*")
    parser.add_argument("--sources", type=Path, required=True, help="spec with the events on this machine")
    parser.add_argument("--events", type=int, required=True, help="descriptor of the pipe for events")
    parser.add_argument("--pause-after", type=int, help="batches after which feed waits for a line on stdin")
    parser.add_argument("--parent", type=int, required=True, help="process id of the demo")
    options = parser.parse_args()
    _die_with(options.parent)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    logging.getLogger("py4j").setLevel(logging.WARNING)
    worker = Worker(options.spec, options.sources, options.events)
    roles: dict[str, Callable[[], None]] = {
        "feed": lambda: worker.feed(options.streams, pause_after=options.pause_after),
        "standby": lambda: worker.standby(options.streams),
        "services": worker.services,
        "validate": worker.validate,
    }
    try:
        roles[options.role]()
    except AsyncLockError as error:
        worker.fail(error)
        raise
    finally:
        worker.close()


if __name__ == "__main__":
    main()
