"""Where a spec runs: [spark], the store of the locks, and secrets, which stand in the environment only."""

from __future__ import annotations

import dataclasses
import pickle
from typing import TYPE_CHECKING

import pytest

from asynclock.errors import SpecError
from asynclock.spark.spec.environment import FromEnvironment
from asynclock.spark.spec.load import load_spec
from tests.unit.specs import SPEC

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

CANARY = "CaNaRy"
S3_LOCKS = """url = "s3a://bucket/locks"
endpoint_url = "http://127.0.0.1:9000"
region = "us-east-1"
path_style = true
allow_http = true
access_key_id = "someone"
secret_access_key = { env = "STORE_SECRET" }"""
SPARK = """
[spark]
master = "spark://127.0.0.1:7077"
packages = ["org.apache.hadoop:hadoop-aws:3.3.4"]

[spark.conf]
spark.executor.memory = "1g"
spark.executor.cores = 2
"spark.hadoop.fs.s3a.path.style.access" = true
"spark.hadoop.fs.s3a.access.key" = "someone"
"spark.hadoop.fs.s3a.secret.key" = { env = "STORE_SECRET" }
"""


def with_conf(line: str) -> str:
    """The spec with one setting of Spark."""
    return f"{SPEC}\n[spark.conf]\n{line}\n"


def with_lock_option(line: str) -> str:
    """The spec with its locks on S3 and one more option."""
    return SPEC.replace('url = "locks"', f"{S3_LOCKS}\n{line}")


@pytest.fixture(autouse=True)
def _secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STORE_SECRET", CANARY)


def test_spark_is_described_by_master_settings_and_packages(write_spec: Callable[[str], Path]) -> None:
    """Settings may be quoted or not; numbers and switches become Spark's text."""
    spark = load_spec(write_spec(SPEC + SPARK)).spark

    assert spark.master == "spark://127.0.0.1:7077"
    assert spark.plain() == {
        "spark.executor.memory": "1g",
        "spark.executor.cores": "2",
        "spark.hadoop.fs.s3a.path.style.access": "true",
        "spark.hadoop.fs.s3a.access.key": "someone",
        "spark.jars.packages": "org.apache.hadoop:hadoop-aws:3.3.4",
    }
    assert spark.secret() == {"spark.hadoop.fs.s3a.secret.key": CANARY}


def test_without_spark_in_the_spec_nothing_is_set(write_spec: Callable[[str], Path]) -> None:
    """The master is then left to the session."""
    spark = load_spec(write_spec(SPEC)).spark

    assert (spark.master, spark.plain(), spark.secret()) == (None, {}, {})


def test_packages_join_those_of_the_settings(write_spec: Callable[[str], Path]) -> None:
    """A list of packages in the settings is kept."""
    text = SPEC + SPARK + '"spark.jars.packages" = "org.example:one:1"\n'

    packages = load_spec(write_spec(text)).spark.plain()["spark.jars.packages"]

    assert packages == "org.example:one:1,org.apache.hadoop:hadoop-aws:3.3.4"


def test_locks_take_the_options_of_their_store(write_spec: Callable[[str], Path]) -> None:
    """Endpoint, region and credentials reach the store; the times of the leases are not among them."""
    locks = load_spec(write_spec(with_lock_option(""))).locks

    assert locks.settings.validity == 20.0
    assert locks.options == {
        "endpoint_url": "http://127.0.0.1:9000",
        "region": "us-east-1",
        "path_style": True,
        "allow_http": True,
        "access_key_id": "someone",
        "secret_access_key": FromEnvironment("STORE_SECRET"),
    }
    with locks.connect() as client:
        assert client.url == "s3a://bucket/locks"


