"""The sources read a second time, by other parsers than the stream's, so that a misreading shows.

Nothing here uses Spark or shares code with ``asynclock.spark.source.reading``: CSV has its own parser, JSON
uses Python's ``json`` with decimals, and Parquet uses pyarrow. The rules of docs/concepts/pipeline/files.md,
by which every text becomes a value, are implemented a second time. If two readings agree, they follow the
document, or make the same mistake twice.
"""
