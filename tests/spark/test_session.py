"""The ready session: its jars, its settings, and what it says when something is missing."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from asynclock.errors import ConfigError
from asynclock.spark import hoodie
from asynclock.spark.hudi import session as session_module
from asynclock.spark.hudi.options import MERGER_CLASS
from asynclock.spark.hudi.session import HUDI_BUNDLE, MERGER_JAR, hudi_bundle, session, session_conf

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


def test_importing_the_package_does_not_import_spark() -> None:
    """The lock works where pyspark is not installed."""
    code = "import sys, asynclock.spark; sys.exit('pyspark' in sys.modules)"

    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_session_carries_hudi_and_the_merger(spark: SparkSession) -> None:
    """Both jars are there, and SQL reads know the merger."""
    jars = spark.sparkContext.getConf().get("spark.jars")

    assert str(MERGER_JAR) in jars
    assert str(hudi_bundle()) in jars
    assert spark.conf.get(hoodie.WRITE_RECORD_MERGE_CUSTOM_IMPLEMENTATION_CLASSES) == MERGER_CLASS
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"


def test_hadoops_settings_are_sent_without_the_names_of_their_files_and_those_of_yarn(
    spark: SparkSession,
) -> None:
    """Hadoop compresses each name by itself, and Hudi sends the settings with every job."""
    jvm: Any = spark._jvm
    settings: Any = spark.sparkContext._jsc.hadoopConfiguration()
    names = ("fs.trash.interval", "mapreduce.job.reduces")
    of_yarn = "yarn.resourcemanager.hostname"

    jvm.org.apache.hadoop.mapred.JobConf()  # either would read all files again, if it were the first
    jvm.org.apache.hadoop.hdfs.HdfsConfiguration()

    for each in (settings, spark._jsparkSession.sessionState().newHadoopConf()):
        assert [each.getPropertySources(name) for name in names] == [None, None]
        assert [each.get(name) for name in names] == ["0", "1"]
        assert each.get(of_yarn) is None
    assert jvm.org.apache.hadoop.conf.Configuration().get(of_yarn) == "0.0.0.0"  # noqa: S104  the default


@pytest.mark.parametrize(
    ("master", "conf", "on_class_path"),
    [
        ("local[2]", {}, True),
        ("local[*]", {"spark.driver.memory": "1g"}, True),
        ("local", {}, True),
        ("local[2,3]", {}, True),
        ("local[2]", {"spark.jars": "hudi-aws.jar"}, False),
        ("local[2]", {"spark.jars.packages": "org.apache.hudi:hudi-aws-bundle:1.2.0"}, False),
        ("local-cluster[2,1,1024]", {}, False),
        ("spark://head:7077", {}, False),
    ],
)
def test_one_jvm_without_further_jars_has_ours_on_its_class_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, master: str, conf: dict[str, str], *, on_class_path: bool
) -> None:
    """Behind Spark's and the user's; executors and classes of further jars need them in ``spark.jars``."""
    bundle = tmp_path / "bundle.jar"
    bundle.touch()
    monkeypatch.setenv("ASYNCLOCK_HUDI_BUNDLE", str(bundle))
    monkeypatch.setenv("SPARK_DIST_CLASSPATH", "/users")
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    settings = session_conf(master=master, conf=conf)

    with session_module._class_path(settings, master, conf):
        path = os.environ["SPARK_DIST_CLASSPATH"]

    assert path == (f"/users:{bundle}:{MERGER_JAR}" if on_class_path else "/users")
    assert ("spark.jars" in settings) is not on_class_path
    assert os.environ["SPARK_DIST_CLASSPATH"] == "/users"


@pytest.mark.parametrize("place", ["spark-defaults.conf", "spark-env.sh", "PYSPARK_SUBMIT_ARGS", "a colon"])
def test_where_further_jars_may_come_from_ours_stay_in_spark_jars(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """Hudi would not find their classes from the class path, or the class path be another."""
    folder = tmp_path / ("a:b" if place == "a colon" else "conf")
    folder.mkdir()
    (folder / "bundle.jar").touch()
    monkeypatch.setenv("ASYNCLOCK_HUDI_BUNDLE", str(folder / "bundle.jar"))
    monkeypatch.setenv("SPARK_CONF_DIR", str(folder))
    monkeypatch.delenv("SPARK_DIST_CLASSPATH", raising=False)
    if place == "PYSPARK_SUBMIT_ARGS":
        monkeypatch.setenv(place, "--packages a:b:1 pyspark-shell")
    elif place.startswith("spark-"):
        (folder / place).touch()
    settings = session_conf(master="local[2]")

    with session_module._class_path(settings, "local[2]", {}):
        assert "SPARK_DIST_CLASSPATH" not in os.environ

    assert "spark.jars" in settings


def test_the_environment_is_as_before_after_a_failed_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Programs that this one starts later have another class path."""
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    monkeypatch.delenv("SPARK_DIST_CLASSPATH", raising=False)

    found = []

    def fail() -> None:
        with session_module._class_path(session_conf(), "local", {}):
            found.append(os.environ["SPARK_DIST_CLASSPATH"])
            raise OSError("no Java")

    with pytest.raises(OSError, match="no Java"):
        fail()

    assert len(found) == 1
    assert "SPARK_DIST_CLASSPATH" not in os.environ


