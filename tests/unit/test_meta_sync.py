"""When the elected service tells catalogs about a table, and what happens if they do not answer."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from asynclock.spark.hudi.instants import DELTA_COMMIT, Instant
from asynclock.spark.services import meta_sync
from asynclock.spark.services.meta_sync import MetaSync
from asynclock.spark.spec.hudi_settings import HudiSpec
from tests.unit.specs import table_spec

if TYPE_CHECKING:
    from asynclock.spark.results import ServiceReport

OPTIONS = {
    "hoodie.datasource.meta.sync.enable": "true",
    "hoodie.datasource.hive_sync.enable": "true",
    "hoodie.datasource.hive_sync.table": "fleet",
    "hoodie.meta.sync.client.tool.class": "io.glue.Tool, io.other.Tool",
}


class DownError(Exception):
    """A catalog that does not answer."""


class Catalogs:
    """A table, and Hudi's tools, which note what they are given."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, dict[str, str]]] = []
        self.commits: list[str] = []
        self.down = False
        self.spec = replace(table_spec("file:///t"), hudi=HudiSpec(options=OPTIONS))
        self.timeline = self
        hadoop = SimpleNamespace(Path=lambda path: SimpleNamespace(getFileSystem=lambda _: path))
        self.spark = SimpleNamespace(_jsc=SimpleNamespace(hadoopConfiguration=lambda: "conf"))
        self.path = "file:///t"
        helpers = SimpleNamespace(runHoodieMetaSync=self.run)
        properties = SimpleNamespace(TypedProperties=Properties)
        hudi = SimpleNamespace(
            common=SimpleNamespace(config=properties),
            sync=SimpleNamespace(common=SimpleNamespace(util=SimpleNamespace(SyncUtilHelpers=helpers))),
        )
        self.java = SimpleNamespace(
            org=SimpleNamespace(apache=SimpleNamespace(hudi=hudi, hadoop=SimpleNamespace(fs=hadoop)))
        )

    def name(self) -> str:
        """Hudi's name of the table."""
        return "t_splice"

    def instants(self) -> list[Instant]:
        """The completed commits."""
        return [instant(time) for time in self.commits]

    def run(self, tool: str, properties: Properties, *_: object) -> None:
        """One call of a tool."""
        if self.down:
            raise DownError("connection refused")
        self.calls.append((tool, properties.values))


class Properties:
    """Java's properties."""

    def __init__(self) -> None:
        self.values: dict[str, str] = {}

    def setProperty(self, key: str, value: str) -> None:  # noqa: N802  Java's name
        """Set one."""
        self.values[key] = value


def instant(time: str) -> Instant:
    """A completed commit."""
    return Instant(action=DELTA_COMMIT, requested=time, completed=time, state="COMPLETED")


@pytest.fixture
def catalogs(monkeypatch: pytest.MonkeyPatch) -> Catalogs:
    """Catalogs in place of Hudi's tools."""
    made = Catalogs()
    monkeypatch.setattr(meta_sync, "classes", lambda _: made.java)
    monkeypatch.setattr(meta_sync, "Py4JJavaError", DownError)
    return made


def service(catalogs: Any, told: list[str], done: list[ServiceReport] | None = None) -> MetaSync:  # noqa: ANN401  stands for a table
    """The service."""
    return MetaSync(catalogs, told.append, None if done is None else done.append)


def test_each_tool_learns_of_a_commit_once(catalogs: Catalogs) -> None:
    """It gets the options of the user, and what the table layer knows; the lease is checked before."""
    told: list[str] = []
    done: list[ServiceReport] = []
    checked: list[int] = []
    sync = service(catalogs, told, done)

    sync.step(lambda: checked.append(len(catalogs.calls)))  # nothing is committed
    catalogs.commits = ["001", "002"]
    for _ in range(2):
        sync.step(lambda: checked.append(len(catalogs.calls)))

    tools = ["io.glue.Tool", "io.other.Tool", "org.apache.hudi.hive.HiveSyncTool"]
    assert [tool for tool, _ in catalogs.calls] == tools
    assert checked == [0, 1, 2]
    assert sync.rounds == 1
    assert told == ["told the catalog about the commits up to 002"]
    assert [report.service for report in done] == ["sync"]
    given = catalogs.calls[0][1]
    assert given.items() >= OPTIONS.items()
    assert given["hoodie.datasource.meta.sync.base.path"] == "file:///t"
    assert given["hoodie.datasource.hive_sync.create_managed_table"] == "false"

    catalogs.commits.append("003")
    sync.step(lambda: None)
    assert sync.rounds == 2


def test_a_catalog_that_does_not_answer_is_tried_again_after_a_pause(
    catalogs: Catalogs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error is kept until a later attempt has worked, and no other work is stopped."""
    now = 1000.0
    monkeypatch.setattr(meta_sync, "time", SimpleNamespace(monotonic=lambda: now))
    told: list[str] = []
    sync = service(catalogs, told)
    catalogs.commits, catalogs.down = ["001"], True

    sync.step(lambda: None)
    catalogs.down = False
    sync.step(lambda: None)  # too early

    assert catalogs.calls == []
    assert isinstance(sync.error, DownError)
    assert told == ["the meta sync failed: DownError: connection refused; it is tried again in 30 s"]

    now += 30.0
    sync.step(lambda: None)
    assert (sync.rounds, sync.error) == (1, None)
