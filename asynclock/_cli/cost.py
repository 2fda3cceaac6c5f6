"""``asynclock cost``: the daily requests of the locks at a URL, and their price."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import click

from asynclock._cli.arguments import json_option, url_argument
from asynclock._cli.durations import duration
from asynclock._cli.exit_codes import DONE
from asynclock._cli.output import print_json
from asynclock.backends._url import AZURE, split_url
from asynclock.errors import ConfigError
from asynclock.settings import LeaseSettings

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeVar

    F = TypeVar("F", bound=Callable[..., Any])

_DAY: Final = 86_400.0
_MEAN_JITTER: Final = 0.75
"""A waiter reads again after half to all of its poll interval."""
_ROUND_TRIP: Final = 0.02
"""Assumed seconds for a read; a longer read means fewer reads."""


@dataclass(frozen=True)
class _Price:
    provider: str
    write: float
    """Dollars per million."""
    read: float
    source: str


_S3: Final = _Price(
    "Amazon S3", 5.0, 0.4, "S3 Standard, US East, from pricing examples that AWS published by 2025"
)
_GCS: Final = _Price(
    "Google Cloud Storage",
    5.0,
    0.4,
    "Standard, one US region, from pricing examples that Google published by 2025",
)
_AZURE: Final = _Price(
    "Azure Blob Storage",
    5.5,
    0.44,
    "hot tier, the sample prices of Microsoft's page on estimating the cost of Blob Storage; zone and geo "
    "redundancy cost more",
)
_FREE: Final = _Price("nobody", 0.0, 0.0, "the store is this machine")
PRICES: Final = {
    "s3": _S3,
    "s3a": _S3,
    "gs": _GCS,
    **dict.fromkeys(AZURE, _AZURE),
    "file": _FREE,
    "memory": _FREE,
}


@dataclass(frozen=True, slots=True)
class Cost:
    """The daily cost of locks.

    Attributes:
        provider: Provider that charges it.
        writes: Write requests per day.
        reads: Read requests per day.
        dollars: Their price.
        dollars_per_million_writes: The price behind ``dollars``.
        dollars_per_million_reads: The price behind ``dollars``.
        source: Source of these prices.
    """

    provider: str
    writes: int
    reads: int
    dollars: float
    dollars_per_million_writes: float
    dollars_per_million_reads: float
    source: str


def cost_of(
    scheme: str, settings: LeaseSettings, *, locks: float = 1, waiting: float = 0, acquired: float = 0
) -> Cost:
    """Return the daily cost of locks.

    Args:
        scheme: Scheme of the URL.
        settings: Settings of the clients.
        locks: Number of locks that are held all day.
        waiting: Number of clients that wait all day.
        acquired: How often per day a lock is acquired and released.

    Raises:
        ConfigError: No price is known for the scheme.
    """
    if scheme not in PRICES:
        reason = "asynclock knows no prices for this scheme"
        raise ConfigError(setting="url", value=f"{scheme}://", reason=reason)
    price = PRICES[scheme]
    look = _MEAN_JITTER * settings.poll_interval + _ROUND_TRIP
    writes = round(locks * _DAY / settings.renew_interval + 2 * acquired)
    reads = round(waiting * _DAY / look)
    dollars = (writes * price.write + reads * price.read) / 1e6
    return Cost(price.provider, writes, reads, dollars, price.write, price.read, price.source)


def _number(name: str, default: float, help_text: str) -> Callable[[F], F]:
    return click.option(name, type=_count, default=default, metavar="N", help=help_text)


def _count(word: str) -> float:
    number = float(word)
    if not 0 <= number < math.inf:
        raise click.BadParameter("must be 0 or more")
    return number


@click.command("cost", short_help="Show the daily requests of locks, and their price.")
@url_argument
@_number("--locks", 1, "Locks that are held all day; default 1.")
@_number("--waiting", 0, "Clients that wait all day; default 0.")
@_number("--acquired", 0, "Acquisitions per day, each with its release; default 0.")
@click.option("--validity", type=duration, metavar="TIME", help="Validity of the leases; default 5m.")
@click.option(
    "--poll-interval", type=duration, metavar="TIME", help="Poll interval of waiters; default at most 1s."
)
@json_option
def cost_command(
    url: str,
    *,
    locks: float,
    waiting: float,
    acquired: float,
    validity: float | None,
    poll_interval: float | None,
    as_json: bool,
) -> int:
    """Show the daily requests of the locks under URL, and their price. Nothing is sent.

    Not counted: storage, old versions that the bucket keeps, traffic, and requests to a KMS key.
    """
    given = {"validity": validity, "poll_interval": poll_interval}
    settings = LeaseSettings(**{name: value for name, value in given.items() if value is not None})
    cost = cost_of(split_url(url).scheme, settings, locks=locks, waiting=waiting, acquired=acquired)
    if as_json:
        print_json(cost)
        return DONE
    held = f"{locks:g} locks held all day, renewed every {settings.renew_interval:g} s"
    click.echo(f"{held}; {waiting:g} clients waiting; {acquired:g} acquisitions a day")
    click.echo(f"a day, paid to {cost.provider}:")
    click.echo(f"  writes  {cost.writes:>13,}  ${cost.writes * cost.dollars_per_million_writes / 1e6:.3f}")
    click.echo(f"  reads   {cost.reads:>13,}  ${cost.reads * cost.dollars_per_million_reads / 1e6:.3f}")
    click.echo(f"  in all                 ${cost.dollars:.3f}")
    click.echo(
        f"${cost.dollars_per_million_writes:g} per million writes, ${cost.dollars_per_million_reads:g} per "
        f"million reads: {cost.source}"
    )
    return DONE
