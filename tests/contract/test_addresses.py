"""Every way to say where a store is leads to it."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest

import asynclock
from asynclock import LeaseSettings
from asynclock.backend import Stored
from asynclock.backends import open_backend
from asynclock.backends._azure_account import find_account
from asynclock.errors import UnsupportedBackendError
from asynclock.testing._proxy import TapProxy, Wire
from tests.laboratory.servers import AZURE_ACCOUNT, AZURE_KEY, USER

if TYPE_CHECKING:
    from tests.laboratory.servers import Server

# The servers are one node each.
SETTINGS = LeaseSettings(validity=60.0, max_clock_skew=0.5)
VARIABLES = (
    "AZURE_STORAGE_CONNECTION_STRING",
    "AZURE_STORAGE_ACCOUNT",
    "AZURE_STORAGE_KEY",
    "AZURE_STORAGE_SAS_TOKEN",
    "STORAGE_EMULATOR_HOST",
    "AWS_ENDPOINT_URL",
    "AWS_ENDPOINT_URL_S3",
)


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Return an environment that names no store."""
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    return monkeypatch


async def _hold(url: str, **options: Any) -> bool:  # noqa: ANN401  options are of any type
    async with (
        asynclock.connect(f"{url}/{uuid.uuid4()}", settings=SETTINGS, renewal="loop", **options) as client,
        client.lock("a").hold(timeout=60) as lease,
    ):
        await lease.confirm()
        return lease.held


def _connection_string(azurite: Server) -> str:
    return ";".join(
        (
            "DefaultEndpointsProtocol=http",
            f"AccountName={AZURE_ACCOUNT}",
            f"AccountKey={AZURE_KEY}",
            f"BlobEndpoint={azurite.endpoint}/{AZURE_ACCOUNT}",
        )
    )


async def test_an_azure_connection_string_is_enough(azurite: Server, environment: pytest.MonkeyPatch) -> None:
    """Given as an option or in the environment, it names the account and its key."""
    text = _connection_string(azurite)
    assert await _hold(azurite.url, connection_string=text)

    environment.setenv("AZURE_STORAGE_CONNECTION_STRING", text)
    assert await _hold(azurite.url)


async def test_an_azure_key_comes_from_the_environment(
    azurite: Server, environment: pytest.MonkeyPatch
) -> None:
    """AZURE_STORAGE_KEY goes with the account that the option names."""
    environment.setenv("AZURE_STORAGE_KEY", AZURE_KEY)

    assert await _hold(azurite.url, account_url=azurite.options["account_url"])


@pytest.mark.parametrize(
    "url",
    [
        "abfs://locks@devstoreaccount1.dfs.core.windows.net",
        "abfss://locks@devstoreaccount1.dfs.core.windows.net",
        "wasb://locks@devstoreaccount1.blob.core.windows.net",
        "wasbs://locks@devstoreaccount1.blob.core.windows.net",
        "az://locks",
    ],
)
async def test_every_spelling_of_a_container_is_the_same(azurite: Server, url: str) -> None:
    """Hadoop's URLs and ours lead to the same blobs."""
    folder = f"spelling-{uuid.uuid4()}"
    one = open_backend(f"{azurite.url}/{folder}", **azurite.options)
    other = open_backend(f"{url}/{folder}", **azurite.options)
    await one.put_if_absent("a.json", b"body")
    found = await other.get("a.json")
    await one.aclose()
    await other.aclose()

    assert isinstance(found, Stored)
    assert found.body == b"body"


@pytest.mark.usefixtures("environment")
@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("data.dfs.core.windows.net", "https://data.blob.core.windows.net"),
        ("data.blob.core.windows.net", "https://data.blob.core.windows.net"),
        ("Data.DFS.core.windows.net", "https://data.blob.core.windows.net"),
        ("data.dfs.core.chinacloudapi.cn", "https://data.blob.core.chinacloudapi.cn"),
        ("data.blob.core.usgovcloudapi.net", "https://data.blob.core.usgovcloudapi.net"),
    ],
)
def test_hadoops_urls_name_the_account(host: str, url: str) -> None:
    """The host of an abfss:// or wasbs:// URL is the account, in each of Azure's clouds."""
    assert find_account(host, {}).url == url


