"""The files written by the commits in a range of completion times."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

from asynclock.spark.hudi.carried import carried_lines
from asynclock.spark.hudi.meta import dumped
from asynclock.spark.jvm import classes
from asynclock.spark.retry import READ, retry

if TYPE_CHECKING:
    from collections.abc import Iterable

    from asynclock.spark.hudi.table import Table

_MOVES: Final = frozenset({"COMPACT", "LOG_COMPACT", "CLUSTER"})
"""Operations that write rows again and change none."""
_WRITES: Final = frozenset(
    {"UPSERT", "UPSERT_PREPPED", "INSERT", "INSERT_PREPPED", "BULK_INSERT", "BULK_INSERT_PREPPED", "DELETE",
     "DELETE_PREPPED"}
)  # fmt: skip
_REMOVES: Final = frozenset({"DELETE", "DELETE_PREPPED"})
_UNKNOWN: Final = ("00000000-0000-0000-0000-000000000000-0",)
"""A bucket, whose rows are not events of their own."""
_NONE: Final = frozenset({None, "", "null"})
"""The name of the missing version before the first one of a base file."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ChangedFile:
    """A file whose keys show the changes.

    Attributes:
        path: The file.
        role: ``log``: all its keys count, those of deletes too. ``base``: the keys of rows that the commits
            wrote count. ``before`` and ``after``: the keys that only ``before`` has count; they were deleted.
        group: The file group, within its partition.
    """

    path: str
    role: str
    group: str

    @property
    def partition(self) -> list[str]:
        """The values of the partition columns, as text."""
        folders = self.group.split("/")[:-1]
        return [unquote(folder.partition("=")[2]) for folder in folders if folder]


@dataclass(frozen=True, kw_only=True, slots=True)
class ChangedFiles:
    """The timeline's account of the range.

    Attributes:
        commits: The request times of the commits that changed rows.
        files: The files that have their keys.
        replaced: A commit that replaced whole files, as INSERT OVERWRITE does; None if none did.
        missing: A needed file that no longer exists; None if all exist. Others may be missing, too.
        reached: Whether the timeline, with its archive, has a commit from before the range.
        restored: Whether a restore has ended after the beginning of the range.
        restoring: Whether a restore is under way.
    """

    commits: tuple[str, ...]
    files: tuple[ChangedFile, ...]
    replaced: str | None
    missing: str | None
    reached: bool
    restored: bool
    restoring: bool


def changed_files(table: Table, since: str, until: str) -> ChangedFiles:
    """Return the files of the commits that completed after ``since`` and not after ``until``.

    Commits on the archived timeline count as well.

    Args:
        table: The table.
        since: A completion time.
        until: A completion time.
    """
    commits, state = retry(lambda: _dump(table, since, until), READ)
    commits = [commit for commit in commits if commit["operation"] not in _MOVES]
    replaced = next((commit["commit"] for commit in commits if commit["operation"] not in _WRITES), None)
    written = _Written(table)
    for commit in commits:
        written.add(commit["files"])
    files = written.files()
    return ChangedFiles(
        commits=tuple(commit["commit"] for commit in commits),
        files=tuple(files),
        replaced=replaced,
        missing=written.missing,
        **state,
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Statement:
    """A commit that is not a batch from a source: by SQL, by ``Splice.write``, or by another session.

    Attributes:
        requested: Time of its request.
        completed: Time of its completion.
        sets: Whether it may have set values.
        removes: Whether it may have removed rows.
        logs: The log files that it wrote.
        bases: The file groups in which it wrote base files.
    """

    requested: str
    completed: str
    sets: bool
    removes: bool
    logs: tuple[ChangedFile, ...]
    bases: tuple[str, ...]


def statements(table: Table, until: str) -> list[Statement]:
    """Return the commits up to ``until`` that are not batches, archived ones included.

    A commit that replaces whole files is left out: its rows do not explain its changes. Those from before a
    rebucket cannot be read any more.
    """
    java: Any = classes(table.spark).io.asynclock.timeline.ChangedFiles
    configuration = table.spark._jsc.hadoopConfiguration()  # noqa: SLF001

    def dump() -> list[dict[str, Any]]:
        *found, _ = dumped(lambda file: java.statements(configuration, table.path, until, file))
        return found

    commits = {commit["commit"]: commit for commit in retry(dump, READ)}
    present = [_statement(table, commit) for commit in commits.values() if commit["operation"] in _WRITES]
    carried = (
        Statement(
            requested=line["requested"],
            completed=line["completed"],
            logs=(),
            bases=_UNKNOWN,
            **line["statement"],
        )
        for line in carried_lines(table.files, table.path)
        if "statement" in line
    )
    return [*carried, *present]


def _statement(table: Table, commit: dict[str, Any]) -> Statement:
    written = _Written(table)
    written.add(file for file in commit["files"] if file["log"])
    return Statement(
        requested=commit["commit"],
        completed=commit["completed"],
        sets=commit["operation"] not in _REMOVES,
        removes=commit["operation"] in _REMOVES or any(file["deletes"] for file in commit["files"]),
        logs=tuple(written.files()),
        bases=tuple(file["group"] for file in commit["files"] if not file["log"]),
    )


class _Written:
    """The files of commits, which are added in the order of completion."""

    def __init__(self, table: Table) -> None:
        self.missing: str | None = None
        self._files = table.files
        self._path = table.path
        self._logs: list[ChangedFile] = []
        # The base files of each file group: the newest one is needed, and the one before the first.
        self._bases: dict[str, list[dict[str, Any]]] = {}

    def add(self, files: Iterable[dict[str, Any]]) -> None:
        for file in files:
            group = f"{file['partition']}/{file['group']}"
            if file["log"]:
                self._logs.append(ChangedFile(path=self._below(file["path"]), role="log", group=group))
            else:
                self._bases.setdefault(group, []).append(file)

    def files(self) -> list[ChangedFile]:
        found = list(self._logs)
        for group, bases in self._bases.items():
            newest = self._below(bases[-1]["path"])
            found.append(ChangedFile(path=newest, role="base", group=group))
            before = bases[0]["previous"]
            if before not in _NONE and any(base["deletes"] for base in bases):
                found.append(ChangedFile(path=newest, role="after", group=group))
                if (path := self._before(bases[0], before)) is not None:
                    found.append(ChangedFile(path=path, role="before", group=group))
        return found

    def _before(self, base: dict[str, Any], commit: str) -> str | None:
        """Return the path of the base file that a commit wrote earlier."""
        folder = self._below(base["partition"]) if base["partition"] else self._path
        wanted = re.compile(rf"{re.escape(base['group'])}_.*_{re.escape(commit)}\.[a-z]+")
        for name in self._files.names(folder):
            if wanted.fullmatch(name):
                return f"{folder}/{name}"
        self.missing = f"{folder}/{base['group']}_*_{commit}.parquet"
        return None

    def _below(self, path: str) -> str:
        return f"{self._path.rstrip('/')}/{path}"


def _dump(table: Table, since: str, until: str) -> tuple[list[dict[str, Any]], dict[str, bool]]:
    """Return the commits in the order of completion, and the facts about the whole timeline."""
    java: Any = classes(table.spark).io.asynclock.timeline.ChangedFiles
    configuration = table.spark._jsc.hadoopConfiguration()  # noqa: SLF001
    *found, state = dumped(lambda file: java.write(configuration, table.path, since, until, file))
    commits = {commit["commit"]: commit for commit in found}
    return sorted(commits.values(), key=lambda commit: str(commit["completed"])), state
