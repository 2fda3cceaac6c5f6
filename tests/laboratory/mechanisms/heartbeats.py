"""Heartbeats: a driver that stops counts as dead and cannot commit; one that is slow goes on."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

from asynclock.spark.hudi.options import SILENCE_MS, cleaning_options
from asynclock.spark.hudi.table import Table
from asynclock.spark.hudi.timeline import Timeline
from asynclock.spark.results import Wasted
from asynclock.spark.services.work import Cleaning, write_client
from asynclock.spark.writer.splice import Splice
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
    pending,
    table,
)
from tests.laboratory.mechanisms.stage import Shown, must
from tests.spark.pipeline_kit import Background, wait_for, waiting

if TYPE_CHECKING:
    from tests.laboratory.mechanisms.stage import Stage


def show(stage: Stage) -> Shown:
    """Pause one driver between its last file and its commit, and let another be slow meanwhile."""
    spark, files = stage.spark, 2
    events = departures(stage, stage.sized(3_000, 30_000))
    origin = events["origin"]
    # Of different airports, so that no write conflicts with another.
    before, slow_rows, paused_rows = (events[origin == airport] for airport in ("JFK", "EWR", "LGA"))
    spec = table(stage.folder / "flights", f'buckets = {files}\npartition_by = ["origin"]')
    splice = Splice(spec, spark)
    splice.write(frame(spark, before), DRIVERS[0])
    slow_gate, gate = spec.path.with_name("slow-gate"), spec.path.with_name("gate")
    slow = Background(lambda: splice.write(waiting(frame(spark, slow_rows), slow_gate), DRIVERS[0]))
    living = begun(spec, spark)
    started = time.monotonic()
    rows = spec.path.with_name("events.csv")
    paused_rows.to_csv(rows, index=False)
    with Child("paused_driver", spec.path, rows, gate) as driver:
        paused = begun(spec, spark, [living])
        with commits_held_up(spec):
            gate.touch()
            wait_for(lambda: len(data_files(spec, paused)) == files)
            driver.pause()
        stopped = time.monotonic()
        timeline = Timeline(spark, spec.table.path)
        wait_for(lambda: [dead.requested for dead in timeline.silent(SILENCE_MS)] == [paused])
        silent = time.monotonic() - stopped
        cleaning = Cleaning(Table(spec, spark))
        with write_client(Table(spec, spark), cleaning_options(spec)) as client:
            dead = spark._jvm.io.asynclock.timeline.DeadWrites
            must(list(dead.withdraw(client, SILENCE_MS)) == [paused], f"{living} is not withdrawn")
        driver.resume()
        failed = json.loads(driver.answer())
        must(data_files(spec, paused), "it failed before its files were removed")
        cleaning.step()
        must(cleaning.rolled_back == [paused], f"{paused} is rolled back and {living} is not")
        must(failed["error"], "the paused driver cannot commit")
        must(failed["passing"], f"a further attempt follows {failed['error']!r}")
        must(not data_files(spec, paused) and not markers(spec, paused), "nothing of its write is left")
        must(is_newest(spec, spark, before), "nothing of its write can be read")
        must(pending(spec, spark) == [living], "the slow driver is still writing")
        driver.tell()
        must(json.loads(driver.answer())["error"] is None, "its further attempt commits")
    lived = time.monotonic() - started
    slow_gate.touch()
    must(slow.result() and splice.wasted == Wasted(), "the slow driver commits, at its first attempt")
    must(is_newest(spec, spark, events), "no row is lost")
    return Shown(
        sentence=(
            f"silent for {silent:.1f} s a paused driver was rolled back, and awake it could not commit "
            f"({failed['error']}); its next attempt did; a write of {lived:.0f} s that lived was left alone"
        )
    )
