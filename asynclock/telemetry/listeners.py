"""Combines several listeners into one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from asynclock.events import pass_on

if TYPE_CHECKING:
    from collections.abc import Callable

    from asynclock.events import Event


def all_of(*listeners: Callable[[Event], object]) -> Callable[[Event], None]:
    """Return a listener that calls each of ``listeners``. An exception is logged and stops no other one."""

    def call_each(event: Event) -> None:
        for listener in listeners:
            pass_on(event, listener)

    return call_each
