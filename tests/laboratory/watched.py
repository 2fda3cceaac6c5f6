"""What the checker of a history watches: leases, and copies that are asked in their place."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Final, Protocol

from asynclock._core.protocol.belief import Belief
from asynclock._core.protocol.body import Body
from asynclock._core.protocol.ending import Ending
from asynclock._core.protocol.release import Release
from asynclock._core.protocol.renewer import Renewer
from asynclock._core.protocol.tenure import Tenure

if TYPE_CHECKING:
    from asynclock._core.protocol.held import HeldLock
    from asynclock.testing._virtual import Process


class Believer(Protocol):
    """Something that can say that it holds the lock."""

    @property
    def owner(self) -> str:
        """The id it writes into the store."""
        ...

    @property
    def held(self) -> bool:
        """Whether it believes to hold the lock now."""
        ...


class _Nobody:
    """In place of ``Body``: tells nobody."""

    def note(self, error: object) -> None:
        """See ``Body.note``."""

    def report_soon(self) -> None:
        """See ``Body.report_soon``."""

    def tell(self, lost: object) -> None:
        """See ``Body.tell``."""


_NOBODY: Any = _Nobody()
_PARTS: Final = (Belief, Body, Ending, Release, Renewer, Tenure)


class Probe:
    """Asks a lease whether it is held, and changes nothing by asking.

    A lease that is asked past its deadline makes its loss final. A program that never asks must
    be watched as it is, so a copy is asked. Only a step of its process, or of the world, changes
    a lease: ``refresh`` the copy then.
    """

    __slots__ = ("_belief", "_copy", "_original", "held", "lease")

    def __init__(self, lease: Believer) -> None:
        held = vars(lease).get("_held")
        self.held: HeldLock | None = None
        if held is None:
            self.lease, self._belief, self._copy, self._original = lease, None, {}, {}
            return
        self.lease = shallow_copy(lease)
        self.held = vars(self.lease)["_held"] = copy = shallow_copy(held)
        self._belief = copy.belief = shallow_copy(held.belief)
        self._copy, self._original = vars(copy.belief), vars(held.belief)
        self.refresh()

    def refresh(self) -> None:
        """Bring the copy up to date."""
        self._copy.update(self._original)
        if self._belief is not None:
            # What the copy finds must not be found in the original, and nobody hears of it.
            self._belief._ends = self._belief._ends.copy()
            self._belief._body = _NOBODY


@dataclass(slots=True, eq=False)
class Watched:
    """A lock object.

    Attributes:
        head: What it shows; None while there is no object.
        order: When that was sent, among all writes.
        token: The highest that was handed out.
    """

    head: dict[str, Any] | None = None
    order: int = -1
    token: int = -1


@dataclass(slots=True, eq=False)
class Holding:
    """A lease that was handed to somebody, watched until it is dropped.

    Attributes:
        who: Whose it is, for traces.
        process: The process it lives in.
        lease: The lease.
        probe: Asks it.
        watched: Its lock object.
        believes: What it said last.
        ended_at: True time at which it stopped believing; None while it has not.
        stopped: It has told its user that it is lost.
        overruled: An operator broke the lock under it; it may believe beside another.
        headless: An operator deleted the object under it; it may believe without a record.
    """

    who: str
    process: Process
    lease: Believer
    probe: Probe
    watched: Watched
    believes: bool = False
    ended_at: float | None = None
    stopped: bool = False
    overruled: bool = False
    headless: bool = False


def shallow_copy(original: Any) -> Any:  # noqa: ANN401  whatever it is given
    """Return an object of the same kind with the same attributes, without constructor and finalizer.

    Its lists are its own, as in a forked child: what one of the two takes out is still there for the other.
    """
    kind: type[Any] = type(original)
    copy: Any = object.__new__(_without_finalizer(kind))  # type: ignore[arg-type]  # a class is hashable
    vars(copy).update(
        (name, value.copy() if type(value) is list else value) for name, value in vars(original).items()
    )
    return copy


def held_copy(held: HeldLock) -> HeldLock:
    """Return a held lock as a forked child has it: its parts are its own, but for its claim."""
    parts = [held, *(each for each in vars(held).values() if isinstance(each, _PARTS))]
    copies = {id(part): shallow_copy(part) for part in parts}
    for copy in copies.values():
        vars(copy).update([(name, copies.get(id(value), value)) for name, value in vars(copy).items()])
    copied: HeldLock = copies[id(held)]
    return copied


@cache
def _without_finalizer(kind: type[Any]) -> type[Any]:
    # A lease that is collected before it was released is released; a copy of it is nobody's.
    return type(kind.__name__, (kind,), {"__del__": lambda _: None}) if hasattr(kind, "__del__") else kind
