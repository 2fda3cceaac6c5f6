"""Has TLC check recorded histories against the specification, many at a time."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path
from shutil import copy
from typing import TYPE_CHECKING, Final

from tests.laboratory.model import SPEC, tlc
from tests.laboratory.traces.recorder import LONGEST, Line

if TYPE_CHECKING:
    from collections.abc import Sequence

_HERE: Final = Path(__file__).parent
_ENDS: Final = frozenset({"end", "free", "hand", "crash"})
_ACCEPTED: Final = re.compile(r'<<"accepted", (\d+)>>')
_AT: Final = re.compile(r"/\\ line = (\d+)")
_CONFIG: Final = f"""CONSTANTS
  Clients <- Owners
  Dateless = {{}}
  L = {LONGEST}
  M = 0
  S = 0
  R = 0
  Tries = 1000
  Crashes = 1000
  Keeps = 1000
  Without = {{}}
SPECIFICATION TraceSpec
"""


def accepted(histories: Sequence[Sequence[Line]]) -> list[bool]:
    """Return for each history whether it is a behaviour of the specification.

    Raises:
        RuntimeError: TLC could not check.
    """
    said = _run(histories, deadlock=False)
    if "No error has been found" not in said:
        raise RuntimeError(said[-3000:])
    numbers = {int(found[1]) for found in _ACCEPTED.finditer(said)}
    return [number in numbers for number in range(1, len(histories) + 1)]


def refused_at(history: Sequence[Line]) -> tuple[int, str]:
    """Return the number of the first line that a refused history must not have, and the state before it."""
    said = _run([history], deadlock=True)
    state = said.rpartition("\nState ")[2].partition("\n\n")[0]
    _, text = _placed(history)
    before = text[: int(found[1]) - 1] if (found := _AT.search(state)) else []
    return sum('"leave"' not in line for line in before), state


def _run(histories: Sequence[Sequence[Line]], *, deadlock: bool) -> str:
    with tempfile.TemporaryDirectory(prefix="asynclock-trace-") as name:
        folder = Path(name)
        for module in (SPEC / "Lease.tla", _HERE / "Trace.tla"):
            copy(module, folder)
        (folder / "Recorded.tla").write_text(_module(histories))
        (folder / "Recorded.cfg").write_text(_CONFIG + f"CHECK_DEADLOCK {str(deadlock).upper()}\n")
        return tlc(folder, "Trace.tla", "Recorded.cfg")


def _module(histories: Sequence[Sequence[Line]]) -> str:
    clients, texts = 1, []
    for lines in histories:
        most, text = _placed(lines)
        clients = max(clients, most)
        texts.append("<<" + ",\n".join(text) + ">>")
    return (
        "---- MODULE Recorded ----\nEXTENDS Integers\n"
        f"Owners == 1..{clients}\nHistories == <<{','.join(texts)}>>\n====\n"
    )


def _placed(lines: Sequence[Line]) -> tuple[int, list[str]]:
    """Give each acquisition a client of the model, from its first line to the first landing after its last.

    Returns:
        How many clients that takes, and the lines.
    """
    last = {owner: at for at, line in enumerate(lines) for owner in (line.owner, line.to) if owner}
    clients: dict[str, int] = {}
    held: set[str] = set()
    most, free, done, text = 0, list[int](), list[str](), list[str]()
    before = 0

    def client(owner: str) -> int:
        nonlocal most
        if owner not in clients:
            most = most if free else most + 1
            clients[owner] = free.pop() if free else most
        return clients[owner]

    for number, line in enumerate(lines):
        at = int(line.place[0] * 1000)
        to = client(line.to) if line.to else 0
        text.append(_line(line, at - before, client(line.owner), to))
        before = at
        if line.event == "adopt":
            held.add(line.owner)
        elif line.event in _ENDS:
            held.discard(line.owner)
        done += [owner for owner in (line.owner, line.to) if owner and last[owner] == number]
        if line.event == "land":
            for owner in [each for each in done if each not in held]:
                done.remove(owner)
                free.append(clients[owner])
                text.append(_line(Line(line.place, "leave", owner), 0, clients[owner], 0))
    return most, text


def _line(line: Line, after: int, client: int, to: int) -> str:
    return (
        f'[e|->"{line.event}",after|->{after},c|->{client},n|->{line.attempt},'
        f'current|->{str(line.current).upper()},short|->{line.short},kind|->"{line.kind}",to|->{to}]'
    )
