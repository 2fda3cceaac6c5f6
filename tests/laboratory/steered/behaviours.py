"""Has TLC draw behaviours of the specification, and reads them."""

from __future__ import annotations

import re
import tempfile
from dataclasses import dataclass
from pathlib import Path
from shutil import copy
from typing import TYPE_CHECKING, Final

from tests.laboratory.model import SPEC, tlc

if TYPE_CHECKING:
    from collections.abc import Sequence

CLIENTS: Final = 2
VALIDITY: Final = 5
"""L, in ticks."""
MARGIN: Final = 1
_CONFIG: Final = """CONSTANTS
  Clients = {{{clients}}}
  Dateless = {{{dateless}}}
  L = {validity}
  M = {margin}
  S = 1
  R = 1
  Tries = 2
  Crashes = 1
  Keeps = 0
  Without = {{}}
  LastTick <- RightClocks
SPECIFICATION SteeredSpec
INVARIANT OneBeliever
CHECK_DEADLOCK FALSE
"""
_DID: Final = re.compile(r'/\\ did = <<"([a-z ]+)", (\d+), (\d+)>>')
_PHASE: Final = re.compile(r'phase \|-> "([a-z-]+)"')
_SENT: Final = re.compile(r"sent \|-> (\d+)")
_TRIES: Final = re.compile(r"tries \|->\s*<<(.*?)>>,", re.DOTALL)
_HEAD: Final = re.compile(r'/\\ head = \[kind \|-> "([a-z]+)"')


@dataclass(frozen=True, slots=True)
class Step:
    """One step, and the state after it.

    Attributes:
        action: What was done.
        client: By whom; the first is 0.
        attempt: Which of its attempts landed; the first is 0.
        phases: Of each client.
        believes: Whether each client believes that it holds the lock.
        tries: How many attempts of each client still count.
        head: Kind of the newest record.
    """

    action: str
    client: int
    attempt: int
    phases: tuple[str, ...]
    believes: tuple[bool, ...]
    tries: tuple[int, ...]
    head: str


def _config(dateless: Sequence[int]) -> str:
    names = [str(number + 1) for number in range(CLIENTS)]
    return _CONFIG.format(
        clients=", ".join(names),
        dateless=", ".join(names[number] for number in dateless),
        validity=VALIDITY,
        margin=MARGIN,
    )


def behaviours(
    count: int, *, depth: int = 40, seed: int = 0, dateless: Sequence[int] = ()
) -> list[list[Step]]:
    """Return behaviours that TLC draws at random.

    Args:
        count: How many.
        depth: Steps of each.
        seed: The same one gives the same behaviours.
        dateless: The clients that see no Date, and observe; the first is 0.

    Raises:
        RuntimeError: TLC could not draw them.
    """
    drawn = states("Behaviour", _config(dateless), count, depth=depth, seed=seed)
    return [[_step(state) for state in each[1:]] for each in drawn]


def states(module: str, config: str, count: int, *, depth: int, seed: int) -> list[list[str]]:
    """Return the states of behaviours of a module of this folder that TLC draws at random, as it prints them.

    Raises:
        RuntimeError: TLC could not draw them.
    """
    with tempfile.TemporaryDirectory(prefix="asynclock-behaviours-") as name:
        folder = Path(name)
        for path in (SPEC / "Lease.tla", Path(__file__).with_name(f"{module}.tla")):
            copy(path, folder)
        (folder / f"{module}.cfg").write_text(config)
        drawn = folder / "drawn"
        drawn.mkdir()
        options = ("-simulate", f"num={count},file={drawn}/b", "-depth", str(depth), "-seed", str(seed))
        said = tlc(folder, f"{module}.tla", f"{module}.cfg", *options)
        files = sorted(drawn.iterdir(), key=lambda path: int(path.name.rpartition("_")[2]))
        if len(files) < count or "Error" in said:
            raise RuntimeError(said[-3000:])
        return [path.read_text().split("\nSTATE_")[1:] for path in files[:count]]


def _step(state: str) -> Step:
    did, head = _DID.search(state), _HEAD.search(state)
    assert did is not None
    assert head is not None
    phases = tuple(_PHASE.findall(state))
    holding = ("held", "renew-wait", "renew-unsure", "renew-saw")
    sent = tuple(int(ticks) for ticks in _SENT.findall(state))
    return Step(
        action=did[1],
        client=int(did[2]) - 1,
        attempt=int(did[3]) - 1,
        phases=phases,
        believes=tuple(
            phase in holding and ticks < VALIDITY - MARGIN for phase, ticks in zip(phases, sent, strict=True)
        ),
        tries=tuple(tries.count("kind") for tries in _TRIES.findall(state)),
        head=head[1],
    )