def test_a_customers_key_stands_in_the_environment_in_base64(
    write_spec: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The only option of bytes; one that is not base64 is refused and not shown."""
    path = write_spec(with_lock_option('sse_customer_key = { env = "CUSTOMER_KEY" }'))
    monkeypatch.setenv("CUSTOMER_KEY", "A" * 43 + "=")
    load_spec(path)

    monkeypatch.setenv("CUSTOMER_KEY", f"{CANARY}?")
    with pytest.raises(SpecError, match="base64") as caught:
        load_spec(path)

    assert CANARY not in str(caught.value)


def test_a_spec_never_shows_what_stands_in_the_environment(write_spec: Callable[[str], Path]) -> None:
    """Neither its repr, nor its fields, nor a pickle of it has the secret."""
    spec = load_spec(write_spec(with_lock_option("") + SPARK))

    assert CANARY not in repr(spec)
    assert CANARY not in str(dataclasses.asdict(spec))
    assert CANARY.encode() not in pickle.dumps(spec)


@pytest.mark.parametrize(
    ("line", "key"),
    [
        (f'"spark.hadoop.fs.s3a.secret.key" = "{CANARY}"', "spark.hadoop.fs.s3a.secret.key"),
        (f'spark.hadoop.fs.s3a.secret.key = "{CANARY}"', "spark.hadoop.fs.s3a.secret.key"),
        (f'"spark.hadoop.fs.s3a.session.token" = "{CANARY}"', "spark.hadoop.fs.s3a.session.token"),
        (
            f'"spark.hadoop.fs.s3a.bucket.b.secret.key" = "{CANARY}"',
            "spark.hadoop.fs.s3a.bucket.b.secret.key",
        ),
        (
            f'"spark.hadoop.fs.azure.account.key.a.dfs.core.windows.net" = "{CANARY}"',
            "spark.hadoop.fs.azure.account.key.a.dfs.core.windows.net",
        ),
        (
            f'"spark.hadoop.fs.azure.account.oauth2.client.secret" = "{CANARY}"',
            "spark.hadoop.fs.azure.account.oauth2.client.secret",
        ),
        (
            f'"spark.hadoop.fs.azure.sas.fixed.token.a" = "{CANARY}"',
            "spark.hadoop.fs.azure.sas.fixed.token.a",
        ),
        (
            f'"spark.hadoop.fs.gs.auth.service.account.private.key" = "{CANARY}"',
            "spark.hadoop.fs.gs.auth.service.account.private.key",
        ),
        (f'"spark.ssl.keyPassword" = "{CANARY}"', "spark.ssl.keyPassword"),
        (
            f'"spark.driver.extraJavaOptions" = "-Xmx1g -Daws.secretKey={CANARY}"',
            "spark.driver.extraJavaOptions",
        ),
        *(
            (f'"{name}" = "{CANARY}"', name)
            for name in (
                "spark.hadoop.fs.azure.account.key.myprovider.dfs.core.windows.net",
                "spark.hadoop.fs.azure.account.key.myfiles",
                "spark.hadoop.FS.AZURE.ACCOUNT.KEY.a",
                "spark.hadoop.fs.azure.accountkey.a",
                "spark.hadoop.fs.azure.sas.fixed.token.myprovider",
                "spark.hadoop.fs.azure.sas.files.a.blob.core.windows.net",
                "spark.executorEnv.OPENAI_API_KEY",
                "spark.executorEnv.STORAGEKEY",
                "spark.yarn.appMasterEnv.AZURE_STORAGE_KEY",
                "spark.kubernetes.driverEnv.DB_PASS",
                "spark.executorEnv.PGPWD_PWD",
                "spark.hadoop.my.service.api.key",
                "spark.some.apikey",
                "spark.some.masterKey",
                "spark.hadoop.schema.registry.basic.auth.user.info",
                "spark.executorEnv.STORAGE_KEY_1",
                "spark.executorEnv.KEY2",
                "spark.executorEnv.GITHUB_PAT",
                "spark.executorEnv.SERVICE_JWT",
                "spark.hadoop.ssl.keystore.key.pem",
                "spark.some.dbkey",
                "spark.executorEnv.KEYFILE_CONTENT",
                "spark.hadoop.fs.gs.keyfile.json",
            )
        ),
        *(
            (f"'{name}' = '{value}'", name)
            for name, value in {
                "spark.executor.extraJavaOptions": f"-Djavax.net.ssl.keyStorePassword={CANARY} -Xss4m",
                "spark.driver.defaultJavaOptions": f"-Dmy.api.key={CANARY}",
                "spark.driver.extraJavaOptions": f"-Ddb.pwd={CANARY}",
                "spark.some.json": f'{{"private_key": "{CANARY}"}}',
                "spark.some.pem": f"-----BEGIN ENCRYPTED PRIVATE KEY-----{CANARY}",
                "spark.some.jdbc": f"jdbc:x://db/y?user=u&password={CANARY}",
                "spark.some.options": f"-Dproxy=http://u:{CANARY}@proxy:3128",
                "spark.some.queue": f"Endpoint=sb://q/;SharedAccessKeyName=a;SharedAccessKey={CANARY}",
                "spark.some.header": f"Authorization: Basic {CANARY}",
                "spark.some.bearer": f"Bearer {CANARY}.0123456789.abcdef",
                "spark.some.arguments": f"--user a --db-password {CANARY} --verbose",
                "spark.some.yaml": f"password: {CANARY}",
                "spark.some.store": f"DefaultEndpointsProtocol=https;AccountName=a;AccountKey={CANARY}",
            }.items()
        ),
        (
            f'"spark.hadoop.fs.s3a.proxy.host" = "http://user:{CANARY}@proxy"',
            "spark.hadoop.fs.s3a.proxy.host",
        ),
    ],
)
def test_a_secret_setting_of_spark_in_the_spec_is_refused(
    write_spec: Callable[[str], Path], line: str, key: str
) -> None:
    """One sentence names file, line and setting, and does not show the secret."""
    path = write_spec(with_conf(line))

    with pytest.raises(SpecError) as caught:
        load_spec(path)

    error = caught.value
    assert error.key == f"spark.conf.{key}"
    assert error.line == 1 + path.read_text().split("\n").index(line)
    assert CANARY not in f"{error}{error!r}{error.value}{error.reason}"
    assert "secret" in error.reason or "password" in error.reason


@pytest.mark.parametrize(
    "line",
    [
        f'secret_access_key = "{CANARY}"',
        f'session_token = "{CANARY}"',
        f"secret_access_key = {{ file = '{CANARY}' }}",
        "session_token = 5",
    ],
)
def test_a_secret_option_of_the_locks_in_the_spec_is_refused(
    write_spec: Callable[[str], Path], line: str
) -> None:
    """A literal is refused, whatever its type, and not shown."""
    text = with_lock_option(line)
    if line.startswith("secret_access_key"):
        text = text.replace('secret_access_key = { env = "STORE_SECRET" }\n', "")

    with pytest.raises(SpecError, match=r'write \{ env = "NAME" \}') as caught:
        load_spec(write_spec(text))

    assert caught.value.key == f"locks.{line.partition(' ')[0]}"
    assert CANARY not in str(caught.value)


@pytest.mark.parametrize(
    "line",
    [
        '"spark.hadoop.fs.s3a.aws.credentials.provider" = "com.amazonaws.auth.SomeProvider"',
        '"spark.hadoop.fs.azure.sas.token.provider.type.a" = "org.example.Provider"',
        '"spark.hadoop.hadoop.security.credential.provider.path" = "jceks://file/a.jceks"',
        '"spark.kubernetes.authenticate.driver.oauthTokenFile" = "/run/token"',
        '"spark.security.credentials.hive.enabled" = false',
        '"spark.redaction.regex" = "(?i)secret|token"',
        '"spark.driver.extraJavaOptions" = "-Dfile.encoding=UTF-8"',
        '"spark.driver.extraJavaOptions" = "-Djavax.net.ssl.trustStore=/etc/trust.jks -Dx.storeKey=true"',
        '"spark.executorEnv.AWS_ACCESS_KEY_ID" = "someone"',
        '"spark.executorEnv.SSH_PRIVATE_KEY_FILE" = "/run/key"',
        '"spark.hadoop.fs.azure.account.keyprovider.a.dfs.core.windows.net" = "org.example.KeyProvider"',
        '"spark.kubernetes.driver.secretKeyRef.DB" = "database:login"',
        '"spark.kubernetes.executor.secrets.database" = "/etc/secrets"',
        '"spark.app.name" = "monkey"',
        '"spark.executorEnv.TOKENIZERS_PARALLELISM" = "false"',
        '"spark.executorEnv.LD_LIBRARY_PATH" = "/opt/lib"',
        '"spark.executorEnv.QUEUE" = "Endpoint=sb://q/;SharedAccessKeyName=a"',
        '"spark.driver.extraJavaOptions" = "--add-opens java.base/java.lang=ALL-UNNAMED -cp /a:/b"',
        '"spark.app.description" = "bearer of news"',
        '"spark.ssl.keyStore" = "/etc/keys.jks"',
        '"spark.some.rowkey" = "id"',
        '"spark.some.keyvalue.separator" = "="',
    ],
)
def test_a_setting_about_secrets_that_holds_none_is_taken(
    write_spec: Callable[[str], Path], line: str
) -> None:
    """A class, a file, a switch is not a secret."""
    assert len(load_spec(write_spec(with_conf(line))).spark.plain()) == 1


@pytest.mark.parametrize(
    ("text", "key", "says"),
    [
        (with_conf('"spark.x" = { env = "NOT_SET" }'), "spark.conf.spark.x", "NOT_SET"),
        (with_conf(f'"spark.x" = {{ env = "a {CANARY}" }}'), "spark.conf.spark.x", "letters, digits and _"),
        (with_conf('"spark.x" = ["a"]'), "spark.conf.spark.x", "a string or a number"),
        (with_conf('"spark.master" = "local"'), "spark.conf.spark.master", "a key of its own"),
        (with_conf('"fs.s3a.endpoint" = "x"'), "spark.conf.fs.s3a.endpoint", "spark.hadoop.fs.s3a.endpoint"),
        (with_conf('"executor.cores" = 1'), "spark.conf.executor.cores", "spark.executor.cores"),
        (f'{SPEC}[spark]\nmaster = "http://host"\n', "spark.master", "spark://host:7077"),
        (f'{SPEC}[spark]\nmaster = "spark://u:{CANARY}@host:1"\n', "spark.master", "user or password"),
        (f'{SPEC}[spark]\npackages = ["hadoop-aws"]\n', "spark.packages", "group:artifact:version"),
        (f'{SPEC}[spark]\nmastr = "{CANARY}"\n', "spark.mastr", "did you mean 'master'"),
        (f'{SPEC}[spark]\n"fs.s3a.secret.key" = "{CANARY}"\n', "spark.fs.s3a.secret.key", "known here"),
        (with_lock_option('regoin = "x"'), "locks.regoin", "no such option here; there are: access_key_id"),
        (with_lock_option("validty = 3.0"), "locks.validty", "did you mean 'validity'"),
        (with_lock_option('events = "x"'), "locks.events", "no such option of a store"),
        (with_lock_option("requester_pays = 1"), "locks.requester_pays", "must be of type bool"),
        (with_lock_option('session_token = { env = "NOT_SET" }'), "locks.session_token", "NOT_SET"),
    ],
)
def test_each_mistake_about_places_is_named(
    write_spec: Callable[[str], Path], tmp_path: Path, text: str, key: str, says: str
) -> None:
    """The key and the remedy are named, values that may be secrets are not, and nothing is created."""
    path = write_spec(text)
    before = set(tmp_path.rglob("*"))

    with pytest.raises(SpecError) as caught:
        load_spec(path)

    assert caught.value.key == key
    assert caught.value.line > 0
    assert says in caught.value.reason
    assert CANARY not in str(caught.value)
    assert set(tmp_path.rglob("*")) == before


def test_a_secret_that_has_left_the_environment_is_named(
    write_spec: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The value is read at each use, and its variable is named if it is gone."""
    spec = load_spec(write_spec(with_lock_option("") + SPARK))
    monkeypatch.delenv("STORE_SECRET")

    with pytest.raises(ValueError, match="STORE_SECRET"):
        spec.locks.connect()
    with pytest.raises(ValueError, match="STORE_SECRET"):
        spec.spark.secret()