@pytest.mark.usefixtures("environment")
@pytest.mark.parametrize(
    "host",
    [
        "data.blob.attacker.example",
        "data.dfs.core.windows.net.attacker.example",
        "data.blob.core.windows.net:8443",
        "attacker.example/data.blob.core.windows.net",
        "da-ta.blob.core.windows.net",
        "data.queue.core.windows.net",
        "blob.core.windows.net",
        "data.x.blob.core.windows.net",
    ],
)
@pytest.mark.parametrize("option", ["sas_token", "credential", None])
def test_a_url_chooses_no_receiver_of_a_credential(host: str, option: str | None) -> None:
    """A host outside of Azure's clouds needs account_url, whatever the credential; then that one is asked."""
    options = {} if option is None else {option: AZURE_KEY}

    with pytest.raises(asynclock.ConfigError, match="set account_url"):
        find_account(host, options)
    assert find_account(host, options | {"account_url": "https://10.0.0.7"}).url == "https://10.0.0.7"


def test_an_account_of_the_environment_is_a_name_only(environment: pytest.MonkeyPatch) -> None:
    """AZURE_STORAGE_ACCOUNT cannot lead to another host either."""
    environment.setenv("AZURE_STORAGE_ACCOUNT", "attacker.example/x")

    with pytest.raises(asynclock.ConfigError, match="AZURE_STORAGE_ACCOUNT"):
        asynclock.connect("az://box")


async def test_an_emulator_of_the_environment_is_used(
    fake_gcs: Server, environment: pytest.MonkeyPatch
) -> None:
    """STORAGE_EMULATOR_HOST leads to it, with or without a scheme."""
    for host in (fake_gcs.endpoint, urlsplit(fake_gcs.endpoint).netloc):
        environment.setenv("STORAGE_EMULATOR_HOST", host)
        assert await _hold(fake_gcs.url, min_write_interval=0.0)


async def test_the_billed_project_is_in_every_request(fake_gcs: Server) -> None:
    """Where the requester pays, each request to Cloud Storage names the project."""
    async with TapProxy(fake_gcs.endpoint) as proxy:
        options = fake_gcs.through(proxy.url) | {"user_project": "example.com:payer"}
        backend = open_backend(f"{fake_gcs.url}/billed-{uuid.uuid4()}", **options)
        written = await backend.put_if_absent("a.json", b"1")
        await backend.put_if_match("a.json", b"2", written.version)
        await backend.get("a.json")
        assert [entry.key async for entry in backend.list("")] == ["a.json"]
        await backend.delete("a.json")
        await backend.aclose()

    assert [tap.headers.get("x-goog-user-project") for tap in proxy.journal] == ["example.com:payer"] * 5


async def test_an_s3_endpoint_comes_from_the_environment(
    minio: Server, environment: pytest.MonkeyPatch
) -> None:
    """AWS_ENDPOINT_URL_S3 leads to a compatible store, with the bucket in the path where asked."""
    environment.setenv("AWS_ENDPOINT_URL_S3", minio.endpoint)
    keys = {"access_key_id": USER, "secret_access_key": USER, "region": "us-east-1"}

    assert await _hold(minio.url, **keys, path_style=True)


def test_plain_http_in_the_environment_is_refused_too(environment: pytest.MonkeyPatch) -> None:
    """An endpoint of the environment that is not this machine needs https, as one of the options does."""
    environment.setenv("AWS_ENDPOINT_URL_S3", "http://store.example")

    with pytest.raises(asynclock.ConfigError, match="plain http"):
        asynclock.connect("s3://bucket")


async def test_a_redirect_is_not_followed(cloud: Server) -> None:
    """A write that the server redirects elsewhere goes nowhere."""
    async with TapProxy(cloud.endpoint) as elsewhere, TapProxy(cloud.endpoint) as proxy:
        away = {"Location": f"{elsewhere.url}/elsewhere"}
        proxy.inject(Wire.ANSWER, times=9, status=307, headers=away)
        backend = open_backend(f"{cloud.url}/redirect", **cloud.through(proxy.url))
        with pytest.raises(UnsupportedBackendError, match="redirect"):
            await backend.put_if_absent("a.json", b"body")
        await backend.aclose()

    assert elsewhere.journal == []
