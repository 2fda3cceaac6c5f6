# ruff: noqa: T201  a command that prints
"""Draws what happens without a rule: ``python -m tests.laboratory counterexamples``.

For each rule of ``docs/spec/Lease.tla`` the shortest way to the property that breaks without it, as TLC finds
it, as a picture in ``docs/concepts/without/``.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.laboratory.model import FAILING, output

if TYPE_CHECKING:
    from tests.laboratory.model import Configuration

PICTURES: Final = Path(__file__).parents[2] / "docs" / "concepts" / "without"
DRAWN: Final = tuple(each for each in FAILING if each.without and not each.calm)
"""What never happens has no shortest way."""
_STATE: Final = re.compile(
    r"^State \d+: <(\w+)[^\n]*\n(.*?)(?=^State \d+: |^\d+ states|\Z)", re.MULTILINE | re.DOTALL
)
_CLIENT: Final = re.compile(r"(c\d) :>(.*?)(?=c\d :>|^/\\ |\Z)", re.MULTILINE | re.DOTALL)
_PHASE: Final = re.compile(r'phase \|-> "([a-z-]+)"')
_SENT: Final = re.compile(r"sent \|-> (\d+)")
_FATE: Final = re.compile(r'fate \|-> "(\w+)"')
_HEAD: Final = re.compile(r'/\\ head = \[.*?kind \|-> "(\w+)"', re.DOTALL)
_HOLDING: Final = frozenset({"held", "renew-wait", "renew-unsure", "renew-saw"})
_SAYS: Final = {
    "Look": "sees that the lock is free",
    "Step": "begins to observe",  # Watch, under a condition
    "Send": "sends its write",
    "Answered": "gets the answer",
    "NoAnswer": "gets no answer",
    "Read": "reads the object",
    "Settle": "takes what it has read",
    "TooLate": "finds that nothing is left",
    "GiveUp": "gives up",
    "Renew": "sends a renewal",
    "RenewAgain": "sends the renewal again",
    "Renewed": "takes the outcome",
    "End": "stops believing",
    "EndLate": "sends or ends its release",
    "Release": "sends a free record",
    "Freed": "has freed the lock",
    "HandOver": "hands the lock over",
    "Crash": "dies",
    "Land": "its write lands",
}
_ROW: Final = 24
_LANES: Final = (120, 600)
_OBJECT: Final = 360
_STYLE: Final = """
    text { fill: #1f2937 } .dim { fill: #6b7280 } .lane { stroke: #9ca3af } .page { fill: #fff }
    .belief { fill: #93c5fd } .both { fill: #f87171 } .write { stroke: #1f2937; marker-end: url(#tip) }
    .tick { stroke: #9ca3af; stroke-dasharray: 2 4 } .tip { fill: #1f2937 }
    @media (prefers-color-scheme: dark) {
      text { fill: #e5e7eb } .dim { fill: #9ca3af } .page { fill: #0d1117 } .belief { fill: #1d4ed8 }
      .both { fill: #b91c1c } .write { stroke: #e5e7eb } .tip { fill: #e5e7eb }
    }
"""

_SVG: Final = """<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 720 {height}" role="img"
  aria-labelledby="t" font-family="system-ui, sans-serif" font-size="12">
  <title id="t">{title}</title>
  <style>{style}  </style>
  <defs><marker id="tip" markerWidth="8" markerHeight="8" refX="6" refY="3" orient="auto">
    <path class="tip" d="M0,0 L7,3 L0,6 z"/></marker></defs>
  <rect class="page" width="720" height="{height}" rx="6"/>
  <line class="lane" x1="120" y1="46" x2="120" y2="{end}"/>
  <line class="lane" x1="600" y1="46" x2="600" y2="{end}"/>
  <text x="120" y="36" text-anchor="middle">client 1</text>
  <text x="600" y="36" text-anchor="middle">client 2</text>
  <text x="360" y="36" text-anchor="middle">the object</text>
  {body}
  <text x="360" y="{foot}" text-anchor="middle">{last}</text>
</svg>
"""


@dataclass(frozen=True, slots=True)
class Moment:
    """A state of the shortest way.

    Attributes:
        action: What led to it.
        clients: What each client knows, as TLC prints it.
        head: Kind of the newest record.
    """

    action: str
    clients: tuple[str, ...]
    head: str

    def believes(self, last_tick: int) -> tuple[bool, ...]:
        """Return for each client whether it believes, on the slowest clock, that it holds the lock."""
        return tuple(
            _PHASE.findall(each)[0] in _HOLDING and int(_SENT.findall(each)[0]) < last_tick
            for each in self.clients
        )


def moments(said: str) -> list[Moment]:
    """Return the states of a counterexample that TLC has printed."""
    found = []
    for action, text in _STATE.findall(said):
        head = _HEAD.search(text)
        assert head is not None
        clients = {name: " ".join(about.split()) for name, about in _CLIENT.findall(text)}
        found.append(Moment(action, tuple(clients[name] for name in sorted(clients)), head[1]))
    return found


def _actor(before: Moment, after: Moment) -> int:
    """Return who acted: whose write landed, else who changed."""
    pairs = list(zip(before.clients, after.clients, strict=True))
    landed = [_FATE.findall(new).count("head") > _FATE.findall(old).count("head") for old, new in pairs]
    if after.action == "Land" and any(landed):
        return landed.index(True)
    return next((at for at, (old, new) in enumerate(pairs) if old != new), 0)


def picture(configuration: Configuration, said: str) -> str:
    """Return the way to the violation as SVG, time downwards: two clients, and the object between them."""
    length, margin, *_ = configuration.times
    last_tick = length
    if "margin" in configuration.without:
        last_tick = (length * length + length - margin - 1) // (length - margin)
    way = moments(said)
    shapes: list[str] = []
    for row, (before, after) in enumerate(pairwise(way)):
        y = 70 + row * _ROW
        shapes += _beliefs(after.believes(last_tick), y)
        shapes += _step(before, after, y)
    last = f"{configuration.breaks} is violated"
    return _SVG.format(
        title=f"Without the rule {' and '.join(configuration.without)}: {last} after {len(way) - 1} steps",
        last=last,
        height=100 + len(way) * _ROW,
        foot=86 + len(way) * _ROW,
        end=60 + len(way) * _ROW,
        style=_STYLE,
        body="\n  ".join(shapes),
    )


def _beliefs(believes: tuple[bool, ...], y: int) -> list[str]:
    kind = "both" if all(believes) else "belief"
    lanes = [lane for lane, held in zip(_LANES, believes, strict=True) if held]
    return [
        f'<rect class="{kind}" x="{lane - 6}" y="{y - 12}" width="12" height="{_ROW}"/>' for lane in lanes
    ]


def _step(before: Moment, after: Moment, y: int) -> list[str]:
    middle = f'x="{_OBJECT}" text-anchor="middle"'
    if after.action == "Pass":
        line = f'<line class="tick" x1="30" y1="{y}" x2="690" y2="{y}"/>'
        return [line, f'<text class="dim" y="{y - 3}" {middle}>a tick</text>']
    at = _actor(before, after)
    lane, side, anchor = _LANES[at], (1, -1)[at], ("start", "end")[at]
    where = f'x="{lane + side * 12}" text-anchor="{anchor}"'
    says = _SAYS[after.action]
    if after.action != "Land":
        return [f'<text y="{y + 4}" {where}>{says}</text>']
    tip = _OBJECT - side * 40
    return [
        f'<line class="write" x1="{lane + side * 8}" y1="{y}" x2="{tip}" y2="{y}"/>',
        f'<text y="{y + 4}" {middle}>{after.head}</text>',
        f'<text y="{y - 3}" {where}>{says}</text>',
    ]


def path_of(configuration: Configuration) -> Path:
    """Return where the picture of a configuration is."""
    return PICTURES / ("-".join(re.findall(r"\w+", " ".join(configuration.without))) + ".svg")


def main() -> int:
    """Draw all pictures."""
    PICTURES.mkdir(exist_ok=True)
    for configuration in DRAWN:
        path_of(configuration).write_text(picture(configuration, output(configuration)))
    print(f"counterexamples: {len(DRAWN)} pictures in {PICTURES}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
