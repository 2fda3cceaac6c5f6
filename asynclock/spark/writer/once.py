"""The refusal of batches that are not the ones that the table has under their numbers.

A batch is skipped if the table has its number. If it holds other events, they would be lost. An event that
comes again changes nothing, except in a sum. So a stream with a sum is also written by one query only, in
numbered batches.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from asynclock._shared.words import printable
from asynclock.errors import ConfigError
from asynclock.spark.spec.functions import sums
from asynclock.spark.spec.load import misplaced

if TYPE_CHECKING:
    from collections.abc import Sequence

    from asynclock.errors import SpecError
    from asynclock.spark.spec.model import Spec, StreamSpec


def refuse_unnumbered(stream: StreamSpec, batch_id: int | None) -> None:
    """Refuse a batch that could not be recognised if it came again.

    Raises:
        ConfigError: The stream has a sum and the batch no number; nothing was written.
    """
    if batch_id is None and (names := sums(stream.merge)):
        reason = (
            f"stream {stream.name!r} adds up {', '.join(names)}, and a write without a number would count "
            "twice if it is repeated; nothing was written. Number the batches of each query"
        )
        raise ConfigError(setting="batch_id", value=batch_id, reason=reason)


def refuse_another_query(spec: Spec, stream: StreamSpec, known: Sequence[str], query_id: str) -> None:
    """Refuse a query other than the one that has written a stream with a sum.

    Args:
        spec: The spec, for the error.
        stream: The stream.
        known: The queries that have committed to it, the one with the newest commit last.
        query_id: The query of the batch.

    Raises:
        SpecError: A new checkpoint would read all sources again; nothing was written.
    """
    if known and query_id != known[-1] and (names := sums(stream.merge)):
        reason = (
            f"the table has the batches of query {printable(known[-1])}, and this is query "
            f"{printable(query_id)}, which reads all sources again: {', '.join(names)} would count each "
            "event twice. Nothing was written; put the former checkpoint back, restore a savepoint, or write "
            "a new table"
        )
        raise _refused(spec, stream, reason)


def refuse_another_batch(
    spec: Spec, stream: StreamSpec, batch_id: int, committed: str | None, end: str
) -> None:
    """Refuse a batch that has the number of a committed one and is another.

    Args:
        spec: The spec, for the error.
        stream: The stream.
        batch_id: The number.
        committed: The end of the committed batch in its source; None or empty: unknown.
        end: The end of this one.

    Raises:
        SpecError: The checkpoint does not fit the commits of the table; nothing was written.
    """
    before, now = (json.loads(one or "{}") for one in (committed, end))
    if all(before[name] == now[name] for name in before.keys() & now.keys()):
        return
    names = ", ".join(sums(stream.merge))
    harm = f"{names} would count events twice, or lose some" if names else "its events would be skipped"
    remedy = "" if names else ", or name a new checkpoint, with which everything is read again"
    reason = (
        f"batch {batch_id} of the checkpoint is not the batch {batch_id} that the table has, as if the "
        f"checkpoint was set back or cut by hand: {harm}. Nothing was written; put the former checkpoint "
        f"back, or restore a savepoint, which sets the table back too{remedy}"
    )
    raise _refused(spec, stream, reason)


def _refused(spec: Spec, stream: StreamSpec, reason: str) -> SpecError:
    keys = ("streams", stream.name, "checkpoint")
    return misplaced(spec, keys, stream.checkpoint, reason)
