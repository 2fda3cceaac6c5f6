# ruff: noqa: T201  a command that prints
"""``python -m tests.laboratory NAME [OPTIONS]`` runs a program; without a name it lists them all.

Each ends with one line that says what was run and what went wrong, and exits with 1 if anything did.
``NAME --help`` lists its options.
"""

from __future__ import annotations

import importlib
import sys
from typing import Final

PROGRAMS: Final = {
    # the lock
    "simulate": ("laboratory.simulate", "histories of the protocol in virtual time, each rule checked"),
    "attack": ("laboratory.attack.__main__", "the same in a universe that shares no code with simulate"),
    "foreign": ("laboratory.foreign", "the same under schedules that a foreign explorer chooses"),
    "guided": ("laboratory.guided", "histories bred to reach each branch of the protocol"),
    "bank": ("laboratory.bank", "fenced updates by workers that outlive their leases"),
    "fuzz": ("laboratory.fuzz", "hostile records in place of a lock's object"),
    "linearizable": (
        "laboratory.linearizable.__main__",
        "histories of killed processes, judged by Porcupine",
    ),
    "model": ("laboratory.model", "the specification in TLA+, and what breaks without each rule"),
    "counterexamples": ("laboratory.counterexamples", "what happens without each rule, as pictures"),
    "traces": ("laboratory.traces.__main__", "histories of simulate as behaviours of the specification"),
    "steered": ("laboratory.steered.__main__", "behaviours of the specification, forced on the shipped code"),
    "soak-kill": ("laboratory.soak_kill", "kill -9 of processes that contend for file:// locks"),
    "soak-cut": ("laboratory.soak_cut", "cut answers of real S3, GCS and Azure servers"),
    # the lock and the pipeline
    "mutants": ("mutants.__main__", "planted mistakes that simulator (lock) and tests (pipeline) must find"),
    # the pipeline
    "soak": ("laboratory.soak.__main__", "streams, services and readers while processes and stores fail"),
    "restarts": ("laboratory.restarts.__main__", "drivers under kill -9, restores and schema changes"),
    "changes": ("laboratory.consumer", "a consumer of the changes while three streams write"),
    "fuzz-data": ("laboratory.fuzz_data.__main__", "generated source files: no value changed, no row lost"),
    "mutants-data": (
        "laboratory.fuzz_data.mutants",
        "mends of the reading taken out, which fuzz-data must find",
    ),
    "merges": ("laboratory.merges", "histories of merges by every function, against their definitions"),
    "mechanisms": ("laboratory.mechanisms.__main__", "each part of the article on splicing, on real flights"),
    # tools
    "matrix": ("laboratory.matrix", "the lock's tests on other Pythons and on the oldest SDKs"),
    "servers": ("laboratory.servers", "install the stores' servers, so that no test waits for a build"),
    "class-archive": ("laboratory.class_archive", "an archive of Spark's classes, so that JVMs start faster"),
    "proof-numbers": ("laboratory.proof_numbers", "run the proofs and write their results to docs/proof.md"),
}
"""By its name, the module below ``tests`` whose ``main`` is the program, and what a run shows."""


def listing() -> str:
    """Return the list of the programs, a line each."""
    width = max(map(len, PROGRAMS))
    return "\n".join(f"{name:<{width}}  {shows}" for name, (_, shows) in PROGRAMS.items())


def main(arguments: list[str]) -> int:
    """Run the program that the first argument names, with the others as its options; return its exit code."""
    if not arguments or arguments[0] in {"-h", "--help"}:
        print(f"python -m tests.laboratory NAME [OPTIONS]\n\n{listing()}")
        return 0
    name, *options = arguments
    if name not in PROGRAMS:
        print(f"there is no program {name!r}; there are:\n\n{listing()}", file=sys.stderr)
        return 2
    sys.argv = [f"python -m tests.laboratory {name}", *options]
    return int(importlib.import_module(f"tests.{PROGRAMS[name][0]}").main() or 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
