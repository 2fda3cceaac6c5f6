"""Every command on a standalone cluster, with everything on s3a; one worker is killed in the middle."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.places.remote import DEADLINE, SUBMIT, finish, objects

if TYPE_CHECKING:
    from tests.laboratory.cluster import Cluster
    from tests.places.remote import Remote

FILES = 6
KEYS = 40
pytestmark = pytest.mark.timeout(DEADLINE + 60)


def command_lines() -> str:
    """The arguments of every process of this machine."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            found.append((folder / "cmdline").read_bytes().decode(errors="replace"))
        except OSError:  # ended meanwhile
            continue
    return "\n".join(found)


@pytest.fixture(scope="module")
def ran(remote: Remote, cluster: Cluster) -> dict[str, Any]:
    """A run over every file, in which a worker and its executor are killed after the second batch."""
    for number in range(1, FILES + 1):
        remote.deliver(number, KEYS)
    with remote.command("pipeline", "run", remote.path, "--once", "--json") as process:
        assert process.stdout is not None
        lines = []
        for line in process.stdout:
            lines.append(json.loads(line))
            if len(lines) == 2:
                shown = command_lines()
                cluster.workers[0].kill()
        code = process.wait(DEADLINE)
    assert code == 0, (remote.folder / "driver.log").read_text()[-4000:]
    return {"batches": lines[:-1], "report": lines[-1], "command lines": shown}


def test_run_goes_on_when_a_worker_is_killed(ran: dict[str, Any], remote: Remote) -> None:
    """Every file is committed once although tasks were lost; the executors have no Python at all."""
    assert "Lost executor" in (remote.folder / "driver.log").read_text()
    streams = {stream["stream"]: stream for stream in ran["report"]["streams"]}
    assert {name: stream["batches"] for name, stream in streams.items()} == {"a": FILES, "b": FILES}
    assert streams["a"]["rows"] == FILES * (KEYS + 1)
    assert streams["a"]["quarantined"] == FILES


def test_secrets_reach_neither_command_lines_nor_logs(ran: dict[str, Any], remote: Remote) -> None:
    """The credentials of the store are in the environment alone: any user can read command lines."""
    secret = remote.server.options["secret_access_key"]

    assert str(remote.path) in ran["command lines"]
    assert secret not in ran["command lines"]
    assert secret not in (remote.folder / "driver.log").read_text()


@pytest.mark.usefixtures("ran")
def test_everything_is_in_the_store(remote: Remote) -> None:
    """Table, locks, checkpoints and quarantine are below the prefix, and nothing is beside them."""
    found = remote.keys()

    assert {key.partition("/")[0] for key in found} == {"in", "table", "locks", "checkpoints"}
    assert "table/.hoodie/hoodie.properties" in found
    assert "table/.hoodie/.locks/table_lock.json" in found
    assert {"locks/stream/a.json", "locks/stream/b.json"} <= set(found)
    assert any(key.startswith("checkpoints/a/commits/") for key in found)
    aside = [key for key in found if key.startswith("checkpoints/a-quarantine/") and key.endswith(".json")]
    rows = [json.loads(line) for key in aside for line in remote.get(key).splitlines()]
    assert sorted(row["record"] for row in rows) == [
        f"k0,{number},no number,bad row of file {number}" for number in range(1, FILES + 1)
    ]


@pytest.mark.usefixtures("ran")
def test_services_and_validation_run_under_spark_submit(remote: Remote) -> None:
    """The master of spark-submit wins over the spec's; the second reader fetches its files from the store."""
    spec = remote.spec("elsewhere.toml", master="local[1]")

    words = remote.submit(SUBMIT, "pipeline", "services", spec, "--once", "--json")
    code, output = finish(remote.start(*words))
    assert code == 0, output
    (services,) = objects(output)
    assert len(services["compactions"]) == 1

    code, output = finish(remote.start(*remote.submit(SUBMIT, "pipeline", "validate", spec, "--json")))
    assert code == 0, output
    (report,) = objects(output)
    assert (report["keys"], report["differences"]) == (KEYS, 0)
    streams = {stream["stream"]: stream for stream in report["streams"]}
    assert {name: stream["files"] for name, stream in streams.items()} == {"a": FILES, "b": FILES}
    assert {name: stream["unread_files"] for name, stream in streams.items()} == {"a": [], "b": []}
    assert {name: stream["bad_rows"] for name, stream in streams.items()} == {"a": FILES, "b": 0}


@pytest.mark.usefixtures("ran")
def test_the_table_equals_the_oracle_before_and_after_a_rebucket(remote: Remote) -> None:
    """Every row, read on the cluster, is what the events say; so is each in a copy with more buckets."""
    spec = remote.spec("elsewhere.toml", master="local[1]")
    wider = remote.spec("wider.toml", master="local[1]", buckets="3")
    script = Path(__file__).with_name("read_rows.py")

    code, output = finish(remote.start(*remote.submit(script, spec, wider)))

    assert code == 0, output
    before, after = objects(output)
    assert before["master"] == remote.master
    expected = remote.expected()
    assert {row["k"]: row for row in before["rows"]} == expected
    assert {row["k"]: row for row in after["rows"]} == expected
    assert (after["copied"], after["keys"], after["differences"]) == (KEYS, KEYS, 0)


@pytest.mark.parametrize(
    ("conf", "says"),
    [
        ({}, "spark-submit has started Spark without io.asynclock.hudi.SpliceMerger"),
        ({"spark_driver_extraClassPath": "{jars}"}, "the executors lack asynclock's jar or the Hudi bundle"),
    ],
    ids=["the driver", "the executors"],
)
def test_a_cluster_without_the_jars_is_refused(remote: Remote, conf: dict[str, str], says: str) -> None:
    """One sentence says which jars to give, and nothing is created."""
    remote.put("other/in/a/1.csv", b"k,at,x,note\n")
    remote.put("other/in/b/1.parquet", b"")
    spec = remote.spec("other.toml", prefix=f"{remote.prefix}/other")
    before = remote.keys()
    given = {name: value.format(jars=":".join([*remote.jars, remote.s3a])) for name, value in conf.items()}

    words = remote.submit(SUBMIT, "pipeline", "run", spec, "--once", jars=False, **given)
    code, output = finish(remote.start(*words))

    said = sentence(output)
    assert code == 2
    assert says in said
    assert "asynclock-hudi.jar" in said
    assert remote.keys() == before


def test_a_bucket_that_does_not_exist_is_named(remote: Remote) -> None:
    """One sentence has the key of the spec and what the store has said."""
    spec = remote.spec("nowhere.toml", bucket="no-such-bucket")
    log = remote.folder / "driver.log"
    log.write_text("")

    code, output = finish(remote.command("pipeline", "run", spec, "--once"))

    said = sentence(output + log.read_text())
    assert code == 2
    assert "table.path='s3a://no-such-bucket/" in said
    assert "Spark cannot look there; nothing was written" in said


def sentence(output: str) -> str:
    """The one line that the command has said, which is no traceback; spark-submit joins both outputs."""
    said = [line for line in output.splitlines() if line.startswith("asynclock: ")]
    assert len(said) == 1, output
    assert "Traceback" not in output
    return said[0]
