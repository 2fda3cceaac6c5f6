"""The time to ask Hudi for, to show a table as it was at the completion of an instant.

Hudi's time travel uses request times: as of T it merges all writes *requested* up to T, and it refuses as
long as a write requested before T is in flight. But a reader at T saw the writes that were *completed* by
then. If writers overlap, the two differ. So we ask Hudi for another time, just before the first request of a
write that was not complete. Up to that time, the requests are those of the wanted commits, unless one of them
was requested later than a write that was not complete: then there is no such time.
"""

from __future__ import annotations

import datetime as dt
import re
from typing import TYPE_CHECKING, Final

from asynclock.errors import ConfigError
from asynclock.spark.hudi.health import cleaned_by_versions
from asynclock.spark.hudi.instants import CLUSTERED, COMPACTED, COMPACTION, DELTA_COMMIT

if TYPE_CHECKING:
    from asynclock.spark.hudi.instants import Instant
    from asynclock.spark.hudi.table import Table
    from asynclock.spark.hudi.timeline import Timeline

_DIGITS: Final = "%Y%m%d%H%M%S%f"
_LENGTH: Final = 17
_FOR_PEOPLE: Final = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d\.\d{3}(Z|[+-]\d\d:\d\d)?", re.ASCII)
_REWRITES: Final = {"mor": frozenset({COMPACTION, COMPACTED}), "cow": frozenset[str]()}
"""Actions that rewrite committed rows."""
_WRITES: Final = {"mor": frozenset({DELTA_COMMIT, CLUSTERED}), "cow": frozenset({COMPACTED, CLUSTERED})}


def in_digits(text: str, timeline: Timeline) -> str:
    """Return a time for people in Hudi's form, with digits only; other text stays unchanged.

    Args:
        text: The time. On a timeline in UTC one without an offset, ``+01:00`` or ``Z``, is local time here.
        timeline: The timeline of the table.
    """
    if not _FOR_PEOPLE.fullmatch(text):
        return text
    then = dt.datetime.fromisoformat(text)
    if not timeline.is_utc():
        return _written(then) if then.tzinfo is None else text
    # The hour in which summer time ends comes twice.
    times = [_written(then.replace(fold=fold).astimezone(dt.UTC)) for fold in (0, 1)]
    if times[0] == times[1]:
        return times[0]
    done = {one.completed for one in timeline.instants()}
    return next((time for time in times if time in done), times[0])


def instant_time(text: str, timeline: Timeline) -> str:
    """Return a completion time as Hudi writes it: year to millisecond, with digits only.

    Args:
        text: The same, or as people write it: ``2026-11-22T20:45:39.123``; see ``in_digits``.
        timeline: The timeline of the table.

    Raises:
        ConfigError: The text is not such a time.
    """
    found = in_digits(text, timeline)
    if not _is_time(found):
        reason = (
            "is no instant; give the completion time of one, such as 20261122204539123 or "
            "2026-11-22T20:45:39.123 (asynclock pipeline timeline lists them)"
        )
        raise _refused(text, reason)
    return found


def query_time(table: Table, instants: list[Instant], as_of: str) -> str:
    """Return the time that Hudi's time travel needs, to show the commits complete by an instant.

    Args:
        table: The table, whose commits were refreshed after ``instants`` were listed; instants that were
            archived in between count.
        instants: The instants of its active timeline.
        as_of: The completion time of an instant, in digits.

    Raises:
        ConfigError: There is no such instant, or Hudi cannot show the table as it was then.
    """
    _check_exists(instants, as_of)
    _check_kept(table, as_of)
    archived, table_type = table.commits.archived_until(), table.spec.table.type
    writes = [one for one in instants if one.action in _WRITES[table_type]]
    plans = [one.requested for one in instants if one.action in _REWRITES[table_type]]
    if not archived and not any(_is_done(one, as_of) for one in writes):
        raise _refused(as_of, "nothing was committed by then")
    if (time := request_bound(writes, plans, archived, as_of)) is not None:
        return time
    if any(one.completed is None and one.requested <= as_of for one in writes):
        reason = (
            "a write that began before then is still in flight; try again when it has ended (the cleaning "
            "service ends those of dead writers), or give an earlier instant"
        )
    else:
        reason = (
            "a write was in flight then that began before another that was complete, and Hudi cannot leave "
            "it out; give an earlier or a later instant"
        )
    raise _refused(as_of, reason)


def request_bound(writes: list[Instant], plans: list[str], archived: str, as_of: str) -> str | None:
    """Return a time by which exactly the writes complete at ``as_of`` were requested.

    Args:
        writes: The writes on the active timeline, pending ones too.
        plans: The times at which compactions were planned.
        archived: The latest completion time of an archived write; empty if there is none.
        as_of: The completion time of an instant, at or after ``archived``.

    Returns:
        The latest such time up to ``as_of`` with which Hudi finds them all; None if there is none.
    """
    wanted = [one for one in writes if _is_done(one, as_of)]
    unwanted = [one.requested for one in writes if not _is_done(one, as_of) and one.requested <= as_of]
    time = _before(min(unwanted)) if unwanted else as_of
    # Writes completed after the plan of a compaction are in the logs on top of its base file. Hudi reads
    # these only for a time after the plan.
    last = max([archived, *(one.completed or "" for one in wanted)])
    needed = [*(one.requested for one in wanted), *(plan for plan in plans if plan < last)]
    return time if max(needed, default="") <= time else None


def _check_exists(instants: list[Instant], as_of: str) -> None:
    times = sorted(one.completed for one in instants if one.completed)
    if not times:
        raise _refused(as_of, "there is no instant yet")
    if as_of > times[-1]:
        raise _refused(as_of, f"nothing was completed then or later; the newest instant is {times[-1]}")
    if as_of < times[0]:
        reason = "nothing was committed by then, or it is archived: the active timeline begins at"
        raise _refused(as_of, f"{reason} {times[0]}")
    if as_of not in times:
        before = max(time for time in times if time < as_of)
        raise _refused(as_of, f"no instant was completed then; the last one before it is {before}")


def _check_kept(table: Table, as_of: str) -> None:
    for dropped, completed in table.timeline.restores():
        if completed is None:
            raise _refused(as_of, "a restore is at work on the table; try again when it has ended")
        if dropped <= as_of < completed:
            raise _refused(as_of, f"the restore at {completed} has dropped commits of that time")
    cleans = cleaned_by_versions(table.timeline)
    if as_of < table.commits.archived_until() or any(as_of < one for one in cleans):
        raise gone(as_of)


def gone(as_of: str) -> ConfigError:
    """Return the error of a state whose files no longer exist."""
    return _refused(as_of, "the files of that time are cleaned away; give a later instant")


def _is_done(one: Instant, as_of: str) -> bool:
    return one.completed is not None and one.completed <= as_of


def _is_time(text: str) -> bool:
    try:
        then = dt.datetime.strptime(text, _DIGITS)  # noqa: DTZ007  in the time zone of the table
    except ValueError:
        return False
    return _written(then) == text  # strptime takes a month with one digit, too


def _before(instant: str) -> str:
    """Return the millisecond before an instant."""
    then = dt.datetime.strptime(instant[:_LENGTH], _DIGITS) - dt.timedelta(milliseconds=1)  # noqa: DTZ007
    return _written(then)


def _written(then: dt.datetime) -> str:
    return then.strftime(_DIGITS)[:_LENGTH]


def _refused(as_of: str, reason: str) -> ConfigError:
    return ConfigError(setting="as_of", value=as_of, reason=reason)
