"""The names of the view, which every commit carries, so that no driver renames a column of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from asynclock.spark.hudi.layout import layout_of
from asynclock.spark.spec.column_groups import TOMBSTONE, group_of, owner
from asynclock.spark.spec.functions import FunctionGroup, described
from asynclock.spark.spec.load import misplaced
from asynclock.spark.spec.ordering import ORDERING, orderings_among

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from asynclock.spark.spec.model import Spec


def carried_names(spec: Spec, known: Mapping[str, str]) -> dict[str, str]:
    """Return the names that a commit carries: those that do not follow from the physical name.

    Args:
        spec: The spec of the commit.
        known: The names in earlier commits, including streams that this spec does not have.
    """
    own = {
        physical: shown
        for physical, shown in spec.view_names().items()
        if _plain(physical) == ORDERING or shown != _plain(physical)
    }
    return own | dict(known)


def check_names(spec: Spec, stored: Iterable[str], known: Mapping[str, str]) -> None:
    """Refuse a spec that would rename a column of the view, or merge it in another group or order.

    Args:
        spec: The spec.
        stored: The physical columns of the table.
        known: The names in commits.

    Raises:
        SpecError: A column of the table would get another name or group, or a group another order. Nothing
            was written.
    """
    names = spec.view_names()
    present = set(stored)
    if layout_of(spec).in_groups:
        _check_groups(spec, present, known)
        _check_orderings(spec, present, known)
    for stream in spec.streams:
        for column in stream.owned(spec.table):
            physical = stream.physical(column)
            if physical not in names or physical not in present:
                continue
            before = known.get(physical, _plain(physical))
            if names[physical] == before:
                continue
            why = "" if column.name in stream.as_ else _why(spec, stream.name, column.name)
            keep = f'as = {{ {column.name} = "{before}" }} in [streams.{stream.name}]'
            reason = (
                f"the view calls the column {physical} {before!r}, and with this spec it would be "
                f"{names[physical]!r}{why}: queries that name it would fail or read another column. Nothing "
                f"was written; keep the name with {keep}"
            )
            keys = ("streams", stream.name, "as", column.name)
            raise misplaced(spec, keys, names[physical], reason)


def _check_groups(spec: Spec, present: Iterable[str], known: Mapping[str, str]) -> None:
    """Refuse a spec that puts a column of the table into another group."""
    names = spec.view_names()
    stored: dict[str, list[tuple[str, set[str]]]] = {}
    for physical in present:
        if (of := owner(physical)) and (plain := _plain(physical)) != TOMBSTONE:
            called = {plain, known.get(physical, plain)} - {ORDERING}
            stored.setdefault(of[0], []).append((of[1], called))
    for stream in spec.streams:
        for column in stream.owned(spec.table):
            physical = stream.physical(column)
            wanted = group_of(physical)
            for group, called in stored.get(stream.name, ()):
                if group != wanted and not called.isdisjoint({column.name, names.get(physical, column.name)}):
                    reason = (
                        f"the table merges this column {_among(group)}, and this spec {_among(wanted)}: the "
                        "events so far cannot be merged again. Nothing was written; leave the column where "
                        "it is, or splice into a new table"
                    )
                    is_function = column.name in stream.merge
                    place = (
                        ("merge", column.name)
                        if is_function
                        else ("groups", wanted)
                        if wanted and not wanted.startswith("_")
                        else ("columns", column.name)
                    )
                    raise misplaced(spec, ("streams", stream.name, *place), column.name, reason)


def _check_orderings(spec: Spec, present: Iterable[str], known: Mapping[str, str]) -> None:
    """Refuse a spec that orders a group of the table by other columns; ``ts`` stands for the first of any."""
    among = orderings_among(present)
    for group in spec.column_groups():
        stored = among.get(group.prefix, [])
        if isinstance(group, FunctionGroup) or stored in ([], list(group.stored_orderings)):
            continue
        first, *further = stored
        wanted = ", ".join(column.name for column in group.orderings)
        has = ", ".join([known.get(first, group.orderings[0].name), *map(_plain, further)])
        reason = (
            f"the table orders {group.label} by {has}, and this spec by {wanted}: the events so far cannot "
            "be merged again. Nothing was written; leave the ordering as it is, or splice into a new table"
        )
        place = ("groups", group.name, "ordering") if group.name else ("ordering",)
        raise misplaced(spec, ("streams", group.stream, *place), wanted, reason)


def _among(group: str) -> str:
    if group.startswith("_"):
        return f"by {described(group.strip('_'))}"
    return f"in the group {group!r}" if group else "with the stream's own columns"


def _plain(physical: str) -> str:
    """Return the part of a physical name after the stream; ``ts`` for an ordering column."""
    return physical.partition("__")[2]


def _why(spec: Spec, stream: str, name: str) -> str:
    others = [
        other.name
        for other in spec.streams
        if other.name != stream and any(column.name.lower() == name.lower() for column in other.columns)
    ]
    return f", because {', '.join(others)} has a column {name!r} as well" if others else ""
