"""``asynclock status``, ``list`` and ``break``."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from typing import TYPE_CHECKING, Final

import click

from asynclock._cli.arguments import (
    break_options,
    check_option,
    json_option,
    store_options,
    target_argument,
    url_argument,
)
from asynclock._cli.exit_codes import CORRUPT, DONE, NO, exit_code
from asynclock._cli.lock_words import holder_cell, overdue_words
from asynclock._cli.output import print_json, print_list, print_status, tell
from asynclock._cli.target import connect_to, refuse_hudi_table, split_target
from asynclock._codes import Code
from asynclock._core.narration import span
from asynclock._core.record import is_no_lock, parse_record
from asynclock._text import SUFFIX, printable
from asynclock.backend import MAX_BODY, Absent
from asynclock.errors import (
    AccessDeniedError,
    BackendError,
    ConfigError,
    LockChangedError,
    RecordCorruptError,
)

if TYPE_CHECKING:
    from asynclock._core.status import LockStatus
    from asynclock.backend import Stored
    from asynclock.client import LockClient
    from asynclock.lock import Lock

_SHOWN_BYTES: Final = 120
_LOOK_SECONDS: Final = 2.0
_TABLE_ROWS: Final = 1000
"""Most locks in one table. A longer list is printed in several tables while it is read."""


@click.command("status")
@target_argument
@check_option
@store_options
@json_option
def status_command(
    target: str, options: dict[str, object], max_clock_skew: float | None, *, check: bool, as_json: bool
) -> int:
    """Show one lock: whether it is free, who holds it, since when, and whether the holder lives.

    States: absent (there is no object, so the lock was never taken, or the URL or name is wrong), free, held,
    expired (not released, but others may take it) and corrupt. All times are by the store's clock.

    Exit code 65 if it is corrupt. With --check, 1 if it is held, and 0 if it can be taken now.
    """
    status = asyncio.run(_read(target, options, max_clock_skew))
    if as_json:
        print_json(status)
    else:
        print_status(status, break_command=f"asynclock break {target}")
    return status_code(status, check=check)


def status_code(status: LockStatus, *, check: bool) -> int:
    """Return the exit code for the state of a lock."""
    if status.state == "corrupt":
        return CORRUPT
    return NO if check and status.state == "held" else DONE


async def _read(target: str, options: dict[str, object], max_clock_skew: float | None) -> LockStatus:
    url, name = split_target(target)
    async with connect_to(url, options, max_clock_skew=max_clock_skew) as client:
        return await _look(client, name, target)


async def _look(client: LockClient, name: str, target: str) -> LockStatus:
    """Read a lock. If it is absent, check that its bucket or folder exists.

    Raises:
        ConfigError: ``target`` is a Hudi table.
        BackendError: The bucket or the folder does not exist, or cannot be read.
    """
    status = await client.lock(name).status()
    if status.state == "absent":
        await refuse_hudi_table(client, name, target)
        with contextlib.suppress(AccessDeniedError):  # locks do not need the right to list
            # Some stores answer alike for a missing bucket and a missing object.
            if await client._core.run(lambda: _has_locks(client, f"{name}/")):
                tell(f"there are locks under {target}; see asynclock list {target}", Code.NO_LOCK_HERE)
    return status


async def _has_locks(client: LockClient, prefix: str) -> bool:
    async for entry in client.backend.list(prefix):
        return entry.key.endswith(SUFFIX)
    return False


async def _is_lock(url: str, options: dict[str, object], max_clock_skew: float | None) -> bool:
    """Whether the URL of a folder without locks is the URL of a lock."""
    with contextlib.suppress(ConfigError, BackendError, TimeoutError):
        async with asyncio.timeout(_LOOK_SECONDS):
            folder, name = split_target(url.rstrip("/"))
            async with connect_to(folder, options, max_clock_skew=max_clock_skew) as client:
                return (await client.lock(name).status()).state != "absent"
    return False


@click.command("list")
@url_argument
@store_options
@json_option
def list_command(url: str, options: dict[str, object], max_clock_skew: float | None, *, as_json: bool) -> int:
    """Show all locks under URL. Exit code 65 if one is corrupt."""

    async def show() -> set[str]:
        states: set[str] = set()
        rows: list[LockStatus] = []
        async with connect_to(url, options, max_clock_skew=max_clock_skew) as client:
            await refuse_hudi_table(client, "", url)
            async for status in client.scan():
                states.add(status.state)
                if as_json:
                    print_json(status)
                    continue
                rows.append(status)
                if len(rows) == _TABLE_ROWS:
                    print_list(rows)
                    rows.clear()
        if rows:
            print_list(rows)
        return states

    try:
        states = asyncio.run(show())
    except BackendError as error:
        if not url.startswith("file:") or not asyncio.run(_is_lock(url, options, max_clock_skew)):
            raise
        tell(f"{url} is a lock; see asynclock status {url}", Code.NO_LOCK_HERE)
        return exit_code(error)
    if not states:
        is_lock = asyncio.run(_is_lock(url, options, max_clock_skew))
        found = (
            f"{url} is a lock; see asynclock status {url}" if is_lock else f"there are no locks under {url}"
        )
        tell(found, Code.NO_LOCK_HERE)
    return CORRUPT if "corrupt" in states else DONE


@click.command("break", short_help="Free another holder's lock by hand.")
@target_argument
@break_options
@store_options
@json_option
def break_command(
    target: str,
    options: dict[str, object],
    max_clock_skew: float | None,
    *,
    yes: bool,
    force: bool,
    as_json: bool,
) -> int:
    """Free another holder's lock by hand: an expired one, or with --force a live or corrupt one.

    The lock's guarantee does not cover this: the old holder may act until its next renewal or deadline. The
    next holder gets a higher fencing token, so fenced objects refuse the old one.
    """
    return break_by_hand(target, options, max_clock_skew, yes=yes, force=force, as_json=as_json)


def break_by_hand(
    target: str,
    options: dict[str, object],
    max_clock_skew: float | None,
    *,
    yes: bool,
    force: bool,
    as_json: bool,
) -> int:
    """Show a lock, ask, and free it; return the exit code."""
    if not yes and not sys.stdin.isatty():
        raise click.UsageError(
            "there is no terminal for the question: add --yes to break the lock without it"
        )
    url, name = split_target(target)
    seen = asyncio.run(_read(target, options, max_clock_skew))
    if seen.state not in {"absent", "free"}:
        tell(_described(seen))
        if seen.state == "corrupt" and (refusal := _refusal(target, seen, options, force=force)):
            tell(f"{refusal}; nothing was written", Code.RECORD_CORRUPT)
            return CORRUPT
        if not seen.kept:
            tell("The old holder may act until its next renewal or deadline.")
        if seen.state == "held" and not force:
            tell("only --force breaks a live lock; nothing was written", Code.NOT_BROKEN)
            return NO
        if not yes and not _confirmed(f"Break {target}? [y/N] "):
            tell("nothing was written", Code.NOT_BROKEN)
            return NO

    async def write() -> LockStatus:
        async with connect_to(url, options, max_clock_skew=max_clock_skew) as client:
            return await _break(client.lock(name), seen, force=force)

    status = asyncio.run(write())
    if as_json:
        print_json(status)
    elif status.state == "absent":
        click.echo(f"{status.name}: absent, there is nothing to break")
    else:
        click.echo(f"{status.name}: was {seen.state}, now {status.state}")
    return DONE


def _refusal(target: str, seen: LockStatus, options: dict[str, object], *, force: bool) -> str | None:
    """Show the bytes of a corrupt object; return why it must not be overwritten, or None if it may be."""

    async def read() -> Stored | Absent:
        url, name = split_target(target)
        async with connect_to(url, options) as client:
            key = f"{name}{SUFFIX}"
            return await client._core.run(lambda: client._core.request("get", key, client.backend.get(key)))

    stored = asyncio.run(read())
    if isinstance(stored, Absent) or stored.version != seen.version:
        return "The object changed in the meantime; look again"
    size = f"more than {MAX_BODY}" if len(stored.body) > MAX_BODY else str(len(stored.body))
    try:
        parse_record(stored.body, store_time=stored.server_time)
        reason = "its times are too far ahead of the store's clock"
    except RecordCorruptError as corrupt:
        reason = corrupt.reason
    first = printable(stored.body[:_SHOWN_BYTES].decode("latin-1"))
    tell(f"Reason: {reason}. It has {size} bytes and begins with: {first}")
    if is_no_lock(stored.body):
        return "It is not a lock: valid JSON without any field of a lock. Break does not overwrite it"
    return None if force else "Only --force overwrites a corrupt object"


async def _break(lock: Lock, seen: LockStatus, *, force: bool) -> LockStatus:
    """Break the lock that was seen, even if it was renewed since, but not if the owner changed."""
    while True:
        try:
            return await lock.break_lock(seen, force=force)
        except LockChangedError as changed:
            now: LockStatus = changed.status
            renewed = now.version != seen.version and now.owner == seen.owner and now.owner is not None
            if not renewed:
                raise
            seen = now


def _confirmed(question: str) -> bool:
    sys.stderr.write(question)
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in {"y", "yes"}


def _described(status: LockStatus) -> str:
    if status.state == "corrupt":
        return f"{status.url} is corrupt: who holds it is unknown."
    who = printable(status.holder or status.owner)
    if status.kept:
        return f"{status.url} is {holder_cell(status)}; nobody works under it."
    words = f"{status.url} is {status.state}, holder {who}"
    if status.state == "held" and status.remaining is not None:
        words += f", free in {span(status.remaining)}"
    if (overdue := overdue_words(status)) is not None:
        words += f"; {overdue}"
    return f"{words}."
