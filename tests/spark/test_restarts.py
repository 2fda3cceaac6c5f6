"""Drivers that are killed, restored and given new schemas, in a short form of ``make restarts``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.laboratory.restarts.__main__ import Play
from tests.spark.pipeline_kit import command_here

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

KILLS = 4


def in_running_session(_: Path, *words: str) -> str:
    """Run a verb that is not killed: it needs no JVM of its own."""
    done = command_here(*words)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.timeout(900)
def test_kills_restores_and_new_schemas_lose_and_change_nothing(spark: SparkSession, tmp_path: Path) -> None:
    """After four kills, three schema changes and two restores the table is what the oracle says."""
    said: list[str] = []
    play = Play(tmp_path, seed=1, say=said.append, command=in_running_session)

    play.play(KILLS)
    play.compare(spark)

    assert play.done.kills == KILLS
    assert play.done.keys > 0
    assert play.complete, "\n".join([*said, *play.done.differences[:20]])
