"""The classes of the driver's JVM, by their names and without a search.

At each dot of ``spark._jvm.org.apache.hudi``, py4j asks whether there is a class of that name, in the package
before it or in one of those that PySpark imports. Before it says no, Java looks into every jar of the driver:
0.2 ms a dot, 0.9 ms for ``functions.lit``, altogether 7 % of the time of a small batch. Java's convention is
enough: a class begins with a capital letter, a package does not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from py4j.java_gateway import JavaClass

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

_OF_PYSPARK: Final = (
    "Column",
    "PythonRDD",
    "PythonSQLUtils",
    "PythonUtils",
    "SerDeUtil",
    "SparkSession",
    "functions",
)
"""Classes that PySpark names without their packages: ``functions`` in each ``F.col``."""


class Package:
    """A package of Java: its attributes are its classes and the packages below."""

    def __init__(self, client: Any, name: str = "") -> None:  # noqa: ANN401  py4j has no types
        self._client = client
        self._name = name

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401  likewise
        whole = f"{self._name}.{name}" if self._name else name
        return JavaClass(whole, self._client) if name[0].isupper() else Package(self._client, whole)


def classes(spark: SparkSession | SparkContext | type[SparkContext]) -> Any:  # noqa: ANN401  py4j has no types
    """Return the driver's classes, in place of ``spark._jvm``: ``classes(spark).java.util.HashMap()``."""
    return Package(_view(spark)._gateway_client)  # noqa: SLF001  no public way


def keep_names(spark: SparkSession) -> None:
    """Let PySpark find its own classes without a search, in all sessions of this driver."""
    known = vars(_view(spark))
    known.setdefault("py4j", classes(spark).py4j)  # it asks there what an exception is
    for name in _OF_PYSPARK:
        if name not in known:
            known[name] = getattr(_view(spark), name)


def _view(spark: SparkSession | SparkContext | type[SparkContext]) -> Any:  # noqa: ANN401  py4j has no types
    return spark._jvm  # noqa: SLF001  no public way


def items(collection: Any) -> list[Any]:  # noqa: ANN401  py4j has no types
    """Return the items of a Java collection.

    This avoids the iterator, which ends with an exception that PySpark examines nine times.
    """
    return list(collection.toArray())
