"""A Spark session of their own: another process runs them while the suite of Spark goes on."""

from tests.spark.conftest import spark  # noqa: F401  a fixture
