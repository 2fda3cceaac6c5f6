"""The layer of the place: the lock of a commit, the clocks, and the tasks that Spark has there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from asynclock._shared.internals import STORAGE_LOCK_SCHEMES, STORE_LOCK_PROVIDER
from asynclock.errors import ConfigError
from asynclock.spark import hoodie
from asynclock.spark.hudi.options.option import Option

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from asynclock.spark.hudi.options.option import Use
    from asynclock.spark.spec.model import TableSpec

FILE_LOCK_PROVIDER: Final = "io.asynclock.hudi.FileLockProvider"

_LOCK_WAIT_MS: Final = 60_000
_FILE_LOCK_RETRIES: Final = 3
_STORE_LOCK_RETRIES: Final = 5
_PARALLELISM: Final[Mapping[Use, Sequence[str]]] = {
    "write": (
        hoodie.UPSERT_SHUFFLE_PARALLELISM,
        hoodie.INSERT_SHUFFLE_PARALLELISM,
        hoodie.DELETE_SHUFFLE_PARALLELISM,
        hoodie.FINALIZE_WRITE_PARALLELISM,
        hoodie.MARKERS_DELETE_PARALLELISM,
        hoodie.ROLLBACK_PARALLELISM,
    ),
    "compaction": (hoodie.FINALIZE_WRITE_PARALLELISM, hoodie.MARKERS_DELETE_PARALLELISM),
    "clustering": (hoodie.FINALIZE_WRITE_PARALLELISM, hoodie.MARKERS_DELETE_PARALLELISM),
    "cleaning": (hoodie.CLEAN_PARALLELISM, hoodie.ROLLBACK_PARALLELISM),
}


def place(table: TableSpec, use: Use, tasks: str) -> Iterator[Option]:
    """Yield the options that depend on the place of the table.

    Raises:
        ConfigError: No lock provider works on the file system.
    """
    provider = lock_provider(table.path)
    if use in {"read", "sync"}:
        return
    if provider == FILE_LOCK_PROVIDER:
        why = "The operating system's lock orders the commits; it is free again when a writer is killed."
        retries, then = _FILE_LOCK_RETRIES, "fails; Hudi's default would wait for an hour"
    else:
        why = "A lock object next to the data orders the commits, in the format that asynclock shares."
        retries, then = _STORE_LOCK_RETRIES, "fails: after the 300 s for which a killed writer has it"
    yield _option(hoodie.WRITE_LOCK_PROVIDER, provider, why)
    yield _option(
        hoodie.WRITE_LOCK_WAIT_TIME_MS, str(_LOCK_WAIT_MS), "A commit waits this long for the one before it."
    )
    yield _option(
        hoodie.WRITE_LOCK_CLIENT_NUM_RETRIES,
        str(retries),
        f"Then it tries again this often, and {then}.",
    )
    if provider == FILE_LOCK_PROVIDER:
        yield _option(
            hoodie.TIME_GENERATOR_MAX_EXPECTED_CLOCK_SKEW_MS,
            "1",
            "The writers share one machine and its clock; each commit would wait twice for Hudi's default.",
        )
    for key in _PARALLELISM["write" if use == "sql" else use]:
        yield _option(key, tasks, "As many tasks as Spark has cores; Hudi's defaults are for large clusters.")


def lock_provider(base_path: str) -> str:
    """Return the class of Hudi's commit lock for a table at ``base_path``.

    Raises:
        ConfigError: No lock provider works on the file system; nothing was written.
    """
    scheme = base_path.partition("://")[0].lower() if "://" in base_path else "file"
    if scheme == "file":
        return FILE_LOCK_PROVIDER
    if scheme in STORAGE_LOCK_SCHEMES:
        return STORE_LOCK_PROVIDER
    allowed = ", ".join(f"{name}://" for name in ("file", *sorted(STORAGE_LOCK_SCHEMES)))
    raise ConfigError(setting="path", value=base_path, reason=f"no lock for commits there; use {allowed}")


def _option(key: str, value: str, why: str) -> Option:
    return Option(key, value, "place", why)
