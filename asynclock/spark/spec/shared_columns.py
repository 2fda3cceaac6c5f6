"""The names of key, partition and derived columns, which every stream has."""

from __future__ import annotations

from asynclock.spark.spec.checked import wrong
from asynclock.spark.spec.column_groups import TOMBSTONE
from asynclock.spark.spec.view import COLUMN_NAME


def check_shared_columns(
    key: tuple[str, ...], partition_by: tuple[str, ...], derived: tuple[str, ...]
) -> None:
    """Refuse key, partition and derived columns that no table can have.

    Args:
        key: The key of the table.
        partition_by: Its partition columns.
        derived: Its derived columns.

    Raises:
        ConfigError: The key is empty, or a name is unfit or there twice.
    """
    if not key:
        raise wrong("key", key, "a table needs a key; name the columns that identify a row")
    for setting, names in (("key", key), ("partition_by", partition_by), ("derive", derived)):
        for name in names:
            _check_name(setting, name)
        if len({name.lower() for name in names}) < len(names):
            raise wrong(setting, list(names), "a column is named twice; name each once")
    folded: dict[str, str] = {}
    for name in (*key, *partition_by, *derived):
        if folded.setdefault(name.lower(), name) != name:
            reason = f"differs from {folded[name.lower()]!r} in case only; for Spark they are one column"
            raise wrong("partition_by", name, reason)


def _check_name(setting: str, name: str) -> None:
    if not COLUMN_NAME.fullmatch(name) or "__" in name:
        reason = (
            "key, partition and derived columns are letters, digits and _, no double _, the first a letter"
        )
        raise wrong(setting, name, reason)
    if name.lower() == TOMBSTONE:
        raise wrong(setting, name, f"{TOMBSTONE!r} is the tombstone of a stream; use another name")
