"""Damaged copies of histories, one for each fault that a lock may have: a judge that accepts one is blind."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from tests.laboratory.linearizable.histories import History, Operation

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


def _change(history: History, old: Operation, *new: Operation) -> History:
    rest = [each for each in history.operations if each is not old]
    return replace(history, operations=(*rest, *new))


def _tenures(history: History) -> list[tuple[Operation, Operation]]:
    ends = {each.token: each for each in history.operations if each.kind == "end"}
    begun = sorted(
        (each for each in history.operations if each.kind == "acquire"), key=lambda each: each.token
    )
    return [(each, ends[each.token]) for each in begun]


def _two_holders(history: History) -> Iterator[History]:
    """A holder believed on while the next one had the lock."""
    tenures = _tenures(history)
    for (_, end), (following, last) in pairwise(tenures):
        if following.return_ < last.call:
            yield _change(
                history, end, replace(end, call=following.return_ + 1, return_=max(end.return_, last.call))
            )


def _fallen_token(history: History) -> Iterator[History]:
    """A later holder had a lower token than an earlier one."""
    tenures = _tenures(history)
    for (first, end), (following, last) in pairwise(tenures):
        if first.return_ < following.call and end.return_ < following.return_:
            swapped = _change(history, first, replace(first, token=following.token))
            swapped = _change(swapped, end, replace(end, token=following.token))
            swapped = _change(swapped, following, replace(following, token=first.token))
            yield _change(swapped, last, replace(last, token=first.token))


def _chain(history: History) -> Iterator[tuple[Operation, Operation]]:
    """Yield confirmed updates of which the second one replaced the result of the first."""
    added = {each.id: each for each in history.operations if each.kind == "add"}
    for each in added.values():
        if each.seen in added:
            yield added[each.seen], each


def _lost_update(history: History) -> Iterator[History]:
    """An update replaced what the one before it had replaced already."""
    for first, second in _chain(history):
        yield _change(history, second, replace(second, seen=first.seen, value=first.value))


def _zombie(history: History) -> Iterator[History]:
    """An older holder wrote over what a newer one had written."""
    for first, second in _chain(history):
        yield _change(history, second, replace(second, token=first.token - 1))


def _stale_read(history: History) -> Iterator[History]:
    """A read showed what a confirmed update had replaced before the read was called."""
    for first, second in _chain(history):
        yield replace(
            history,
            operations=(
                *history.operations,
                Operation(
                    kind="read",
                    call=second.return_ + 1,
                    return_=second.return_ + 2,
                    token=first.token,
                    value=first.value,
                    seen=first.id,
                ),
            ),
        )


DAMAGES: Final[dict[str, Callable[[History], Iterator[History]]]] = {
    "two holders": _two_holders,
    "a fallen token": _fallen_token,
    "a lost update": _lost_update,
    "a zombie": _zombie,
    "a stale read": _stale_read,
}


def damaged(history: History) -> dict[str, History]:
    """Return a copy for each kind of damage that this history can have, by the kind."""
    copies = {kind: next(damage(history), None) for kind, damage in DAMAGES.items()}
    return {kind: copy for kind, copy in copies.items() if copy is not None}
