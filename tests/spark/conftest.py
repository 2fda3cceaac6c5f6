"""Warnings that every test with Spark may cause, and the merger without Spark."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.spark.jvm import JavaProgram
from tests.spark.merger_kit import Merger

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="session")
def merger() -> Iterator[Merger]:
    """One JVM for all tests of merges."""
    with JavaProgram("MergeHarness") as program:
        yield Merger(program)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let py4j leave sockets to the garbage collector: it never closes those of a finished thread."""
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"))
