"""What a history consists of, drawn from a seed: settings, clocks, weather and misfortunes."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Final

from tests.laboratory.attack.bucket import Weather

WEEK: Final = 7 * 86_400.0
DAY: Final = 86_400.0
LONG: Final = 1000.0
SHARED: Final = "shared"
"""Name of the semaphore or the reader-writer lock."""
KINDS: Final = 0.2
"""Share of the histories in which users do more with locks than to hold one."""
ENDINGS: Final = ("return", "kill", "exit", "close_loop")
MISFORTUNES: Final = (
    ("signal", 3),
    ("stop", 3),
    ("suspend", 2),
    ("step", 2),
    ("aclose", 3),
    ("aclose_twice", 2),
    ("break", 2),
    ("kill", 2),
    ("exit", 2),
    ("fork", 1),
    ("close_loop", 2),
)


@dataclass(frozen=True)
class ClientPlan:
    """One client: arguments of its ``LeaseSettings``, and how it renews."""

    settings: dict[str, float]
    renewal: str
    users: int


@dataclass(frozen=True)
class ProcessPlan:
    """One process on a machine of its own."""

    clients: tuple[ClientPlan, ...]
    rate: float
    wall_error: float
    grain: float
    ending: str


@dataclass(frozen=True)
class Misfortune:
    """Something that happens to a process at ``at`` seconds; ``size`` is from 0 to 1."""

    at: float
    kind: str
    process: int
    size: float


@dataclass(frozen=True)
class HudiPlan:
    """One Hudi writer."""

    validity: float
    ahead: float
    dies: bool
    until: float


@dataclass
class Plan:
    """A whole history."""

    seed: int
    skew: float = 0.0
    resolution: float = 0.0
    nodes: list[float] = field(default_factory=lambda: [0.0])
    hashed: bool = False
    spacing: float = 0.0
    weather: Weather = field(default_factory=Weather)
    processes: list[ProcessPlan] = field(default_factory=list)
    hudi: list[HudiPlan] = field(default_factory=list)
    misfortunes: list[Misfortune] = field(default_factory=list)
    locks: list[str] = field(default_factory=lambda: ["lock"])
    horizon: float = 10.0
    night: float | None = None
    """When everything is killed and, after the documented wait, all locks are deleted by hand."""
    shared_leases: bool = False
    """Fenced objects are changed under a lease through any client of its process."""
    tickets: bool = False
    """Users hand locks over by tickets, too."""
    kinds: bool = False
    """Users hold several locks, lead, take leases with an end, and run jobs once a period, too."""
    every: float = 0.0
    """Seconds of such a period."""
    keen: bool = False
    """Users want nothing but the lock, for a moment, and wait for it."""
    turns: bool = False
    """Users do nothing but take the lock in turn, and each is to have one."""
    patience: float = 0.0
    """Seconds after which a turn is overdue."""
    kind: str = "lock"
    """``semaphore`` or ``rwlock``: users share one; ``locks`` are its parts, the writer's last."""
    slots: int = 0
    """Of the semaphore, or of the readers."""

    @property
    def validities(self) -> list[float]:
        """The validity of every client."""
        return [client.settings["validity"] for process in self.processes for client in process.clients]


