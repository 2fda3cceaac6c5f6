"""The sources read a second time, by other parsers than the stream's, so that a misreading shows.

Nothing here uses Spark or shares code with ``asynclock.spark.source.reading``: CSV has its own parser,
JSON by Python's ``json`` with decimals, Parquet by pyarrow, and every text becomes a value by the rules of
docs/concepts/splice.md, "What a file may say", written down a second time. What two readings agree on is
what the document says, or the same mistake made twice.
"""
