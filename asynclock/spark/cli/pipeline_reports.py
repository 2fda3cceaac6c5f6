"""The output of ``asynclock pipeline`` for people; ``--json`` has the same facts for programs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from asynclock._shared.words import printable

if TYPE_CHECKING:
    from asynclock.spark.check.sources import StreamValidation
    from asynclock.spark.check.validation import ValidationReport
    from asynclock.spark.results import BatchReport, RebucketReport, RunReport, ServicesReport, Wasted
    from asynclock.spark.services.repair import RepairReport


def print_batch(batch: BatchReport) -> None:
    """Print the result of a batch of a stream."""
    done = (
        "committed before, skipped" if batch.skipped else f"{batch.rows} events read in {batch.seconds:.1f} s"
    )
    aside = f", {batch.quarantined} bad rows put aside" if batch.quarantined else ""
    again = f", {batch.retries} retries" if batch.retries else ""
    wasted = _wasted(batch.wasted)
    click.echo(f"{batch.stream}: batch {batch.batch_id}: {done}{aside}{again}{wasted}")


def print_run(report: RunReport) -> None:
    """Print the result of each stream of a run."""
    for stream in report.streams:
        click.echo(
            f"{stream.stream}: {stream.rows} events read in {stream.batches} batches, "
            f"{stream.skipped} skipped, {stream.quarantined} bad rows, {stream.retries} retries, "
            f"waited {stream.lock_wait_seconds:.1f} s for the lease"
            f"{_wasted(stream.wasted)}"
        )
        if stream.error is not None:
            click.echo(f"{stream.stream}: failed: {stream.error}")
    click.echo(f"{report.rows} events read in {report.seconds:.1f} s, {report.rows_per_second:.0f} a second")


def _wasted(wasted: Wasted) -> str:
    return f", {wasted.conflicts} conflicts wasted {wasted.seconds:.1f} s" if wasted.conflicts else ""


def print_services(report: ServicesReport) -> None:
    """Print the work of the table services."""
    click.echo(
        f"{len(report.compactions)} compactions, {len(report.clusterings)} clusterings, "
        f"{report.cleanings} cleanings, "
        f"{len(report.rolled_back)} dead instants rolled back"
        f"{f', {report.syncs} syncs' if report.syncs else ''} in {report.seconds:.1f} s"
    )


def print_repair(report: RepairReport) -> None:
    """Print the result of a repair."""
    for file in report.files:
        click.echo(f"removed {file}, which was outside of the buckets")
    for plan in report.plans:
        click.echo(f"removed the plan {plan}")
    if report.guarded:
        click.echo("put the guard into the table's properties")
    if report.rejected:
        click.echo(
            f"{report.rejected} rows without a key or an ordering value are kept in {report.rejected_folder}"
        )
    click.echo("nothing to repair" if report.nothing else f"{report.rows} rows moved into the buckets")


def print_rebucket(report: RebucketReport, spec: str) -> None:
    """Print the result of a rebucket, and what is left to do."""
    if report.keys is None:
        done = "an interrupted exchange is finished"
    else:
        done = f"{report.keys} keys copied and compared, {report.caught_up} of them once more"
    click.echo(f"{done}, in {report.seconds:.1f} s; streams had to wait for {report.reserved_seconds:.1f} s")
    click.echo(
        f"{report.buckets} buckets in place of {report.before}: set buckets = {report.buckets} in {spec} and "
        f"start its drivers again; the old table stays in {report.old} until you remove it"
    )


_NAMED: Final = 3


def print_validation(report: ValidationReport) -> None:
    """Print the result of a validation."""
    for found in report.sample:
        key = ", ".join(f"{name}={value!r}" for name, value in found.key.items())
        click.echo(f"{key}: {found.column or 'row'}: expected {found.expected!r}, found {found.found!r}")
    for stream in report.streams:
        _print_source(stream)
    click.echo(
        f"{len(report.stale_commits)} commits by stale holders, {len(report.repeated_batches)} repeated "
        f"batches, {len(report.pending)} pending instants, {len(report.leftovers)} leftovers"
    )
    _print_unseen(report)
    for file in report.stray_files:
        click.echo(f"{file} is outside of the buckets, so every write fails; run asynclock pipeline repair")
    for file in report.cut_files:
        click.echo(f"{file} is cut: the rest of its rows is lost; put it back, or restore a savepoint")
    for commit in report.changing_commits:
        click.echo(
            f"{commit.stream}: the commit {commit.requested} of batch {commit.batch_id} under token "
            f"{commit.fencing_token} came too late or twice, and changed the table"
        )
    if report.as_of is not None:
        click.echo(f"as of {report.as_of}")
    if report.one_key_in > 1:
        click.echo(f"one key in {report.one_key_in} was compared, because the sources are large")
    _print_not_compared(report)
    if report.as_of is None:
        click.echo("there is no table yet")
    click.echo(f"{report.keys} keys x {report.columns} columns compared, {report.differences} differences")


def _print_not_compared(report: ValidationReport) -> None:
    if report.statements:
        click.echo(f"{report.statements} commits by statements or Splice.write count as events")
    if report.unknown_statements:
        click.echo(
            f"{report.unknown_statements} of them cannot be read: their files are cleaned away, or the table "
            "does not keep what they wrote"
        )
    if report.not_comparable:
        what = "source or statement" if report.unknown_statements else "source"
        click.echo(
            f"{report.not_comparable} of the keys have values that may be of a {what} that is gone: "
            "these values were not compared"
        )
    if not report.compared:
        click.echo("no value could be compared: all sources are gone, so nothing is known of the table")


def _print_unseen(report: ValidationReport) -> None:
    for unseen in report.unseen_commits:
        of = "no stream" if unseen.stream is None else f"stream {printable(unseen.stream)}"
        click.echo(
            f"the commit {unseen.requested} of {of}, completed at {unseen.completed}, lies behind the "
            f"compaction {unseen.compaction}: {unseen.rows} rows of it are never seen; a new checkpoint of "
            "the stream writes them again"
        )


def _print_source(stream: StreamValidation) -> None:
    unread = f", {len(stream.unread_files)} files not committed yet" if stream.unread_files else ""
    if stream.unread_records:
        unread = f", {stream.unread_records} records not committed yet"
    click.echo(f"{stream.stream}: {stream.events} events, {stream.bad_rows} bad rows{unread}")
    if stream.topic is None and not stream.files:
        click.echo(f"{stream.stream}: its source has no files, so no value of it is expected")
    if stream.removed_files:
        named = ", ".join(stream.removed_files[:_NAMED])
        more = f" and {len(stream.removed_files) - _NAMED} more" if len(stream.removed_files) > _NAMED else ""
        click.echo(
            f"{stream.stream}: {len(stream.removed_files)} files are gone that it has read: {named}{more}"
        )
    if stream.removed_records:
        click.echo(f"{stream.stream}: the topic has lost {stream.removed_records} records that it has read")
    for file in stream.changed_files:
        click.echo(f"{stream.stream}: {file} has changed after it was read; a file is read once")
    for file in stream.hidden_files:
        click.echo(f"{stream.stream}: {file} is never read: its name begins with _ or .")
