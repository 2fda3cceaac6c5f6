"""INSERT, UPDATE, MERGE and DELETE of some columns are appended and merged like events, beside a stream."""

from __future__ import annotations

from asynclock.spark import Splice, read, register, run
from tests.laboratory.mechanisms.stage import Shown, Stage, must
from tests.spark.pipeline_kit import Background, wait_for, waiting

_NAME = "mechanisms_fleet"


def show(stage: Stage) -> Shown:
    """Change one stream's columns by SQL while another stream writes the same keys."""
    spec = stage.fleet(stage.sized(300, 8_000))
    run(spec, once=True, spark=stage.spark)
    before = {row.tailnum: row for row in read(spec, stage.spark).collect()}
    flown = sorted(key for key, row in before.items() if row.departed_at and row.year)
    updated, merged, deleted = flown[0], flown[1], flown[2]

    gate = stage.folder / "gate"
    row = "now() AS arrived_at, 'here' AS landed_in, 1D AS arr_delay, 2D AS air_time, 3 AS distance"
    keys = f"explode(array('{updated}', '{merged}', 'new')) AS tailnum"
    frame = waiting(stage.spark.sql(f"SELECT {keys}, {row}"), gate)
    write = Background(lambda: Splice(spec, stage.spark).write(frame, "arrivals"))
    register(spec, stage.spark, name=_NAME)
    stored = f"{_NAME}_stored"
    try:
        table = stage.folder / "table" / ".hoodie" / "timeline"
        wait_for(lambda: list(table.glob("*.inflight")))
        changed = "departures__origin = 'moved', departures__ts = now()"
        stage.spark.sql(f"UPDATE {stored} SET {changed} WHERE tailnum = '{updated}'")
        stage.spark.sql(
            f"MERGE INTO {stored} t USING (SELECT '{merged}' AS tailnum UNION ALL SELECT 'new') s "
            f"ON t.tailnum = s.tailnum WHEN MATCHED THEN UPDATE SET {changed} "
            "WHEN NOT MATCHED THEN INSERT (tailnum, departures__ts, departures__origin) "
            "VALUES (s.tailnum, now(), 'moved')"
        )
        stage.spark.sql(f"DELETE FROM {stored} WHERE tailnum = '{deleted}'")
        stage.spark.sql(
            f"INSERT INTO {stored} (tailnum, departures__ts, departures__origin) "
            "VALUES ('added', now(), 'moved')"
        )
    finally:
        gate.touch()
        write.result()
        stage.spark.sql(f"DROP VIEW IF EXISTS {_NAME}")
        stage.spark.sql(f"DROP TABLE IF EXISTS {stored}")
    after = {row.tailnum: row for row in read(spec, stage.spark).collect()}

    must(deleted not in after, "the deleted row is gone")
    for key in (updated, merged, "new"):
        must(after[key].origin == "moved", f"the statement set the origin of {key}")
        must(after[key].landed_in == "here", f"the stream's columns of {key} are what it wrote meanwhile")
    must(after["added"].origin == "moved", "the insert is there")
    must(after[updated].year == before[updated].year, "columns that no statement named stay")
    touched = {updated, merged, deleted, "new", "added"}
    rest = {key: row for key, row in before.items() if key not in touched}
    must(rest == {key: row for key, row in after.items() if key not in touched}, "no other row changed")
    return Shown(
        sentence=f"4 statements changed 5 of {len(after)} rows beside a stream that wrote 3 of them; each "
        "kept the other's columns, and no other row changed"
    )
