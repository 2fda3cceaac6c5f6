"""What the checker of a history watches: leases, and copies that are asked in their place."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Protocol

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


class _Nobody(list[Any]):
    """A list that stays empty."""

    def append(self, _: object) -> None:
        pass


_NOBODY: Any = _Nobody()


class Probe:
    """Asks a lease whether it is held, and changes nothing by asking.

    A lease that is asked past its deadline makes its loss final. A program that never asks must
    be watched as it is, so a copy is asked. Only a step of its process, or of the world, changes
    a lease: ``refresh`` the copy then.
    """

    __slots__ = ("_copy", "_original", "held", "lease")

    def __init__(self, lease: Believer) -> None:
        held = vars(lease).get("_core")
        self.held: HeldLock | None = None
        if held is None:
            self.lease, self._copy, self._original = lease, {}, {}
            return
        self.lease = shallow_copy(lease)
        self.held = copy = shallow_copy(held)
        vars(self.lease)["_core"] = copy
        self._copy, self._original = vars(copy), vars(held)
        self.refresh()

    def refresh(self) -> None:
        """Bring the copy up to date."""
        self._copy.update(self._original)
        if self.held is not None:
            # What the copy finds must not be found in the original, and is told to nobody.
            self.held._ends = self.held._ends.copy()
            self.held._on_lost = self.held._unreported = _NOBODY


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


@cache
def _without_finalizer(kind: type[Any]) -> type[Any]:
    # A lease that is collected before it was released is released; a copy of it is nobody's.
    return type(kind.__name__, (kind,), {"__del__": lambda _: None}) if hasattr(kind, "__del__") else kind
