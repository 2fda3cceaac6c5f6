"""No error, value, pickle or text shows a secret that was put into a URL, and such a URL is refused."""

from __future__ import annotations

import asyncio
import inspect
import pickle
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import asynclock
from asynclock import LeaseSettings, hudi, sync
from asynclock._core.probing import probe_backend
from asynclock.backends import open_backend
from asynclock.backends._azure import open_azure
from asynclock.backends._gcs import open_gcs
from asynclock.backends._local import open_local
from asynclock.backends._memory import open_memory
from asynclock.backends._s3 import open_s3
from asynclock.client import LockClient
from asynclock.errors import AsyncLockError, ConfigError
from asynclock.spark.spec.column import Column
from asynclock.spark.spec.lock_settings import LocksSpec
from asynclock.spark.spec.model import StreamSpec, TableSpec
from asynclock.sync import hudi as blocking
from tests.unit.test_errors import FIELDS, every_error

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

CANARY = "CaNaRy"

CREDENTIALS = {
    # what has a secret before an "@", or before where one belongs
    "key and secret": f"s3://KEY:{CANARY}@bucket/locks",
    "slash after the canary": f"s3://KEY:{CANARY}/RET@bucket/locks",
    "slash before the canary": f"s3://KEY:SEC/{CANARY}@bucket/locks",
    "a token": f"s3a://{CANARY}@bucket/locks",
    "a token with a slash that begins like a bucket": f"s3://token/{CANARY}@bucket/locks",
    "a question mark in the secret": f"gs://KEY:SE?{CANARY}@bucket/locks",
    "a hash in the secret": f"gs://KEY:{CANARY}#T@bucket/locks",
    "a percent-encoded at": f"s3://KEY:{CANARY}%40bucket/locks",
    "a forgotten at": f"s3://KEY:{CANARY}/bucket/locks",
    "a blank in the secret": f"s3://KEY:SEC {CANARY}@bucket/locks",
    "a line end in the secret": f"s3://KEY:SEC\n{CANARY}@bucket/locks",
    "two ats": f"s3://KEY:SEC@{CANARY}@bucket/locks",
    "a bracket behind it": f"s3://KEY:{CANARY}@[bucket/locks",
    "what normalizes to a slash": f"s3://KEY:{CANARY}\u2100@bucket/locks",
    "a user at an Azure account": f"abfss://box:{CANARY}@account.dfs.core.windows.net/locks",
    "a token at an unknown Azure host": f"abfss://{CANARY}@x.blob.attacker.example/locks",
    "an Azure secret with a slash": f"wasbs://box:SEC/{CANARY}@account.blob.core.windows.net/locks",
    "an unknown scheme": f"ftp://KEY:{CANARY}@host/locks",
    "one slash": f"s3:/KEY:{CANARY}@bucket/locks",
}
TAILS = {
    "a signature": f"az://box/locks?sv=2024-11-04&sig={CANARY}",
    "a signature at an account": f"abfss://box@account.dfs.core.windows.net/locks?sig={CANARY}",
    "a fragment": f"s3://bucket/locks#{CANARY}",
    "an at in the query": f"az://box/locks?sig=x@{CANARY}",
}
ODD = {
    "no scheme": f"KEY:{CANARY}@bucket/locks",
    "no scheme, a query": f"box/locks?sig={CANARY}",
    "a disk's query": f"file:///data/locks?sig={CANARY}",
    "a host's password": f"file://KEY:{CANARY}@host/data",
    "a secret as a folder": f"file://KEY:SEC/{CANARY}@host/data",
    "memory": f"memory://KEY:{CANARY}@x",
}
URLS = CREDENTIALS | TAILS | ODD


def every_face(error: BaseException) -> Iterator[str]:
    """Yield all that an error shows: itself, its fields, its pickle, and what it was raised from."""
    yield from (str(error), repr(error), repr(vars(error)), repr(error.args))
    yield from traceback.format_exception(error)
    if isinstance(error, AsyncLockError):
        yield repr(pickle.dumps(error))
    for behind in (error.__cause__, error.__context__):
        if behind is not None:
            yield from every_face(behind)


def stream(**fields: str) -> StreamSpec:
    """Return a stream with some fields of its own."""
    columns = (Column(name="at", type="timestamp"),)
    plain: dict[str, Any] = {"source": "data/*.csv", "checkpoint": "checkpoint"}
    return StreamSpec(name="a", format="csv", ordering="at", columns=columns, **plain | fields)


