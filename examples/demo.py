"""A fleet's year of events, spliced into one Hudi table by several processes; one of them is killed.

``make demo`` runs this. Two writers in processes of their own feed three streams, a standby waits for the
lease of one of them, and the table services run in a fourth process. One writer gets ``kill -9`` in the
middle of a write: its lease expires, the standby takes the stream over, and the services roll the
half-written instant back. In the end an oracle that shares no code with asynclock works out the table from
the event files, and every cell is compared.

Everything lies in ``.demo`` in the current folder: table, locks, checkpoints and logs of the last run.

``make demo PLACE=cluster`` plays the same on a standalone Spark cluster with two workers, with table, locks,
checkpoints and events on an S3 server; both are started for the demo and end with it.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn

from asynclock.errors import AsyncLockError
from asynclock.spark.hudi.session import session_conf
from examples import fleet_data
from examples.demo_children import SCRATCH, DemoError, run_folder
from examples.demo_place import HERE, PLACES
from examples.demo_run import STANDBY, VICTIM, PipelineRun
from examples.demo_screen import Screen, table

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from examples.demo_place import Place

SHOWN_DIFFERENCES: Final = 20


def demo(work: Path, *, rows: int | None, seed: int, place: str = HERE) -> int:
    """Prepare, run, validate and report; the last line says what the comparison found.

    Args:
        work: Folder of the demo; what earlier runs left there is removed.
        rows: Number of events; None: all.
        seed: Of the delivery.
        place: Where it runs: one of ``PLACES``.

    Returns:
        The exit code: 0 if no cell differs, else 1.

    Raises:
        DemoError: The demo could not be completed.
    """
    _require_java()
    session_conf()  # names a missing jar before anything is prepared
    with run_folder(work) as folder, Screen() as screen:
        screen.say(f"preparing the events in {folder}")
        fleet = fleet_data.prepare(folder, rows=rows, seed=seed)
        spec = fleet_data.write_spec(folder)
        totals = {name: stream.events + stream.duplicates for name, stream in fleet.streams.items()}
        screen.say(f"{fleet.events:,} events of {fleet.aircraft:,} aircraft, {sum(totals.values()):,} rows")
        with (
            _settled(place, folder, spec, screen) as (found, settled),
            PipelineRun(settled, spec, found, totals, screen) as run,
        ):
            run.play()
        shutil.rmtree(folder / SCRATCH, ignore_errors=True)  # Spark copies its jars there
        for text in _report(run):
            screen.show(text)
    return report_verdict(run.validated)


@contextmanager
def _settled(place: str, folder: Path, spec: Path, screen: Screen) -> Iterator[tuple[Place, Path]]:
    if place != HERE:
        screen.say("starting a Spark cluster and an S3 server, and uploading the events")
    with PLACES[place](folder) as found:
        yield found, found.settle(spec)


def _report(run: PipelineRun) -> Iterator[str]:
    yield "\nEvents"
    yield _events(run.validated["statistics"])
    counts = run.table.completed().most_common()
    yield "\nTimeline: " + ", ".join(f"{number} {action}" for action, number in counts)
    yield _excerpt(run)
    yield "\nDrivers"
    yield _drivers(run)
    kill = run.kill
    yield (
        f"\nTakeover: lease {kill.takeover:.1f} s after the kill (bound {run.takeover_bound:.1f} s and two "
        f"round trips), first commit {kill.first_commit:.1f} s after it"
    )
    yield (
        f"Throughput: {run.rows:,} rows in {run.seconds:.1f} s, {run.rows / run.seconds:,.0f} rows per "
        "second, the takeover included"
    )
    yield "\nSample, times in UTC"
    yield _sample(run)


def _events(statistics: Mapping[str, Mapping[str, int]]) -> str:
    names = ("deliveries", "events", "superseded", "late", "duplicates")
    totals = {name: sum(stream[name] for stream in statistics.values()) for name in names}
    return table(
        ("stream", "deliveries", "events", "lost to a newer one", "came late", "duplicates"),
        [
            (
                name,
                stream["deliveries"],
                stream["events"],
                f"{stream['superseded'] / stream['events']:.1%}",
                f"{stream['late'] / stream['events']:.1%}",
                f"{stream['duplicates'] / stream['deliveries']:.1%}",
            )
            for name, stream in {**statistics, "in all": totals}.items()
        ],
    )


def _excerpt(run: PipelineRun) -> str:
    """The timeline around the kill, the rollback and the first commit of the standby."""
    instants = run.table.instants
    commits = {commit["requested"]: commit for commit in run.validated["commits"]}
    token = run.work[STANDBY, VICTIM].report["fencing_token"]
    taken_over = next(name for name, commit in commits.items() if commit["fencing_token"] == token)
    marks = {
        run.kill.instant: "killed",
        run.kill.rollback.requested if run.kill.rollback else "": f"of {run.kill.instant}",
        taken_over: "first of the standby",
    }
    places = [place for place, instant in enumerate(instants) if instant.requested in marks]
    shown = {near for place in places for near in range(place - 1, place + 2) if near < len(instants)}
    lines = []
    for place, instant in enumerate(instants):
        if place in shown:
            commit = commits.get(instant.requested)
            lines.append(
                (
                    instant.requested,
                    instant.completed or "never completed",
                    instant.action,
                    f"{commit['stream']}, batch {commit['batch_id']}, token {commit['fencing_token']}"
                    if commit
                    else "",
                    marks.get(instant.requested, ""),
                )
            )
        elif place - 1 in shown:
            lines.append(("...", "", "", "", ""))
    return table(("requested", "completed", "action", "written by", ""), lines)


def _drivers(run: PipelineRun) -> str:
    lines = []
    for work in run.work.values():
        report = work.report
        lines.append(
            (
                work.driver,
                work.stream,
                work.batches,
                work.rows,
                f"{report['lock_wait_seconds']:.1f} s" if report else "killed",
                f"{report['rows'] / report['seconds']:,.0f}" if report else "",
            )
        )
    return table(("driver", "stream", "batches", "rows", "waited for the lease", "rows per second"), lines)


def _sample(run: PipelineRun) -> str:
    """Some rows, turned on their side: they are wider than a screen."""
    sample: list[dict[str, Any]] = run.validated["sample"]
    key = run.spec.table.key[0]
    lines = [
        (stream.name, column.name, *(row[column.name] for row in sample))
        for stream in run.spec.streams
        for column in stream.columns
    ]
    return table(("stream", "column", *(row[key] for row in sample)), lines)


def report_verdict(found: Mapping[str, Any]) -> int:
    """Print the differences and the last line."""
    differences = found["differences"]
    for difference in differences[:SHOWN_DIFFERENCES]:
        print(f"  {difference}")
    if len(differences) > SHOWN_DIFFERENCES:
        print(f"  and {len(differences) - SHOWN_DIFFERENCES} more")
    print(
        f"demo: {found['keys']} keys x {found['columns']} columns compared, {len(differences)} differences",
        flush=True,
    )
    return 1 if differences else 0


def _require_java() -> None:
    home = os.environ.get("JAVA_HOME")
    if shutil.which(f"{home}/bin/java" if home else "java") is None:
        place = f"{home}/bin (JAVA_HOME)" if home else "PATH"
        raise DemoError(
            f"Java is missing: there is no java in {place}. Install a JDK 17 "
            "(Debian: apt-get install openjdk-17-jdk-headless). Nothing was started."
        )


def main() -> None:
    """Read the arguments and play the demo."""
    parser = argparse.ArgumentParser(
        prog="python -m examples.demo", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--rows", type=int, help="number of events (default: all, about 660,000)")
    parser.add_argument("--work", type=Path, default=Path(".demo"), help="folder to work in (default: .demo)")
    parser.add_argument("--seed", type=int, default=fleet_data.DEFAULT_SEED, help="of the delivery")
    parser.add_argument(
        "--place", choices=PLACES, default=HERE, help="this machine, or a Spark cluster and S3"
    )
    options = parser.parse_args()
    received: list[int] = []

    def unwind(number: int, _frame: object) -> NoReturn:
        received.append(number)
        raise KeyboardInterrupt

    for signal_number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(signal_number, unwind)
    try:
        code = demo(options.work.resolve(), rows=options.rows, seed=options.seed, place=options.place)
    except (KeyboardInterrupt, DemoError, AsyncLockError, RuntimeError, ValueError) as error:
        # An exception inside a wait of threading can come out as another one ("release unlocked lock").
        if not received:
            sys.exit(f"demo: {error}")
        print("demo: stopped, and every process of it as well", file=sys.stderr)
        sys.exit(128 + received[0])
    sys.exit(code)


if __name__ == "__main__":
    main()
