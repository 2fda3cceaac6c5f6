"""The session on which a spec runs: the one of this process, or one of its own; and whether it fits."""

from __future__ import annotations

import contextlib
import logging
import shutil
import tempfile
import warnings
from typing import TYPE_CHECKING, Any, Final

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark import SparkContext
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F  # noqa: N812  the name everybody uses

from asynclock._shared.internals import logger
from asynclock._shared.words import AZURE_OF_HADOOP, printable
from asynclock.errors import ConfigError
from asynclock.spark import hoodie
from asynclock.spark.hudi.options import MERGER_CLASS
from asynclock.spark.hudi.session import HUDI_BUNDLE, MERGER_JAR, RUNTIME, STATIC, require_classes, start
from asynclock.spark.jvm import classes, keep_names
from asynclock.spark.spec.load import misplaced
from asynclock.spark.spec.model import URL

if TYPE_CHECKING:
    from collections.abc import Iterator

    from asynclock.spark.spec.model import Spec
    from asynclock.spark.spec.toml import Keys

log = logging.getLogger(__name__)

_HADOOP: Final = "3.3.4"  # the one of PySpark 3.5
_HUDI: Final = HUDI_BUNDLE.rpartition(":")[2]
# The classes that read files there, and those that take Hudi's commit lock.
_S3: Final = (
    f"org.apache.hadoop:hadoop-aws:{_HADOOP}",
    "org.apache.hudi.aws.transaction.lock.S3StorageLockClient",
    f"org.apache.hudi:hudi-aws-bundle:{_HUDI}",
)
_GCS: Final = (
    "com.google.cloud.bigdataoss:gcs-connector:hadoop3-2.2.26",
    "org.apache.hudi.gcp.transaction.lock.GCSStorageLockClient",
    f"org.apache.hudi:hudi-gcp-bundle:{_HUDI}",
)
_AZURE: Final = (
    f"org.apache.hadoop:hadoop-azure:{_HADOOP}",
    "org.apache.hudi.azure.transaction.lock.AzureStorageLockClient",
    f"org.apache.hudi:hudi-azure-bundle:{_HUDI}",
)
_STORES: Final = {
    "s3": _S3,
    "s3a": _S3,
    "gs": _GCS,
    **dict.fromkeys(AZURE_OF_HADOOP, _AZURE),
}
KAFKA_CONNECTOR: Final = "org.apache.spark:spark-sql-kafka-0-10_2.12:3.5.7"
"""The connector that reads topics; the registries do not have it for every version of PySpark 3.5."""
_WAREHOUSE: Final = "spark.sql.warehouse.dir"
_KAFKA_CLASS: Final = "org/apache/spark/sql/kafka010/KafkaSourceProvider.class"
_PACKAGES: Final = "spark.jars.packages"
_NEEDED: Final = ("spark.serializer", "spark.kryo.registrator")
_SHUFFLE_PARTITIONS: Final = "spark.sql.shuffle.partitions"
_MISSING_CLASS: Final = (
    "java.lang.ClassNotFoundException",
    "java.lang.NoClassDefFoundError",
    "Failed to register classes with Kryo",
    # Java's error if a class in a task is missing.
    "java.lang.IllegalStateException: unread block data",
)


@contextlib.contextmanager
def session_for(
    spec: Spec, app: str = "asynclock", *, spark: SparkSession | None = None
) -> Iterator[SparkSession]:
    """Yield a session that fits a spec.

    Args:
        spec: The spec.
        app: The name of an application that this call starts.
        spark: The session to use, as it is. None: a new session of the Spark that runs in this process, whose
            settings stay as they are. If none runs, one is started as ``spark-submit`` or the spec's
            ``[spark]`` say, and stopped at the end.

    Raises:
        ConfigError: A jar is missing on the driver or the executors, or the running Spark was started
            without a setting that Hudi needs. Nothing was written.
        SpecError: Spark cannot read the store of a path in the spec. Nothing was written.
    """
    with contextlib.ExitStack() as resources:
        if spark is None and SparkContext._active_spark_context is not None:  # noqa: SLF001  no public way
            spark = _beside_running()
        elif spark is None:
            wanted, conf = spec.spark, _settings(spec)
            if _WAREHOUSE not in conf:
                # Spark makes a folder for tables of its catalog, by default in the working folder.
                conf[_WAREHOUSE] = tempfile.mkdtemp(prefix="asynclock-warehouse-")
                resources.callback(shutil.rmtree, conf[_WAREHOUSE], ignore_errors=True)
            spark = start(app, master=wanted.master or "local[*]", conf=conf, secrets=wanted.secret())
            resources.callback(_stop, spark)
        _require_settings(spark)
        _require_stores(spec, spark)
        if not spark.sparkContext.master.startswith("local"):
            _require_on_executors(spark)
        yield spark


def _stop(spark: SparkSession) -> None:
    """Stop Spark, or forget it if its JVM has ended before, as it does on a signal to the process group."""
    try:
        spark.stop()
    except (OSError, Py4JError):
        logger.warning("Spark had ended before its driver did; a signal to the whole process group does this")
        with contextlib.suppress(OSError, Py4JError), warnings.catch_warnings(action="ignore"):
            spark.sparkContext.stop()


