"""The places of a table's locks and checkpoints by default, and the test whether two URLs mean one place.

Locks and checkpoints are next to the table, in ``.asynclock/<table>`` of its parent folder. In the table, an
overwrite (``mode("overwrite")``, ``DROP TABLE ... PURGE``) would delete them while their leases are held, and
a lock whose object is gone is free. The name begins with a dot, so that Spark, Hive and Hudi skip the folder
when they list the parent.
"""

from __future__ import annotations

import os
import posixpath
import re
from typing import Final
from urllib.parse import unquote

from asynclock._shared.internals import TablePath
from asynclock.errors import ConfigError

FOLDER: Final = ".asynclock"

_URL: Final = re.compile(r"(?P<scheme>[a-z][a-z0-9+.-]*):(?://(?P<host>[^/]*))?(?P<path>/.*)?", re.IGNORECASE)


def beside(table: str) -> str:
    """Return the folder for the things of a table: a URL of the table's scheme, not percent-encoded.

    It depends on the table's path only, so that two writers of a table cannot choose two places. A local
    path is freed of symbolic links first.

    Raises:
        ConfigError: The table is a whole bucket or file system, so nothing can be next to it.
    """
    found = _URL.fullmatch(table)
    scheme, host, path = "file", "", table
    if found:
        scheme, host, path = found["scheme"], found["host"] or "", found["path"] or "/"
    if scheme.lower() == "file":
        path = os.path.realpath(path)
    parent, name = posixpath.split(posixpath.normpath("/" + path.strip("/")))
    if not name:
        reason = (
            "the table is a whole bucket, so its locks and checkpoints cannot be next to it; move the table "
            "into a folder, or name [locks] url and the checkpoint of each stream"
        )
        raise ConfigError(setting="path", value=table, reason=reason)
    return f"{scheme}://{host}{parent.rstrip('/')}/{FOLDER}/{name}"


def same_locks(one: str, other: str) -> bool:
    """Return whether two URLs of locks mean one place, as far as their text shows."""
    return _identity(unquote(one)) == _identity(unquote(other))


def same_table(one: str, other: str) -> bool:
    """Return whether two URLs of tables mean one place, as far as their text shows."""
    return _identity(one) == _identity(other)  # Hadoop does not decode %XX in a path


def _identity(url: str) -> str:
    found = _URL.fullmatch(url)
    if found is None or found["scheme"].lower() == "file":
        return "file://" + os.path.realpath((found["path"] or "/") if found else url)
    try:
        return TablePath.parse(url).identity
    except ConfigError:
        path = posixpath.normpath("/" + (found["path"] or "").strip("/"))
        return f"{found['scheme'].lower()}://{found['host'] or ''}{path}"
