"""What the processes wrote down, as histories of operations that each take effect at one instant.

An operation has a call and a return, and took effect between the two. Of each lock comes a history of a
mutex, of each fenced object one of a counter; of the semaphore and the reader-writer lock one each.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Literal

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

_FIRST_LINE: Final = {"acquire", "add", "read"}

SLOTS: Final = 2
"""Of the semaphore."""

Line = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One operation as the judge takes it.

    Attributes:
        kind: ``acquire`` and ``end`` (of belief) of a lock; ``add``, ``read``, ``stale`` (refused), and
            ``open`` (an update whose answer was lost, but whose result was seen) of a counter.
        call: When it was called, in nanoseconds.
        return_: When it had returned.
        token: The fencing token.
        id: Its name.
        value: The count that it wrote or read.
        seen: The name of the update whose result it read.
        side: ``read`` or ``write``, of a reader-writer lock.
        slot: Of a semaphore, or of a reader.
    """

    kind: Literal["acquire", "end", "add", "open", "stale", "read"]
    call: int
    return_: int
    token: int
    id: str = ""
    value: int = 0
    seen: str = ""
    side: Literal["", "read", "write"] = ""
    slot: int = 0


@dataclass(frozen=True, slots=True)
class History:
    """The operations of one lock or of one fenced object.

    Attributes:
        name: Its name.
        model: What it is judged by.
        operations: In no order that matters.
        slots: How many may hold a semaphore.
    """

    name: str
    model: Literal["mutex", "counter", "semaphore", "rwlock"]
    operations: tuple[Operation, ...]
    slots: int = 0

    def as_json(self) -> dict[str, Any]:
        """Return it as the judge reads it."""
        operations = [
            {key.rstrip("_"): value for key, value in asdict(each).items()} for each in self.operations
        ]
        return {"name": self.name, "model": self.model, "slots": self.slots, "operations": operations}


def read_lines(files: Iterable[Path]) -> list[Line]:
    """Return all lines that the processes wrote."""
    return [json.loads(line) for file in files for line in file.read_bytes().splitlines()]


def histories(lines: Iterable[Line], deaths: Mapping[str, int], *, end: int) -> list[History]:
    """Return the histories of one store.

    Args:
        lines: What its processes wrote.
        deaths: By the name of a process, when it was certainly dead.
        end: An instant after all of them.
    """
    calls: dict[str, list[Line]] = {}
    for line in lines:
        calls.setdefault(line["call"], []).append(line)
    seen = {line["seen"] for call in calls.values() for line in call if "seen" in line}
    mutexes: dict[int, list[Operation]] = {}
    counters: dict[int, list[Operation]] = {}
    shared: dict[str, list[Operation]] = {"semaphore": [], "rwlock": []}
    for name, call in calls.items():
        first = call[0]
        if first["what"] not in _FIRST_LINE:
            message = f"{name} begins with {first['what']}"
            raise ValueError(message)
        dead = deaths.get(name.partition("-")[0], end)
        if "of" in first:
            shared[first["of"]].extend(_tenure(call, dead))
        elif first["what"] == "acquire":
            mutexes.setdefault(first["lock"], []).extend(_tenure(call, dead))
        else:
            counters.setdefault(first["lock"], []).extend(_counted(name, call, is_seen=name in seen, end=end))
    return [
        *(History(f"lock-{lock}", "mutex", tuple(found)) for lock, found in sorted(mutexes.items())),
        *(History(f"counter-{lock}", "counter", tuple(found)) for lock, found in sorted(counters.items())),
        History("semaphore", "semaphore", tuple(shared["semaphore"]), slots=SLOTS),
        History("rwlock", "rwlock", tuple(shared["rwlock"])),
    ]


def _tenure(call: list[Line], dead: int) -> list[Operation]:
    """Return the beginning and the end of one belief; nothing if nobody came to believe."""
    at = {line["what"]: line["at"] for line in call}  # the last of each kind
    if "acquired" not in at:
        return []
    got = next(line for line in call if line["what"] == "acquired")
    begin = Operation(
        kind="acquire",
        id=call[0]["call"],
        call=at["acquire"],
        return_=at["acquired"],
        token=got["token"],
        side=call[0].get("side", ""),
        slot=got.get("slot") or 0,
    )
    # A lease that was not believed once after its acquisition may have ended before that returned.
    return [
        begin,
        replace(begin, kind="end", call=at.get("believes", at["acquire"]), return_=at.get("ended", dead)),
    ]


def _counted(name: str, call: list[Line], *, is_seen: bool, end: int) -> list[Operation]:
    first, last = call[0], call[-1]
    called, returned = first["at"], last["at"]
    if last["what"] == "saw":
        return [
            Operation(
                kind="read",
                call=called,
                return_=returned,
                token=last["token"],
                value=last["value"],
                seen=last["seen"],
            )
        ]
    if last["what"] == "added":
        return [
            Operation(
                kind="add",
                id=name,
                call=called,
                return_=returned,
                token=first["token"],
                value=last["value"],
                seen=last["seen"],
            )
        ]
    found = []
    if last["what"] == "stale":
        found.append(Operation(kind="stale", call=called, return_=returned, token=first["token"]))
    # A write that nobody answered may be applied at any later time. If nobody saw its result, it need not be.
    if is_seen:
        if not last.get("sent", True):  # else nobody says how it ended
            message = f"{name} says that nothing was sent, and its result was seen"
            raise ValueError(message)
        found.append(Operation(kind="open", id=name, call=called, return_=end, token=first["token"]))
    return found
