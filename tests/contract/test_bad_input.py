"""Bad input gets an error of one sentence; nothing is written, and no secret is shown."""

from __future__ import annotations

import asyncio
import logging
import sys
import traceback
import uuid
from typing import TYPE_CHECKING, TypeAlias

import botocore.session
import pytest

import asynclock
from asynclock import LeaseSettings
from asynclock.backend import Absent
from asynclock.backends import open_backend
from asynclock.errors import (
    AccessDeniedError,
    BackendError,
    BackendNotInstalledError,
    ConfigError,
    UnsupportedBackendError,
)
from asynclock.testing._proxy import TapProxy, Wire
from tests.servers.fixtures import server

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from asynclock.backend import Backend
    from tests.laboratory.servers import Server

CANARY = "Q0FOQVJZQ0FOQVJZ"  # base64, so that it passes for an account key
SECRETS = ("secret_access_key", "credential", "token")
SetVariables: TypeAlias = "Callable[[dict[str, str]], None]"
FILES = {
    "{broken}": "[default",
    "{plain}": "[default]\nendpoint_url = http://store.example\n",
    "{sso}": "[profile sso]\nsso_start_url=https://a.awsapps.com/start\nsso_region=us-east-1\n"
    "sso_account_id=123456789012\nsso_role_name=locker\n",
}
S3 = {"endpoint_url": "http://127.0.0.1:1", "access_key_id": "a", "secret_access_key": CANARY}
AZURE = {"account_url": "http://127.0.0.1:1/account", "credential": CANARY}


@pytest.fixture
def store(request: pytest.FixtureRequest) -> Server:
    """Return the server that the test names."""
    return server(request.param)


class Blocking:
    """A token credential of the blocking half of Azure's SDK."""

    def get_token(self, *_: str) -> None:
        """Return nothing."""


