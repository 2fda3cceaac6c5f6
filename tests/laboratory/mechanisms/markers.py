"""Markers: what a write notes of a file before it makes it, and what becomes of files made twice."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Final

from asynclock.spark.writer.splice import Splice
from tests.laboratory.cluster import running_cluster
from tests.laboratory.mechanisms.child import Child
from tests.laboratory.mechanisms.plain_flights import (
    DRIVERS,
    begun,
    commits_held_up,
    data_files,
    departures,
    frame,
    is_newest,
    markers,
    table,
)
from tests.laboratory.mechanisms.stage import Shown, must
from tests.laboratory.mechanisms.store_requests import requests
from tests.spark.jvm import class_path, java
from tests.spark.pipeline_kit import Background, wait_for, waiting

if TYPE_CHECKING:
    import pandas as pd

    from tests.laboratory.mechanisms.stage import Stage

_KINDS: Final = {"direct": 'markers = "direct"', "timeline server": 'markers = "timeline-server"'}
_DISTURBANCES: Final = {"fail": "a task that failed", "slow": "a slow task with a second attempt"}
_BUCKETS: Final = 4


def show(stage: Stage) -> Shown:
    """Look at the markers of a write just before its commit; then let tasks be repeated."""
    events = departures(stage, stage.sized(3_000, 60_000))
    numbers = stage.sized((1, 10), (1, 10, 100))
    chosen = [(kind, files) for files in numbers for kind in _KINDS]
    rows = [_seen(stage, kind, events, files=files) for kind, files in chosen]
    # The requests are measured, not checked, and take a JVM and a server of their own.
    counted = stage.sized((), chosen)
    sent = requests(stage.folder / "s3", events, [_settings(*one) for one in counted]) if counted else []
    for row, number in zip(rows, sent, strict=False):
        row["requests to S3"] = number
    _disturbed(stage, events)
    direct, served = rows[-2:]
    told = f"a write of them to S3 sent {sent[-2]} or {sent[-1]} requests; " if sent else ""
    return Shown(
        sentence=(
            f"{direct['data files']} files had {direct['marker files']} markers in files of their own or, "
            f"through the timeline server, in {served['marker files']} files; {told}"
            f"{' and '.join(_DISTURBANCES.values())} wrote a file twice, and the commit left one"
        ),
        table=rows,
    )


def _settings(kind: str, files: int) -> str:
    return f"buckets = {files}\n{_KINDS[kind]}"


def _seen(stage: Stage, kind: str, events: pd.DataFrame, *, files: int) -> dict[str, object]:
    """Write the events up to the commit, count, and commit."""
    name = f"{kind.replace(' ', '-')}-{files}"
    spec = table(stage.folder / name, _settings(kind, files))
    splice, rows, gate = Splice(spec, stage.spark), frame(stage.spark, events), spec.path.with_name("gate")
    splice.write(rows.limit(1), DRIVERS[0])  # creates the table
    write = Background(lambda: splice.write(waiting(rows, gate), DRIVERS[0]))
    instant = begun(spec, stage.spark)
    with commits_held_up(spec):
        gate.touch()
        wait_for(lambda: len(data_files(spec, instant)) == files)
        found = markers(spec, instant)
        noted = _noted(found)
        written = {path.name for path in data_files(spec, instant)}
    write.result()
    must(noted == written, "each data file has its marker")
    if kind == "direct":
        must(len(found) == files, "each marker is a file of its own")
    must(not markers(spec, instant), "a commit removes its markers")
    must(is_newest(spec, stage.spark, events), "no row is lost")
    return {"markers": kind, "data files": files, "marker files": len(found)}


def _noted(found: list[Path]) -> set[str]:
    """Return the names of the data files that the markers are of."""
    direct = [path.name for path in found if ".marker." in path.name]
    served = [
        line
        for path in found
        if path.name.startswith("MARKERS") and path.suffix != ".type"
        for line in path.read_text().splitlines()
    ]
    return {Path(marker).name.partition(".marker.")[0] for marker in direct + served}


def _disturbed(stage: Stage, events: pd.DataFrame) -> None:
    """On a cluster, let a task fail after it has written, and another be so slow that Spark runs it twice."""
    folder = stage.folder / "disturbed"
    spec = table(folder, f"buckets = {_BUCKETS}")
    Splice(spec, stage.spark).write(frame(stage.spark, events.head(100)), DRIVERS[0])  # creates the table
    rows = folder / "events.csv"
    events.to_csv(rows, index=False)
    classes, work = folder / "classes", folder / "cluster"
    work.mkdir()
    source = Path(__file__).with_name("java") / "MarkedStatus.java"
    subprocess.run([java("javac"), "-d", classes, "--class-path", class_path(), source], check=True)
    jar = folder / "marked-status.jar"
    Path(shutil.make_archive(str(jar.with_suffix("")), "zip", classes)).rename(jar)
    with (
        running_cluster(work, apart=True) as cluster,
        Child("disturbed_driver", spec.path, rows, cluster.url, jar) as driver,
    ):
        driver.answer()
        for name, what in _DISTURBANCES.items():
            (folder / name).touch()
            driver.tell(name)
            instant = begun(spec, stage.spark)
            with commits_held_up(spec):
                (folder / f"gate-{name}").touch()
                wait_for(lambda: len(data_files(spec, instant)) == _BUCKETS + 1)  # noqa: B023
            driver.answer()
            must(len(data_files(spec, instant)) == _BUCKETS, f"the commit leaves one file of {what}")
            must(is_newest(spec, stage.spark, events), f"{what} loses no row and brings none twice")
            (folder / name).unlink()
