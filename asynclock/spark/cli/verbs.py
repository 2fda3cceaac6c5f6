"""The verbs of ``asynclock pipeline``: run, maintain and validate the splice pipeline of a spec."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import shutil
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from asynclock._shared.command import (
    DONE,
    NO,
    NOT_ACQUIRED,
    UNAVAILABLE,
    duration,
    exit_code,
    json_option,
    print_json,
    run_under,
    tell,
)
from asynclock._shared.internals import open_metrics
from asynclock.errors import AsyncLockError, ConfigError
from asynclock.spark.cli.explain import explanation_lines
from asynclock.spark.cli.metrics_option import metrics_option
from asynclock.spark.cli.pipeline_reports import (
    print_batch,
    print_rebucket,
    print_repair,
    print_run,
    print_services,
    print_validation,
)
from asynclock.spark.cli.progress import StreamBars, busy
from asynclock.spark.cli.report_command import report_command
from asynclock.spark.cli.show import show_command
from asynclock.spark.cli.spark_log import with_spark_log
from asynclock.spark.cli.timeline_command import timeline_command
from asynclock.spark.errors import TimelineAheadError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from asynclock import Lease
    from asynclock.spark.spec.model import Spec

_wait = click.option(
    "--wait", type=duration, metavar="TIME", help="Longest wait for work in flight; default: no limit."
)
_standby = click.option(
    "--wait",
    type=duration,
    metavar="TIME",
    help="Longest wait for a lease that another process holds; default: stand by without a limit.",
)
_EXISTS: Final = "there is such a file, and init overwrites none; name another one, or remove it"

_run_dir = click.option(
    "--run",
    "run_dir",
    metavar="DIR",
    help="Record the run in DIR as lines of JSON, a file for each process; pipeline report draws them.",
)
_once = click.option("--once", is_flag=True, help="Process what is due now, then exit.")


@click.command("init", short_help="Draft a spec with one stream for each FOLDER.")
@click.argument("folders", nargs=-1, required=True, metavar="FOLDER [FOLDER ...]")
@click.option("-o", "--output", metavar="FILE", help="Write the spec to FILE, which must not exist.")
@click.option(
    "--table", metavar="PATH", help="Path or URL of the table. Default: next to FILE, called as it is."
)
@click.option("--key", multiple=True, metavar="NAME", help="A key column; repeatable. Default: guessed.")
def draft_pipeline(
    folders: tuple[str, ...], output: str | None, table: str | None, key: tuple[str, ...]
) -> int:
    """Draft a spec with one stream for each FOLDER, from its first files; every guess has a comment.

    The spec goes to stdout with absolute paths, or to FILE with paths that start there. Nothing else is
    written, and no file is overwritten.
    """
    from asynclock.spark.draft.draft import draft_spec  # noqa: PLC0415  needs the extra

    file = None if output is None else Path(output)
    if file is not None and file.exists():
        raise ConfigError(setting="output", value=output, reason=_EXISTS)
    with busy("reading the first files of each folder"):
        text = draft_spec([Path(folder) for folder in folders], table=table, key=key, file=file, warn=tell)
    if file is None:
        click.echo(text, nl=False)
        return DONE
    try:
        with file.open("x", encoding="utf-8") as created:
            created.write(text)
    except FileExistsError:
        raise ConfigError(setting="output", value=output, reason=_EXISTS) from None
    except OSError as error:
        raise ConfigError(setting="output", value=output, reason=f"cannot be written: {error}") from error
    tell(f"{output} written; check its guesses, then: asynclock pipeline run {output} --once")
    return DONE


@click.command("schema", short_help="Print a JSON schema of specs, for editors.")
def print_schema() -> int:
    """Print a JSON schema of specs, with which an editor completes and checks them.

    Write it into a file. Taplo (in Even Better TOML) finds the file by the first line of a spec, such as
    #:schema ./asynclock.schema.json
    """
    from asynclock.spark.spec.document import json_schema  # noqa: PLC0415  needs the extra

    click.echo(json.dumps(json_schema(), indent=2))
    return DONE


@click.command("run", short_help="Write the streams of SPEC until SIGINT or SIGTERM.")
@click.argument("spec")
@click.option(
    "--stream", "streams", multiple=True, metavar="NAME", help="Write only this stream; repeatable."
)
@_once
@click.option("--fail-fast", is_flag=True, help="Stop all streams as soon as one fails.")
@_standby
@_run_dir
@metrics_option
@json_option
@with_spark_log
def run_pipeline(
    spec: str,
    streams: tuple[str, ...],
    *,
    once: bool,
    fail_fast: bool,
    wait: float | None,
    run_dir: str | None,
    metrics: str | None,
    as_json: bool,
) -> int:
    """Write the streams of SPEC until SIGINT or SIGTERM, each under its own lease.

    A stream that fails ends alone; the others go on, and the exit code is that of its error: 2 if the
    spec does not fit, 69 if the store fails again and again, 75 if another process held its lease for longer
    than --wait, 76 if its lease was lost, else 1.
    """
    from asynclock.spark import StreamFailedError, load_spec, run  # noqa: PLC0415  needs the extra

    loaded = load_spec(spec)
    said = _Said()
    logger = logging.getLogger("asynclock.spark")
    logger.addHandler(said)
    try:
        with open_metrics(metrics) as opened, StreamBars(quiet=as_json or not once) as bars:
            run(
                loaded,
                streams=streams or None,
                once=once,
                fail_fast=fail_fast,
                run_dir=run_dir,
                timeout=wait,
                on_batch=print_json if as_json else print_batch,
                on_report=print_json if as_json else print_run,
                on_progress=bars.update if bars.shown else None,
                metrics=opened,
            )
    except StreamFailedError as error:
        tell(str(error))
        return UNAVAILABLE if error.passing else NO
    except AsyncLockError as error:
        if not said.has(str(error)):
            raise
        # It was said as the stream ended.
        return NOT_ACQUIRED if isinstance(error, TimelineAheadError) else exit_code(error)
    finally:
        logger.removeHandler(said)
    _tell_table(spec, loaded)
    return DONE


@click.command("services", short_help="Compact, cluster and clean the table of SPEC.")
@click.argument("spec")
@_once
@_standby
@_run_dir
@metrics_option
@json_option
@with_spark_log
def run_table_services(
    spec: str, *, once: bool, wait: float | None, run_dir: str | None, metrics: str | None, as_json: bool
) -> int:
    """Compact, cluster and clean the table of SPEC and roll back dead writers, until SIGINT or SIGTERM."""
    from asynclock.spark import load_spec, run_services  # noqa: PLC0415  needs the extra

    loaded = load_spec(spec)
    with open_metrics(metrics) as opened:
        report = run_services(
            loaded,
            once=once,
            on_event=tell if as_json else click.echo,
            run_dir=run_dir,
            timeout=wait,
            metrics=opened,
        )
    print_json(report) if as_json else print_services(report)
    _tell_table(spec, loaded)
    return DONE


@click.command("validate", short_help="Compare every cell of the table with its sources.")
@click.argument("spec")
@click.option("--as-of", metavar="INSTANT", help="Look at what was committed up to this completion time.")
@json_option
@with_spark_log
def validate_table(spec: str, as_of: str | None, *, as_json: bool) -> int:
    """Compare every cell of the table of SPEC with its sources. Exit code 1 if one differs.

    Streams may run meanwhile: what is committed after the start does not count.
    """
    from asynclock.spark import load_spec, session_for, validate  # noqa: PLC0415  needs the extra

    loaded = load_spec(spec)
    with (
        busy("comparing the table with its sources", quiet=as_json),
        session_for(loaded, "asynclock validate") as spark,
    ):
        report = validate(loaded, spark, as_of=as_of)
    print_json(report) if as_json else print_validation(report)
    return DONE if report.ok else NO


@click.command("sql", short_help="Print the SQL that puts the table into a catalog.")
@click.argument("spec")
@click.option("--name", help="Name of the view; default: that of the table's folder.")
def print_sql(spec: str, *, name: str | None) -> int:
    """Print the SQL that puts the table of SPEC into a catalog, to be read and changed by statements."""
    from asynclock.spark import load_spec  # noqa: PLC0415  needs the extra
    from asynclock.spark.hudi.session import SQL_EXTENSION  # noqa: PLC0415
    from asynclock.spark.reader.sql import ddl  # noqa: PLC0415

    statements = ddl(load_spec(spec), name=name)
    click.echo(f"-- For sessions with {SQL_EXTENSION} in spark.sql.extensions, before Hudi's own extension.")
    for statement in statements:
        click.echo(f"{statement};")
    return DONE


@click.command("repair", short_help="Undo a foreign write or plan.")
@click.argument("spec")
@json_option
@with_spark_log
def repair_table(spec: str, *, as_json: bool) -> int:
    """Undo what a foreign write or plan has done to the table of SPEC, while its streams wait."""
    from asynclock.spark import load_spec, repair  # noqa: PLC0415  needs the extra

    report = repair(load_spec(spec))
    print_json(report) if as_json else print_repair(report)
    return DONE


@click.command("explain", short_help="Print every option that Hudi is given, and why.")
@click.argument("spec")
@json_option
def explain_options(spec: str, *, as_json: bool) -> int:
    """Print every option that Hudi is given for the table of SPEC: its layer, its uses and the reason."""
    from asynclock.spark import explain, load_spec  # noqa: PLC0415  imports what the spec may name

    explanation = explain(load_spec(spec))
    if as_json:
        for option in explanation.options:
            print_json(option)
        for column in explanation.columns:
            print_json(column)
        for derived in explanation.derived:
            print_json(derived)
        return DONE
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    for line in explanation_lines(explanation, width):
        click.echo(line)
    return DONE


@click.command("delete", short_help="Append deletes of the keys in a file.")
@click.argument("spec")
@click.option(
    "--keys", required=True, metavar="FILE", help="CSV or JSON lines with the key and partition columns."
)
@click.option("--stream", metavar="NAME", help="Delete this stream's columns only; default: the whole row.")
@click.option(
    "--up-to",
    multiple=True,
    metavar="[STREAM=]VALUE",
    help="Erase also against events that come late: all below this ordering value. Of a whole row a time "
    "for all streams, or STREAM=VALUE for each. With several ordering columns: their values, with commas.",
)
@json_option
@with_spark_log
def delete_rows(spec: str, keys: str, stream: str | None, up_to: tuple[str, ...], *, as_json: bool) -> int:
    """Append deletes of the keys in FILE to the table of SPEC, while streams may run.

    Without --up-to an event that is committed later makes the row again. The values are in no file of the
    table after the next compaction and cleaning, unless a savepoint keeps them.
    """
    from asynclock.spark import Splice, load_spec, session_for  # noqa: PLC0415  needs the extra
    from asynclock.spark.source.reading import read_keys  # noqa: PLC0415

    loaded = load_spec(spec)
    groups = loaded.column_groups() if stream is None else loaded.stream(stream).column_groups(loaded.table)
    columns = {group.label: len(group.orderings) for group in reversed(groups)}
    limit = _limit(up_to, columns, of_one=stream is not None and len(columns) == 1)
    with session_for(loaded, "asynclock delete") as spark:
        frame = read_keys(loaded, spark, keys)
        report = Splice(loaded, spark).delete(frame, stream=stream, up_to=limit)
    if as_json:
        print_json(report)
    else:
        click.echo(
            f"{report.keys} keys, {report.absent} of them with nothing to delete, "
            f"{report.written} deletes appended"
        )
    return DONE


def _limit(
    words: tuple[str, ...], columns: Mapping[str, int], *, of_one: bool
) -> str | list[str] | dict[str, str | list[str]] | None:
    """Return the values of the option, given the numbers of the ordering columns by stream."""

    def values(text: str, label: str) -> str | list[str]:
        return text.split(",") if columns[label] > 1 else text

    named = {} if of_one else columns
    given = [word.partition("=") for word in words if word.partition("=")[0] in named and "=" in word]
    pairs = {label: values(text, label) for label, _, text in given}
    if len(pairs) == len(words):
        return pairs or None
    if len(words) == 1:
        return values(words[0], next(iter(columns))) if of_one else words[0]
    raise click.UsageError("--up-to: give one value, or STREAM=VALUE once for each stream")


@click.command("savepoint", short_help="Keep the table and its checkpoints as they are.")
@click.argument("spec")
@click.option("--delete", metavar="SAVEPOINT", help="Delete this savepoint instead of making one.")
@_wait
@with_spark_log
def make_savepoint(spec: str, *, delete: str | None, wait: float | None) -> int:
    """Keep the table of SPEC and its checkpoints as they are, and print the savepoint's instant.

    Cleaning and archiving keep what a savepoint needs until it is deleted.
    """
    from asynclock.spark import delete_savepoint, load_spec, savepoint  # noqa: PLC0415  needs the extra

    loaded = load_spec(spec)
    if delete is not None:
        delete_savepoint(loaded, delete, timeout=wait)
    else:
        click.echo(savepoint(loaded, timeout=wait))
    return DONE


@click.command("restore", short_help="Set the table and its checkpoints back to SAVEPOINT.")
@click.argument("spec")
@click.argument("savepoint")
@_wait
@json_option
@with_spark_log
def restore_table(spec: str, savepoint: str, *, wait: float | None, as_json: bool) -> int:
    """Set the table of SPEC and its checkpoints back to SAVEPOINT.

    Streams wait meanwhile, and then read again what was dropped. If the restore is killed, streams refuse
    to run until it has been run again.
    """
    from asynclock.spark import load_spec, restore  # noqa: PLC0415  needs the extra

    report = restore(load_spec(spec), savepoint, timeout=wait)
    if as_json:
        print_json(report)
        return DONE
    click.echo(f"{report.dropped} commits after {report.savepoint} dropped")
    for delete in report.undone_deletes:
        click.echo(f"the delete {delete} is undone: what it erased comes back, unless you delete it again")
    return DONE


@click.command("rebucket", short_help="Copy the table into another number of buckets.")
@click.argument("spec")
@click.option(
    "--buckets", required=True, type=click.IntRange(min=1), metavar="N", help="The new number, per partition."
)
@_wait
@json_option
@with_spark_log
def rebucket_table(spec: str, buckets: int, *, wait: float | None, as_json: bool) -> int:
    """Copy the table of SPEC into N buckets, and put the copy in its place.

    Streams and services go on while the rows are copied, and wait while the copy catches up. Then they are
    refused until buckets in SPEC is N. If this is killed, run it again. The old table stays in a folder of
    its own, with its savepoints and earlier states.
    """
    from asynclock.spark import load_spec, rebucket  # noqa: PLC0415  needs the extra

    loaded = load_spec(spec)
    with busy(f"copying the table into {buckets} buckets", quiet=as_json):
        report = rebucket(loaded, buckets, timeout=wait)
    print_json(report) if as_json else print_rebucket(report, spec)
    return DONE


@click.command("to-utc", short_help="Move the times of the table to UTC.")
@click.argument("spec")
@_wait
@with_spark_log
def move_to_utc(spec: str, *, wait: float | None) -> int:
    """Move the timeline of SPEC's table from the local times of its drivers to UTC, once.

    New tables are in UTC. The table must have nothing pending, and no instant that is later than now in UTC;
    else this says how long to wait. First stop all drivers, also those in other zones.
    """
    from asynclock.spark import load_spec, to_utc  # noqa: PLC0415  needs the extra

    moved = to_utc(load_spec(spec), timeout=wait)
    click.echo("the times of the table are in UTC from now on" if moved else "the table is in UTC already")
    return DONE


@click.command("reserve", short_help="Run CMD while nothing else writes to the table.")
@click.argument("spec")
@click.argument("command", metavar="-- CMD [ARG ...]", nargs=-1, required=True, type=click.UNPROCESSED)
@_wait
@with_spark_log
def run_reserved(spec: str, command: tuple[str, ...], *, wait: float | None) -> int:
    """Run CMD while no stream, service or write is at work on the table of SPEC.

    Streams that run finish their batch, keep their leases and go on when CMD has ended. CMD finds the lease
    in its environment and is ended if the lease is lost, as under asynclock run; exit codes as there.
    """
    from asynclock._shared.internals import client_over, core_of  # noqa: PLC0415  lets other commands start faster
    from asynclock.spark import load_spec, session_for  # noqa: PLC0415  needs the extra
    from asynclock.spark.hudi.table import Table  # noqa: PLC0415
    from asynclock.spark.work.register import RESERVATION_LOCK  # noqa: PLC0415
    from asynclock.spark.work.reservation import Reservation  # noqa: PLC0415

    loaded = load_spec(spec)
    locks = loaded.locks
    with contextlib.ExitStack() as resources:
        spark = resources.enter_context(session_for(loaded, "asynclock reserve"))
        deadline = None if wait is None else time.monotonic() + wait

        async def ready(lease: Lease) -> None:
            stop = threading.Event()

            def await_quiet() -> None:
                with resources, Reservation(Table(loaded, spark)) as reservation:
                    reservation.await_quiet(lease, deadline=deadline, timeout=wait, stop=stop)

            waiting = asyncio.ensure_future(asyncio.to_thread(await_quiet))
            try:
                await asyncio.shield(waiting)
            except asyncio.CancelledError:
                stop.set()
                await waiting
                raise

        client = client_over(core_of(locks.connect()))
        target = f"{locks.url.rstrip('/')}/{RESERVATION_LOCK}"
        return asyncio.run(
            run_under(client, client.lock(RESERVATION_LOCK), command, target=target, wait=wait, ready=ready)
        )


class _Said(logging.Handler):
    """Remembers what has been logged, and so printed, as an error."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self._messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self._messages.append(record.getMessage())

    def has(self, text: str) -> bool:
        """Whether a message has this text in it."""
        return any(text in message for message in self._messages)


def _tell_table(path: str, spec: Spec) -> None:
    from asynclock.spark.hudi.layout import layout_of  # noqa: PLC0415  needs the extra

    sql = f", or see asynclock pipeline sql {path}" if layout_of(spec).in_groups else ""
    tell(f"the table is {spec.table.path}; read it by asynclock.spark.read(load_spec({path!r}), spark){sql}")


VERBS: Final = (
    draft_pipeline,
    print_schema,
    run_pipeline,
    run_table_services,
    validate_table,
    print_sql,
    repair_table,
    explain_options,
    delete_rows,
    make_savepoint,
    restore_table,
    rebucket_table,
    move_to_utc,
    run_reserved,
    show_command,
    timeline_command,
    report_command,
)