@pytest.mark.parametrize(
    ("url", "options", "says"),
    [
        ("s4://bucket/locks", {}, "unknown scheme"),
        ("bucket/locks", {}, "must be like s3://"),
        ("s3://", {}, "must be like s3://bucket/prefix"),
        ("s3://buck et/locks", {}, "must be like s3://"),
        ("s3://bucket/a/../b", {}, "no empty segment"),
        ("s3://bucket/locks?versionId=1", {}, "must have no ?"),
        (f"s3://key:{CANARY}@bucket/locks", {}, "must contain no user or password"),
        ("s3://bucket", S3 | {"endpoint_url": "http://127.0.0.1:1/path"}, "must have no path"),
        ("s3://bucket", S3 | {"endpoint_url": "http://store.example"}, "plain http"),
        ("s3://bucket", S3 | {"endpoint_url": "http://127.0.0.1.example"}, "plain http"),
        ("s3://bucket", S3 | {"endpoint_url": f"https://a:{CANARY}@store.example"}, "no user, password"),
        ("s3://bucket", S3 | {"endpoint_url": "store.example:9000"}, "must be like https://"),
        ("s3://bucket", S3 | {"endpoint_url": "https://store.example:port"}, "must be like https://"),
        ("s3://bucket", {"secret_access_key": CANARY}, "together"),
        ("s3://bucket", {"sse": "rot13"}, "must be one of"),
        ("s3://bucket", {"sse_kms_key_id": "key"}, "needs sse='aws:kms'"),
        ("s3://bucket", {"sse_customer_key": b"short"}, "must be 32 bytes"),
        ("s3://bucket", {"ca_file": "/nowhere.pem"}, "no such file"),
        ("s3://bucket", {"ca_file": __file__}, "not a PEM certificate"),
        ("s3://bucket", {"verify_tls": False}, "no such option"),
        ("s3://bucket", {"path_style": "yes"}, "must be of type bool"),
        ("s3://bucket", {"min_write_interval": -1.0}, "must be 0 to 60 s"),
        ("gs://bucket", {"endpoint_url": "http://store.example"}, "plain http"),
        ("gs://bucket", {"token": 7}, "must be a str or have async get()"),
        ("gs://bucket", {"token": {"access_token": CANARY}}, "must be a str or have async get()"),
        ("az://container", {}, "names no account"),
        ("az://container", AZURE | {"account_url": "http://store.example"}, "plain http"),
        ("az://container", AZURE | {"credential": f"{CANARY}?"}, "not base64"),
        ("az://container", AZURE | {"sas_token": CANARY}, "give one of"),
        ("az://container", {"account_url": AZURE["account_url"]}, "needs https"),
        ("az://container", {"account_url": AZURE["account_url"].replace("http", "HTTP", 1)}, "needs https"),
        ("az://container", {"account_url": AZURE["account_url"].replace("http", "hTtp", 1)}, "needs https"),
        ("az://container", AZURE | {"account_url": "HTTP://store.example"}, "plain http"),
        ("az://container", {"account_url": " http://127.0.0.1:10000/a"}, "no blanks"),
        ("az://container", {"account_url": "ht\ntp://127.0.0.1:10000/a"}, "no blanks"),
        ("gs://bucket", {"endpoint_url": "HTTP://store.example", "token": "t"}, "plain http"),
        ("gs://bucket", {"endpoint_url": "\thttp://store.example"}, "no blanks"),
        ("s3://bucket", S3 | {"endpoint_url": "HtTp://store.example"}, "plain http"),
        ("s3://bucket", S3 | {"endpoint_url": "http ://store.example"}, "no blanks"),
        ("az://container", {"connection_string": f"AccountKey={CANARY}"}, "needs AccountName"),
        ("az://container", {"account_url": "https://a.example", "credential": 7}, "must be an account key"),
        (
            "az://container",
            {"account_url": "https://a.example", "credential": Blocking()},
            "azure.identity.aio",
        ),
        ("az://con_tainer", AZURE, "must be like az://container/prefix"),
        ("abfss://container@account/locks", {}, "account must be like"),
        ("abfss://container@x.blob.attacker.example/locks", {"sas_token": CANARY}, "set account_url"),
        ("wasbs://container@x.blob.core.windows.net.attacker.example", {"sas_token": CANARY}, "account_url"),
        ("az://container@attacker.example/x.blob.core.windows.net", {"credential": CANARY}, "account_url"),
        ("abfss://container@x.blob.core.windows.net:8443/locks", {"sas_token": CANARY}, "account_url"),
    ],
)
def test_a_mistake_is_told_before_anything_is_opened(
    url: str, options: dict[str, object], says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A wrong URL or option is a ConfigError in one sentence, without I/O and without the secret."""
    for name in ("AZURE_STORAGE_CONNECTION_STRING", "AZURE_STORAGE_ACCOUNT", "STORAGE_EMULATOR_HOST"):
        monkeypatch.delenv(name, raising=False)

    with pytest.raises(ConfigError) as caught:
        asynclock.connect(url, **options)

    assert says in str(caught.value)
    assert "\\u" not in str(caught.value)
    assert CANARY not in f"{caught.value} {caught.value!r} {vars(caught.value)}"


@pytest.mark.parametrize(
    ("url", "extra", "package"),
    [
        ("s3://bucket", "s3", "aiobotocore"),
        ("gs://bucket", "gcs", "gcloud.aio.auth"),
        ("az://box", "azure", "azure.core"),
    ],
)
def test_a_missing_package_is_named(
    url: str, extra: str, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the SDK the error names the extra to install."""
    ours = {
        f"asynclock.backends._{extra}",
        "asynclock.backends._aws",
        "asynclock.backends._azure_account",
        "asynclock.backends._azure_token",
        "asynclock.backends._gcs_token",
    }
    for module in [m for m in sys.modules if m in ours or m.startswith(f"{package}.")]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, package, None)

    with pytest.raises(BackendNotInstalledError, match=rf"pip install 'asynclock\[{extra}\]'"):
        asynclock.connect(url)


@pytest.fixture
def bare_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> SetVariables:
    """Return what sets variables on a machine without credentials; FILES are written where they are named."""
    config = tmp_path / "config"
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE", "STORAGE_EMULATOR_HOST"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(config))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(config))

    def set_all(variables: dict[str, str]) -> None:
        for name, value in variables.items():
            if value in FILES:
                config.write_text(FILES[value])
            monkeypatch.setenv(name, str(config) if value in FILES else value)

    return set_all


