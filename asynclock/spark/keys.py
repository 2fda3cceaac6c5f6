"""What Hudi knows a row by: its record key and its partition's folder, in which no text can be misread.

Hudi joins the columns of a key as ``k:x,l:y`` and splits that again by ``:`` and ``,``, so that a key which
has those characters is another key, or keeps its parser busy for ever. A splice table therefore has one
record key column of its own, :data:`RECORD_KEY`, beside the key columns as they are: each value
percent-encoded as in an HTML form, with ``|`` between them.

Partition columns stay Hudi's own, so that queries by them read only their folders. Those are named
``column=value`` with the value percent-encoded, which holds any text but those :func:`unfit` names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F  # noqa: N812  the name everybody uses

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from asynclock.spark.spec import Spec, TableSpec

RECORD_KEY: Final = "_asynclock_key"

# Hudi, like Hive, reads a folder of this name as null.
_NULL_PARTITION: Final = "__HIVE_DEFAULT_PARTITION__"
_MAX_NAME_BYTES: Final = 255  # of a file or folder, on the file systems of Linux and on HDFS
# What Hudi writes as three characters in the name of a folder.
_ESCAPED: Final = "".join(map(chr, range(1, 32))) + "\"#%'*/:=?\\\x7f{[]^"


def record_key(table: TableSpec) -> str:
    """A SQL expression for the record key of a row that has the key columns."""
    values = ", ".join(f"url_encode(CAST(`{name}` AS STRING))" for name in table.key)
    return f"concat_ws('|', {values})"


def unfit(table: TableSpec, name: str, kind: str) -> list[tuple[str, str]]:
    """What the value of a key or partition column must not be.

    Args:
        table: The table.
        name: The column.
        kind: Its type.

    Returns:
        SQL conditions on a value that is there, and beside each the SQL text that says what is wrong.
    """
    if kind != "string":
        return []
    value = f"`{name}`"
    # Bytes that are no UTF-8 all become the same replacement character, and with them rows one row.
    readable = f"decode(CAST({value} AS BINARY), 'UTF-8')"
    return [(f"{value} <> {readable}", f"'{name} is not UTF-8'"), *_unfit_partition(table, name, kind)]


def refuse_unfit(parsed: DataFrame, spec: Spec, *, reason: str, record: str) -> DataFrame:
    """Parsed rows, those with an unfit key or partition among the bad ones.

    Args:
        parsed: Rows with the key and partition columns, whose texts are known to be UTF-8.
        spec: The spec.
        reason: The column that says why a row is bad; null for a good one.
        record: The column that holds a bad row as it was; null for a good one and for a bad file.
    """
    table = spec.table
    cases = [
        case
        for name in table.shared_columns
        for case in _unfit_partition(table, name, spec.shared_type(name))
    ]
    if not cases:
        return parsed
    whens = " ".join(f"WHEN {wrong} THEN {why}" for wrong, why in cases)
    said = F.coalesce(F.col(reason), F.expr(f"CASE {whens} END"))
    values = F.to_json(F.struct(*(name for name in parsed.columns if not name.startswith("_asynclock"))))
    # A bad file has a reason and no values, hence no record.
    whole = F.when(F.col(reason).isNull() & said.isNotNull(), values).otherwise(F.col(record))
    return parsed.withColumns({record: whole, reason: said})


def _unfit_partition(table: TableSpec, name: str, kind: str) -> list[tuple[str, str]]:
    if name not in table.partition_by or kind != "string":
        return []
    value = f"`{name}`"
    escaped = f"length({value}) - length(translate({value}, {_literal(_ESCAPED)}, ''))"
    size = f"{len(name) + 1} + octet_length({value}) + 2 * ({escaped})"
    rest = f"{size}, ' bytes, {_MAX_NAME_BYTES} are allowed'"
    return [
        (f"{value} = '{_NULL_PARTITION}'", f"'{name} is {_NULL_PARTITION}, which a partition has for null'"),
        (f"contains({value}, {_literal(chr(0))})", f"'{name} has the character NUL'"),
        (f"{size} > {_MAX_NAME_BYTES}", f"concat('{name} is too long for the name of a folder: ', {rest})"),
    ]


def _literal(text: str) -> str:
    # In hexadecimal: what a backslash means in a SQL text is a setting of the session.
    return f"CAST(X'{text.encode().hex()}' AS STRING)"