def _settings(spec: Spec) -> dict[str, str]:
    """Return Spark's settings of the spec, with the connector of Kafka if a stream needs it."""
    conf = spec.spark.plain()
    if any(stream.kafka for stream in spec.streams):
        conf[_PACKAGES] = ",".join([*filter(None, [conf.get(_PACKAGES)]), KAFKA_CONNECTOR])
    return conf


def spread(spark: SparkSession) -> None:
    """Give each shuffle of a session one task per core of the cluster, unless Spark was given a number.

    With Spark's own number, 200, a small batch takes a minute. A query that was started on another cluster
    goes on with the number of that cluster.
    """
    context = spark.sparkContext
    if not context.getConf().contains(_SHUFFLE_PARTITIONS):
        spark.conf.set(_SHUFFLE_PARTITIONS, str(context.defaultParallelism))


def _beside_running() -> SparkSession:
    """Return a session of the running Spark, apart from the user's, whose time zone must not change."""
    spark = SparkSession.builder.getOrCreate().newSession()
    keep_names(spark)
    require_classes(classes(spark), running=spark.sparkContext.appName)
    for name, value in RUNTIME.items():
        spark.conf.set(name, value)
    spark.conf.set(hoodie.WRITE_RECORD_MERGE_CUSTOM_IMPLEMENTATION_CLASSES, MERGER_CLASS)
    return spark


def _require_settings(spark: SparkSession) -> None:
    conf = spark.sparkContext.getConf()
    for name in _NEEDED:
        value = STATIC[name]
        if value not in (conf.get(name) or "").split(","):
            reason = f"Spark runs without {name}={value}, which Hudi needs; nothing was written; start it so"
            raise ConfigError(setting="spark", value=spark.sparkContext.appName, reason=reason)


def _require_stores(spec: Spec, spark: SparkSession) -> None:
    jvm: Any = classes(spark)
    configuration = spark._jsc.hadoopConfiguration()  # noqa: SLF001
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    for stream in spec.streams:
        if stream.kafka is not None and loader.getResource(_KAFKA_CLASS) is None:
            reason = (
                f"Spark cannot read topics; nothing was written. Add to spark.packages: {KAFKA_CONNECTOR}"
            )
            raise misplaced(spec, ("streams", stream.name, "kafka"), stream.kafka.name, reason)
    for keys, url in _places(spec):
        scheme = url.partition(":")[0].lower() if URL.match(url) else "file"
        if scheme == "file":
            continue
        reader, client, bundle = _STORES.get(scheme, ("the jar of that store", "", ""))
        try:
            jvm.org.apache.hadoop.fs.FileSystem.getFileSystemClass(scheme, configuration)
        except Py4JJavaError:
            reason = f"Spark cannot read {scheme}://; nothing was written. Add to spark.packages: {reader}"
            raise misplaced(spec, keys, url, reason) from None
        if keys[0] == "table" and client and loader.getResource(f"{client.replace('.', '/')}.class") is None:
            reason = (
                f"Hudi cannot take its commit lock on {scheme}:// without {client}; nothing was written. "
                f"Add to spark.packages: {bundle}"
            )
            raise misplaced(spec, keys, url, reason)
        path = jvm.org.apache.hadoop.fs.Path(url)
        try:
            path.getFileSystem(configuration).exists(path)
        except Py4JJavaError as error:
            said = printable(error.java_exception.getMessage())
            reason = f"Spark cannot look there; nothing was written: {said}"
            raise misplaced(spec, keys, url, reason) from error


def _places(spec: Spec) -> Iterator[tuple[Keys, str]]:
    yield ("table", "path"), spec.table.path
    for stream in spec.streams:
        if stream.source:
            yield ("streams", stream.name, "source"), stream.source
        yield ("streams", stream.name, "checkpoint"), stream.checkpoint


def _require_on_executors(spark: SparkSession) -> None:
    """Make sure that executors have both jars: a driver's class path can have them alone."""
    jvm: Any = classes(spark)
    tasks = spark.sparkContext.defaultParallelism
    empty = F.lit("").cast("binary")._jc  # noqa: SLF001
    ours = Column(jvm.io.asynclock.source.SourceFiles.isUtf8(empty))
    hudis = F.expr("reflect('org.apache.hudi.common.util.StringUtils', 'isNullOrEmpty', '')")
    try:
        spark.range(0, tasks, 1, tasks).select(ours, hudis).collect()
    except Py4JJavaError as error:
        if not any(name in str(error) for name in _MISSING_CLASS):
            raise
        reason = (
            "the executors lack asynclock's jar or the Hudi bundle; nothing was written. Give the jars as "
            f"spark.jars (spark-submit: --jars), not on the driver's class path: {MERGER_JAR}, {HUDI_BUNDLE}"
        )
        raise ConfigError(setting="spark", value=spark.sparkContext.appName, reason=reason) from None