@pytest.mark.parametrize(
    ("url", "environment", "options", "says"),
    [
        ("s3://bucket", {}, {}, "none were found"),
        ("s3://bucket", {"AWS_PROFILE": "typo"}, {}, "check AWS_PROFILE"),
        ("s3://bucket", {"AWS_CONFIG_FILE": "{broken}"}, {}, "check AWS_CONFIG_FILE"),
        ("s3://bucket", {"AWS_ACCESS_KEY_ID": CANARY}, {}, "the other half is missing"),
        ("s3://bucket", {"AWS_CONFIG_FILE": "{sso}", "AWS_PROFILE": "sso"}, {}, "run aws sso login"),
        ("s3://bucket", {}, {"region": "eu west"}, "set region"),
        ("s3://bucket", {"AWS_CONFIG_FILE": "{plain}"}, {}, "plain http"),
        (
            "gs://bucket",
            {"GOOGLE_APPLICATION_CREDENTIALS": "/nowhere"},
            {},
            "check GOOGLE_APPLICATION_CREDENTIALS",
        ),
    ],
    ids=["none", "profile", "file", "half a key", "sign-in", "region", "endpoint", "Google's file"],
)
async def test_what_is_wrong_on_this_machine_is_told_at_once(
    url: str, environment: dict[str, str], options: dict[str, object], says: str, bare_machine: SetVariables
) -> None:
    """Nobody waits for a store that can never be asked: the first call says what to put right."""
    bare_machine(environment)
    if "region" in options or says == "plain http":
        options = options | {"access_key_id": "a", "secret_access_key": CANARY}

    async with asynclock.connect(url, renewal="loop", **options) as client:
        with pytest.raises((AccessDeniedError, UnsupportedBackendError, ConfigError), match=says) as caught:
            await client.lock("a").acquire(timeout=10)

    assert getattr(caught.value, "written", "no") == "no"
    assert CANARY not in f"{caught.value} {caught.value!r}"


