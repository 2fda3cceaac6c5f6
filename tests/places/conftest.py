"""A cluster, an S3 server, and a pipeline that has everything there."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.hudi.harness import compile_harness, lock_client_jar
from tests.laboratory.cluster import running_cluster
from tests.places.remote import Remote
from tests.servers.fixtures import minio  # noqa: F401  a fixture

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.laboratory.cluster import Cluster
    from tests.laboratory.servers import Server


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A master and two workers with one core each."""
    with running_cluster(tmp_path_factory.mktemp("cluster")) as started:
        yield started


@pytest.fixture(scope="module")
def remote(
    cluster: Cluster,
    minio: Server,  # noqa: F811  the fixture
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Remote]:
    """The pipeline of the module."""
    folder = tmp_path_factory.mktemp("remote")
    lock_client = lock_client_jar(compile_harness(tmp_path_factory.mktemp("classes")), folder)
    with Remote(folder, cluster.url, minio, lock_client) as pipeline:
        yield pipeline
