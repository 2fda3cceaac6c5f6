"""``python -m benchmarks [--only NAME]``: runs every ``bench_*.py``, one file a question.

Each has ``lines() -> Iterable[Line]``, and may have ``table()``, whose rows are printed after the lines. One
with ``ONLY_IF_NAMED`` takes too long to be run with the others.
Results go to ``benchmarks/results/NAME.json``, and from there to ``docs/benchmarks/results.md``.
"""

from __future__ import annotations

import argparse
import gc
import json
import subprocess
import sys
import time
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks import machine, page
from benchmarks.measure import SCRATCH

if TYPE_CHECKING:
    from benchmarks.measure import Line

HERE = Path(__file__).parent


def main() -> int:
    """Run the benchmarks and print the summary last."""
    known = sorted(path.stem.removeprefix("bench_") for path in HERE.glob("bench_*.py"))
    parser = argparse.ArgumentParser(prog="python -m benchmarks")
    parser.add_argument("--only", choices=known, metavar="NAME", help=f"one of {', '.join(known)}")
    only = parser.parse_args().only
    SCRATCH.mkdir(exist_ok=True)
    lines: list[Line] = []
    for name in [only] if only else filter(runs_with_others, known):
        print(f"{name}: {question(name)}", flush=True)
        lines += run(name)
    page.write(SCRATCH)
    met = sum(line.met for line in lines)
    print(f"bench: {len(lines)} lines, {met} met, {len(lines) - met} not met")
    return 0


def question(name: str) -> str:
    """Return what a file asks: the first line of its docstring."""
    return str(import_module(f"benchmarks.bench_{name}").__doc__).splitlines()[0]


def runs_with_others(name: str) -> bool:
    """Return whether a file is run if none is named."""
    return not getattr(import_module(f"benchmarks.bench_{name}"), "ONLY_IF_NAMED", False)


def commit() -> str:
    """Return the commit that is checked out, or ``unknown`` outside of a repository."""
    asked = ["git", "rev-parse", "--short=10", "HEAD"]
    done = subprocess.run(asked, cwd=HERE, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


def run(name: str) -> list[Line]:
    """Run one file, print its lines as they come, and keep them as JSON."""
    lines: list[Line] = []
    gc.collect()
    gc.freeze()  # a collection during this benchmark does not go through what those before have left
    began = time.monotonic()
    bench = import_module(f"benchmarks.bench_{name}")
    for line in bench.lines():
        print(f"  {line}", flush=True)
        lines.append(line)
    table = bench.table() if hasattr(bench, "table") else []
    for row in page.rows(table):
        print(row)
    record = {
        "name": name,
        "question": question(name),
        "day": datetime.now(UTC).date().isoformat(),
        "commit": commit(),
        "seconds": round(time.monotonic() - began),
        "machine": machine.describe(),
        "table": table,
        "lines": [
            {
                "name": line.name,
                "unit": line.unit,
                "median": line.median,
                "quartiles": line.quartiles,
                "target": line.target,
                "bound": line.bound,
                "met": line.met,
                "samples": list(line.samples),
            }
            for line in lines
        ],
    }
    (SCRATCH / f"{name}.json").write_text(json.dumps(record, indent=2) + "\n")
    return lines


if __name__ == "__main__":
    sys.exit(main())
