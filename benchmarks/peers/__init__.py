"""The locks that people use, each with its own server and its own client, for ``bench_peers``."""
