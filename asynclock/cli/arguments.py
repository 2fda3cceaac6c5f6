"""Arguments and options that several commands have."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from asynclock.cli.options import parse_options
from asynclock.cli.target import DEFAULT_URL, full_target

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeVar

    F = TypeVar("F", bound=Callable[..., Any])

url_argument = click.argument("url", metavar="URL/", envvar=DEFAULT_URL)
"""Where locks are; default: ``ASYNCLOCK_URL``."""

target_argument = click.argument(
    "target",
    metavar="URL/NAME",
    callback=lambda context, _, word: word if context.resilient_parsing else full_target(word),
)
"""A lock; a name alone is that of a lock under ``ASYNCLOCK_URL``."""

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
