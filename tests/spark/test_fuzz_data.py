"""Generated files through a pipeline: what goes in comes out, or is put aside with a reason."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.laboratory.fuzz_data.__main__ import fuzz
from tests.laboratory.fuzz_data.tables import TABLES

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

FILES = 2_000


@pytest.mark.timeout(1500)  # some minutes of work, and other suites next to it
def test_generated_files_lose_and_change_nothing(spark: SparkSession, tmp_path: Path) -> None:
    """Of 2,000 files of three formats no value is changed, no row lost, and no run hangs."""
    said: list[str] = []

    total = fuzz(spark, tmp_path / "tables", files=FILES, keep=tmp_path / "kept", say=said.append)

    assert total.files == FILES
    assert total.rows > FILES
    assert total.clean, "\n".join(said)
    assert total.third == len(TABLES)
