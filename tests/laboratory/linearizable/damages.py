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


def _tenures(history: History, side: str = "") -> list[tuple[Operation, Operation]]:
    """Return the beginning and the end of each, by the token."""
    ends = {each.id: each for each in history.operations if each.kind == "end"}
    begun = (each for each in history.operations if each.kind == "acquire" and each.side == side)
    return [(each, ends[each.id]) for each in sorted(begun, key=lambda each: each.token)]


def _until(end: Operation, begin: Operation, last: Operation) -> Operation:
    """Return ``end`` as it would be if that belief had ended in another one, from ``begin`` to ``last``."""
    return replace(end, call=begin.return_ + 1, return_=max(end.return_, last.call))


def _two_holders(history: History) -> Iterator[History]:
    """A holder believed on while the next one had the lock."""
    yield from _overlapped(history, _tenures(history))


def _two_writers(history: History) -> Iterator[History]:
    """A writer believed on while the next one was in."""
    yield from _overlapped(history, _tenures(history, "write"))


def _overlapped(history: History, tenures: list[tuple[Operation, Operation]]) -> Iterator[History]:
    for (_, end), (following, last) in pairwise(tenures):
        if following.return_ < last.call:
            yield _change(history, end, _until(end, following, last))


def _reader_with_writer(history: History) -> Iterator[History]:
    """A reader believed on while a writer was in."""
    readers = _tenures(history, "read")
    for writer, last in _tenures(history, "write"):
        for reader, end in readers:
            if reader.return_ < writer.call and writer.return_ < last.call:
                yield _change(history, end, _until(end, writer, last))


def _one_more(history: History) -> Iterator[History]:
    """Each slot was held when somebody got one that there is not."""
    tenures = _tenures(history)
    for begin, last in tenures:
        before: dict[int, tuple[Operation, Operation]] = {}
        for each in sorted(tenures, key=lambda each: each[0].return_):
            if each[0].return_ < begin.call:
                before[each[0].slot] = each
        if len(before) == history.slots and begin.return_ < last.call:
            copy = _change(history, begin, replace(begin, slot=history.slots))
            copy = _change(copy, last, replace(last, slot=history.slots))
            for _, end in before.values():
                copy = _change(copy, end, _until(end, begin, last))
            yield copy


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


DAMAGES: Final[dict[str, tuple[str, Callable[[History], Iterator[History]]]]] = {
    "two holders": ("mutex", _two_holders),
    "a fallen token": ("mutex", _fallen_token),
    "a lost update": ("counter", _lost_update),
    "a zombie": ("counter", _zombie),
    "a stale read": ("counter", _stale_read),
    "one holder too many": ("semaphore", _one_more),
    "two writers": ("rwlock", _two_writers),
    "a reader next to a writer": ("rwlock", _reader_with_writer),
}
"""By its name: the model of the histories that may have it, and how it is done to one."""


def damaged(history: History) -> dict[str, History]:
    """Return a copy for each kind of damage that this history can have, by the kind."""
    copies = {
        kind: next(damage(history), None)
        for kind, (model, damage) in DAMAGES.items()
        if model == history.model
    }
    return {kind: copy for kind, copy in copies.items() if copy is not None}
