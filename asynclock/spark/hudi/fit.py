"""Check that an existing table is the one that a spec describes; if not, nothing is written."""

from __future__ import annotations

from typing import TYPE_CHECKING

from asynclock.spark import hoodie
from asynclock.spark.hudi.options import stored_properties
from asynclock.spark.spec.load import misplaced

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from asynclock.spark.hudi.instants import BatchCommit
    from asynclock.spark.spec.model import Spec


def check_properties(spec: Spec, properties: Mapping[str, str]) -> None:
    """Refuse a table with another record key, partitioning, merger or use of a metadata table.

    Args:
        spec: The spec.
        properties: The table's ``hoodie.properties``; empty without a table.

    Raises:
        SpecError: The table differs from the spec; nothing was written.
    """
    table = spec.table
    if not properties:
        return
    for name, value in stored_properties(spec).items():
        if (found := properties.get(name, "")) != value:
            keys = ("table", "partition_by" if name == hoodie.TABLE_PARTITION_FIELDS else "path")
            reason = (
                f"the table at {table.path} has {name}={found!r}, this spec needs {value!r}; nothing was "
                "written. Correct the spec, or splice into a new table"
            )
            raise misplaced(spec, keys, found, reason)
    _check_metadata_table(spec, properties.get(hoodie.METADATA_ENABLE))


def _check_metadata_table(spec: Spec, found: str | None) -> None:
    """Refuse a guarded table that has a metadata table although the spec has none, or the other way round."""
    wanted = str(spec.table.metadata_table).lower()
    if found is None or found == wanted:
        return
    has = "has a metadata table" if found == "true" else "has no metadata table"
    reason = (
        f"the table at {spec.table.path} {has}, and its writers must agree: one without it would remove it "
        f"under the others; nothing was written. Set table.metadata_table = {found}, or splice into a new "
        "table"
    )
    raise misplaced(spec, ("table", "metadata_table"), spec.table.metadata_table, reason)


def check_commit(spec: Spec, commit: BatchCommit) -> None:
    """Refuse a table with a commit under another key or number of buckets.

    Raises:
        SpecError: The table differs from the spec; nothing was written.
    """
    table = spec.table
    if commit.key != table.key:
        reason = (
            f"the table at {table.path} has the key {', '.join(commit.key)}, this spec has "
            f"{', '.join(table.key)}; nothing was written. Correct the spec, or splice into a new table"
        )
        raise misplaced(spec, ("table", "key"), list(table.key), reason)
    if commit.buckets != table.buckets:
        reason = (
            f"the table at {table.path} has {commit.buckets} buckets; with another number keys would be "
            "stored twice. Nothing was written; correct the spec, or splice into a new table"
        )
        raise misplaced(spec, ("table", "buckets"), table.buckets, reason)


def check_derived(spec: Spec, stored: Collection[str], known: Mapping[str, str]) -> None:
    """Refuse a spec that derives a column of the table in another way than its rows so far.

    Args:
        spec: The spec.
        stored: The columns of the table.
        known: The rules of the derived columns in commits.

    Raises:
        SpecError: A column of the table would be derived otherwise, or no longer; nothing was written.
    """
    wanted = {one.name: one.text for one in spec.table.derived}
    if not wanted and not known:
        return
    read = spec.physical_types()
    for name in stored:
        before, now = known.get(name), wanted.get(name)
        if before == now or (now is None and name not in read):
            continue
        has = f"derives {name} as {before}" if before else f"has {name} from the sources"
        does = f"derives it as {now}" if now else "reads it from the sources"
        reason = (
            f"the table at {spec.table.path} {has}, and this spec {does}: the values so far would not agree "
            "with later ones. Nothing was written; correct the spec, or splice into a new table"
        )
        raise misplaced(spec, ("table", "derive", name), now, reason)
