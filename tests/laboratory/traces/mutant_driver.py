# ruff: noqa: T201  a command that prints
"""Prints recorded histories as JSON: a scenario, then seeds; run on copies of the package with a mistake."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict

import asynclock
from tests.laboratory.simulate import quiet
from tests.laboratory.traces.recorder import record


def main() -> None:
    """Record what the arguments name."""
    scenario, *seeds = sys.argv[1:]
    with quiet():
        histories = [record(scenario, int(seed)) for seed in seeds]
    lines = [[asdict(line) for line in each] for each in histories]
    print(json.dumps({"histories": lines, "source": asynclock.__file__}))


if __name__ == "__main__":
    main()
