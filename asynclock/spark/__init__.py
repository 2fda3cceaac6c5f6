"""Several writers splicing one wide Apache Hudi table from PySpark.

Each stream appends its own columns of the table; a merger inside Hudi picks, for each stream, the event with
the newer ordering value of that stream, wherever records meet. Importing this package does not import Spark.
"""

# Eager, though the module has the function's name: whichever is bound last is what users get.
from asynclock.spark.session import session as session

__all__ = ["session"]
