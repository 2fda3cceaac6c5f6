"""The layer of the merge: which of two records of a key wins."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from asynclock.spark import hoodie
from asynclock.spark.hudi.options.option import Option

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from asynclock.spark.hudi.options.option import QueryType, Use
    from asynclock.spark.spec.kinds import Merge
    from asynclock.spark.spec.model import Spec

MERGER_CLASS: Final = "io.asynclock.hudi.SpliceMerger"
MERGER_STRATEGY_ID: Final = "3158b597-87e4-4016-bcb2-5fe63391c0b1"

_LOG_BUFFER: Final = str(256 * 1024)
"""Bytes. Arrays of half a region of the heap, 512 KiB at least, count as old to the collector at once."""
_PARTIAL_UPDATE: Final = "org.apache.hudi.common.model.OverwriteNonDefaultsWithLatestAvroPayload"
_MODES: Final[Mapping[str, tuple[str, str]]] = {
    "event_time": (
        "EVENT_TIME_ORDERING",
        "The row with the newer ordering value wins, whenever it arrives.",
    ),
    "commit_time": ("COMMIT_TIME_ORDERING", "The row that is committed later wins."),
}
_QUERIES: Final[Mapping[QueryType, str]] = {
    "snapshot": "The logs are merged with the base files: the state of the newest commit.",
    "read_optimized": "The base files alone: the state of the last compaction.",
    "incremental": "For each key only what the newest events wrote.",
}


def merge(spec: Spec, use: Use, query_type: QueryType) -> Iterator[Option]:
    """Yield the options that choose how records of a key are merged."""
    if use == "sync":
        return
    if use == "read":
        yield _option(hoodie.DATASOURCE_QUERY_TYPE, query_type, _QUERIES[query_type])
    inline = use == "write" and spec.services.mode == "inline"
    if spec.table.type == "mor" and (use in {"read", "compaction"} or inline):
        yield _option(
            hoodie.MEMORY_DFS_BUFFER_MAX_SIZE,
            _LOG_BUFFER,
            "Hudi takes this much memory for each log file that it merges, by default 16 MB, however small "
            "the file. The requests to a store are the same.",
        )
    if use in {"write", "sql"}:
        yield _option(
            hoodie.DATASOURCE_WRITE_OPERATION, "upsert", "Rows are merged by key; an insert repeats keys."
        )
        yield _combine(use)
    if use == "write":
        yield _option(hoodie.ALLOW_EMPTY_COMMIT, "true", "Every batch leaves an instant, also without a row.")
    if use == "sql":
        yield _option(
            hoodie.SPARK_SQL_INSERT_INTO_OPERATION, "upsert", "INSERT INTO merges by key, like a stream."
        )
    if spec.table.merge == "splice":
        yield from _splice(use)
    elif use != "read":
        yield from _plain(spec.table.merge, spec.streams[0].ordering[0])


def stored_properties(spec: Spec) -> dict[str, str]:
    """Return the entries of this layer in a table's ``hoodie.properties``."""
    if spec.table.merge == "splice":
        return {hoodie.RECORD_MERGE_MODE: "CUSTOM", hoodie.RECORD_MERGE_STRATEGY_ID: MERGER_STRATEGY_ID}
    if spec.table.merge == "partial_update":
        # Hudi forgets this mode if it is given in any other way; then nulls would erase.
        return {
            hoodie.RECORD_MERGE_MODE: "COMMIT_TIME_ORDERING",
            hoodie.TABLE_PARTIAL_UPDATE_MODE: "IGNORE_DEFAULTS",
        }
    mode, _ = _MODES[spec.table.merge]
    if spec.table.merge == "commit_time":
        return {hoodie.RECORD_MERGE_MODE: mode, hoodie.TABLE_PARTIAL_UPDATE_MODE: ""}
    return {
        hoodie.RECORD_MERGE_MODE: mode,
        hoodie.TABLE_ORDERING_FIELDS: spec.streams[0].ordering[0],
        hoodie.TABLE_PARTIAL_UPDATE_MODE: "",
    }


def _splice(use: Use) -> Iterator[Option]:
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


def _plain(merge: Merge, ordering: str) -> Iterator[Option]:
    if merge == "partial_update":
        yield _option(
            hoodie.DATASOURCE_WRITE_PAYLOAD_CLASS,
            _PARTIAL_UPDATE,
            "A null keeps the older value, else the later commit wins. Only this class makes Hudi do so.",
        )
        return
    mode, why = _MODES[merge]
    yield _option(hoodie.WRITE_RECORD_MERGE_MODE, mode, why)
    if merge == "event_time":
        yield _option(
            hoodie.DATASOURCE_WRITE_PRECOMBINE_FIELD, ordering, "The ordering column of the streams."
        )


def _combine(use: Use) -> Option:
    if use == "write":
        why = "A batch has one row per key already, merged in the order of arrival."
        return _option(hoodie.COMBINE_BEFORE_UPSERT, "false", why)
    why = "A statement may have a key twice; Hudi merges its rows before the write."
    return _option(hoodie.COMBINE_BEFORE_UPSERT, "true", why)


def _option(key: str, value: str, why: str) -> Option:
    return Option(key, value, "merge", why)
