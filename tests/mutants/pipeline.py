"""The mutants of the pipeline: mistakes in its decisions, in Python and Java, and the test that finds each.

Each would silently lose, double or reorder rows, or let two writers in. ``planting`` says how a mistake is
written; the test is the narrowest one, as pytest names it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tests.mutants.planting import Change, Patch
from tests.mutants.several import ENTER_ALL


@dataclass(frozen=True, slots=True)
class PipelineMutant:
    """One planted mistake.

    Attributes:
        name: What the mistake is.
        changes: Where it is made, and how; in several places where one alone is made up for by another.
        test: What must fail: a file, a test, or one case of it.
        sign: A pattern of the error, where the test fails by another one than a failed expectation.
    """

    name: str
    changes: tuple[Change | Patch, ...]
    test: str
    sign: str = ""

    @property
    def in_java(self) -> bool:
        """Whether classes change, so that a JVM of its own is needed."""
        return any(isinstance(change, Patch) for change in self.changes)


_SPARK: Final = "asynclock.spark."

# A batch, from its look-up to its commit.
_SPLICE: Final = f"{_SPARK}writer.splice:Splice"
APPEND: Final = f"{_SPLICE}._append"
CHECK_FRAME: Final = f"{_SPLICE}._check_columns"
NEWEST: Final = f"{_SPLICE}._newest"
EVENT_OF: Final = f"{_SPARK}writer.sql_text:event_of"
REDUCED: Final = f"{_SPARK}writer.sql_text:reduced"
_ONCE: Final = f"{_SPARK}writer.once:"
CHECK_GROUPS: Final = f"{_SPARK}hudi.view_names:_check_groups"
CHECK_ORDERINGS: Final = f"{_SPARK}hudi.view_names:_check_orderings"
WRITE: Final = f"{_SPLICE}._write"
STREAM_LOCK: Final = f"{_SPARK}writer.splice:stream_lock"
_BATCHES: Final = f"{_SPARK}writer.batch:Batches"
COMMIT: Final = f"{_BATCHES}.commit"
PUT_ASIDE: Final = f"{_BATCHES}._put_aside"
RETRY: Final = f"{_SPARK}retry:retry"
FIND_DELETED: Final = f"{_SPARK}writer.deletion:Deletion._find"
KEPT_FROM_THE_RUN: Final = f"{_SPARK}runs.observing:Observer._kept_from_the_run"
LEARN: Final = f"{_SPARK}source.backlog:BacklogLook._learn"
BIND: Final = f"{_SPARK}source.checkpoint:Checkpoint.bind"
PARSE_TOPIC: Final = f"{_SPARK}source.kafka:TopicSource.parse"
RECORD_KEY: Final = f"{_SPARK}spec.keys:record_key"

# Who may write.
_WORKER: Final = f"{_SPARK}work.worker:Worker"
WORKER: Final = f"{_WORKER}.__init__"
ADMIT: Final = f"{_WORKER}.admit"
ARCHIVED: Final = f"{_SPARK}hudi.timeline:Timeline.archived"
MOVE: Final = f"{_SPARK}hudi.rebuckets:move"
LEADING: Final = f"{_SPARK}work.worker:leading"
_REGISTER: Final = f"{_SPARK}work.register:Register"
ANNOUNCE: Final = f"{_REGISTER}.announce"
AT_WORK: Final = f"{_REGISTER}.at_work"
ENTER: Final = f"{_REGISTER}._enter"
RESERVED: Final = f"{_REGISTER}.reserved"
_PASSAGE: Final = f"{_SPARK}work.passage:Passage"
PARK: Final = f"{_PASSAGE}._park"
PASSED: Final = f"{_PASSAGE}.passed"
UNPARK: Final = f"{_PASSAGE}._unpark"
_RESERVATION: Final = f"{_SPARK}work.reservation:Reservation"
IN_FLIGHT: Final = f"{_RESERVATION}.in_flight"
WORKING_NOW: Final = f"{_RESERVATION}._working"
CHECK_URL: Final = f"{_SPARK}hudi.locks:check_url"
CHECK_MARK: Final = f"{_SPARK}hudi.locks:_check_mark"
GUARD: Final = f"{_SPARK}hudi.guard"
_TABLE: Final = f"{_SPARK}hudi.table:Table"
GUARD_TABLE: Final = f"{_TABLE}.guard"
CHECK_WRITABLE: Final = f"{_TABLE}.check_writable"
REFUSE_ANOTHER_TABLE: Final = f"{_SPARK}source.checkpoint:Checkpoint.refuse_another_table"
REFUSE_MISSING: Final = f"{_SPARK}reader.presence:refuse_missing"
CHECK_COMMIT: Final = f"{_SPARK}hudi.fit:check_commit"
CHECK_DERIVED: Final = f"{_SPARK}hudi.fit:check_derived"
CONCURRENCY: Final = f"{_SPARK}hudi.options.concurrency"

# The timeline and the columns.
_COMMITS: Final = f"{_SPARK}hudi.commits:Commits"
FORGET: Final = f"{_COMMITS}._forget_what_was_restored"
HAS: Final = f"{_COMMITS}.has"
READ_TIMELINE: Final = f"{_COMMITS}._read"
CONTAINS: Final = f"{_SPARK}hudi.ranges:Ranges.__contains__"
REQUEST_BOUND: Final = f"{_SPARK}hudi.time_travel:request_bound"
CHECK_CHANGE: Final = f"{_SPARK}hudi.columns:check_change"
CHECK_COLUMNS: Final = f"{_SPARK}hudi.columns:check_columns"
COLUMNS_TO_WRITE: Final = f"{_SPARK}hudi.columns:columns_to_write"
UNION: Final = f"{_SPARK}hudi.columns:union"

# Services and savepoints.
CLEAN: Final = f"{_SPARK}services.work:Cleaning.step"
CLUSTER: Final = f"{_SPARK}services.work:Clustering.step"
COMPACT: Final = f"{_SPARK}services.work:Compaction.step"
GO_BACK: Final = f"{_SPARK}services.savepoints:_Work.go_back"
REPAIR: Final = f"{_SPARK}services.repair:_Repair.run"

# Readers.
ALIVE: Final = f"{_SPARK}hudi.layout:SpliceLayout._alive"
SELECT: Final = f"{_SPARK}reader.sql:_select"
COMPARE: Final = f"{_SPARK}check.strict.expected:Expected.compare"
LAYOUT_OF: Final = f"{_SPARK}check.strict.source_file:layout_of"
STATEMENT_ROWS: Final = f"{_SPARK}check.statements:StatementEvents._add"
STATEMENT_TAKE: Final = f"{_SPARK}check.statements:StatementEvents._take"
STALE: Final = f"{_SPARK}check.committed:stale_commits"
MERGE: Final = f"{_SPARK}hudi.options.merge:merge"

# Java.
_CHANGED_FILES: Final = "timeline/ChangedFiles.java"
_LOCAL_FILES: Final = "disk/LocalFiles.java"
_CHANGED_KEYS: Final = "rows/ChangedKeys.java"
_DEAD_WRITES: Final = "timeline/DeadWrites.java"
_KEYS: Final = "hudi/SpliceKeyGenerator.java"
_ORDER: Final = "timeline/InstantOrder.java"
_UNSEEN: Final = "timeline/Unseen.java"
_LOCK: Final = "lock/TableLockFile.java"
_MERGER: Final = "hudi/SpliceMerger.java"
_ROWS: Final = "splice/Splice.java"
_COLUMNS: Final = "splice/Columns.java"
_FUNCTIONS: Final = "tests/spark/test_merger.py::test_each_merge_function_gives_what_its_definition_says"
_STATEMENTS: Final = "splice/SpliceStatements.java"

_REGISTER_TESTS: Final = "tests/unit/test_register.py::"
_TESTS: Final = "tests/spark/"

PIPELINE_MUTANTS: Final = (
    # Each batch once.
    PipelineMutant(
        "a batch that is committed already is written again",
        (Change(WRITE, "batch_id is not None and $known", "False"),),
        _TESTS + "test_pipeline.py::test_only_the_same_stream_query_and_batch_is_skipped",
    ),
    PipelineMutant(
        "a batch is written again after a kill before its checkpoint",
        (
            Change(WRITE, "batch_id is not None and $known", "False"),
            Change(COMMIT, "not self._splice.committed(*$batch, **$more)", "True"),
        ),
        _TESTS + "test_pipeline.py::test_batch_killed_before_its_checkpoint_is_skipped",
    ),
    PipelineMutant(
        "archived batches are not looked up",
        (Change(READ_TIMELINE, "unseen_archived or $any", "False"),),
        _TESTS + "test_pipeline.py::test_archived_batch_is_skipped",
    ),
    PipelineMutant(
        "the archive is read at the start only",
        (
            Change(
                READ_TIMELINE,
                "not completed.containsInstant(newest_requested) if newest_requested else True",
                "not newest_requested",
            ),
        ),
        _TESTS + "test_pipeline.py::test_writer_sees_a_batch_archived_behind_its_back",
    ),
    PipelineMutant(
        "a batch of another query counts as this one",
        (
            Change(
                HAS,
                "self._queries.get(stream, {}).get(query_id)",
                "next(iter(self._queries.get(stream, {}).values()), None)",
            ),
        ),
        _TESTS + "test_pipeline.py::test_only_the_same_stream_query_and_batch_is_skipped",
    ),
    PipelineMutant(
        "a number in a gap counts as a committed batch",
        (Change(CONTAINS, "at >= 0 and number <= self._lasts[at]", "at >= 0"),),
        _TESTS + "test_ranges.py::test_ranges_have_what_was_added_and_nothing_else",
    ),
    PipelineMutant(
        "a checkpoint does not know its table",
        (Change(BIND, "self._files.write(*$file)", "pass"),),
        _TESTS + "test_checkpoint.py::test_checkpoint_of_another_table_is_refused",
    ),
    # Which event wins.
    PipelineMutant(
        "at a tie the earlier arrival wins",
        (
            Patch(
                _ROWS,
                "return isReversed ? order <= 0 : order > 0;",
                "return isReversed ? order <= 0 : order >= 0;",
            ),
        ),
        _TESTS + "test_merger.py::test_equal_ordering_values_keep_arrival_order",
    ),
    PipelineMutant(
        "of first values with one ordering value the last to arrive wins",
        (Patch(_ROWS, "isReversed ? order <= 0 : order > 0;", "isReversed ? order < 0 : order > 0;"),),
        _FUNCTIONS,
    ),
    PipelineMutant(
        "a minimum is a maximum",
        (Patch(_COLUMNS, "isAny(group, MIN, FIRST, FIRST_OF_ALL);", "isAny(group, FIRST, FIRST_OF_ALL);"),),
        _FUNCTIONS,
    ),
    PipelineMutant(
        "a first value is a last one",
        (Patch(_COLUMNS, "isAny(group, MIN, FIRST, FIRST_OF_ALL);", "isAny(group, MIN, FIRST);"),),
        _FUNCTIONS,
    ),
    PipelineMutant(
        "the first value that is not null is the last one",
        (Patch(_COLUMNS, "isAny(group, MIN, FIRST, FIRST_OF_ALL);", "isAny(group, MIN, FIRST_OF_ALL);"),),
        _FUNCTIONS,
    ),
    PipelineMutant(
        "columns with a function are merged with those of their stream",
        (
            Patch(
                _COLUMNS,
                "FIRST_OF_ALL, SUM)) {\n      return column;",
                "FIRST_OF_ALL, SUM)) {\n      return column.substring(column.indexOf('_', 1) + 1, end);",
            ),
        ),
        _FUNCTIONS,
    ),
    PipelineMutant(
        "of two parts of a sum the newer one counts",
        (Patch(_ROWS, "return sum.of(before, after);", "return after;"),),
        _FUNCTIONS,
    ),
    PipelineMutant(
        "a null erases a sum",
        (Patch(_ROWS, "return before == null ? after : before;", "return after;"),),
        _FUNCTIONS,
    ),
    PipelineMutant(
        "an event that wins no group adds nothing",
        (Patch(_ROWS, "if (!sum.column.newer.isNull(newer)) {", "if (false) {"),),
        _FUNCTIONS,
    ),
    PipelineMutant(
        "a sum of ints wraps",
        (Patch("splice/Sum.java", "return Math.toIntExact(sum);", "return (int) sum;"),),
        _TESTS + "test_merger.py::test_a_sum_that_does_not_fit_is_refused[int]",
    ),
    PipelineMutant(
        "of the events of a batch the newest counts in a sum",
        (Change(REDUCED, "group.is_sum", "False"),),
        _TESTS + "test_functions.py::test_a_sum_counts_each_batch_once",
    ),
    PipelineMutant(
        "a new checkpoint counts all events again",
        (Change(f"{_ONCE}refuse_another_query", "query_id != known[-1]", "False"),),
        "tests/unit/test_sums.py::test_another_query_is_refused",
    ),
    PipelineMutant(
        "a batch that is another one passes for a committed one",
        (Change(f"{_ONCE}refuse_another_batch", "before[name] == now[name]", "True"),),
        "tests/unit/test_sums.py::test_a_batch_that_is_another_one_is_refused",
    ),
    PipelineMutant(
        "a rule of a later version is merged like a group",
        (Patch(_COLUMNS, "if (column.charAt(0) != '_' || column.startsWith(\"_in_\")) {", "if (true) {"),),
        _TESTS + "test_merger.py::test_a_column_of_a_later_version_is_refused",
    ),
    PipelineMutant(
        "a batch orders the rows of a group by their stream",
        (Change(NEWEST, "rank_of(group.orderings, arrival)", "rank_of(orderings, arrival)"),),
        _TESTS + "test_groups.py::test_groups_are_the_oracle_s_whatever_arrives_when_and_is_compacted",
    ),
    PipelineMutant(
        "of several ordering columns only the first is compared",
        (Patch(_ROWS, "order == 0 && turn < orderings.length;", "order == 0 && turn < 1;"),),
        _FUNCTIONS,
    ),
    PipelineMutant(
        "the third ordering column is compared before the second",
        (
            Patch(
                _ROWS,
                "comparingInt(column -> column.turn)",
                "comparingInt(column -> column.turn == 1 ? -9 : -column.turn)",
            ),
        ),
        _FUNCTIONS,
    ),
    PipelineMutant(
        "a batch orders its rows by the first column only",
        (
            Change(
                NEWEST,
                "[types[name] for name in self._table.layout.batch_ordering(stream)]",
                "[types[stream.ordering[0]]]",
            ),
        ),
        _TESTS + "test_functions.py::test_the_last_ordering_column_decides_between_two_rows_of_a_batch",
    ),
    PipelineMutant(
        "the ordering columns of a table may change",
        (Change(CHECK_ORDERINGS, "isinstance(group, FunctionGroup) or $same", "True"),),
        "tests/unit/test_groups.py::test_a_group_of_the_table_keeps_its_ordering",
    ),
    PipelineMutant(
        "a batch keeps the greatest of what has the least",
        (Change(REDUCED, "'min' if group.is_reversed else 'max'", "'max'"),),
        _TESTS + "test_functions.py::test_every_function_gives_what_its_definition_says",
    ),
    PipelineMutant(
        "a null is an event of a column that keeps its last value",
        (Change(EVENT_OF, "not values", "True"),),
        _TESTS + "test_functions.py::test_a_tombstone_erases_the_values_that_nulls_have_kept",
    ),
    PipelineMutant(
        "a tombstone leaves a kept value",
        (Change(EVENT_OF, "group.says_deleted", "False"),),
        _TESTS + "test_functions.py::test_a_tombstone_erases_the_values_that_nulls_have_kept",
    ),
    PipelineMutant(
        "a column may change its group",
        (Change(CHECK_GROUPS, "group != wanted", "False"),),
        "tests/unit/test_groups.py::test_a_column_of_the_table_cannot_change_its_group",
    ),
    PipelineMutant(
        "the order in a frame counts and not that of arrival",
        (
            Change(
                NEWEST,
                'quoted(ARRIVAL) if ARRIVAL in df.columns else "monotonically_increasing_id()"',
                '"monotonically_increasing_id()"',
            ),
        ),
        _TESTS + "test_pipeline.py::test_of_a_frame_the_later_by_its_arrival_wins_a_tie",
    ),
    PipelineMutant(
        "the order of arrival is lost",
        (
            Change(
                NEWEST,
                "rank_of(orderings, arrival, required)",
                'rank_of(orderings, f"-hash({arrival})", required)',
            ),
        ),
        _TESTS + "test_pipeline.py::test_equal_ordering_values_keep_arrival_order",
    ),
    PipelineMutant(
        "a batch is reduced by the ordering value if the later commit wins",
        (Change(NEWEST, "self._table.layout.batch_ordering(stream)", "stream.ordering"),),
        _TESTS + "test_plain.py::test_rows_of_one_batch_are_merged_in_the_order_of_arrival[commit_time]",
    ),
    PipelineMutant(
        "a null of a partial update erases",
        (
            Change(
                NEWEST,
                'f"max_by({$group}.{name}, {$rank}) FILTER (WHERE {$group}.{name} IS NOT NULL) AS {name}"',
                'f"max_by({$group}.{name}, {$rank}) AS {name}"',
            ),
        ),
        _TESTS + "test_plain.py::test_rows_of_one_batch_are_merged_in_the_order_of_arrival[partial_update]",
    ),
    PipelineMutant(
        "the offsets of a topic count backwards",
        (Change(PARSE_TOPIC, 'F.col(OFFSET).alias("offset")', '(-F.col(OFFSET)).alias("offset")'),),
        _TESTS + "test_kafka.py::test_the_later_record_of_a_partition_wins_a_tie_within_and_between_batches",
    ),
    PipelineMutant(
        "a newer null does not erase",
        (
            Patch(
                _ROWS,
                "fromOlder ? column.older.value(older) : column.newer.value(newer);",
                "fromOlder || column.newer.isNull(newer) ? column.older.value(older)"
                " : column.newer.value(newer);",
            ),
            Patch(
                _ROWS,
                "if (group.olderWins(older, newer)) {\n        return false;",
                "if (true) {\n return false;",
            ),
        ),
        _TESTS + "test_merger.py::test_a_newer_null_erases",
    ),
    PipelineMutant(
        "a read leaves out what decides the merge",
        (Patch(_MERGER, "if (Columns.isOrdering(field.name()) || optional", "if (optional"),),
        _TESTS + "test_merger.py::test_a_projection_merges_like_the_whole_row",
    ),
    PipelineMutant(
        "a row that is merged in a write has Hudi's old columns",
        (Patch(_ROWS, "      needed.removeAll(HUDI_COLUMNS);\n", ""),),
        _TESTS + "test_merger.py::test_a_merge_in_a_write_has_the_columns_of_the_incoming_record",
    ),
    PipelineMutant(
        "two keys of two columns are one",
        (
            Change(RECORD_KEY, "f\"concat_ws('|', {$values})\"", "f\"concat_ws('', {$values})\""),
            Patch(_KEYS, 'at == 0 ? "" : "|"', '""'),
        ),
        _TESTS + "test_keys.py::test_keys_of_two_columns_do_not_collide",
    ),
    # Deletes.
    PipelineMutant(
        "a tombstone forgets its ordering value",
        (
            Patch(
                _ROWS,
                "    private final Column[] orderings;\n",
                "    private final Column[] orderings;\n    private final Column gone;\n",
            ),
            Patch(
                _ROWS,
                "      this.columns = columns.toArray(new Column[0]);\n",
                "      this.columns = columns.toArray(new Column[0]);\n"
                "      this.gone = columns.stream()\n"
                "          .filter(column -> Columns.isTombstone(fields.get(column.target).name()))\n"
                "          .findFirst().orElse(null);\n",
            ),
            Patch(
                _ROWS,
                "      if (!isPresentIn(newer)) {\n        return true;\n      }\n",
                "      if (!isPresentIn(newer)) {\n        return true;\n      }\n"
                "      if (gone != null && Boolean.TRUE.equals(gone.older.value(older))) {\n"
                "        return false;\n      }\n",
            ),
        ),
        _TESTS + "test_merger.py::test_a_tombstone_holds_against_a_late_event",
    ),
    PipelineMutant(
        "an event after a delete brings the old row back",
        (Patch(_MERGER, "return withOperation(newer, HoodieOperation.INSERT);", "return newer;"),),
        _TESTS + "test_merger.py::test_an_event_after_a_delete_does_not_bring_the_old_row_back",
    ),
    PipelineMutant(
        "a key that the table lacks gets no tombstone",
        (
            Change(
                FIND_DELETED,
                "newest_alive if limit is None else map(F.expr, limit)",
                "[F.when(F.col(_alive_name(of)), F.expr(one)) for one in limit or ()] or newest_alive",
            ),
        ),
        _TESTS + "test_deletes.py::test_up_to_erases_against_events_that_come_late",
    ),
    PipelineMutant(
        "a tombstone is shown",
        (Change(ALIVE, "ordered & $undeleted", "ordered"),),
        _TESTS + "test_pipeline.py::test_newer_null_erases_and_tombstone_hides",
    ),
    # What cannot be written.
    PipelineMutant(
        "bad rows are dropped",
        (Change(PUT_ASIDE, 'bad.write.mode("overwrite").json(folder)', "pass"),),
        _TESTS + "test_pipeline.py::test_bad_rows_are_put_aside_and_counted",
    ),
    PipelineMutant(
        "a frame of other types is written",
        (Change(CHECK_FRAME, "wanted != given", "False"),),
        _TESTS + "test_pipeline.py::test_frame_that_does_not_fit_the_stream_is_refused[other-type]",
    ),
    PipelineMutant(
        "another number of buckets is accepted",
        (Change(CHECK_COMMIT, "commit.buckets != table.buckets", "False"),),
        _TESTS + "test_pipeline.py::test_table_made_for_another_spec_is_refused",
    ),
    PipelineMutant(
        "any record key is accepted",
        (
            Patch(
                _KEYS,
                "given == null || !given.equals(UTF8String.fromString(encoded.toString()))",
                "given == null",
            ),
        ),
        _TESTS + "test_sql.py::test_a_wrong_record_key_is_refused",
    ),
    PipelineMutant(
        "a bulk insert is let past the buckets",
        (Patch(_KEYS, "if (!deletes && !UPSERTS", "if (false && !UPSERTS"),),
        _TESTS
        + "test_sql.py::test_a_write_with_other_options_is_refused"
        + "[options4-takes upsert, insert and delete]",
    ),
    PipelineMutant(
        "an insert into a copy-on-write table stores a key twice",
        (Patch(_KEYS, "if (INSERTS.contains(operation) && ", "if (false && "),),
        _TESTS + "test_copy_on_write.py::test_a_session_with_the_jar_alone_merges_or_does_not_write",
    ),
    PipelineMutant(
        "files outside of the buckets are not noticed",
        (Change(CHECK_WRITABLE, "self.refuse_strays()", "pass"),),
        _TESTS + "test_repair.py::test_strays_are_found_before_the_next_write_fails",
    ),
    # The order of instants, and the table that is meant.
    PipelineMutant(
        "a commit is made behind the newest instant of the table",
        (Patch(_ORDER, "return text.compareTo(now) >= 0;", "return false;"),),
        _TESTS + "test_instant_order.py::test_a_writer_that_looked_too_early_is_refused_by_the_lock",
    ),
    PipelineMutant(
        "only requests count as instants",
        (Patch(_ORDER, ".or(instant.group(2), file)", ""),),
        _TESTS + "test_instant_order.py::test_a_completion_counts_as_much_as_a_request",
    ),
    PipelineMutant(
        "a commit behind a compaction is not found",
        (Patch(_UNSEEN, "!next.getValue().containsAll(logs(stat))", "false"),),
        _TESTS + "test_instant_order.py::test_a_commit_behind_a_compaction_is_named",
    ),
    PipelineMutant(
        "a table that is gone is taken for an empty one",
        (Change(REFUSE_MISSING, "table.spec.streams", "()"),),
        _TESTS + "test_presence.py::test_a_table_whose_folder_is_gone_is_refused[validate]",
    ),
    PipelineMutant(
        "another table in the place of the one of the checkpoint is taken for it",
        (
            Change(
                REFUSE_ANOTHER_TABLE,
                "bound['table_id'] == (found := table_id())",
                "(found := table_id()) is not None",
            ),
        ),
        _TESTS + "test_presence.py::test_another_table_in_its_place_is_refused[read]",
    ),
    PipelineMutant(
        "a folder of a group loses its setgid bit",
        (Patch(_LOCAL_FILES, "Files.getAttribute(file, MODE) & SET_IDS;", "0;"),),
        _TESTS + "test_local_files.py::test_set_id_bits_of_a_file_go_and_those_of_a_folder_stay",
    ),
    # Two writers.
    PipelineMutant(
        "each writer of a stream has a lock of its own",
        (
            Change(
                STREAM_LOCK,
                'f"stream/{stream}"',
                "f\"stream/{stream}-{__import__('uuid').uuid4().hex}\"",
            ),
        ),
        _TESTS + "test_pipeline.py::test_standby_takes_over_when_the_leader_stops",
    ),
    PipelineMutant(
        "the lease is not checked before the commit",
        (Change(APPEND, "lease.check()", "pass"),),
        _TESTS + "test_reservation.py::test_a_write_whose_lease_is_lost_before_its_commit_writes_nothing",
    ),
    PipelineMutant(
        "the lease is not checked before a further attempt",
        (Change(RETRY, "check()", "pass"),),
        _TESTS + "test_worker.py::test_a_write_that_conflicts_is_written_again_under_the_same_lease",
    ),
    PipelineMutant(
        "a write goes on after its lease is lost",
        (Change(WORKER, "lease.on_lost($cancel)", "pass"),),
        _TESTS + "test_reservation.py::test_a_write_that_loses_its_lease_is_cancelled",
    ),
    PipelineMutant(
        "a commit has no token",
        (Change(WRITE, "lease.fencing_token", "0"),),
        _TESTS + "test_pipeline.py::test_commits_name_stream_query_batch_token_and_owner",
    ),
    PipelineMutant(
        "the URL of the locks is not compared",
        (Change(CHECK_URL, "same_locks(commit.locks, spec.locks.url)", "True"),),
        _TESTS + "test_table_locks.py::test_a_writer_is_refused_once_the_table_has_moved_on",
    ),
    PipelineMutant(
        "two tables share their locks",
        (Change(CHECK_MARK, 'commit.table_id == mark["table_id"]', "True"),),
        "tests/unit/test_table_locks.py::test_a_table_of_another_id_at_the_same_path_is_refused",
    ),
    PipelineMutant(
        "the guard does not name the lock of the commits",
        (
            Change(
                GUARD,
                "_GUARDED: Final = $names",
                "_GUARDED: Final = tuple(one for one in $names if one != hoodie.WRITE_LOCK_PROVIDER)",
            ),
        ),
        _TESTS
        + "test_sql.py::test_a_write_with_other_options_is_refused"
        + "[options3-hoodie.write.lock.provider]",
    ),
    PipelineMutant(
        "a table is made without its guard",
        (Change(GUARD_TABLE, "not properties or is_guarded(self.spec, properties)", "True"),),
        _TESTS + "test_sql.py::test_the_first_batch_guards_the_table_and_the_next_one_puts_a_lost_guard_back",
    ),
    PipelineMutant(
        "conflicts of optimistic writers are not detected",
        (Change(CONCURRENCY, '"OPTIMISTIC_CONCURRENCY_CONTROL"', '"SINGLE_WRITER"'),),
        _TESTS + "test_copy_on_write.py::test_streams_that_write_at_the_same_time_conflict_and_lose_nothing",
    ),
    PipelineMutant(
        "a write that conflicts counts as written",
        (Change(RETRY, "if pause is None: raise", "return None"),),
        _TESTS + "test_worker.py::test_a_write_that_conflicts_is_written_again_under_the_same_lease",
    ),
    PipelineMutant(
        "processes share the lock of the commits",
        (Patch(_LOCK, "taken = channel.tryLock();", "taken = channel.tryLock(0, Long.MAX_VALUE, true);"),),
        _TESTS + "test_file_lock_provider.py::test_processes_exclude_each_other",
    ),
    PipelineMutant(
        "another thread frees the lock of the commits",
        (
            Patch(
                _LOCK,
                "if (!mutex.isHeldByCurrentThread()) {\n      return;",
                "if (lock == null) {\n      return;",
            ),
        ),
        _TESTS + "test_file_lock_provider.py::test_unlocking_on_another_thread_does_nothing",
    ),
    PipelineMutant(
        "a lock file that was replaced is still locked",
        (
            Patch(_LOCK, "channel.isOpen() && channelKey.equals(key())) {", "channel.isOpen()) {"),
            Patch(_LOCK, "      if (channelKey.equals(key())) {\n", "      if (true) {\n"),
        ),
        _TESTS + "test_file_lock_provider.py::test_a_table_dropped_and_created_again_has_a_new_lock",
    ),
    PipelineMutant(
        "a service does not ask who leads it",
        (Change(LEADING, "client.lock(lock)", 'client.lock(f"{lock}-alone")'),),
        _TESTS + "test_services.py::test_each_service_has_one_leader",
    ),
    # Reservations.
    PipelineMutant(
        "a reservation is not seen",
        (Change(RESERVED, 'status if status.state == "held" else None', "None"),),
        _TESTS + "test_pipeline.py::test_reservation_holds_the_streams_at_the_batch_boundary",
    ),
    PipelineMutant(
        "any parked worker counts as this one",
        (Change(AT_WORK, "parked.holder == status.owner", "True"),),
        _TESTS + "test_reservation.py::test_a_parked_lock_of_another_lease_counts_for_nothing",
    ),
    PipelineMutant(
        "a writer whose lease has just expired is not waited for",
        (Change(WORKING_NOW, "$held or self._fades(status)", "$held"),),
        _TESTS + "test_reservation.py::test_a_dead_writer_counts_for_as_long_as_it_may_still_commit",
    ),
    PipelineMutant(
        "a worker enters no name in the register",
        (Change(ANNOUNCE, "await self._enter(name)", "pass"),),
        _REGISTER_TESTS + "test_nobody_works_in_a_reservation_whatever_a_listing_shows",
    ),
    PipelineMutant(
        "a worker looks before its name is in the register",
        (
            Change(
                ANNOUNCE,
                "await self._enter(name)\nreturn await self.reserved()",
                "found = await self.reserved()\nawait self._enter(name)\nreturn found",
            ),
        ),
        _REGISTER_TESTS + "test_of_a_worker_and_a_job_at_any_distance_one_sees_the_other",
    ),
    PipelineMutant(
        "a name replaces the others in the register",
        (Change(ENTER, "_body($names | {name})", "_body(frozenset({name}))"),),
        _REGISTER_TESTS + "test_nobody_works_in_a_reservation_whatever_a_listing_shows",
    ),
    PipelineMutant(
        "a refused write counts as a name in the register",
        (
            Change(
                ENTER,
                "$names, $version = await self._stored()\nif $version == $refused:\n    raise",
                "return",
            ),
        ),
        _REGISTER_TESTS + "test_names_that_come_at_once_are_all_entered",
    ),
    PipelineMutant(
        "a worker goes on while it may still be counted as parked",
        (Change(PARK, "await self._unpark($wait)", "self._may_look_parked = False"),),
        "tests/unit/test_passage.py::test_a_worker_goes_on_only_when_no_job_counts_it_as_parked",
    ),
    PipelineMutant(
        "a worker forgets that an earlier wait has parked it",
        (Change(PASSED, "if self._may_look_parked:\n    await self._unpark($wait)", "pass"),),
        "tests/unit/test_passage.py::test_a_worker_that_gave_up_is_not_parked_in_its_next_wait",
    ),
    PipelineMutant(
        "a worker frees its second lease where a late write can bring it back",
        (
            Change(
                UNPARK,
                "lease = await $wait.answer(lambda: lock.acquire(timeout=$wait.left()))",
                'lease = None\nwhile (await lock.status()).state == "held":\n    await $wait.pause()\n'
                "self._may_look_parked = False\nreturn",
            ),
        ),
        "tests/unit/test_passage.py::test_a_worker_goes_on_only_when_no_job_counts_it_as_parked",
    ),
    PipelineMutant(
        "a reservation looks only at what is listed",
        (Change(AT_WORK, "names |= $listed", "names = $listed"),),
        _REGISTER_TESTS + "test_nobody_works_in_a_reservation_whatever_a_listing_shows",
    ),
    PipelineMutant(
        "a reservation looks at leases alone",
        (Change(IN_FLIGHT, "self._working(check, until) or $alive", "self._working(check, until)"),),
        _TESTS + "test_reservation.py::test_a_reservation_waits_for_a_write_without_a_lease_too",
    ),
    # Columns.
    PipelineMutant(
        "a type of the table narrows",
        (Change(UNION, "known is None or is_wider($other, $known)", "True"),),
        "tests/unit/test_columns.py::test_union_has_every_column_with_its_wider_type",
    ),
    PipelineMutant(
        "a batch drops the columns of others from the table",
        (Change(COLUMNS_TO_WRITE, "union(table, named) if table else named", "named"),),
        "tests/unit/test_columns.py::test_batch_writes_all_columns_of_the_table_and_its_own",
    ),
    PipelineMutant(
        "a spec with a narrower type is accepted",
        (Change(CHECK_COLUMNS, "not is_wider(wanted, stored.declared)", "False"),),
        "tests/unit/test_columns.py::test_spec_that_begins_must_hold_what_is_stored",
    ),
    PipelineMutant(
        "a driver of an old spec erases a new column",
        (Change(CHECK_CHANGE, "name not in opened", "False"),),
        "tests/unit/test_columns.py::test_writer_follows_wider_types_but_not_new_columns_of_its_stream",
    ),
    PipelineMutant(
        "a late commit of an old spec takes a column away",
        (Change(WRITE, "table and is_behind(table, columns)", "False"),),
        _TESTS + "test_evolution.py::test_late_commit_of_an_old_spec_takes_no_column_away",
    ),
    PipelineMutant(
        "a compaction without a new column is committed",
        (Change(COMPACT, "self._lacks_columns(result)", "False"),),
        _TESTS
        + "test_evolution.py::test_change_that_was_killed_before_its_end_is_whole_for_readers_and_services",
        sign="HoodieException: Exception when reading log file",
    ),
    # Services, restores and repairs.
    PipelineMutant(
        "dead writers are never rolled back",
        (Change(CLEAN, "self._timeline.silent(SILENCE_MS)", "()"),),
        _TESTS + "test_services.py::test_only_a_silent_writer_is_rolled_back",
    ),
    PipelineMutant(
        "a dead write can be committed while its files are removed",
        (Patch(_DEAD_WRITES, "      timeline.deletePending(write);\n", ""),),
        _TESTS + "test_services.py::test_a_dead_write_is_off_the_timeline_before_its_files_are_removed",
    ),
    PipelineMutant(
        "a leader that lost its lease commits a compaction",
        (Change(COMPACT, "check()", "pass"),),
        _TESTS + "test_services.py::test_leader_that_lost_its_lease_while_it_compacted_does_not_commit",
    ),
    PipelineMutant(
        "a clustering that was cut off is carried on under its instant",
        (Change(CLUSTER, '(one.action, one.state) == (CLUSTERING, "INFLIGHT")', "False"),),
        _TESTS + "test_plain.py::test_a_clustering_that_was_cut_off_is_planned_anew",
    ),
    PipelineMutant(
        "an empty result of a clustering counts",
        (
            Change(
                CLUSTER,
                "reopen_empty_clusterings(self._table, instants, self._seen)",
                "False",
            ),
        ),
        _TESTS + "test_plain.py::test_a_clustering_whose_result_a_full_disk_left_empty_is_planned_again",
    ),
    PipelineMutant(
        "files of a write that was rolled back are left for the archiving to reveal",
        (Change(CLEAN, "remove_late_files(self._table)", "pass"),),
        _TESTS + "test_plain.py::test_a_file_that_a_task_makes_after_the_rollback_of_its_write_is_never_seen",
    ),
    PipelineMutant(
        "an instant on a disk has its name before it is whole",
        (Patch(_LOCAL_FILES, "if (!isInstant(path)) {", "if (path != null) {"),),
        _TESTS + "test_local_files.py::test_an_instant_appears_when_it_is_whole[create]",
    ),
    PipelineMutant(
        "a restore does not set the checkpoints back",
        (Change(GO_BACK, "self._set_back(*$stream, is_kept=$kept)", "pass"),),
        _TESTS + "test_savepoints.py::test_what_a_restore_drops_is_read_again",
    ),
    PipelineMutant(
        "a savepoint is the commit that was requested last, whatever completes later",
        (Change(f"{_SPARK}services.savepoints:_Work._last_commit", "last.completed != $newest", "False"),),
        _TESTS
        + "test_savepoints.py::test_a_commit_that_began_before_the_last_and_ended_after_it_is_kept[a batch]",
    ),
    PipelineMutant(
        "a restore drops batches of a stream whose checkpoint it cannot set back",
        (Change(GO_BACK, "self._refuse_lost_events(dropped)", "pass"),),
        _TESTS + "test_savepoints.py::test_a_restore_with_a_spec_that_lacks_a_stream_of_the_table_is_refused",
    ),
    PipelineMutant(
        "a restore lets a stream add events a second time",
        (Change(GO_BACK, "self._refuse_double_sums($stay, kept)", "pass"),),
        _TESTS + "test_savepoints.py::test_a_restore_that_would_add_events_twice_is_refused",
    ),
    PipelineMutant(
        "a restore that is cut off leaves no mark",
        (Change(GO_BACK, "mark.put(savepoint)", "pass"),),
        _TESTS
        + "test_savepoints.py::test_a_restore_that_was_cut_off_is_finished_by_running_it_again"
        + "[before the first checkpoint]",
    ),
    PipelineMutant(
        "a write goes on in the middle of a restore",
        (Change(ADMIT, "self._table.restore_mark.refuse()", "pass"),),
        _TESTS
        + "test_savepoints.py::test_a_restore_that_was_cut_off_is_finished_by_running_it_again"
        + "[before the first checkpoint]",
    ),
    PipelineMutant(
        "what a restore drops counts as committed",
        (Change(FORGET, "($newest := $found) != self._restored", "($newest := $found) is None"),),
        _TESTS + "test_savepoints.py::test_a_timeline_read_during_a_restore_forgets_what_it_drops",
    ),
    PipelineMutant(
        "a repair removes the files whose rows it has not copied",
        (Change(REPAIR, "self._copy($strays)", "0"),),
        _TESTS + "test_repair.py::test_a_repair_moves_the_rows_of_strays_into_the_buckets",
    ),
    # Statements.
    PipelineMutant(
        "an update writes the columns of all streams",
        (Patch(_STATEMENTS, "if (group != null && !touched.contains(group)) {", "if (false) {"),),
        _TESTS + "test_sql.py::test_an_update_writes_only_the_streams_whose_columns_it_sets",
    ),
    PipelineMutant(
        "two rows that merge into one merge in any order",
        (Patch(_STATEMENTS, ".gt(1);", ".gt(2);"),),
        _TESTS + "test_sql.py::test_a_merge_of_two_rows_into_one_is_refused",
    ),
    PipelineMutant(
        "a row that is deleted comes back with a repair",
        (Patch(_STATEMENTS, "table != null && table.isHalfRepaired()", "false"),),
        _TESTS + "test_repair.py::test_no_sql_while_a_repair_is_interrupted",
    ),
    PipelineMutant(
        "an inner join shows the rows of one stream",
        (Change(SELECT, '" AND ".join(alive)', '" OR ".join(alive)'),),
        _TESTS + "test_sql.py::test_the_views_of_a_spec_are_joins_of_its_streams",
    ),
    # Earlier states and changes.
    PipelineMutant(
        "an earlier state has a write that was in flight",
        (Change(REQUEST_BOUND, "_before(min(unwanted)) if unwanted else as_of", "as_of"),),
        "tests/unit/test_time_travel.py::test_hudi_shows_what_was_complete_or_cannot",
    ),
    PipelineMutant(
        "an earlier state lacks what came after the plan of a compaction",
        (Change(REQUEST_BOUND, "plan < last", "False"),),
        "tests/unit/test_time_travel.py::test_hudi_shows_what_was_complete_or_cannot",
    ),
    PipelineMutant(
        "changes are found by the times of requests",
        (
            Patch(
                _CHANGED_FILES,
                "String completed = instant.getCompletionTime();",
                "String completed = instant.requestedTime();",
            ),
        ),
        _TESTS + "test_changes.py::test_a_slow_commit_that_was_requested_earlier_is_found",
    ),
    PipelineMutant(
        "changes that are archived are not told",
        (Patch(_CHANGED_FILES, "      files.writeArchived();\n", ""),),
        _TESTS + "test_changes.py::test_archival_compaction_and_cleaning_in_the_range",
    ),
    PipelineMutant(
        "deleted keys are not among the changes",
        (Patch(_CHANGED_KEYS, "if (block instanceof HoodieDeleteBlock) {", "if (block == null) {"),),
        _TESTS + "test_changes.py::test_keys_that_the_view_lost_are_told",
    ),
    # Services.
    PipelineMutant(
        "a partition that is listed twice is clustered twice",
        (Patch("hudi/DistinctClusteringPlanStrategy.java", "stream().distinct()", "stream()"),),
        _TESTS + "test_plain.py::test_an_unfinished_marker_of_a_partition_doubles_no_row_of_a_clustering",
    ),
    PipelineMutant(
        "a partition that is listed twice is compacted twice",
        (Patch("hudi/DistinctCompactionStrategy.java", "stream().distinct()", "stream()"),),
        _TESTS + "test_services.py::test_an_unfinished_marker_of_a_partition_doubles_nothing_of_a_compaction",
    ),
    PipelineMutant(
        "what a creation that was cut off has left stays",
        (Change(f"{_SPARK}hudi.meta:clear_unfinished", "files.delete(meta)", "pass"),),
        _TESTS + "test_faults.py::test_a_creation_that_was_cut_off_is_begun_anew",
    ),
    # Reading.
    PipelineMutant(
        "a delete of the whole row hides its stream alone",
        (Change(f"{_SPARK}hudi.layout:SpliceLayout.shown", 'stream.deletes == "row"', "stream.whole_rows"),),
        _TESTS + "test_envelope.py::test_a_delete_takes_the_row_until_a_newer_change",
    ),
    PipelineMutant(
        "a view in SQL shows a row that a stream deletes",
        (Change(f"{_SPARK}reader.sql:_select", 'one.deletes == "row"', "one.whole_rows"),),
        _TESTS + "test_envelope.py::test_a_delete_takes_the_row_until_a_newer_change",
    ),
    PipelineMutant(
        "a value that Debezium leaves out is stored",
        (Patch("source/DebeziumJson.java", "if (UNAVAILABLE.equals(value) || ", "if ("),),
        _TESTS + "test_envelope.py::test_both_readers_take_the_same_rows_out_of_the_envelope",
    ),
    PipelineMutant(
        "a delete in Debezium's envelope is an update",
        (Patch("source/DebeziumJson.java", 'Boolean.toString(op.equals("d"))', '"false"'),),
        _TESTS + "test_envelope.py::test_both_readers_take_the_same_rows_out_of_the_envelope",
    ),
    PipelineMutant(
        "a field of the row takes the place of one of the envelope",
        (
            Patch(
                "source/DebeziumJson.java",
                "} else if (column != tombstone) {",
                "}\n      if (column != tombstone) {",
            ),
        ),
        _TESTS + "test_envelope.py::test_both_readers_take_the_same_rows_out_of_the_envelope",
    ),
    PipelineMutant(
        "the empty record after a delete in the envelope is a bad one",
        (Change(f"{_SPARK}source.kafka:TopicSource.parse", "F.col('value').isNotNull()", "F.lit(True)"),),
        _TESTS + "test_kafka.py::test_the_empty_record_after_a_delete_in_debeziums_envelope_is_no_event",
    ),
    PipelineMutant(
        "a read takes Hudi's default buffers for each log file",
        (Change(MERGE, 'use in {"read", "compaction"}', 'use == "compaction"'),),
        _TESTS + "test_merger_tables.py::test_a_small_log_file_costs_little_memory[read]",
    ),
    PipelineMutant(
        "a compaction takes Hudi's default buffers for each log file",
        (Change(MERGE, 'use in {"read", "compaction"}', 'use == "read"'),),
        _TESTS + "test_merger_tables.py::test_a_small_log_file_costs_little_memory[compaction]",
    ),
    # Validation.
    PipelineMutant(
        "a validation does not see a doubled key",
        (
            Change(
                COMPARE,
                '"INSERT INTO found VALUES (?, 1, ?) ON CONFLICT (key) DO UPDATE SET times = times + 1"',
                '"INSERT INTO found VALUES (?, 1, ?) ON CONFLICT (key) DO UPDATE SET times = times"',
            ),
        ),
        "tests/unit/test_second_reader.py::test_differences_say_what_is_missing_surplus_twice_and_other",
    ),
    PipelineMutant(
        "a validation takes a batch with a source for a statement",
        (
            Patch(
                _CHANGED_FILES,
                "(stream.equals(DELETES) || hasSource(commit))",
                "stream.equals(DELETES)",
            ),
        ),
        _TESTS + "test_statements.py::test_a_value_that_no_commit_explains_still_differs",
    ),
    PipelineMutant(
        "a validation does not see the deletes of statements",
        (Change(STATEMENT_ROWS, 'kind == "delete"', "False"),),
        _TESTS + "test_statements.py::test_keys_and_partitions_of_every_type_are_deleted",
    ),
    PipelineMutant(
        "a validation expects what a lost delete may have removed",
        (Change(STATEMENT_TAKE, "statement.removes", "False"),),
        _TESTS + "test_statements.py::test_statements_whose_files_are_cleaned_away_are_named",
    ),
    PipelineMutant(
        "a validation does not see a commit under an older token",
        (Change(STALE, "commit.fencing_token < known", "False"),),
        _TESTS + "test_validate.py::test_tokens_of_different_streams_are_not_compared",
    ),
    # The metrics.
    PipelineMutant(
        "metrics that fail end a batch",
        (Change(KEPT_FROM_THE_RUN, "Exception", "KeyError"),),
        "tests/telemetry/test_pipeline_metrics.py::test_metrics_that_fail_are_said_once_and_stop_nothing",
        sign="the exporter is gone",
    ),
    PipelineMutant(
        "after a restore a file counts as committed",
        (Change(LEARN, "entry < self._entry", "False"),),
        "tests/telemetry/test_pipeline_metrics.py::test_files_wait_again_after_a_restore",
    ),
    PipelineMutant(
        "a worker admits work on a table that is between two places",
        (Change(ADMIT, "self._table.rebucket_mark.refuse()", "pass"),),
        _TESTS + "test_rebucket.py::test_a_rebucket_that_was_cut_off_is_finished_by_running_it_again",
    ),
    PipelineMutant(
        "a table with other buckets does not know its earlier batches",
        (
            Change(
                ARCHIVED, "yield from carried_commits(HadoopFiles(self.spark), self.path)", "yield from ()"
            ),
        ),
        _TESTS + "test_rebucket.py::test_the_table_goes_on_with_more_buckets",
    ),
    PipelineMutant(
        "a table that leaves an object store's folder looks whole on its way",
        (Change(MOVE, "not name.startswith(PROPERTIES)", "name.startswith(PROPERTIES)"),),
        "tests/unit/test_rebuckets.py::test_a_move_that_was_cut_off_is_finished_by_another",
    ),
    # Derived columns.
    PipelineMutant(
        "a table's days change their zone",
        (Change(CHECK_DERIVED, "before == now or $rest", "True"),),
        "tests/unit/test_derive.py::test_a_derive_that_changes_is_refused",
    ),
    PipelineMutant(
        "the day of an event is that of UTC",
        (Change(f"{_SPARK}spec.derive:Derived._local", "self.zone", "UTC"),),
        _TESTS + "test_keys.py::test_derived_columns_are_those_of_pythons_time_zones",
    ),
    PipelineMutant(
        "a validation expects a derived column of batches that did not have it",
        (Change(LAYOUT_OF, "not columns or derived_by($how)", "True"),),
        "tests/unit/test_derive.py::test_a_batch_is_validated_with_the_columns_that_it_derived",
    ),
    # In the lock, where no history has the pause that it needs.
    PipelineMutant(
        "hold all: hand out what has hardly any time left",
        (Change(ENTER_ALL, "await confirm_all(self._leases)", "pass"),),
        "tests/unit/test_hold_all.py::test_what_has_hardly_any_time_left_is_renewed_first",
    ),
)
