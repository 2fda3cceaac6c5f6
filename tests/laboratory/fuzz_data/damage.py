"""Damage to the pages of a parquet file behind a footer that is whole."""

from __future__ import annotations

import io
from typing import Final

import pyarrow.parquet as pq

DAMAGES: Final = ("data", "header", "size")
"""In the data of a page, whose checksum tells it; the header of a page; the size in a header."""


def damaged(content: bytes, damage: str, *, column: str) -> bytes:
    """The file with its first row group's column damaged.

    Args:
        content: The file, its pages of version 1 and with checksums.
        damage: One of ``DAMAGES``.
        column: The column whose pages it hits.
    """
    group = pq.read_metadata(io.BytesIO(content)).row_group(0)
    chunk = next(one for one in map(group.column, range(group.num_columns)) if one.path_in_schema == column)
    page = chunk.data_page_offset
    end = (chunk.dictionary_page_offset or page) + chunk.total_compressed_size
    broken = bytearray(content)
    if damage == "data":
        broken[end - 1] ^= 0x10
    elif damage == "header" or not _enlarged(broken, page + 3):
        broken[page : page + 8] = bytes(8)
    return bytes(broken)


def _enlarged(content: bytearray, place: int) -> bool:
    """Make the number there (zigzag, seven bits a byte) larger, behind the type of a page and a mark."""
    for bit in (0x40, 0x20, 0x10, 0x08, 0x04, 0x02):
        if not content[place] & bit:
            content[place] |= bit
            return True
    return False