def draw(seed: int) -> Plan:
    """Return the plan of a seed."""
    rng = random.Random(f"attack {seed}")
    family = rng.random()
    if family < 0.01:
        return _turns(seed, rng)
    if family < 0.06:
        return _settling(seed, rng)
    low, high = rng.choice(((0.1, 2.0), (1.0, 30.0), (1.0, 30.0), (30.0, 900.0), (900.0, WEEK)))
    base = low * (high / low) ** rng.random()
    if rng.random() < 0.03:
        base = WEEK * rng.uniform(0.8, 1.0)
    plan = Plan(seed, hashed=rng.random() < 0.3)
    plan.shared_leases = rng.random() < 0.5
    plan.tickets = random.Random(f"tickets {seed}").random() < 0.25
    plan.resolution = 1.0 if base > 1.5 and rng.random() < 0.6 else 0.0
    most = max(0.0, min(base - plan.resolution, 30.0))
    plan.skew = rng.choice((0.0, min(2.0, most), min(2.0, most), most * rng.random(), most))
    plan.spacing = 1.0 if base > 20 and rng.random() < 0.1 else 0.0
    hudi = base >= 1 and rng.random() < 0.35
    settings = [_settings(rng, base, plan) for _ in range(rng.randint(1, 3))]
    if rng.random() < 0.4:
        settings = settings[:1]
    drift = 0.4 * min(each["safety_margin"] / each["validity"] for each in settings)
    drift = min(drift, 1e-6 if hudi else 0.02)
    first = -plan.skew * rng.random()
    plan.nodes = [first + plan.skew * share for share in (0.0, 1.0, rng.random())]
    grain = min(0.016, 0.05 * min(each["safety_margin"] for each in settings))
    for _ in range(rng.choice((1, 2, 2, 3))):
        clients = tuple(
            ClientPlan(rng.choice(settings), rng.choice(("loop", "thread")), rng.choice((1, 1, 2, 3)))
            for _ in range(rng.choice((1, 1, 2)))
        )
        plan.processes.append(
            ProcessPlan(
                clients,
                rate=1 + drift * rng.uniform(-1, 1),
                wall_error=_wall_error(rng, plan),
                grain=grain if rng.random() < 0.2 else 0.0,
                ending=rng.choice(ENDINGS if base < LONG / 4 else ENDINGS[:3]),
            )
        )
    shortest = min(plan.validities)
    poll = min(client.settings["poll_interval"] for each in plan.processes for client in each.clients)
    plan.horizon = min(rng.uniform(3, 10) * base, 120 * poll, 1500.0)
    if rng.random() < 0.3:
        plan.locks.append("folder/other")
    _weather(rng, plan, shortest)
    if hudi and plan.weather.undated < 1:
        _hudi(rng, plan, shortest)
    _misfortunes(rng, plan)
    if not (plan.hudi or plan.tickets or plan.night):
        _share(plan)
    _more(plan)
    return plan


def _share(plan: Plan) -> None:
    """Let users of one history in five share a semaphore or a reader-writer lock."""
    rng = random.Random(f"share {plan.seed}")
    if rng.random() > 0.2:
        return
    plan.kind, plan.slots = rng.choice(("semaphore", "rwlock")), rng.choice((1, 2, 2, 3))
    part = "slot=" if plan.kind == "semaphore" else "rw=r"
    plan.locks = [f"{SHARED}/{part}{slot}" for slot in range(plan.slots)]
    if plan.kind == "rwlock":
        plan.locks.append(f"{SHARED}/rw=w")
    # Documented: after a break its holder may believe beside others.
    plan.misfortunes = [each for each in plan.misfortunes if each.kind != "break"]


def _more(plan: Plan) -> None:
    """Let users of some histories do more with their locks than to hold one."""
    rng = random.Random(f"kinds {plan.seed}")
    if plan.kind != "lock" or rng.random() > KINDS:
        return
    plan.kinds = True
    plan.locks += ["folder/other", "more"][len(plan.locks) - 1 :]
    if not plan.hudi:
        # Of several locks that are held together, one is lost.
        breaks = [rng.random() * plan.horizon for _ in range(rng.randint(0, 6))]
        plan.misfortunes += [Misfortune(at, "break", 0, 0.0) for at in breaks]
    plan.every = 4 * plan.skew + 2 * plan.resolution + 1 + plan.horizon / 5 * rng.random()


def _settings(rng: random.Random, base: float, plan: Plan) -> dict[str, float]:
    validity = base * rng.choice((1.0, 1.0, 10 ** rng.uniform(-0.5, 0.5)))
    # Behind a Hudi writer a shorter lease is refused; and any process may come to be behind one.
    validity = min(max(validity, 0.1, 1.25 * (plan.skew + plan.resolution)), WEEK)
    least = 0.01
    margin = validity * rng.choice((0.1, 0.5, least * 50 ** rng.random()))
    poll = rng.choice((validity / 40, validity / 40 * 10 ** rng.uniform(-0.5, 0.7)))
    return {
        "validity": validity,
        "safety_margin": min(max(margin, validity / 100), validity / 2),
        "renew_interval": validity * rng.choice((0.1, rng.uniform(0.03, 0.1))),
        "max_clock_skew": plan.skew,
        "poll_interval": min(5.0, max(0.004, poll)),
    }


def _wall_error(rng: random.Random, plan: Plan) -> float:
    if rng.random() < 0.8:
        return (plan.skew + plan.resolution) * rng.choice((0.0, 0.2, 0.9)) * rng.uniform(-1, 1)
    return rng.choice((-1, 1)) * 60 * (4 * DAY / 60) ** rng.random()


