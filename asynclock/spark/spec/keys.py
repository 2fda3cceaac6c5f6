"""The record key and partition folder of a row, encoded so that no text can be misread.

Hudi joins the columns of a key as ``k:x,l:y`` and splits that again at ``:`` and ``,``. A key value with
those characters would be read as another key, or make the parser loop forever. So, in addition to the
unchanged key columns, a splice table has a separate record key column, :data:`RECORD_KEY`: each value
percent-encoded as in an HTML form, with ``|`` between them.

Partition columns are Hudi's own, so queries that filter by them read only the matching folders. A folder is
named ``column=value`` with the value percent-encoded; :func:`unfit` lists the few texts that cannot be one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F  # noqa: N812  the name everybody uses

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from asynclock.spark.spec.model import Spec, TableSpec

# Hudi, like Hive, reads a folder of this name as null.
_NULL_PARTITION: Final = "__HIVE_DEFAULT_PARTITION__"
_MAX_NAME_BYTES: Final = 255  # of a file or folder, on the file systems of Linux and on HDFS
# The characters that Hudi writes as three in the name of a folder.
_ESCAPED: Final = "".join(map(chr, range(1, 32))) + "\"#%'*/:=?\\\x7f{[]^"


def record_key(table: TableSpec) -> str:
    """Return a SQL expression for the record key, over the key columns of a row."""
    values = ", ".join(f"url_encode(CAST(`{name}` AS STRING))" for name in table.key)
    return f"concat_ws('|', {values})"


def row_digest(spec: Spec) -> str:
    """Return a SQL expression for the digest that replaces a key which must not be kept."""
    texts = ", ".join(
        f"CAST({as_stored(name, spec.shared_type(name))} AS STRING)" for name in spec.table.shared_columns
    )
    return f"sha2(concat_ws(chr(0), {texts}), 256)"


def as_stored(name: str, kind: str) -> str:
    """Return SQL for a value in the form of the second reader, with dates and times as whole numbers.

    Python's own depend on its time zone and end at year 9999.
    """
    call = {"date": "unix_date", "timestamp": "unix_micros"}.get(kind, "")
    return f"{call}(`{name}`)"


def unfit(table: TableSpec, name: str, kind: str) -> list[tuple[str, str]]:
    """Return the reasons why a value cannot be in a key or partition column.

    Args:
        table: The table.
        name: The column.
        kind: Its type.

    Returns:
        Pairs of a SQL condition on a value that is not null and the SQL text of the complaint.
    """
    if kind != "string":
        return []
    value = f"`{name}`"
    # All bytes that are not UTF-8 become the same replacement character, which would merge different rows.
    readable = f"decode(CAST({value} AS BINARY), 'UTF-8')"
    return [(f"{value} <> {readable}", f"'{name} is not UTF-8'"), *_unfit_partition(table, name, kind)]


def refuse_unfit(parsed: DataFrame, spec: Spec, *, reason: str, record: str) -> DataFrame:
    """Return the parsed rows; rows with an unfit key, partition or time are marked as bad.

    Args:
        parsed: Rows with the key and partition columns, whose texts are known to be UTF-8, and with the times
            from which others are derived.
        spec: The spec.
        reason: Name of the column with the reason of a bad row; null in a good row.
        record: Name of the column with the original text of a bad row; null in a good row and for a bad file.
    """
    table = spec.table
    cases = [
        case
        for name in table.shared_columns
        for case in _unfit_partition(table, name, spec.shared_type(name))
    ] + [one.unfit(one.time_type(spec.streams[0].columns)) for one in table.derived]
    if not cases:
        return parsed
    whens = " ".join(f"WHEN {wrong} THEN {why}" for wrong, why in cases)
    said = F.coalesce(F.col(reason), F.expr(f"CASE {whens} END"))
    values = F.to_json(F.struct(*(name for name in parsed.columns if not name.startswith("_asynclock"))))
    # A bad file has a reason but no values, so it has no record.
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
    # In hexadecimal, because a session setting decides what a backslash means in SQL text.
    return f"CAST(X'{text.encode().hex()}' AS STRING)"
