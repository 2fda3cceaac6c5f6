"""The content of a report, from the lines of a run or from the timeline of a table."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from asynclock.errors import ConfigError
from asynclock.spark.hudi.instants import CLUSTERED, CLUSTERING, COMPACTED, COMPACTION, DELETES, DELTA_COMMIT
from asynclock.spark.runs.lanes import Lanes
from asynclock.spark.runs.lines import read_lines
from asynclock.spark.runs.samples import Samples
from asynclock.spark.runs.totals import RunTotals, Totals, number
from asynclock.spark.spec.place import same_table

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from asynclock.spark.hudi.instants import Instant
    from asynclock.spark.runs.lanes import Lane, Mark, Span
    from asynclock.spark.runs.lines import Line
    from asynclock.spark.runs.samples import Sample
    from asynclock.spark.spec.model import Spec

_SERVICES: Final = {
    COMPACTED: "compaction", COMPACTION: "compaction", CLUSTERED: "clustering", CLUSTERING: "clustering",
    "clean": "cleaning",
}  # fmt: skip
_DELETE: Final = "(delete)"
_FOREIGN: Final = "(SQL, foreign)"
_NO_END: Final = "no last line"


@dataclass(frozen=True, kw_only=True)
class Commit:
    """A commit of a stream; times in epoch seconds."""

    time: float
    stream: str
    seconds: float
    rows: int
    batch: int | None
    instant: str | None
    process: str = ""


@dataclass(frozen=True, kw_only=True)
class Work:
    """A piece of work of a table service; times in epoch seconds."""

    service: str
    start: float
    end: float
    instant: str | None
    process: str = ""


@dataclass(frozen=True, kw_only=True)
class Chaos:
    """A disturbance of the run from outside."""

    time: float
    what: str
    process: str
    detail: str


@dataclass(kw_only=True)
class Process:
    """A process of the run.

    Attributes:
        end: Its end: ``well``, ``killed``, its error, or ``no last line`` if it goes on or no line says it.
    """

    name: str
    first: float
    last: float
    host: str = ""
    end: str = _NO_END


@dataclass(kw_only=True)
class Story:
    """The whole content of a report.

    Attributes:
        table: Path of the table.
        recorded: Whether it comes from lines of a run; else it comes from the timeline.
        start: First moment, in epoch seconds.
        end: Last moment.
        totals: The sums over everything.
        streams: Those of each stream.
        unread: Lines that were incomplete or not lines of a run.
        local: Whether a timeline's times are shown in the local time of this process.
    """

    table: str
    recorded: bool
    start: float
    end: float
    totals: RunTotals
    streams: dict[str, RunTotals]
    processes: list[Process] = field(default_factory=list)
    commits: list[Commit] = field(default_factory=list)
    works: list[Work] = field(default_factory=list)
    chaos: list[Chaos] = field(default_factory=list)
    spans: list[Span] = field(default_factory=list)
    marks: list[Mark] = field(default_factory=list)
    lanes: list[Lane] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)
    unread: int = 0
    local: bool = False


def run_story(spec: Spec, folder: Path) -> Story:
    """Return the story in the lines of a run's folder.

    Raises:
        ConfigError: There is no such folder, it has no line of a run, or its lines are of another table.
    """
    torn: list[Path] = []
    tables: dict[str, str] = {}
    tellers: dict[str, _Teller] = {}
    common: list[Line] = []
    for line in read_lines(folder, on_unread=torn.append):
        if line.kind == "start":
            tables[line.name] = _text(line.fields.get("table"))
        table = tables.get(line.name)
        if line.kind == "chaos" or table is None:  # chaos names the disturbed process
            common.append(line)
        else:
            tellers.setdefault(table, _Teller(spec, table)).take(line)
    teller = _chosen(spec, folder, tellers)
    for line in common:
        teller.take(line)
    if not teller.processes:
        reason = "no line of a run is in this folder; asynclock pipeline run SPEC --run DIR writes them"
        raise ConfigError(setting="run", value=str(folder), reason=reason)
    return teller.story(unread=len(torn))


def _chosen(spec: Spec, folder: Path, tellers: dict[str, _Teller]) -> _Teller:
    """Return the only table, or among several that of the spec; a run may come from another machine."""
    if len(tellers) > 1:
        tellers = {
            table: one for table, one in tellers.items() if same_table(table, spec.table.path)
        } or tellers
    if len(tellers) > 1:
        reason = (
            f"this is a run of the tables {', '.join(sorted(tellers))}, and the spec is of {spec.table.path}"
        )
        raise ConfigError(setting="run", value=str(folder), reason=reason)
    return next(iter(tellers.values()), _Teller(spec, spec.table.path))


class _Teller:
    """Takes the lines of a run, those of each process in their order."""

    def __init__(self, spec: Spec, table: str) -> None:
        self._spec = spec
        self._table = table
        self._totals = Totals()
        self._streams: defaultdict[str, Totals] = defaultdict(Totals)
        self._lanes = Lanes()
        self._samples = Samples()
        self._commits: list[Commit] = []
        self._works: list[Work] = []
        self._chaos: list[Chaos] = []
        self._killed: set[int] = set()
        self._pids: dict[str, int | None] = {}
        self.processes: dict[str, Process] = {}

    def take(self, line: Line) -> None:
        takers = {
            "start": self._start, "end": self._end, "lock": self._lanes.take, "batch": self._batch,
            "service": self._service, "resources": self._samples.take, "chaos": self._chaos_line,
        }  # fmt: skip
        if line.kind not in takers:
            return
        self._totals.take(line.time, line.kind, line.fields)
        if line.kind != "chaos":
            process = self.processes.setdefault(
                line.name, Process(name=line.name, first=line.time, last=line.time)
            )
            process.last = max(process.last, line.time)
            self._pids[line.name] = line.pid
        takers[line.kind](line)

    def _start(self, line: Line) -> None:
        self.processes[line.name].host = _text(line.fields.get("host"))

    def _end(self, line: Line) -> None:
        self.processes[line.name].end = _text(line.fields.get("error")) or "well"

    def _batch(self, line: Line) -> None:
        stream = _text(line.fields.get("stream"))
        self._streams[stream].take(line.time, line.kind, line.fields)
        if line.fields.get("skipped"):
            return
        batch = line.fields.get("batch")
        self._commits.append(
            Commit(
                time=line.time,
                stream=stream,
                seconds=number(line.fields, "seconds"),
                rows=int(number(line.fields, "rows")),
                batch=batch if isinstance(batch, int) else None,
                instant=_text(line.fields.get("instant")) or None,
                process=line.name,
            )
        )

    def _service(self, line: Line) -> None:
        self._works.append(
            Work(
                service=_text(line.fields.get("service")),
                start=line.time - number(line.fields, "seconds"),
                end=line.time,
                instant=_text(line.fields.get("instant")) or None,
                process=line.name,
            )
        )

    def _chaos_line(self, line: Line) -> None:
        what, detail = _text(line.fields.get("what")), _text(line.fields.get("detail"))
        name = "" if line.process == "?" and line.pid is None else line.name
        if what == "kill" and line.pid is not None:
            self._killed.add(line.pid)
        self._chaos.append(Chaos(time=line.time, what=what, process=name, detail=detail))

    def story(self, *, unread: int) -> Story:
        processes = sorted(self.processes.values(), key=lambda one: one.first)
        ends = {one.name: one.last for one in processes}
        moments = [*ends.values(), *(one.first for one in processes), *(one.time for one in self._chaos)]
        order = [stream.name for stream in self._spec.streams]
        for process in processes:
            # By its id: the killer may know it by another name, and one process may have two roles.
            if self._pids[process.name] in self._killed and process.end == _NO_END:
                process.end = "killed"
        return Story(
            table=self._table,
            recorded=True,
            start=min(moments),
            end=max(moments),
            totals=self._totals.summary(),
            streams=_by_stream(self._streams, order),
            processes=processes,
            commits=sorted(self._commits, key=lambda one: one.time),
            works=sorted(self._works, key=lambda one: one.start),
            chaos=sorted(self._chaos, key=lambda one: one.time),
            spans=self._lanes.spans(ends),
            marks=self._lanes.marks,
            lanes=self._lanes.lanes(ends),
            samples=self._samples.found,
            unread=unread,
        )


def timeline_story(spec: Spec, instants: Iterable[Instant]) -> Story:
    """Return the story in a table's instants: writers with their times, and the work of the services.

    Raises:
        ConfigError: Nothing is completed yet.
    """
    totals, lanes = Totals(), Lanes()
    streams: defaultdict[str, Totals] = defaultdict(Totals)
    commits: list[Commit] = []
    works: list[Work] = []
    moments: list[float] = []
    tokens: dict[tuple[str, int], tuple[float, float]] = {}
    local = False
    for instant in instants:
        if instant.completed is None or instant.action == "savepoint":
            continue
        shown = instant.in_local_time()
        local = local or instant.utc
        start, end = _moment(shown.requested), _moment(shown.completed or "")
        moments += [start, end]
        if instant.action == DELTA_COMMIT or instant.stream is not None:
            stream = instant.stream or _FOREIGN
            stream = _DELETE if stream == DELETES else stream
            line = {"rows": instant.rows or 0, "seconds": instant.latency or end - start}
            totals.take(end, "batch", line)
            streams[stream].take(end, "batch", line)
            commits.append(
                Commit(
                    time=end, stream=stream, seconds=line["seconds"], rows=instant.rows or 0,
                    batch=instant.batch, instant=instant.requested,
                )
            )  # fmt: skip
            if instant.token is not None:
                first, last = tokens.get((stream, instant.token), (start, end))
                tokens[stream, instant.token] = min(first, start), max(last, end)
        else:
            service = _SERVICES.get(instant.action, instant.action)
            totals.take(end, "service", {"service": service})
            works.append(Work(service=service, start=start, end=end, instant=instant.requested))
    if not moments:
        reason = "nothing is committed to the table yet, so there is nothing to report"
        raise ConfigError(setting="path", value=spec.table.path, reason=reason)
    totals.take(min(moments), "", {})
    for (stream, token), (first, last) in sorted(tokens.items(), key=lambda each: each[1]):
        lanes.add(f"stream/{stream}" if stream != _DELETE else "delete", f"token {token}", first, last)
    order = [stream.name for stream in spec.streams]
    return Story(
        table=spec.table.path,
        recorded=False,
        local=local,
        start=min(moments),
        end=max(moments),
        totals=totals.summary(),
        streams=_by_stream(streams, order),
        commits=sorted(commits, key=lambda one: one.time),
        works=sorted(works, key=lambda one: one.start),
        spans=lanes.spans({}),
        lanes=lanes.lanes({}),
    )


def _by_stream(found: dict[str, Totals], order: list[str]) -> dict[str, RunTotals]:
    """Return the sums of the streams, in the order of the spec; others come last."""
    known = [name for name in order if name in found]
    return {name: found[name].summary() for name in [*known, *sorted(found.keys() - set(known))]}


def _moment(instant: str) -> float:
    """Return an instant time of Hudi, in epoch seconds."""
    return datetime.strptime(f"{instant:0<17}"[:17] + "000", "%Y%m%d%H%M%S%f").replace(tzinfo=UTC).timestamp()


def _text(value: Any) -> str:  # noqa: ANN401  whatever was in the line
    return "" if value is None else str(value)
