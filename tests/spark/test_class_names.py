"""Names of Java classes: a batch makes py4j search no jar for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from py4j.java_gateway import GatewayClient
from pyspark.sql import functions as F  # noqa: N812  the name everybody uses

from asynclock.spark.jvm import classes, items
from tests.spark.pipeline_kit import two_streams

if TYPE_CHECKING:
    from pathlib import Path

    import pytest
    from pyspark.sql import SparkSession

SEARCH = "r\nu\n"
"""Begins py4j's question for what a name is."""


def searched(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names that py4j searches from now on."""
    names: list[str] = []
    send = GatewayClient.send_command

    def noted(client: GatewayClient, command: str, *arguments: object, **options: object) -> object:
        if command.startswith(SEARCH):
            names.append(command.split("\n")[2])
        return send(client, command, *arguments, **options)

    monkeypatch.setattr(GatewayClient, "send_command", noted)
    return names


def test_a_stream_searches_for_nothing_of_ours(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run makes py4j search for no class of asynclock, Hudi or Hadoop."""
    pipeline = two_streams(tmp_path, spark)
    names = searched(monkeypatch)

    report = pipeline.run(pipeline.spec())

    assert sum(stream.batches for stream in report.streams) == 2
    assert [name for name in names if "asynclock" in name or "hudi" in name or "hadoop" in name] == []


def test_an_expression_searches_for_nothing(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """PySpark looks in memory for the classes behind ``F.col`` and the methods of a frame."""
    frame = spark.range(3)
    names = searched(monkeypatch)

    frame.select(F.col("id") + F.lit(1), F.expr("id * 2")).where("id > 1").columns  # noqa: B018

    assert names == []


def test_a_class_has_its_static_members_and_makes_objects(spark: SparkSession) -> None:
    """As ``spark._jvm`` gives it; also a class in another."""
    java = classes(spark).java

    made = java.util.ArrayList(java.util.List.of("a", "b"))

    assert items(made) == ["a", "b"]
    assert java.lang.Integer.parseInt("7") == 7
    assert java.util.AbstractMap.SimpleEntry("k", "v").getKey() == "k"
