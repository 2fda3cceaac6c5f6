"""A spec of a splice table, whole and with changes."""

from __future__ import annotations

SPEC = """\
[table]
path = "table"
key = ["tailnum"]
buckets = 2

[locks]
url = "locks"
validity = 20.0

[services]
compaction = { every_commits = 5 }
cleaning = { retain_commits = 3 }

[streams.departures]
source = "in/departures/*.csv"
format = "csv"
ordering = "departed_at"
checkpoint = "checkpoints/departures"
max_files_per_trigger = 2
on_bad_row = "quarantine"
columns = { departed_at = "timestamp", origin = "string", dep_delay = "double" }

[streams.arrivals]
source = "in/arrivals/*.csv"
format = "csv"
ordering = "arrived_at"
checkpoint = "checkpoints/arrivals"

[streams.arrivals.columns]
arrived_at = "timestamp"
landed_in = "string"
deleted = "boolean"
"""

TEN_LINES = """\
table.path = "fleet"
table.key = ["tailnum"]
[streams.departures]
source = "in/departures/*.csv"
ordering = "departed_at"
columns = { departed_at = "timestamp", origin = "string", delay = "int" }
[streams.arrivals]
source = "in/arrivals/*.csv"
ordering = "arrived_at"
columns = { arrived_at = "timestamp", dest = "string", delay = "int" }
"""
