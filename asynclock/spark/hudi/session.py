"""A SparkSession ready for splice tables: Hudi, the merger, and the settings that both need.

Two jars go onto the session. asynclock's own is ``asynclock/spark/jars/asynclock-hudi.jar``: a wheel carries
it, a checkout builds it with ``make jar``. The Hudi bundle is taken from the first of these:

1. the file that the environment variable ``ASYNCLOCK_HUDI_BUNDLE`` names;
2. the local Maven repository, where ``make jar`` puts it: ``-Dmaven.repo.local`` of ``MAVEN_ARGS`` or
   ``MAVEN_OPTS``, else ``.m2/repository`` in the home folder: that of ``HOME`` or, as Java has it, of the
   user's account;
3. ``spark.jars.packages``: Spark downloads it (about 80 MB, once) into its Ivy folder.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import re
import shutil
import sys
import threading
import time
import zoneinfo
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from asynclock.errors import ConfigError
from asynclock.spark import hoodie
from asynclock.spark.hudi.options import MERGER_CLASS
from asynclock.spark.jvm import classes, keep_names

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from typing import BinaryIO

    from pyspark.sql import SparkSession

# asynclock/spark/java/pom.xml builds the merger against the same artifact.
HUDI_BUNDLE: Final = "org.apache.hudi:hudi-spark3.5-bundle_2.12:1.2.0"
SQL_EXTENSION: Final = "io.asynclock.hudi.SpliceExtensions"
LOCAL_FILES: Final = "io.asynclock.disk.LocalFiles"
BUNDLE_VARIABLE: Final = "ASYNCLOCK_HUDI_BUNDLE"
MERGER_JAR: Final = Path(__file__).parents[1] / "jars" / "asynclock-hudi.jar"

# Spark refuses to read or write days before 1582 and times before 1900 unless a calendar is chosen. This
# chooses today's calendar, which leaves all values unchanged.
EXACT_TIMES: Final = {
    "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
    "spark.sql.parquet.int96RebaseModeInRead": "CORRECTED",
    "spark.sql.parquet.int96RebaseModeInWrite": "CORRECTED",
}

_EXTENSIONS: Final = "spark.sql.extensions"
IN_UTC: Final = "-Duser.timezone=UTC"
"""Hudi's times are those of the JVM's zone, whatever a table says; two zones would mix up its commits."""
_DRIVER_FLAGS: Final = "spark.driver.extraJavaOptions"
_EXECUTOR_FLAGS: Final = "spark.executor.extraJavaOptions"
STATIC: Final = {
    "spark.serializer": "org.apache.spark.serializer.KryoSerializer",
    "spark.kryo.registrator": "org.apache.spark.HoodieSparkKryoRegistrar",
    # Ours first: it rewrites the statements on splice tables before Hudi's own takes them.
    _EXTENSIONS: f"{SQL_EXTENSION},org.apache.spark.sql.hudi.HoodieSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.hudi.catalog.HoodieCatalog",
}
"""Settings that a running Spark cannot take."""
RUNTIME: Final = {"spark.sql.session.timeZone": "UTC", **EXACT_TIMES}
"""Settings of a single session."""
_HUDI: Final = {
    **STATIC,
    **RUNTIME,
    # A cached relation would keep showing the files of its first query while streams run.
    "spark.sql.filesourceTableRelationCacheSize": "0",
    # Hudi measures records with jol, which would start processes that fail to attach to this JVM.
    _DRIVER_FLAGS: f"{IN_UTC} -Djol.skipDynamicAttach=true -Djol.skipHotspotSAAttach=true",
    _EXECUTOR_FLAGS: IN_UTC,
    "spark.ui.showConsoleProgress": "false",
    # Hadoop's default since 3.4. The one before deletes an empty object for each folder above each new file.
    "spark.hadoop.fs.s3a.directory.marker.retention": "keep",
    # Spark's own expression and the other names of a spec's secrets: the UI and the event log hide them.
    "spark.redaction.regex": "(?i)secret|passw|passphrase|pwd|token|(access|account|api)[._-]?key|key$"
    "|sas|credential|user.?info|signature",
}
_ONE_MACHINE: Final = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "2g",
    "spark.sql.shuffle.partitions": "4",
    "spark.ui.enabled": "false",
}
# Lists: the caller's items come after ours, so that a further jar does not replace Hudi's.
_JARS: Final = frozenset({"spark.jars", "spark.jars.packages"})
_LISTS: Final = _JARS | {_EXTENSIONS}
# Java takes the last of two flags, so a caller may choose another zone.
_FLAGS: Final = frozenset({_DRIVER_FLAGS, _EXECUTOR_FLAGS})
_open_output: Callable[[], BinaryIO] | None = None
# Spark's own jars come first: Hudi's bundle has other versions of a few of their classes.
_CLASS_PATH: Final = "SPARK_DIST_CLASSPATH"
_OWN_JARS: Final = 2
_starting: Final = threading.Lock()
# spark-submit sets it for the Python that it starts.
SUBMIT_VARIABLE: Final = "PYSPARK_GATEWAY_PORT"


def session(
    app: str = "asynclock", *, master: str = "local[*]", conf: Mapping[str, str] | None = None
) -> SparkSession:
    """A session that writes, reads and compacts splice tables, in Python and in SQL.

    On a ``local`` master also the settings of a single machine: loopback only, no UI, 2 GB of memory, four
    shuffle partitions, both jars on the class path unless you add further ones, local files without the
    processes that Hadoop starts for their permissions (``spark.hadoop.fs.file.impl``), and Python workers of
    this very interpreter unless ``PYSPARK_PYTHON`` names another.

    Under ``spark-submit`` the session has its master, jars and settings, and only those settings from here
    that it does not set.

    Args:
        app: The application's name in Spark's UI.
        master: Spark's master URL, if neither ``spark-submit`` nor a running session has chosen one.
        conf: Further settings, which win over those above; jars, packages and extensions are added.

    Returns:
        The running session if there is one, which must have the jars.

    Raises:
        ConfigError: pyspark, Java or a jar is missing. Nothing was started or written.
    """
    return start(app, master=master, conf=conf)


def start(
    app: str, *, master: str, conf: Mapping[str, str] | None = None, secrets: Mapping[str, str] | None = None
) -> SparkSession:
    """Start a session as :func:`session` does.

    Args:
        app: The application's name.
        master: Spark's master URL.
        conf: Further settings.
        secrets: Settings that must not be on the command line of the JVM, which every user can read.
    """
    try:
        from pyspark import SparkConf, SparkContext  # noqa: PLC0415 - an install without the extra imports us
        from pyspark.sql import SparkSession  # noqa: PLC0415
    except ImportError as error:
        raise ConfigError(
            setting="pyspark", value=None, reason="not installed; pip install 'asynclock[spark]'"
        ) from error
    submitted = SUBMIT_VARIABLE in os.environ
    builder = SparkSession.builder.appName(app)
    if not submitted:
        settings = session_conf(master=master, conf=conf)
        _require_java()
        if master.startswith("local"):
            # Spark would take any python3 of the PATH, which need not have this package.
            os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        builder = builder.master(master)
        with _starting:
            if SparkContext._jvm is None:  # noqa: SLF001  no public way
                with _class_path(settings, master, conf or {}):
                    _start_jvm({**settings, "spark.master": master, "spark.app.name": app})
    else:
        SparkContext._ensure_initialized()  # noqa: SLF001  connects to the JVM of spark-submit
        settings = _beside(dict(SparkConf().getAll()), conf or {})
    running = SparkContext._active_spark_context  # noqa: SLF001  no public way
    jvm = classes(SparkContext)
    require_classes(jvm, running=running and running.appName)
    if not submitted and running is None and (zone := local_zone()) is not None:
        jvm.io.asynclock.session.LogTimes.showIn(zone)  # the JVM itself is in UTC
    if not submitted and running is None and master.startswith("local"):
        settings = _with_local_files(settings, jvm)
    for name, value in (settings | dict(secrets or {})).items():
        builder = builder.config(name, value)
    spark: SparkSession = builder.getOrCreate()
    keep_names(spark)
    if running is None:
        # Hudi sends these settings with the closures of its jobs: a sixth of the work of a small batch.
        hadoops = spark._jsc.hadoopConfiguration()  # noqa: SLF001  no public way
        jvm.io.asynclock.hudi.HadoopSettings.makeSmall(hadoops, spark.sparkContext.master == "yarn")
    # SQL reads need it. It is not a setting of Spark, so giving it at the start would only print a warning.
    spark.conf.set(hoodie.WRITE_RECORD_MERGE_CUSTOM_IMPLEMENTATION_CLASSES, MERGER_CLASS)
    return spark


@contextlib.contextmanager
def _class_path(settings: dict[str, str], master: str, conf: Mapping[str, str]) -> Iterator[None]:
    """Put our jars on the class path of a JVM that the body starts, and take them out of ``spark.jars``.

    Spark copies ``spark.jars``, 80 MB, before it begins, and an archive of classes has none of them. They
    stay there if executors need them, or if further jars may come: a class on the class path finds none of
    these.
    """
    jars = settings["spark.jars"].split(",")
    alone = len(jars) == _OWN_JARS and not conf.keys() & _JARS and not _is_configured()
    if not (master == "local" or master.startswith("local[")) or not alone or any(":" in jar for jar in jars):
        yield
        return
    del settings["spark.jars"]
    before = os.environ.get(_CLASS_PATH)
    os.environ[_CLASS_PATH] = os.pathsep.join([*filter(None, [before]), *jars])
    try:
        yield
    finally:
        os.environ.pop(_CLASS_PATH)
        if before is not None:
            os.environ[_CLASS_PATH] = before


def _is_configured() -> bool:
    """Whether files or variables of Spark's own may add jars or set the class path."""
    import pyspark  # noqa: PLC0415 - an install without the extra imports us

    home = os.environ.get("SPARK_HOME") or Path(pyspark.__file__).parent
    folder = Path(os.environ.get("SPARK_CONF_DIR") or Path(home) / "conf")
    arguments = os.environ.get("PYSPARK_SUBMIT_ARGS", "pyspark-shell").strip()
    files = ("spark-defaults.conf", "spark-env.sh")
    return arguments != "pyspark-shell" or any((folder / name).exists() for name in files)


