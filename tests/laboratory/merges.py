"""``python -m tests.laboratory merges``: merges by the compiled class, against definitions."""

from __future__ import annotations

import argparse
import sys

from tests.spark.functions_oracle import FUNCTIONS
from tests.spark.jvm import JavaProgram
from tests.spark.merger_kit import Merger
from tests.spark.merges import differences


def main() -> int:
    """Run the histories and print the last line; return 1 if any differs."""
    parser = argparse.ArgumentParser(prog="python -m tests.laboratory merges", description=__doc__)
    parser.add_argument("--histories", type=int, default=20_000)
    parser.add_argument("--first", type=int, default=0, help="the seed of the first history")
    options = parser.parse_args()
    with JavaProgram("MergeHarness") as program:
        found = differences(Merger(program), range(options.first, options.first + options.histories))
    for seed, wanted, got in found[:10]:
        print(f"seed {seed}: expected {wanted}, found {got}")  # noqa: T201  a command that prints
    functions = len(set(FUNCTIONS.values())) + 1
    print(  # noqa: T201
        f"merges: {options.histories} histories, {functions} functions, {len(found)} differences"
        f" (seeds {options.first}..{options.first + options.histories - 1})"
    )
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
