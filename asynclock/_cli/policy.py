"""``asynclock policy``: the least permissions for the locks at a URL."""

from __future__ import annotations

import json
from functools import cache
from typing import TYPE_CHECKING, Any, Final

import click

from asynclock._cli.arguments import url_argument
from asynclock._cli.exit_codes import DONE
from asynclock._cli.output import tell
from asynclock._codes import Code
from asynclock.backends._url import AZURE, bucket_of, object_prefix, split_url
from asynclock.errors import ConfigError

if TYPE_CHECKING:
    from urllib.parse import SplitResult

_PUT, _DELETE = "s3:PutObject", "s3:DeleteObject"
_WILD: Final = str.maketrans({"$": "${$}", "*": "${*}"})


@click.command("policy", short_help="Print the least permissions that locks need.")
@url_argument
@click.option("--read-only", is_flag=True, help="For status, list and watch only (S3).")
@click.option("--prune", is_flag=True, help="Also for prune and for doctor's clean-up (S3).")
def policy_command(url: str, *, read_only: bool, prune: bool) -> int:
    """Print the least permissions that a user of the locks under URL needs.

    For S3 this is a policy in JSON, for Cloud Storage a role, for Azure a role and its scope. Nothing is
    sent.
    """
    parts = split_url(url)
    if read_only and prune:
        raise click.UsageError("--read-only and --prune exclude each other")
    if (read_only or prune) and parts.scheme not in {"s3", "s3a"}:
        raise click.UsageError("--read-only and --prune are for S3 only")
    if parts.scheme in {"s3", "s3a"}:
        click.echo(json.dumps(s3_policy(parts, read_only=read_only, prune=prune), indent=2))
    elif parts.scheme == "gs":
        click.echo(_text("gcs.yaml"), nl=False)
        tell(
            f"for the bucket {bucket_of(parts, 'gs')}; not tested, because no emulator checks rights",
            Code.RIGHTS_NOT_TESTED,
        )
    elif parts.scheme in AZURE:
        click.echo(_text("azure.txt").replace("CONTAINER", parts.netloc.partition("@")[0]), nl=False)
        tell("not tested, because the emulator checks no roles", Code.RIGHTS_NOT_TESTED)
    elif parts.scheme == "file":
        click.echo(
            "permission to read, write and enter the folder; all who can write there can hold its locks"
        )
    elif parts.scheme == "memory":
        click.echo("none")
    else:
        reason = "asynclock knows no permissions for this scheme; see the package that provides its backend"
        raise ConfigError(setting="url", value=url, reason=reason)
    return DONE


def s3_policy(parts: SplitResult, *, read_only: bool = False, prune: bool = False) -> dict[str, Any]:
    """Return the policy for the locks under a URL of S3."""
    bucket, prefix = bucket_of(parts, "s3"), object_prefix(parts).translate(_WILD)

    def fill(value: Any) -> Any:  # noqa: ANN401  JSON
        if isinstance(value, str):
            before, found, after = value.partition("PREFIX/")
            return before.replace("BUCKET", bucket) + (prefix if found else "") + after
        if isinstance(value, list):
            return [fill(item) for item in value]
        return {name: fill(item) for name, item in value.items()} if isinstance(value, dict) else value

    policy: dict[str, Any] = fill(json.loads(_text("s3.json")))
    actions: list[str] = policy["Statement"][0]["Action"]
    if read_only:
        actions.remove(_PUT)
    if prune:
        actions.append(_DELETE)
    return policy


@cache
def _text(name: str) -> str:
    from importlib.resources import files  # noqa: PLC0415  lets other commands start faster

    return (files("asynclock._cli") / "policies" / name).read_text(encoding="utf-8")
