# ruff: noqa: T201  a command that prints
"""``python -m tests.laboratory mutants-data``: take out one mend after the other; each must be found.

A mutant is a patch of a copy of the source, in Python or in Java; the copy is built, and a process of its own
feeds generated files with it until something is wrong: files of further seeds, if the first do not show it.
The source as it is passes the first ones.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.mutants.copies import ROOT, copy_package
from tests.mutants.planting import Change, Patch

FILES: Final = 900
# Some mistakes need a rare file, such as a Parquet column of one of two wrong types. The 20,000 files of a
# whole fuzz-data are twenty times as many.
SEEDS: Final = 5
# A seed's rounds count on from it.
SEED_STEP: Final = 1000
SECONDS: Final = 1200
LAST_LINE: Final = re.compile(
    r"fuzz-data: (\d+) files, (\d+) values changed, (\d+) rows lost, (\d+) hangs", re.MULTILINE
)


@dataclass(frozen=True, slots=True)
class Mutant:
    """One mend taken out.

    Attributes:
        name: What goes wrong without it.
        change: How it is taken out.
    """

    name: str
    change: Change | Patch


_SPARK: Final = "asynclock.spark."

MUTANTS: Final = (
    Mutant(
        "keys run into each other or hang",
        Change(
            _SPARK + "spec.keys:record_key",
            'f"url_encode(CAST(`{$name}` AS STRING))"',
            'f"CAST(`{$name}` AS STRING)"',
        ),
    ),
    Mutant(
        "a doubled quote is a backslash's business",
        Change(
            _SPARK + "spec.dialect:CsvDialect.settings",
            "self.quote if self.escape is None else self.escape",
            '"\\\\" if self.escape is None else self.escape',
        ),
    ),
    Mutant(
        "partitions are paths",
        Change(
            _SPARK + "hudi.options.table_layer:partition_options",
            '{$style: $yes, hoodie.DATASOURCE_WRITE_PARTITIONPATH_URLENCODE: "true"}',
            '{$style: $yes, hoodie.DATASOURCE_WRITE_PARTITIONPATH_URLENCODE: "false"}',
        ),
    ),
    Mutant(
        "old dates stop the compaction",
        # Of the constant: each of the two places that use it is enough in a session that asynclock made.
        Change(
            _SPARK + "hudi.session",
            "EXACT_TIMES: Final = $times",
            'EXACT_TIMES: Final = $times | {"spark.sql.parquet.datetimeRebaseModeInWrite": "EXCEPTION"}',
        ),
    ),
    Mutant(
        "the second object of a line is lost",
        Patch(
            "source/JsonText.java",
            "        readObject(parser, mayHalve);\n",
            "        readObject(parser, mayHalve);\n        if (problem == null) { return; }\n",
        ),
    ),
    Mutant(
        "decimals of JSON go through a double",
        Patch(
            "source/JsonText.java",
            "        return digits;\n",
            "        return NO_NUMBERS.contains(digits) ? digits "
            ": String.valueOf(Double.parseDouble(digits));\n",
        ),
    ),
    Mutant(
        "late files are never read",
        Change(_SPARK + "source.reading", "_FOR_EVER: Final = $long", '_FOR_EVER: Final = "7d"'),
    ),
    Mutant(
        "undecodable bytes merge keys",
        Patch("source/Characters.java", "      some = true;\n", "      some = false;\n"),
    ),
    Mutant(
        "parquet is cast",
        Change(
            _SPARK + "source.parquet:converts",
            "$found in _TAKES[$declared]",
            "$found in _TAKES[$declared] or ($declared, $found[:9]) in "
            '{("int", "double"), ("bigint", "timestamp"), ("int", "int64"), ("float", "double")}',
        ),
    ),
    Mutant(
        "a missing column is null",
        Patch("source/Header.java", "if (times == 0 && !optional", "if (times < 0 && !optional"),
    ),
    Mutant(
        "what follows a date is ignored",
        Patch(
            "source/Value.java",
            "      Long day = date.matches() ? day(date) : null;\n",
            "      Long day = date.lookingAt() ? day(date) : null;\n",
        ),
    ),
    Mutant(
        "a number overflows to infinity",
        Patch(
            "source/Value.java",
            "      return Double.isInfinite(value) || value == 0 && !isZero(text) ? null : (Object) value;\n",
            "      return value;\n",
        ),
    ),
    Mutant(
        "decimals are rounded",
        Patch(
            "source/Value.java",
            "        boolean fits = value.scale() <= scale && ",
            "        value = value.setScale(Math.min(scale, value.scale()), "
            "java.math.RoundingMode.HALF_UP);\n        boolean fits = ",
        ),
    ),
    Mutant(
        "nanoseconds are cut",
        Patch("source/Value.java", "          if (nanos % 1000 != 0) {\n", "          if (nanos < 0) {\n"),
    ),
    Mutant(
        "nanoseconds of parquet are cut",
        Change(
            _SPARK + "source.parquet:_checked",
            "F.when($value % 1000 != 0, $reason)",
            "F.when($value.isNull() & $value.isNotNull(), $reason)",
        ),
    ),
    Mutant(
        "nobody tells of hidden files",
        Change(_SPARK + "source.checkpoint:Checkpoint.unread_changes", "self._hidden()", "()"),
    ),
    Mutant(
        "nobody tells of changed files",
        Change(_SPARK + "source.checkpoint:Checkpoint.unread_changes", "self._changed()", "()"),
    ),
    Mutant(
        "a table that is gone is fed nothing",
        Change(
            _SPARK + "source.checkpoint:Checkpoint.refuse_another_table",
            '$bound is None or $bound["table_id"] == ($found := $id)',
            '$bound is None or $bound["table_id"] == ($found := $id) or $bound',
        ),
    ),
    Mutant(
        "numbers become texts in the ordering",
        Change(_SPARK + "hudi.columns:is_wider", "($stored, $wanted) in _WIDER", "True"),
    ),
    Mutant(
        "names are found in any case",
        Patch(
            "source/Header.java",
            "    return found.equalsIgnoreCase(wanted) && !found.equals(wanted);\n",
            "    return false;\n",
        ),
    ),
    Mutant(
        "the good rows of a damaged file are taken",
        Change(_SPARK + "source.reading:settled", "if files: *$left_out", "if False: *$left_out"),
    ),
    Mutant(
        "a damaged page ends the stream",
        Change(
            _SPARK + "source.reading:Source.settled",
            "self.parse($files, carefully=True)",
            "self.parse($files)",
        ),
    ),
    Mutant(
        "damaged pages are believed",
        Change(
            _SPARK + "source.parquet",
            "_OPTIONS: Final = $options",
            '_OPTIONS: Final = $options | {"parquet.page.verify-checksum.enabled": "false"}',
        ),
    ),
    Mutant(
        "the sizes of pages are believed",
        Patch(
            "source/SourceFiles.java",
            "            ParquetPages.check(path, conf.value(), footer.metadata(), wanted);\n",
            "",
        ),
    ),
    Mutant(
        "blanks around a number are trimmed",
        Patch(
            "source/Layout.java",
            "type.read(text);",
            "type.read(type.value == Value.STRING ? text : text.trim());",
        ),
    ),
    Mutant(
        "equal ordering values have no order",
        Change(
            _SPARK + "writer.splice:Splice._newest",
            "rank_of(orderings, arrival, required)",
            'rank_of(orderings, f"hash({arrival})", required)',
        ),
    ),
)


def hunt(mutant: Mutant | None, *, files: int, seed: int) -> tuple[bool, str]:
    """Feed files with the mutant, or with the source as it is.

    Returns:
        Whether something was found, and what first.
    """
    with tempfile.TemporaryDirectory(prefix="asynclock-mutant-") as name:
        folder = Path(name)
        copy_package(folder, () if mutant is None else (mutant.change,))
        command = [
            sys.executable,
            "-m",
            "tests.laboratory.fuzz_data",
            "--files",
            str(files),
            "--seed",
            str(seed),
        ]
        command += ["--keep", str(folder / "kept"), "--first"]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join((name, str(ROOT)))}
        done = subprocess.run(
            command, cwd=name, env=environment, capture_output=True, text=True, timeout=SECONDS, check=False
        )
    told = LAST_LINE.search(done.stdout)
    if told is None:
        last = done.stderr.strip().splitlines()[-1:] or ["no output"]
        return False, f"it crashes, which does not count: {last[0]}"
    said = [line.strip() for line in done.stdout.splitlines() if line.startswith("  ")]
    return done.returncode != 0, said[0] if said else ""


def main() -> int:
    """Hunt all mutants; 0 if every one is found and the source as it is passes."""
    parser = argparse.ArgumentParser(prog="python -m tests.laboratory mutants-data", description=__doc__)
    parser.add_argument("names", nargs="*", help="only mutants whose name contains one of these")
    parser.add_argument("--files", type=int, default=FILES)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    chosen = [one for one in MUTANTS if not options.names or any(part in one.name for part in options.names)]
    found = 0
    for mutant in chosen:
        began = time.monotonic()
        for attempt in range(SEEDS):
            killed, how = hunt(mutant, files=options.files, seed=options.seed + attempt * SEED_STEP)
            if killed:
                break
        found += killed
        verdict = "found   " if killed else "SURVIVED"
        print(f"{verdict} {time.monotonic() - began:4.0f} s  {mutant.name}: {how[:160]}", flush=True)
    failed, how = hunt(None, files=options.files, seed=options.seed)
    print(f"the source as it is: {how or 'nothing wrong'}")
    print(f"mutants-data: {len(chosen)} mutants, {found} found, {len(chosen) - found} survived")
    return 0 if found == len(chosen) and not failed else 1


if __name__ == "__main__":
    sys.exit(main())
