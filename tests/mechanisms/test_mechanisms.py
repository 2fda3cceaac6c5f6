"""Every part of the splicing article in the short form of ``make mechanisms``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.laboratory.mechanisms.parts import PARTS
from tests.laboratory.mechanisms.stage import Stage

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.laboratory.mechanisms.parts import Part

pytestmark = [
    pytest.mark.timeout(600),
    # py4j leaves sockets to the garbage collector.
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]


@pytest.mark.parametrize("part", PARTS, ids=lambda part: part.module)
def test_part_is_shown(spark: SparkSession, tmp_path: Path, part: Part) -> None:
    """It does what it must, and says so in a sentence."""
    shown = part.show(Stage(spark=spark, folder=tmp_path, small=True))

    assert shown.sentence
