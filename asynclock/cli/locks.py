"""``asynclock status``, ``list`` and ``break``."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING, Any

import click

from asynclock._text import printable
from asynclock.cli.exit_codes import CORRUPT, DONE, NO
from asynclock.cli.options import parse_options
from asynclock.cli.output import print_json, print_list, print_status, tell
from asynclock.cli.target import connect_to, split_target
from asynclock.errors import LockChangedError

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeVar

    from asynclock.lock import Lock
    from asynclock.status import LockStatus

    F = TypeVar("F", bound=Callable[..., Any])


backend_option = click.option(
    "-o",
    "options",
    multiple=True,
    metavar="KEY=VALUE",
    callback=lambda context, _, words: {} if context.resilient_parsing else parse_options(words),
    help="Option of the backend, for example endpoint_url=…; repeatable. A secret, such as "
    "secret_access_key, is best given as KEY=env:NAME (an environment variable), KEY=file:PATH or KEY=- "
    "(the next line of the standard input), because all users can see the command line.",
)


def store_options(function: F) -> F:
    """Add the options of every command that reads or writes locks."""
    skew = click.option(
        "--max-clock-skew",
        type=float,
        metavar="S",
        help="How far two nodes of the store may differ; default 0 for file://, else 2.",
    )
    return skew(backend_option(function))


json_option = click.option("--json", "as_json", is_flag=True, help="One JSON object per line.")


@click.command("status")
@click.argument("target", metavar="URL/NAME")
@store_options
@json_option
def status_command(
    target: str, options: dict[str, object], max_clock_skew: float | None, *, as_json: bool
) -> int:
    """Show one lock: whether it is free and who holds it. Exit code 65 if it is corrupt."""
    status = asyncio.run(_read(target, options, max_clock_skew))
    (print_json if as_json else print_status)(status)
    return CORRUPT if status.state == "corrupt" else DONE


async def _read(target: str, options: dict[str, object], max_clock_skew: float | None) -> LockStatus:
    url, name = split_target(target)
    async with connect_to(url, options, max_clock_skew=max_clock_skew) as client:
        return await client.lock(name).status()


@click.command("list")
@click.argument("url", metavar="URL/")
@store_options
@json_option
def list_command(url: str, options: dict[str, object], max_clock_skew: float | None, *, as_json: bool) -> int:
    """Show all locks under URL. Exit code 65 if one is corrupt."""

    async def read() -> list[LockStatus]:
        async with connect_to(url, options, max_clock_skew=max_clock_skew) as client:
            return await client.list()

    statuses = asyncio.run(read())
    if not as_json:
        print_list(statuses)
    else:
        for status in statuses:
            print_json(status)
    return CORRUPT if any(status.state == "corrupt" for status in statuses) else DONE


@click.command("break")
@click.argument("target", metavar="URL/NAME")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--force", is_flag=True, help="Break a live lock too.")
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
    """Free another's lock by hand: expired, corrupt, or with --force a live one.

    The lock's guarantee does not cover this: the old holder may act until its next renewal or its
    deadline. The next holder gets a higher fencing token, so fenced objects refuse the old one.
    """
    if not yes and not sys.stdin.isatty():
        raise click.UsageError(
            "there is no terminal to ask on: add --yes to break the lock without a question"
        )
    url, name = split_target(target)
    seen = asyncio.run(_read(target, options, max_clock_skew))
    if seen.state != "free":
        tell(f"{_described(seen)}\nThe old holder may act until its next renewal or its deadline.")
        if seen.state == "held" and not force:
            tell("Only --force breaks a live lock.")
            raise LockChangedError(key=f"{name}.json", expected=seen.version, status=seen)
        if not yes and not _confirmed(f"Break {target}? [y/N] "):
            tell("nothing was written")
            return NO

    async def write() -> LockStatus:
        async with connect_to(url, options, max_clock_skew=max_clock_skew) as client:
            return await _break(client.lock(name), seen, force=force)

    status = asyncio.run(write())
    if as_json:
        print_json(status)
    else:
        click.echo(f"{status.name}: was {seen.state}, now {status.state}")
    return DONE


async def _break(lock: Lock, seen: LockStatus, *, force: bool) -> LockStatus:
    """Break the lock that was seen, also if its holder has renewed it since, but not if the owner changed."""
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
        return f"{status.name} is corrupt: who holds it is unknown."
    who = printable(status.holder or status.owner)
    left = "" if status.remaining is None else f", {status.remaining:.0f} s left"
    return f"{status.name} is {status.state} by {who}{left}."