@pytest.mark.parametrize("content", [f"{{'token': '{CANARY}'}}", f'["{CANARY}"]', ""])
def test_a_file_of_google_that_is_no_json_is_refused(
    content: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The SDK would pass it over, and wait for a metadata server that is not there."""
    path = tmp_path / "account.json"
    path.write_text(content)
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(path))

    with pytest.raises(ConfigError, match="not a JSON file of credentials") as caught:
        asynclock.connect("gs://bucket")
    assert CANARY not in f"{caught.value} {caught.value!r}"


@pytest.mark.parametrize(
    ("store", "url", "says"),
    [("s3", "s3://buck..et", "a bucket has 3 to 63"), ("azure", "az://No", "a container has 3 to 63")],
    indirect=["store"],
)
def test_a_name_that_no_bucket_has_is_told(store: Server, url: str, says: str) -> None:
    """A name that the provider's rules forbid is refused before the store is asked."""
    with pytest.raises(ConfigError, match=says):
        open_backend(url, **store.options)


async def test_a_bucket_that_does_not_exist_is_named(cloud: Server) -> None:
    """The first write reports a missing bucket, and does not take it for a lost answer."""
    backend = open_backend(f"{cloud.url}-of-nobody/x", **cloud.options)

    with pytest.raises(UnsupportedBackendError, match="does not exist") as caught:
        await backend.put_if_absent("a.json", b"body")
    await backend.aclose()

    assert caught.value.written == "no"


@pytest.mark.parametrize("writes", [True, False], ids=["writes", "reads"])
async def test_a_permission_missing_for_one_verb_is_told(cloud: Server, *, writes: bool) -> None:
    """Where only reading or only writing is allowed, an acquisition says so at once and leaves nothing."""
    async with TapProxy(cloud.endpoint) as proxy:
        proxy.inject(Wire.ANSWER, writes=writes, times=1, status=403)
        async with asynclock.connect(
            f"{cloud.url}/denied", renewal="loop", **cloud.through(proxy.url)
        ) as client:
            with pytest.raises(AccessDeniedError, match="needs") as caught:
                await client.lock("a").acquire(timeout=60)

            assert caught.value.written == "no"
            assert isinstance(await client.backend.get("a.json"), Absent)


@pytest.mark.parametrize(
    ("store", "status", "body", "headers", "says"),
    [
        (
            "gcs",
            403,
            b'{"error":{"errors":[{"reason":"retentionPolicyNotMet"}]}}',
            {},
            "the bucket retains objects",
        ),
        ("gcs", 403, b'{"error":{"errors":[{"reason":"objectUnderActiveHold"}]}}', {}, "under a hold"),
        ("azure", 409, b"", {"x-ms-error-code": "BlobImmutableDueToPolicy"}, "the container retains blobs"),
    ],
    ids=["gcs retention", "gcs hold", "azure immutability"],
    indirect=["store"],
)
async def test_an_object_under_retention_is_told(
    store: Server, status: int, body: bytes, headers: dict[str, str], says: str
) -> None:
    """Where a retained object may not be overwritten, an acquisition says so at once: it could not renew."""
    async with TapProxy(store.endpoint) as proxy:
        proxy.inject(Wire.ANSWER, writes=True, times=9, status=status, body=body, headers=headers)
        async with asynclock.connect(
            f"{store.url}/retained", renewal="loop", **store.through(proxy.url)
        ) as client:
            with pytest.raises(UnsupportedBackendError, match=says) as caught:
                await client.lock("a").acquire(timeout=60)

    assert caught.value.written == "no"
    assert [tap.applied for tap in proxy.journal if tap.write] == [False]


async def test_public_objects_are_kept_out_of_caches(fake_gcs: Server) -> None:
    """Each write to Cloud Storage says no-store: a publicly readable lock is never answered from a cache."""
    async with TapProxy(fake_gcs.endpoint) as proxy:
        backend = open_backend(f"{fake_gcs.url}/public", **fake_gcs.through(proxy.url))
        written = await backend.put_if_absent("a.json", b"1")
        await backend.put_if_match("a.json", b"2", written.version)
        await backend.aclose()

    sent = [tap.body.replace(b" ", b"") for tap in proxy.journal]
    assert [b'"cacheControl":"no-store"' in body for body in sent] == [True, True]


@pytest.mark.parametrize("store", ["s3", "azure"], indirect=True)
async def test_a_wrong_key_is_told(store: Server) -> None:
    """A secret key that the store does not know is named as the cause, and nothing is written."""
    async with asynclock.connect(
        f"{store.url}/wrong-key", renewal="loop", **_with_canary(store, store.endpoint)
    ) as client:
        with pytest.raises(AccessDeniedError, match=r"wrong|needs") as caught:
            await client.lock("a").acquire(timeout=60)

    assert caught.value.written == "no"
    assert "\n" not in str(caught.value)


async def test_a_versioned_bucket_holds_locks(minio: Server) -> None:
    """In a versioned bucket a lock is had, released and had again, after a delete marker too."""
    await _versioned(minio, "versioned")
    settings = LeaseSettings(validity=60.0, max_clock_skew=0.5)
    async with asynclock.connect(
        "s3://versioned/locks", settings=settings, renewal="loop", **minio.options
    ) as client:
        tokens = []
        for _ in range(3):
            async with client.lock("a").hold(timeout=60) as lease:
                await lease.confirm()
                tokens.append(lease.fencing_token)
        await client.backend.delete("a.json")
        assert isinstance(await client.backend.get("a.json"), Absent)
        await client.backend.put_if_absent("a.json", b"again")

    assert tokens == sorted(set(tokens))


async def _versioned(store: Server, bucket: str) -> None:
    def make() -> None:
        client = botocore.session.get_session().create_client(
            "s3",
            region_name="us-east-1",
            endpoint_url=store.endpoint,
            aws_access_key_id=store.options["access_key_id"],
            aws_secret_access_key=store.options["secret_access_key"],
        )
        client.create_bucket(Bucket=bucket)
        client.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
        client.close()

    await asyncio.to_thread(make)


def _with_canary(store: Server, endpoint: str) -> dict[str, object]:
    options = store.through(endpoint)
    if store.name == "gcs":
        return options | {"token": CANARY}
    if store.name == "azure":
        return options | {"credential": CANARY}
    return options | {"secret_access_key": CANARY, "session_token": CANARY}


SDK_LOGS = {"botocore.auth", "botocore.endpoint"}
"""At DEBUG they show each request that is signed, its session token included: they are the SDK's."""


def _shown(error: BaseException | None) -> Iterator[str]:
    """Yield all that a log, a report or a debugger shows of an error and of what it hides."""
    yield "".join(traceback.TracebackException.from_exception(error, capture_locals=True).format())
    while error is not None:
        yield f"{error} {error!r} {vars(error) if isinstance(error, asynclock.AsyncLockError) else ''}"
        error = error.__cause__ or error.__context__


async def _failure(backend: Backend, operation: str) -> BackendError | None:
    try:
        match operation:
            case "list":
                [entry async for entry in backend.list("")]
            case "get":
                await backend.get("a.json")
            case "put":
                await backend.put_if_match("a.json", b"body", "12345")
            case "delete":
                await backend.delete("a.json")
    except BackendError as error:
        return error
    return None


@pytest.mark.parametrize("fault", [None, Wire.CUT_AFTER, Wire.CUT_BODY, Wire.CUT_BEFORE, Wire.ANSWER])
async def test_a_secret_is_never_shown(
    cloud: Server, fault: Wire | None, caplog: pytest.LogCaptureFixture
) -> None:
    """Whatever fails, key and token are in no text, repr, traceback, local or log, and in no hidden error."""
    caplog.set_level(logging.DEBUG)
    async with TapProxy(cloud.endpoint) as proxy:
        if fault is not None:
            proxy.inject(fault, times=99, status=403)
        backend = open_backend(f"{cloud.url}/canary", **_with_canary(cloud, proxy.url))
        shown = [repr(backend), repr(vars(backend))]
        for operation in ("get", "put", "list", "delete"):
            if (error := await _failure(backend, operation)) is not None:
                shown += _shown(error)
                assert error.__context__ is None  # nothing of the SDK's error is kept, not even hidden
        await backend.aclose()

    assert len(shown) > 2
    assert CANARY not in " ".join(shown)
    logs = [record for record in caplog.records if record.name not in SDK_LOGS]
    assert [record.name for record in logs if CANARY in record.getMessage()] == []


async def test_a_signature_in_a_query_is_never_shown(
    azurite: Server, caplog: pytest.LogCaptureFixture
) -> None:
    """A shared access signature is part of each address, and in no text, repr, traceback or log."""
    caplog.set_level(logging.DEBUG)
    options = {"account_url": azurite.options["account_url"], "sas_token": f"sv=2024-01-01&sig={CANARY}"}
    backend = open_backend(f"{azurite.url}/canary", **options)
    shown = [repr(backend), repr(vars(backend))]
    for operation in ("get", "put", "list", "delete"):
        shown += _shown(await _failure(backend, operation))
    await backend.aclose()

    assert CANARY not in " ".join(shown) + caplog.text


async def test_a_secret_of_a_client_is_never_shown(cloud: Server, caplog: pytest.LogCaptureFixture) -> None:
    """Client, lock, lease and their warnings show none either, while a renewal fails."""
    caplog.set_level(logging.DEBUG, logger="asynclock")
    async with TapProxy(cloud.endpoint) as proxy:
        options = cloud.through(proxy.url)
        secrets = [str(value) for name, value in options.items() if name in SECRETS]
        async with asynclock.connect(f"{cloud.url}/canary", renewal="loop", **options) as client:
            lock = client.lock(f"a-{uuid.uuid4()}")
            lease = await lock.acquire(timeout=60)
            proxy.inject(Wire.ANSWER, writes=True, times=2, status=403)
            with pytest.raises(AccessDeniedError) as caught:
                await lease.confirm()
            shown = [repr(client), repr(lock), repr(lease), repr(await lock.status())]
            # Without locals: those of this test contain the secrets.
            shown += [*traceback.format_exception(caught.value), repr(caught.value)]

    assert not any(secret in " ".join(shown) + caplog.text for secret in secrets)
