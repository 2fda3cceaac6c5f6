# ruff: noqa: T201  a command that prints
"""``python -m tests.laboratory mechanisms [--only 5,7]``: every part of the splicing article, shown once.

Each part has a folder of its own, deleted at the end, and prints one line with what it did; those that
compare or measure print a table below it. What Spark, Hudi and asynclock log is in ``build/mechanisms.log``.
"""

from __future__ import annotations

import argparse
import logging
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import TYPE_CHECKING

from asynclock.spark import session
from asynclock.spark.hudi.running import KAFKA_CONNECTOR
from asynclock.spark.hudi.session import jvm_output_to
from tests.laboratory._installed import one_at_a_time
from tests.laboratory.mechanisms.parts import PARTS
from tests.laboratory.mechanisms.stage import Stage, lines

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import SparkSession

    from tests.laboratory.mechanisms.parts import Part

_WIDTH = max(len(part.name) for part in PARTS)
_LOG = Path("build/mechanisms.log")


def main() -> int:
    """Show the parts that are asked for."""
    parser = argparse.ArgumentParser(prog="python -m tests.laboratory mechanisms", description=__doc__)
    parser.add_argument("--only", type=_chosen, default=PARTS, metavar="N,N", help="numbers of parts")
    parser.add_argument("--small", action="store_true", help="the short form of the test run")
    asked = parser.parse_args()
    _LOG.parent.mkdir(exist_ok=True)
    logging.basicConfig(filename=_LOG, filemode="w", level=logging.INFO)
    with one_at_a_time("ivy"), jvm_output_to(lambda: _LOG.open("ab")):
        spark = session(
            "asynclock-mechanisms",
            master="local[2]",
            conf={"spark.sql.shuffle.partitions": "2", "spark.jars.packages": KAFKA_CONNECTOR},
        )
    try:
        shown = sum(_show(part, spark, small=asked.small) for part in asked.only)
    finally:
        spark.stop()
    print(f"mechanisms: {shown} of {len(asked.only)} shown, {len(asked.only) - shown} failed")
    return 0 if shown == len(asked.only) else 1


def _chosen(text: str) -> Sequence[Part]:
    numbers = {int(number) for number in text.split(",")}
    if unknown := numbers - {part.number for part in PARTS}:
        raise argparse.ArgumentTypeError(f"there is no part {min(unknown)}; there are 1 to {len(PARTS)}")
    return [part for part in PARTS if part.number in numbers]


def _show(part: Part, spark: SparkSession, *, small: bool) -> bool:
    print(f"{part.number:2}  {part.name.ljust(_WIDTH)}  ", end="", flush=True)
    started = time.monotonic()
    try:
        with tempfile.TemporaryDirectory(prefix="asynclock-mechanisms-") as folder:
            shown = part.show(Stage(spark=spark, folder=Path(folder), small=small))
    except Exception as error:  # noqa: BLE001  the other parts are shown all the same
        print(f"FAILED  {str(error).splitlines()[0] if str(error) else type(error).__name__}")
        traceback.print_exc()
        return False
    print(f"{time.monotonic() - started:6.1f} s  {shown.sentence}")
    for line in lines(shown.table):
        print(f"      {line}")
    return True


if __name__ == "__main__":
    sys.exit(main())