def test_a_second_call_returns_the_running_session(spark: SparkSession) -> None:
    """One process has one Spark."""
    assert session() is spark


def test_your_settings_win() -> None:
    """Any setting can be replaced."""
    conf = session_conf(conf={"spark.driver.memory": "7g"})

    assert conf["spark.driver.memory"] == "7g"


def test_your_jars_are_added_to_ours() -> None:
    """A further jar, package or extension does not take Hudi off the session."""
    ours = session_conf()

    conf = session_conf(conf={"spark.jars": "my.jar", "spark.sql.extensions": "my.Extension"})

    assert conf["spark.jars"] == f"{ours['spark.jars']},my.jar"
    assert conf["spark.sql.extensions"] == f"{ours['spark.sql.extensions']},my.Extension"


def test_a_cluster_gets_no_loopback_address() -> None:
    """Executors elsewhere could not reach a driver on 127.0.0.1."""
    assert "spark.driver.host" in session_conf(master="local[2]")
    assert "spark.driver.host" not in session_conf(master="spark://head:7077")


def test_the_bundle_is_taken_from_where_the_variable_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ASYNCLOCK_HUDI_BUNDLE comes first."""
    jar = tmp_path / "bundle.jar"
    jar.touch()
    monkeypatch.setenv("ASYNCLOCK_HUDI_BUNDLE", str(jar))

    assert session_conf()["spark.jars"] == f"{jar},{MERGER_JAR}"


def test_a_wrong_variable_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that is not there is named, instead of some other bundle being used."""
    monkeypatch.setenv("ASYNCLOCK_HUDI_BUNDLE", str(tmp_path / "gone.jar"))

    with pytest.raises(ConfigError, match=r"ASYNCLOCK_HUDI_BUNDLE=.*gone\.jar.*no such file"):
        session_conf()


@pytest.mark.parametrize("variable", ["MAVEN_ARGS", "MAVEN_OPTS"])
def test_mavens_own_repository_setting_is_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    """The bundle is looked for where Maven put it."""
    group, artifact, version = HUDI_BUNDLE.split(":")
    jar = tmp_path.joinpath(*group.split("."), artifact, version, f"{artifact}-{version}.jar")
    jar.parent.mkdir(parents=True)
    jar.touch()
    monkeypatch.delenv("ASYNCLOCK_HUDI_BUNDLE", raising=False)
    monkeypatch.setenv(variable, f"-B -Dmaven.repo.local={tmp_path}")

    assert hudi_bundle() == jar


def test_without_a_bundle_here_spark_downloads_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An installed wheel has no Maven repository beside it."""
    monkeypatch.delenv("ASYNCLOCK_HUDI_BUNDLE", raising=False)
    monkeypatch.setenv("MAVEN_ARGS", f"-Dmaven.repo.local={tmp_path}")

    conf = session_conf(conf={"spark.jars.packages": "org.apache.hadoop:hadoop-aws:3.3.4"})

    assert conf["spark.jars"] == str(MERGER_JAR)
    assert conf["spark.jars.packages"] == f"{HUDI_BUNDLE},org.apache.hadoop:hadoop-aws:3.3.4"


def test_a_missing_merger_jar_says_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An install without the jar works for the lock; the session names the two ways to it."""
    monkeypatch.setattr(session_module, "MERGER_JAR", tmp_path / "asynclock-hudi.jar")

    with pytest.raises(ConfigError, match=r"asynclock-hudi\.jar.*make jar.*release wheel"):
        session()


def test_a_running_session_without_the_jars_is_refused() -> None:
    """Its reads would fail later, far from the cause."""
    code = (
        "from pyspark.sql import SparkSession; from asynclock.spark import session;"
        "SparkSession.builder.master('local[1]').appName('bare').getOrCreate(); session()"
    )

    ended = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)

    assert ended.returncode == 1
    assert f"ConfigError: spark='bare': a session without {MERGER_CLASS} is already running" in ended.stderr


def test_the_merger_is_built_against_the_bundle_it_runs_with() -> None:
    """The build and the session name one version of Hudi."""
    pom = MERGER_JAR.parents[1].joinpath("java", "pom.xml").read_text()
    _, artifact, version = HUDI_BUNDLE.split(":")

    assert f"<hudi.version>{version}</hudi.version>" in pom
    assert artifact.rpartition("_")[0] in pom
    assert f"<scala.binary>{artifact.rpartition('_')[2]}</scala.binary>" in pom


def test_a_missing_java_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Instead of pyspark's own message about a gateway."""
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))

    with pytest.raises(ConfigError, match=r"JAVA_HOME=.*no Java"):
        session()
