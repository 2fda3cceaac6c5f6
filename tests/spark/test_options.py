"""Hudi's options for a table, as far as they depend on the spec."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest

from asynclock.errors import ConfigError
from asynclock.hudi import hoodie
from asynclock.hudi.options import STORAGE_LOCK_PROVIDER
from asynclock.spark.hudi.options import (
    FILE_LOCK_PROVIDER,
    LAYERS,
    USES,
    call_argument,
    cleaning_options,
    compaction_options,
    compose,
    lock_provider,
    sql_options,
    write_options,
)
from tests.unit.specs import table_spec

if TYPE_CHECKING:
    from collections.abc import Callable

    from asynclock.spark.hudi.options import Use
    from asynclock.spark.spec.model import Spec


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
        write_options(table_spec("hdfs://name/t"))


@pytest.mark.parametrize("use", USES)
def test_each_key_is_set_by_one_layer_with_its_reason(use: Use) -> None:
    """Composing layers is adding them up: none overrules another, and each value is explained."""
    options = compose(table_spec("s3a://bucket/t", partition_by=("day",)), use)

    assert [key for key, count in Counter(option.key for option in options).items() if count > 1] == []
    for option in options:
        assert option.layer in LAYERS
        assert option.why.endswith("."), option.key


def test_the_tasks_of_the_session_reach_every_shuffle() -> None:
    """Nothing is left at Hudi's defaults, which suit large clusters."""
    options = compose(table_spec("file:///t"), "write", tasks=7)

    assert {option.value for option in options if option.key.endswith("parallelism")} == {"7"}


def test_an_existing_table_keeps_its_name() -> None:
    """A table whose folder was renamed is still the same table to Hudi."""
    spec = table_spec("file:///data/new-name")

    assert write_options(spec)[hoodie.TABLE_NAME] == "new_name"
    assert write_options(spec, name="old")[hoodie.TABLE_NAME] == "old"


def test_a_statement_is_reduced_to_one_row_per_key_and_a_batch_is_not() -> None:
    """A batch has one row per key in the order of arrival, which Hudi's shuffle would not keep."""
    spec = table_spec("file:///t")

    assert write_options(spec)[hoodie.COMBINE_BEFORE_UPSERT] == "false"
    assert sql_options(spec)[hoodie.COMBINE_BEFORE_UPSERT] == "true"


@pytest.mark.parametrize("options", [compaction_options, cleaning_options])
def test_services_of_a_table_with_a_long_key_fit_into_a_call(
    options: Callable[[Spec], dict[str, str]],
) -> None:
    """A CALL separates options by commas, so a list of key columns must not be among them."""
    argument = call_argument(options(table_spec("file:///t", key=["a", "b"])))

    assert "hoodie.datasource.write.recordkey.field=_asynclock_key," in argument


@pytest.mark.parametrize("value", ["a,b", "it's"])
def test_what_a_call_cannot_carry_is_refused(value: str) -> None:
    """Hudi would read another option or end the statement."""
    with pytest.raises(ConfigError, match=r"hoodie\.x"):
        call_argument({"hoodie.x": value})
