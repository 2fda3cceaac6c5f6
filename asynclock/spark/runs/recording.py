"""Record a run: the events of its locks, its batches, its services and its resources."""

from __future__ import annotations

import contextlib
import dataclasses
import platform
import socket
from pathlib import Path
from typing import TYPE_CHECKING

from asynclock.spark.faults import sentence
from asynclock.spark.runs.lines import RunLog
from asynclock.spark.runs.resources import Resources
from asynclock.spark.runs.totals import ACQUIRED, ENDED
from asynclock.spark.spec.lock_settings import heard_by

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator, Sequence

    from asynclock.events import Event
    from asynclock.spark.spec.model import Spec


@contextlib.contextmanager
def recorded(
    spec: Spec, folder: str | os.PathLike[str] | None, process: str, *, streams: Sequence[str] = ()
) -> Iterator[tuple[Spec, RunLog | None]]:
    """Record the body of ``with`` in a folder, as a run of this process.

    Args:
        spec: The spec of the run.
        folder: The folder of the run; None: nothing is recorded.
        process: The role of this process.
        streams: The streams that it writes.

    Yields:
        The spec to use in the body, with a listener on its locks, and the log of the run.

    Raises:
        ConfigError: The folder cannot be written; the body was not run.
    """
    if folder is None:
        yield spec, None
        return
    run_log = RunLog(Path(folder), process, sample=Resources())
    run_log.add(
        "start",
        table=spec.table.path,
        streams=list(streams),
        host=socket.gethostname(),
        python=platform.python_version(),
        validity=spec.locks.settings.validity,
    )
    locks = heard_by(spec.locks, lambda event: add_event(run_log, event))
    try:
        yield dataclasses.replace(spec, locks=locks), run_log
    except BaseException as error:
        run_log.close(error=sentence(error))
        raise
    run_log.close()


def add_event(run_log: RunLog, event: Event) -> None:
    """Append a line about an event of a lock, as listeners of telemetry get it; empty fields are left out."""
    seconds = (
        "waited_seconds"
        if event.kind in ACQUIRED or event.kind == "not_acquired"
        else "held_seconds"
        if event.kind in ENDED
        else "seconds"
    )
    said = {
        "owner": event.owner,
        "token": event.fencing_token,
        "reason": event.reason,
        "detail": event.detail,
        "remaining_seconds": event.remaining,
        seconds: event.duration,
    }
    known = {name: value for name, value in said.items() if value is not None and value != ""}
    run_log.add("lock", at=event.time, lock=event.name, event=event.kind, **known)