def _weather(rng: random.Random, plan: Plan, shortest: float) -> None:
    weather = plan.weather
    weather.trip = min(shortest / 60, 0.05) * rng.choice((0.2, 1.0, 1.0, 6.0))
    for fate in ("lost", "mute", "late", "twice", "busy"):
        if rng.random() < 0.5:
            setattr(weather, fate, rng.choice((0.01, 0.05, 0.15)))
    weather.late_by = min(shortest, 300.0) * rng.choice((0.1, 1.0, 3.0))
    weather.undated = rng.choice((0.0,) * 7 + (1.0, 0.2, 0.7))
    weather.unmodified = rng.choice((0.0,) * 6 + (1.0, 0.3))
    if rng.random() < 0.1:
        # Off by what no clock here is off by, or a wrong clock would be its witness.
        weather.wrong_date = rng.choice((0.02, 0.1))
        weather.wrong_by = rng.choice(((-2e6, -1e6), (1e6, 2e6)))


def _hudi(rng: random.Random, plan: Plan, shortest: float) -> None:
    for _ in range(rng.choice((1, 1, 2))):
        validity = shortest * rng.uniform(0.3, 1.0)
        if plan.weather.unmodified == 0:
            validity *= rng.choice((1.0, 3.0))
        plan.hudi.append(
            HudiPlan(validity, rng.uniform(-0.3, 0.3), rng.random() < 0.5, plan.horizon * rng.uniform(0.2, 1))
        )


def _misfortunes(rng: random.Random, plan: Plan) -> None:
    kinds, weights = zip(*MISFORTUNES, strict=True)
    if plan.hudi and rng.random() < 0.5:
        # Signals in the wait for a token that has to settle.
        for _ in range(rng.randint(2, 6)):
            at, process = rng.random() * plan.horizon, rng.randrange(len(plan.processes))
            plan.misfortunes.append(Misfortune(at, "signal", process, rng.random()))
    for _ in range(rng.choice((0, 1, 2, 3, 5))):
        kind = rng.choices(kinds, weights)[0]
        if kind == "break" and plan.hudi:
            continue  # documented: a token that has not settled may then be followed by a lower one
        if kind == "close_loop" and max(plan.validities) > LONG:
            continue  # what goes on there would have to be watched for days
        at, process = rng.random() * plan.horizon, rng.randrange(len(plan.processes))
        plan.misfortunes.append(Misfortune(at, kind, process, rng.random()))
    if plan.weather.undated == 0 and not plan.hudi and rng.random() < 0.08:
        plan.night = plan.horizon * rng.random()


def _turns(seed: int, rng: random.Random) -> Plan:
    """Two processes that want one lock all the time, or one all the time and one now and then."""
    plan = Plan(seed, turns=True)
    plan.weather.trip = 0.005
    polls = rng.choice(((0.1, 0.1), (0.1, 0.4), (0.05, 5.0)))
    for poll in polls:
        settings = {"validity": 10.0, "renew_interval": 0.5, "max_clock_skew": 0.0, "poll_interval": poll}
        client = ClientPlan({**settings, "safety_margin": 2.0}, "loop", 1)
        plan.processes.append(ProcessPlan((client,), 1.0, 0.0, 0.0, "return"))
    plan.patience = 20 * polls[0] * 6 + 6 * polls[1]
    if polls[1] < 1:
        plan.patience += 20 * polls[1]  # a run of the slow one
    plan.horizon = plan.patience * 2.5
    return plan


def _settling(seed: int, rng: random.Random) -> Plan:
    """Tokens that have to settle behind a Hudi writer, and processes that are struck meanwhile."""
    tight = rng.random() < 0.3
    plan = Plan(seed, skew=2.0, resolution=0.0 if tight else 1.0, keen=True)
    first = -plan.skew * rng.random()
    plan.nodes = [first, first + plan.skew]
    validity = 2.5 if tight else rng.choice((60.0, 90.0))
    settings = {"validity": validity, "safety_margin": validity / 10, "renew_interval": validity / 10}
    settings |= {"max_clock_skew": plan.skew, "poll_interval": 0.05 if tight else 0.5}
    plan.weather.trip = 0.005 if tight else 0.1
    plan.weather.jam = rng.choice((0.3, 0.6))
    plan.weather.jam_by = 0.38 if tight else rng.choice((2.0, 3.0))
    plan.horizon = 30.0 if tight else 60.0
    for _ in range(5 if tight else 2):
        client = ClientPlan(settings, rng.choice(("loop", "thread")), 1)
        plan.processes.append(ProcessPlan((client,), 1.0, 0.0, 0.0, rng.choice(("return", "kill", "exit"))))
    held_for = rng.uniform(0.2, 1.0) if tight else rng.uniform(2, 6)
    plan.hudi.append(HudiPlan(held_for, 0.0, dies=False, until=plan.horizon * 0.9))
    for number in range(4 if tight else 14):
        at, process = rng.random() * plan.horizon, number if tight else rng.randrange(2)
        plan.misfortunes.append(Misfortune(at, "kill" if tight else "signal", process, rng.random()))
    return plan