def _with_local_files(settings: Mapping[str, str], jvm: Any) -> dict[str, str]:  # noqa: ANN401  py4j has no types
    """Make our local file system that of a JVM, unless the settings name one; return the settings for it.

    Not among the settings on the command line: Spark reads files before it knows the jar with the class.
    """
    choice = "spark.hadoop.fs.file.impl"
    if choice in settings:
        return dict(settings)
    jvm.io.asynclock.disk.LocalFiles.install()
    second = "spark.hadoop.fs.AbstractFileSystem.file.impl"
    return {choice: LOCAL_FILES, second: f"{LOCAL_FILES}$Context", **settings}


def local_zone() -> str | None:
    """Return the name of this process's time zone, as Java knows it; None for UTC."""
    if time.localtime().tm_gmtoff == 0 and not time.daylight:
        return None
    named = os.environ.get("TZ", "").lstrip(":")
    named = named or os.path.realpath("/etc/localtime").partition("zoneinfo/")[2]
    try:
        return zoneinfo.ZoneInfo(named).key
    except (ValueError, OSError, zoneinfo.ZoneInfoNotFoundError):  # a rule, as POSIX writes it
        hours, minutes = divmod(abs(time.localtime().tm_gmtoff) // 60, 60)
        return f"GMT{'-' if time.localtime().tm_gmtoff < 0 else '+'}{hours:02}:{minutes:02}"


@contextlib.contextmanager
def jvm_output_to(open_file: Callable[[], BinaryIO]) -> Iterator[None]:
    """Make a JVM that the body starts print into a file and not to this process's output.

    Args:
        open_file: Called when a JVM is about to be started, and not at all if one runs.
    """
    global _open_output
    before, _open_output = _open_output, open_file
    try:
        yield
    finally:
        _open_output = before


def _start_jvm(settings: Mapping[str, str]) -> None:
    """Start a JVM, which prints into a file if requested; PySpark puts the settings on its command line."""
    from pyspark import SparkConf, SparkContext  # noqa: PLC0415 - an install without the extra imports us
    from pyspark.java_gateway import launch_gateway  # noqa: PLC0415

    conf = SparkConf(loadDefaults=False).setAll(list(settings.items()))
    gateway = None
    if _open_output is not None:
        file = _open_output()
        gateway = launch_gateway(conf, {"stdout": file, "stderr": file})
    SparkContext._ensure_initialized(gateway=gateway, conf=conf)  # noqa: SLF001  no public way


def _beside(submitted: Mapping[str, str], conf: Mapping[str, str]) -> dict[str, str]:
    """Return the settings to add to those of ``spark-submit``, whose jars are loaded already."""
    settings = {name: value for name, value in {**_HUDI, **conf}.items() if name not in _JARS}
    executors = (IN_UTC, submitted.get(_EXECUTOR_FLAGS), conf.get(_EXECUTOR_FLAGS))
    for name, value in submitted.items():
        if name == _EXTENSIONS:
            settings[name] = ",".join(dict.fromkeys([*settings[name].split(","), *value.split(",")]))
        else:
            settings.pop(name, None)
    # Executors start from now on; the driver's JVM runs already.
    settings[_EXECUTOR_FLAGS] = " ".join(dict.fromkeys(filter(None, executors)))
    return settings


def session_conf(*, master: str = "local[*]", conf: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the settings with which :func:`session` starts Spark, for sessions started otherwise.

    On a ``local`` master :func:`session` may have the jars on the class path in place of ``spark.jars``.

    For SQL reads such a session also needs the option
    ``hoodie.write.record.merge.custom.implementation.classes`` set to ``MERGER_CLASS``.

    Args:
        master: Spark's master URL.
        conf: Further settings, as for :func:`session`.

    Raises:
        ConfigError: A jar is missing. Nothing was started or written.
    """
    settings = {**_HUDI, **(_ONE_MACHINE if master.startswith("local") else {}), **_jars()}
    for name, value in (conf or {}).items():
        ours = settings.get(name)
        between = "," if name in _LISTS else " " if name in _FLAGS else None
        settings[name] = value if ours is None or between is None else f"{ours}{between}{value}"
    return settings


@contextlib.contextmanager
def exact_times(spark: SparkSession) -> Iterator[None]:
    """Make the jobs that this thread starts in the body leave every date and time unchanged.

    A compaction runs outside Spark SQL, so settings of the session do not reach its tasks.
    """
    context = spark.sparkContext
    before = {name: context.getLocalProperty(name) for name in EXACT_TIMES}
    for name, value in EXACT_TIMES.items():
        context.setLocalProperty(name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            context.setLocalProperty(name, value)


def hudi_bundle() -> Path | None:
    """Return the path of the Hudi bundle; None if Spark has to download it.

    Raises:
        ConfigError: The file named by ``ASYNCLOCK_HUDI_BUNDLE`` does not exist.
    """
    if named := os.environ.get(BUNDLE_VARIABLE):
        if not Path(named).is_file():
            raise ConfigError(
                setting=BUNDLE_VARIABLE,
                value=named,
                reason=f"no such file; the jar of {HUDI_BUNDLE} is wanted",
            )
        return Path(named)
    group, artifact, version = HUDI_BUNDLE.split(":")
    below = Path(*group.split("."), artifact, version, f"{artifact}-{version}.jar")
    return next((path / below for path in maven_repositories() if (path / below).is_file()), None)


def _jars() -> dict[str, str]:
    if not MERGER_JAR.is_file():
        raise ConfigError(
            setting="asynclock-hudi.jar",
            value=str(MERGER_JAR),
            reason="the jar with Hudi's merger is missing, so no splice table can be read or written; in a"
            " checkout build it with 'make jar' (Java 17, Maven), else install a release wheel of asynclock",
        )
    bundle = hudi_bundle()
    if bundle is None:
        return {"spark.jars": str(MERGER_JAR), "spark.jars.packages": HUDI_BUNDLE}
    return {"spark.jars": f"{bundle},{MERGER_JAR}"}


def maven_repositories() -> list[Path]:
    """Return the folders in which Maven may keep its jars, in the order of the search."""
    arguments = f"{os.environ.get('MAVEN_ARGS', '')} {os.environ.get('MAVEN_OPTS', '')}"
    if chosen := re.search(r"-Dmaven\.repo\.local=(\S+)", arguments):
        return [Path(chosen[1])]
    homes = [Path.home()]
    with contextlib.suppress(KeyError):  # a container's user may have no account
        homes.append(Path(pwd.getpwuid(os.getuid()).pw_dir))
    return [home / ".m2" / "repository" for home in homes]


def _require_java() -> None:
    home = os.environ.get("JAVA_HOME")
    found = (Path(home) / "bin" / "java").is_file() if home else shutil.which("java") is not None
    if not found:
        raise ConfigError(
            setting="JAVA_HOME",
            value=home,
            reason="no Java there or on PATH; Spark 3.5 needs Java 8, 11 or 17",
        )


def require_classes(jvm: Any, *, running: str | None) -> None:  # noqa: ANN401  py4j objects have no types
    """Make sure that the driver has asynclock's jar and the Hudi bundle.

    Args:
        jvm: The driver's JVM.
        running: Name of the application that runs there; None if none does yet.

    Raises:
        ConfigError: It has not.
    """
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    for name in (MERGER_CLASS, "org.apache.spark.sql.hudi.HoodieSparkSessionExtension"):
        if loader.getResource(name.replace(".", "/") + ".class") is None:
            if running is not None:
                remedy = "stop it, or start it with asynclock.spark.session_conf()'s settings"
                reason = f"a session without {name} is already running; {remedy}"
            else:
                remedy = f"give it --jars {MERGER_JAR} --packages {HUDI_BUNDLE}"
                reason = f"spark-submit has started Spark without {name}; nothing was written; {remedy}"
            raise ConfigError(setting="spark", value=running, reason=reason)
