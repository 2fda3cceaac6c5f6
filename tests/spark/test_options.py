"""Hudi's options for a splice table, as far as they depend on arguments."""

from __future__ import annotations

import pytest

from asynclock.errors import ConfigError
from asynclock.spark.hudi.options import (
    FILE_LOCK_PROVIDER,
    STORAGE_LOCK_PROVIDER,
    call_argument,
    cleaning_options,
    compaction_options,
    lock_provider,
    splice_write_options,
)


@pytest.mark.parametrize(
    ("base_path", "provider"),
    [
        ("file:///data/t", FILE_LOCK_PROVIDER),
        ("/data/t", FILE_LOCK_PROVIDER),
        ("s3a://bucket/t", STORAGE_LOCK_PROVIDER),
        ("gs://bucket/t", STORAGE_LOCK_PROVIDER),
        ("abfss://container@account/t", STORAGE_LOCK_PROVIDER),
    ],
)
def test_the_place_of_the_table_chooses_the_lock(base_path: str, provider: str) -> None:
    """A local disk has the operating system's lock, an object store the lock file beside the data."""
    assert lock_provider(base_path) == provider


def test_a_place_without_a_lock_is_refused() -> None:
    """Without a lock for its commits a table would lose them."""
    with pytest.raises(ConfigError, match=r"hdfs://name/t.*use file://.*s3a://"):
        splice_write_options(base_path="hdfs://name/t", table="t", key=["id"])


@pytest.mark.parametrize(("change", "named"), [({"key": []}, "key"), ({"buckets": 0}, "buckets")])
def test_a_table_needs_a_key_and_a_bucket(change: dict[str, object], named: str) -> None:
    """Refused before Hudi sees it, naming the argument."""
    arguments = {"base_path": "file:///t", "table": "t", "key": ["id"], **change}

    with pytest.raises(ConfigError, match=rf"^{named}="):
        splice_write_options(**arguments)  # type: ignore[arg-type] # built from a table of cases


@pytest.mark.parametrize("options", [compaction_options, cleaning_options])
def test_services_of_a_table_with_a_long_key_fit_into_a_call(options: object) -> None:
    """A CALL separates options by commas, so a list of key columns must not be among them."""
    assert callable(options)

    argument = call_argument(options(base_path="file:///t", key=["a", "b"]))

    assert "hoodie.datasource.write.recordkey.field=a," in argument


@pytest.mark.parametrize("value", ["a,b", "it's"])
def test_what_a_call_cannot_carry_is_refused(value: str) -> None:
    """Hudi would read another option or end the statement."""
    with pytest.raises(ConfigError, match=r"hoodie\.x"):
        call_argument({"hoodie.x": value})
