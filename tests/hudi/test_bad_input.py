"""Base paths, options and tables that cannot be locked, and what the user reads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from asynclock import LeaseSettings, hudi
from asynclock.errors import ConfigError, UnsupportedBackendError
from asynclock.hudi._core.lock_options import LockOptions
from asynclock.hudi._core.paths import TablePath
from asynclock.sync import hudi as blocking

if TYPE_CHECKING:
    from tests.hudi.conftest import Table

BASE: Final = "s3://bucket/orders"
ABFS: Final = "abfss://box@account.dfs.core.windows.net/orders"
PREFIX: Final = "hoodie.write.lock.storage"

BASE_PATHS: Final = {
    # base path: what the error says
    "": "is required",
    "file:///data/orders": "asynclock.connect('file:///...')",
    "file:/data/orders": "local disk",
    "/data/orders": "local disk",
    "warehouse/orders": "relative",
    "./orders": "relative",
    "hdfs://name/orders": "only supports s3://",
    "az://box/orders": "only supports s3://",
    "s3:///orders": "names no bucket",
    "abfss://box/orders": "container and account",
    "wasb://account.blob.core.windows.net/orders": "container and account",
    "abfs://@account.dfs.core.windows.net/orders": "container and account",
    "s3://bucket/a/../b": "'..'",
    "s3://bucket/a%20b": "the wrong object",
    "s3://bucket/a b": "the wrong object",
    "s3://bucket/a?x=1": "the wrong object",
    "s3://key:secret@bucket/orders": "user or password",
}


@pytest.mark.parametrize("base", BASE_PATHS)
def test_a_base_path_that_cannot_be_locked_is_refused_with_the_way_out(base: str) -> None:
    """The error names the base path and what to write instead."""
    for call in (hudi.table_lock, blocking.table_lock, hudi.write_options):
        with pytest.raises(ConfigError) as caught:
            call(base)
        assert BASE_PATHS[base] in caught.value.reason
        assert caught.value.setting == "hoodie.base.path"


OPTIONS: Final = {
    # options: the setting that the error names
    "validity below ten seconds": (
        {f"{PREFIX}.validity.timeout.secs": "9", f"{PREFIX}.renew.interval.secs": "1"},
        "validity",
    ),
    "validity below ten intervals": ({f"{PREFIX}.validity.timeout.secs": "60"}, "validity"),
    "old name of the interval": ({f"{PREFIX}.heartbeat.poll.secs": "31"}, "validity"),
    "interval below a second": ({f"{PREFIX}.renew.interval.secs": "0"}, "renew.interval"),
    "no number": ({f"{PREFIX}.validity.timeout.secs": "5min"}, "validity"),
    "a fraction": ({f"{PREFIX}.renew.interval.secs": "1.5"}, "renew.interval"),
    "a misspelt name": ({f"{PREFIX}.validity.secs": "60"}, "storage.validity.secs"),
    "a wait below zero": ({"hoodie.write.lock.wait_time_ms": "-1"}, "wait_time_ms"),
    "another provider": (
        {"hoodie.write.lock.provider": "org.apache.hudi.client.transaction.lock.ZookeeperBasedLockProvider"},
        "provider",
    ),
    "another table": ({"hoodie.base.path": "s3://bucket/other"}, "hoodie.base.path"),
    "a skew that is not a number": ({"asynclock.max_clock_skew": "none"}, "max_clock_skew"),
}


@pytest.mark.parametrize("case", OPTIONS)
def test_an_option_against_hudis_rules_is_refused(case: str) -> None:
    """The error names the option."""
    options, setting = OPTIONS[case]

    with pytest.raises(ConfigError) as caught:
        hudi.table_lock(BASE, options)

    assert setting in caught.value.setting


def test_an_unknown_option_of_the_backend_is_refused() -> None:
    """What Hudi has no name for goes to the backend, which knows its own."""
    with pytest.raises(ConfigError, match="no such option"):
        LockOptions.read(TablePath.parse(BASE), {"asynclock.endpoint": "x"}) and hudi.table_lock(
            BASE, {"asynclock.endpoint": "x"}
        )._open()


def test_options_by_the_old_and_new_name_mean_the_same() -> None:
    """The interval is read under both names; the new one wins, as with Hudi."""
    table = TablePath.parse(BASE)
    old = LockOptions.read(table, {f"{PREFIX}.heartbeat.poll.secs": "5"})
    both = LockOptions.read(
        table, {f"{PREFIX}.heartbeat.poll.secs": "5", f"{PREFIX}.renew.interval.secs": "7"}
    )

    assert old.settings.renew_interval == 5
    assert both.settings.renew_interval == 7


def test_without_options_hudis_defaults_hold() -> None:
    """300 s, every 30 s, a minute's wait."""
    options = LockOptions.read(TablePath.parse(BASE), None)

    assert (options.settings.validity, options.settings.renew_interval, options.wait) == (300, 30, 60)


