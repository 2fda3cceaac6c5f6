"""The layer of the merge: which of two records of a key wins."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from asynclock.hudi import hoodie
from asynclock.spark.hudi.options.option import Option

if TYPE_CHECKING:
    from collections.abc import Iterator

    from asynclock.spark.hudi.options.option import QueryType, Use

MERGER_CLASS: Final = "io.asynclock.hudi.SpliceMerger"
MERGER_STRATEGY_ID: Final = "3158b597-87e4-4016-bcb2-5fe63391c0b1"

_QUERIES: Final = {
    "snapshot": "The logs are merged with the base files: the state of the newest commit.",
    "read_optimized": "The base files alone: the state of the last compaction.",
    "incremental": "For each key only what the newest events wrote.",
}


def merge(use: Use, query_type: QueryType) -> Iterator[Option]:
    """Yield the options that choose how records of a key are merged."""
    if use == "read":
        yield _option(hoodie.DATASOURCE_QUERY_TYPE, query_type, _QUERIES[query_type])
    if use in {"write", "sql"}:
        yield _option(
            hoodie.DATASOURCE_WRITE_OPERATION,
            "upsert",
            "Rows are merged by key; an insert repeats keys.",
        )
        yield _combine(use)
    if use == "write":
        yield _option(hoodie.ALLOW_EMPTY_COMMIT, "true", "Every batch leaves an instant, also without a row.")
    if use == "sql":
        yield _option(
            hoodie.SPARK_SQL_INSERT_INTO_OPERATION, "upsert", "INSERT INTO merges by key, like a stream."
        )
    if use != "read":
        yield _option(hoodie.WRITE_RECORD_MERGE_MODE, "CUSTOM", "Each stream has an ordering of its own.")
        yield _option(
            hoodie.WRITE_RECORD_MERGE_STRATEGY_ID,
            MERGER_STRATEGY_ID,
            "The id of asynclock's merger, which the table keeps.",
        )
    yield _option(
        hoodie.WRITE_RECORD_MERGE_CUSTOM_IMPLEMENTATION_CLASSES,
        MERGER_CLASS,
        "The merger's class, which the table does not keep: without it nothing can read or write the table.",
    )


def _combine(use: Use) -> Option:
    if use == "write":
        why = "A batch has one row per key already: the newest event, chosen in the order of arrival."
        return _option(hoodie.COMBINE_BEFORE_UPSERT, "false", why)
    why = "A statement may have a key twice; Hudi merges its rows before the write."
    return _option(hoodie.COMBINE_BEFORE_UPSERT, "true", why)


def _option(key: str, value: str, why: str) -> Option:
    return Option(key, value, "merge", why)
