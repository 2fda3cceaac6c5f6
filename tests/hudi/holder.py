"""A program that takes a table's lock, says so, and waits to be killed."""

from __future__ import annotations

import json
import sys
import time

from asynclock.sync import hudi

if __name__ == "__main__":
    base, options = sys.argv[1], json.loads(sys.argv[2])
    with hudi.table_lock(base, options, fencing=True) as lease:
        print(lease.fencing_token, flush=True)  # noqa: T201  its answer
        time.sleep(600)