def test_credentials_reach_the_backend_by_hudis_names() -> None:
    """Those of the table's own cloud, and what Hudi has no name for."""
    aws = {"hoodie.aws.access.key": "a", "hoodie.aws.secret.key": "b", "hoodie.aws.session.token": "c"}
    azure = {"hoodie.write.lock.azure.connection.string": "x", "hoodie.write.lock.azure.sas.token": "y"}
    extra = {"asynclock.allow_http": "true", "asynclock.min_write_interval": "2"}

    assert LockOptions.read(TablePath.parse(BASE), aws | azure | extra).backend == {
        "access_key_id": "a",
        "secret_access_key": "b",
        "session_token": "c",
        "allow_http": True,
        "min_write_interval": 2.0,
    }
    assert LockOptions.read(TablePath.parse(ABFS), aws | azure).backend == {"connection_string": "x"}


def test_azure_identities_are_taken_as_credentials_only() -> None:
    """Hudi's own names for an identity are refused with the way to give it."""
    with pytest.raises(ConfigError, match=r"asynclock\.credential"):
        hudi.table_lock(ABFS, {"hoodie.write.lock.azure.managed.identity.client.id": "x"})


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("s3://bucket/orders", "s3a://bucket//orders/"),
        ("gs://bucket/orders", "gs://bucket/orders///"),
        (ABFS, "wasb://box@account.blob.core.windows.net/orders/"),
    ],
)
def test_spellings_of_one_table_are_one_table(one: str, other: str) -> None:
    """Scheme, endpoint and slashes make no other table."""
    assert TablePath.parse(one).identity == TablePath.parse(other).identity


def test_write_options_are_those_of_a_write_that_takes_this_lock() -> None:
    """One line gives provider, concurrency mode and failed-write policy; times only when asked."""
    assert hudi.write_options("s3a://bucket/orders/") == {
        "hoodie.base.path": "s3a://bucket/orders",
        "hoodie.write.lock.provider": "org.apache.hudi.client.transaction.lock.StorageBasedLockProvider",
        "hoodie.write.concurrency.mode": "OPTIMISTIC_CONCURRENCY_CONTROL",
        "hoodie.cleaner.policy.failed.writes": "LAZY",
    }
    timed = hudi.write_options(BASE, LeaseSettings(validity=60))
    assert timed[f"{PREFIX}.validity.timeout.secs"] == "60"
    assert timed[f"{PREFIX}.renew.interval.secs"] == "6"
    with pytest.raises(ConfigError, match="whole seconds"):
        hudi.write_options(BASE, LeaseSettings(validity=65))


PROPERTIES: Final = {
    # hoodie.properties: what the error says
    "none": (None, "no Hudi table"),
    "without a version": (b"hoodie.table.name=t\n", "upgrade the table"),
    "of Hudi 0.11": (b"hoodie.table.version=4\n", "upgrade the table"),
    "of Hudi 0.12 to 0.13": (b"a=b\nhoodie.table.version = 5\n", "upgrade the table"),
}


@pytest.mark.parametrize("case", PROPERTIES)
async def test_a_table_that_no_hudi_locks_so_is_refused(table: Table, case: str) -> None:
    """Holding a lock that excludes nobody would be worse than an error; nothing is written."""
    body, reason = PROPERTIES[case]
    await table.backend.delete(".hoodie/hoodie.properties")
    if body is not None:
        await table.backend.put(".hoodie/hoodie.properties", body)

    lock = hudi.table_lock(table.base, table.options)
    for call in (lock.try_lock, lock.status, lock.__aenter__):
        with pytest.raises(ConfigError, match=reason):
            await call()
    with pytest.raises(ConfigError, match=reason):
        await hudi.audit_enable(table.base, table.options)
    assert [entry.key async for entry in table.backend.list(".hoodie/.locks")] == []


async def test_properties_in_the_middle_of_their_replacement_are_found(table: Table) -> None:
    """Hudi moves them aside for a moment; the table is there all the same."""
    await table.backend.delete(".hoodie/hoodie.properties")
    await table.backend.put(".hoodie/hoodie.properties.backup", b"hoodie.table.version=8\n")

    status = await hudi.table_lock(table.base, table.options).status()

    assert status.table_version == 8


async def test_a_base_path_chooses_no_receiver_of_a_credential() -> None:
    """An Azure host outside of the known clouds gets neither a token nor a signature, unless it is named."""
    lock = hudi.table_lock(
        "abfss://box@x.blob.attacker.example/orders", {"hoodie.write.lock.azure.sas.token": "sv=x&sig=y"}
    )

    with pytest.raises(ConfigError, match="set account_url"):
        await lock.try_lock()


async def test_a_bucket_that_is_not_there_is_an_error_not_a_free_lock(table: Table) -> None:
    """The store's own word comes through."""
    lock = hudi.table_lock("s3://no-such-bucket/t", table.options)

    with pytest.raises(UnsupportedBackendError):
        await lock.try_lock()
    await lock.aclose()


def test_the_blocking_twin_names_the_async_call_on_a_running_loop() -> None:
    """In a coroutine the blocking call would stop the loop."""

    async def call() -> None:
        blocking.audit_status(BASE)

    import asyncio  # noqa: PLC0415  beside its only use

    with pytest.raises(RuntimeError, match=r"await asynclock\.hudi\.audit_status"):
        asyncio.run(call())
