"""Arguments and options that several commands share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

import click

from asynclock._cli.durations import duration
from asynclock._cli.option_words import parse_options
from asynclock._cli.target import DEFAULT_URL, full_target, full_url, with_environment

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

F = TypeVar("F", bound="Callable[..., Any]")


class Decorator(Protocol):
    """A decorator that adds an argument or an option to the function of a command."""

    def __call__(self, function: F, /) -> F:
        """Return ``function`` with the argument or option."""
        ...


_HUDI_OPTION: Final = "asynclock."

url_argument: Decorator = click.argument(
    "url",
    metavar="URL/",
    envvar=DEFAULT_URL,
    callback=lambda context, _, word: word if context.resilient_parsing else full_url(word),
)
"""The URL of the locks; default: ``ASYNCLOCK_URL``."""

target_argument: Decorator = click.argument(
    "target",
    metavar="URL/NAME",
    callback=lambda context, _, word: word if context.resilient_parsing else full_target(word),
)
"""A lock. A name alone means a lock under ``ASYNCLOCK_URL``."""

backend_option: Decorator = click.option(
    "-o",
    "options",
    multiple=True,
    metavar="KEY=VALUE",
    callback=lambda context, _, words: {} if context.resilient_parsing else parse_options(words),
    help="An option of the store; repeatable. See asynclock --help.",
)


def store_options(function: F) -> F:
    """Add the options of every command that reads or writes locks."""
    skew = click.option(
        "--max-clock-skew",
        type=duration,
        metavar="TIME",
        help="How far two nodes of the store may differ; default 0 for file://, else 2s.",
    )
    return skew(backend_option(function))


table_argument: Decorator = click.argument("table", metavar="TABLE")
"""The base path of a Hudi table."""


def table_options(
    table: str, options: Mapping[str, object], *, max_clock_skew: float | None = None
) -> dict[str, str]:
    """Return options of a command and of the environment under the names of ``asynclock.hudi``.

    Raises:
        ConfigError: Hudi's lock cannot lock this table, or an option of the environment is wrong.
    """
    from asynclock.hudi._core.paths import TablePath  # noqa: PLC0415  lets other commands start faster

    given = with_environment(TablePath.parse(table).url, options)
    if max_clock_skew is not None:
        given["max_clock_skew"] = max_clock_skew
    return {f"{_HUDI_OPTION}{name}": _word(value) for name, value in given.items()}


def _word(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def break_options(function: F) -> F:
    """Add the options of commands that free another holder's lock."""
    yes = click.option("--yes", is_flag=True, help="Do not ask.")
    return yes(click.option("--force", is_flag=True, help="Break a live or corrupt lock too.")(function))


check_option: Decorator = click.option(
    "--check", is_flag=True, help="For scripts: exit with 1 if it is held, 0 if not."
)
"""Makes the exit code say whether a lock is held."""

json_option: Decorator = click.option("--json", "as_json", is_flag=True, help="One JSON object per line.")