def _awaited(start: Callable[[str], Any]) -> Callable[[str], object]:
    return lambda url: asyncio.run(start(url))


def memory() -> Any:  # noqa: ANN401  a backend
    """Return a backend that is open already."""
    return open_backend("memory://")


STORES: dict[str, Callable[[str], object]] = {
    "connect": asynclock.connect,
    "sync.connect": sync.connect,
    "open_backend": open_backend,
    "open_s3": open_s3,
    "open_gcs": open_gcs,
    "open_azure": open_azure,
    "open_local": open_local,
    "open_memory": open_memory,
    "probe": _awaited(asynclock.probe),
    "probe_backend": _awaited(lambda url: probe_backend(memory(), url=url)),
    "LockClient": lambda url: LockClient(url=url, backend=memory()),
    "LocksSpec": lambda url: LocksSpec(url=url, settings=LeaseSettings()),
}
TABLES: dict[str, Callable[[str], object]] = {
    "hudi.table_lock": hudi.table_lock,
    "hudi.write_options": hudi.write_options,
    "hudi.audit_enable": _awaited(hudi.audit_enable),
    "hudi.audit_disable": _awaited(hudi.audit_disable),
    "hudi.audit_status": _awaited(hudi.audit_status),
    "hudi.audit_history": _awaited(hudi.audit_history),
    "hudi.audit_validate": _awaited(hudi.audit_validate),
    "hudi.audit_cleanup": _awaited(hudi.audit_cleanup),
    "sync.hudi.table_lock": blocking.table_lock,
    "sync.hudi.audit_status": blocking.audit_status,
    "the options of another table": lambda url: hudi.table_lock(
        "s3://bucket/orders", {"hoodie.base.path": url}
    ),
}
HADOOP: dict[str, Callable[[str], object]] = {
    "TableSpec": lambda url: TableSpec(path=url, key=("id",)),
    "a stream's source": lambda url: stream(source=url),
    "a stream's checkpoint": lambda url: stream(checkpoint=url),
}
OTHERS: dict[str, Callable[[str], object]] = {
    "a lock's name": lambda url: asynclock.connect("memory://").lock(url),
    "a setting": lambda url: LeaseSettings(validity=url),  # type: ignore[arg-type]
    "renewal": lambda url: asynclock.connect("memory://", renewal=url),  # type: ignore[arg-type]
    "settings": lambda url: asynclock.connect("memory://", settings={"url": [url]}),  # type: ignore[arg-type]
    "an S3 endpoint": lambda url: asynclock.connect("s3://bucket", endpoint_url=url),
    "an S3 encryption": lambda url: asynclock.connect("s3://bucket", sse=url),
    "an S3 file of certificates": lambda url: asynclock.connect("s3://bucket", ca_file=url),
    "a Cloud Storage endpoint": lambda url: asynclock.connect("gs://bucket", endpoint_url=url),
    "an Azure account": lambda url: asynclock.connect("az://box", account_url=url),
    "an Azure connection string": lambda url: asynclock.connect("az://box", connection_string=url),
    "a Path as a URL": lambda url: asynclock.connect(Path(url)),  # type: ignore[arg-type]
    "bytes as a URL": lambda url: asynclock.connect(url.encode()),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("maker", [*STORES, *TABLES])
@pytest.mark.parametrize("url", URLS)
def test_a_url_with_a_secret_is_refused_and_not_shown(maker: str, url: str) -> None:
    """Every constructor of a store or table raises a ConfigError that shows nothing of the secret."""
    with pytest.raises(ConfigError) as caught:
        (STORES | TABLES)[maker](URLS[url])

    assert CANARY not in "".join(every_face(caught.value))


@pytest.mark.parametrize("maker", HADOOP)
@pytest.mark.parametrize("url", sorted(CREDENTIALS.keys() - {"one slash", "a percent-encoded at"}))
def test_a_url_with_credentials_for_spark_is_refused_and_not_shown(maker: str, url: str) -> None:
    """What Spark opens takes no credentials from its URL either."""
    with pytest.raises(ConfigError) as caught:
        HADOOP[maker](CREDENTIALS[url])

    assert CANARY not in "".join(every_face(caught.value))


@pytest.mark.parametrize("maker", OTHERS)
@pytest.mark.parametrize("url", sorted(URLS.keys() - ODD.keys() - {"one slash"}))
def test_a_url_in_the_wrong_place_is_not_shown(maker: str, url: str) -> None:
    """A URL that was given as a name, a setting or an option shows no secret either."""
    with pytest.raises(ConfigError) as caught:
        OTHERS[maker](URLS[url])

    assert CANARY not in "".join(every_face(caught.value))


@pytest.mark.parametrize("name", [name for name, fields in FIELDS.items() if fields])
@pytest.mark.parametrize("url", CREDENTIALS | TAILS)
def test_no_error_class_shows_a_secret_of_a_url(name: str, url: str) -> None:
    """Whatever text it is raised with, the secret is not in its text, its fields or its pickle."""
    secret = (CREDENTIALS | TAILS)[url]
    if any(blank in secret for blank in " \n"):
        secret = secret.replace(" ", "").replace("\n", "")  # in running text a URL ends at a blank
    kind = every_error()[name]
    fields = {
        field: secret if isinstance(value, str) and field != "written" else value
        for field, value in FIELDS[name].items()
    }

    assert CANARY not in "".join(every_face(kind(**fields)))
    if name in {"ConfigError", "SpecError"}:
        assert CANARY not in "".join(every_face(kind(**fields | {"value": {"deep": [(secret,)]}})))


@pytest.mark.parametrize(
    "setting",
    ["secret_access_key", "hoodie.aws.secret.key", "locks.sas_token", "connection_string", "credential"],
)
def test_the_value_of_a_secret_setting_is_not_shown(setting: str) -> None:
    """A secret with something wrong about it is not repeated, whatever it looks like."""
    error = ConfigError(setting=setting, value=CANARY, reason="unknown name")

    assert CANARY not in "".join(every_face(error))


def test_a_secret_within_a_table_is_not_shown() -> None:
    """A whole table that is wrong shows its keys and hides its secrets."""
    error = ConfigError(setting="locks", value={"region": "eu", "token": CANARY}, reason="unknown name")

    assert CANARY not in "".join(every_face(error))
    assert error.value == {"region": "eu", "token": "..."}


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("s3://bucket/a/../b", "s3://bucket/a/../b"),
        (f"s3://{CANARY}@bucket/locks", "s3://...@bucket/locks"),
        (f"s3://KEY:SEC/{CANARY}@bucket/locks", "s3://...@bucket/locks"),
        (f"memory://x/locks?sig={CANARY}", "memory://x/locks?..."),
        (f"memory://x/locks#{CANARY}", "memory://x/locks#..."),
    ],
)
def test_what_is_no_secret_stays_visible(url: str, shown: str) -> None:
    """The error still shows which URL is meant."""
    with pytest.raises(ConfigError) as caught:
        asynclock.connect(url)

    assert caught.value.value == shown


