# ruff: noqa: T201  a command that prints
"""``python -m tests.laboratory fuzz-data``: feed generated files and compare what came of them.

What goes in comes out, or is in the quarantine with a reason; nothing else. The same seed makes the same
files again; those that something is wrong with are kept.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from asynclock.spark.hudi.session import session
from tests.laboratory.fuzz_data.rounds import DEADLINE, Outcome, Round, discard
from tests.laboratory.fuzz_data.tables import TABLES

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

FILES_A_ROUND = 700
SHOWN = 20


def fuzz(
    spark: SparkSession,
    scratch: Path,
    *,
    files: int,
    seed: int = 0,
    keep: Path | None = None,
    first: bool = False,
    deadline: float = DEADLINE,
    say: Callable[[str], object] = print,
) -> Outcome:
    """Feed ``files`` files, some hundreds into each of several tables.

    Args:
        spark: The session, one for all.
        scratch: Folder for the tables; they are removed.
        files: How many files.
        seed: Seed of the first round; each further one has the next.
        keep: Folder for the files that something is wrong with.
        first: End with the first round in which something is wrong.
        deadline: Seconds after which a run counts as a hang.
        say: Told of each round.
    """
    total = Outcome()
    rounds = max(len(TABLES), -(-files // FILES_A_ROUND))
    for number in range(rounds):
        share = files // rounds + (number < files % rounds)
        began = time.monotonic()
        folder = scratch / f"round-{seed + number}"
        one = Round(folder, spark, seed + number, share, deadline=deadline)
        outcome = one.run()
        say(
            f"seed {seed + number}: {outcome.files} files, {outcome.rows} rows, {outcome.changed} values "
            f"changed, {outcome.lost} rows lost, {outcome.hangs} hangs, {outcome.refused} refused, "
            f"{outcome.misjudged} misjudged by validate, "
            f"{'read' if outcome.third else 'not read'} by hudi-rs, {time.monotonic() - began:.0f} s"
        )
        if not outcome.clean:
            for sentence in outcome.said[:SHOWN]:
                say(f"  {sentence[:600]}")
            if keep is not None:
                one.keep(keep / f"seed-{seed + number}")
                say(f"  kept in {keep / f'seed-{seed + number}'}")
        for name in ("files", "rows", "changed", "lost", "hangs", "refused", "misjudged", "third"):
            setattr(total, name, getattr(total, name) + getattr(outcome, name))
        total.said += outcome.said
        discard(folder)
        if outcome.hangs or (first and not outcome.clean):
            break
    return total


def main() -> int:
    """Fuzz as the arguments say; 0 if nothing was changed, lost, hanging or misjudged."""
    parser = argparse.ArgumentParser(prog="python -m tests.laboratory fuzz-data", description=__doc__)
    parser.add_argument("--files", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=0, help="seed of the first round")
    parser.add_argument("--keep", type=Path, default=Path(".fuzz-data"), help="folder for files that fail")
    parser.add_argument("--first", action="store_true", help="end with the first round that fails")
    parser.add_argument("--deadline", type=float, default=DEADLINE, help="seconds that make a hang")
    options = parser.parse_args()
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    with tempfile.TemporaryDirectory(prefix="asynclock-fuzz-") as scratch:
        spark = session(
            "asynclock fuzz-data",
            master="local[2]",
            conf={"spark.sql.shuffle.partitions": "2", "spark.log.level": "OFF"},
        )
        total = fuzz(
            spark,
            Path(scratch),
            files=options.files,
            seed=options.seed,
            keep=options.keep,
            first=options.first,
            deadline=options.deadline,
        )
        print(f"fuzz-data: {total.third} tables read by hudi-rs, too")
        print(
            f"fuzz-data: {total.files} files, {total.changed} values changed, {total.lost} rows lost, "
            f"{total.hangs} hangs",
            flush=True,
        )
        code = 0 if total.clean else 1
        if total.hangs:
            os._exit(code)  # what hangs in the JVM cannot be stopped
        spark.stop()
    return code


if __name__ == "__main__":
    sys.exit(main())