@pytest.mark.parametrize("url", ["file:///home/me@corp.example/locks", "memory://x/locks"])
def test_a_url_without_credentials_is_taken(url: str) -> None:
    """A folder may have an "@" in its name: a disk knows no credentials."""
    assert asynclock.connect(url).url == url


@pytest.mark.parametrize("name", [name for name, fields in FIELDS.items() if fields])
def test_no_error_class_shows_what_a_terminal_obeys(name: str) -> None:
    """Control characters and marks of direction of a store's text are escaped in every error."""
    kind = every_error()[name]
    fields = {
        field: "\x1b[2J\r\u202e" if isinstance(value, str) and field != "written" else value
        for field, value in FIELDS[name].items()
    }

    assert str(kind(**fields)).isprintable()


def test_every_public_constructor_is_in_the_canary() -> None:
    """A new way to name a store needs its place above."""
    takes_a_place = {
        f"{prefix}{name}"
        for prefix, module in (("", asynclock), ("sync.", sync), ("hudi.", hudi), ("sync.hudi.", blocking))
        for name in dir(module)
        if not name.startswith("_")
        and inspect.isfunction(made := getattr(module, name))
        and {"url", "base_path"} & set(inspect.signature(made).parameters)
    }

    same = {name for name in takes_a_place if name.startswith("sync.")}
    assert takes_a_place - same <= {*STORES, *TABLES}
    assert {name.removeprefix("sync.") for name in same} <= {*STORES, *TABLES}
