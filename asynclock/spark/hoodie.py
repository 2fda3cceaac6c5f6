"""Every ``hoodie.*`` option of the pipeline; the table lock's module spells those that both use.

The name of a constant is its key in capitals: ``hoodie.table.type`` is ``hoodie.TABLE_TYPE``.
"""

from __future__ import annotations

from typing import Final

from asynclock._shared.internals import WRITE_CONCURRENCY_MODE as WRITE_CONCURRENCY_MODE  # noqa: PLC0414
from asynclock._shared.internals import WRITE_LOCK_PROVIDER as WRITE_LOCK_PROVIDER  # noqa: PLC0414
from asynclock._shared.internals import WRITE_LOCK_WAIT_TIME_MS as WRITE_LOCK_WAIT_TIME_MS  # noqa: PLC0414

# The table: kept in its ``hoodie.properties``.
TABLE_NAME: Final = "hoodie.table.name"
TABLE_TYPE: Final = "hoodie.table.type"
TABLE_RECORDKEY_FIELDS: Final = "hoodie.table.recordkey.fields"
TABLE_PARTITION_FIELDS: Final = "hoodie.table.partition.fields"
TABLE_KEYGENERATOR_TYPE: Final = "hoodie.table.keygenerator.type"
TABLE_KEYGENERATOR_CLASS: Final = "hoodie.table.keygenerator.class"
ASYNCLOCK_KEY: Final = "hoodie.asynclock.key"
"""The key columns of a splice table. The entry is asynclock's own; Hudi keeps and ignores it."""
TABLE_TIMELINE_TIMEZONE: Final = "hoodie.table.timeline.timezone"
TABLE_ORDERING_FIELDS: Final = "hoodie.table.ordering.fields"
TABLE_PARTIAL_UPDATE_MODE: Final = "hoodie.table.partial.update.mode"
RECORD_MERGE_MODE: Final = "hoodie.record.merge.mode"
RECORD_MERGE_STRATEGY_ID: Final = "hoodie.record.merge.strategy.id"

# The lock of a commit.
WRITE_LOCK_CLIENT_NUM_RETRIES: Final = "hoodie.write.lock.client.num_retries"

# A write.
WRITE_CONCURRENCY_EARLY_CONFLICT_DETECTION_ENABLE: Final = (
    "hoodie.write.concurrency.early.conflict.detection.enable"
)
WRITE_CONCURRENCY_EARLY_CONFLICT_DETECTION_STRATEGY: Final = (
    "hoodie.write.concurrency.early.conflict.detection.strategy"
)
WRITE_CONCURRENCY_ASYNC_CONFLICT_DETECTOR_INITIAL_DELAY_MS: Final = (
    "hoodie.write.concurrency.async.conflict.detector.initial_delay_ms"
)
WRITE_CONCURRENCY_ASYNC_CONFLICT_DETECTOR_PERIOD_MS: Final = (
    "hoodie.write.concurrency.async.conflict.detector.period_ms"
)
WRITE_MARKERS_TYPE: Final = "hoodie.write.markers.type"
WRITE_RECORD_MERGE_MODE: Final = "hoodie.write.record.merge.mode"
WRITE_RECORD_MERGE_STRATEGY_ID: Final = "hoodie.write.record.merge.strategy.id"
WRITE_RECORD_MERGE_CUSTOM_IMPLEMENTATION_CLASSES: Final = (
    "hoodie.write.record.merge.custom.implementation.classes"
)
DATASOURCE_WRITE_TABLE_NAME: Final = "hoodie.datasource.write.table.name"
DATASOURCE_WRITE_TABLE_TYPE: Final = "hoodie.datasource.write.table.type"
DATASOURCE_WRITE_OPERATION: Final = "hoodie.datasource.write.operation"
DATASOURCE_WRITE_PRECOMBINE_FIELD: Final = "hoodie.datasource.write.precombine.field"
DATASOURCE_WRITE_PAYLOAD_CLASS: Final = "hoodie.datasource.write.payload.class"
DATASOURCE_WRITE_RECORDKEY_FIELD: Final = "hoodie.datasource.write.recordkey.field"
DATASOURCE_WRITE_PARTITIONPATH_FIELD: Final = "hoodie.datasource.write.partitionpath.field"
DATASOURCE_WRITE_PARTITIONPATH_URLENCODE: Final = "hoodie.datasource.write.partitionpath.urlencode"
DATASOURCE_WRITE_HIVE_STYLE_PARTITIONING: Final = "hoodie.datasource.write.hive_style_partitioning"
DATASOURCE_WRITE_COMMITMETA_KEY_PREFIX: Final = "hoodie.datasource.write.commitmeta.key.prefix"
COMBINE_BEFORE_UPSERT: Final = "hoodie.combine.before.upsert"
ALLOW_EMPTY_COMMIT: Final = "hoodie.allow.empty.commit"
SPARK_SQL_INSERT_INTO_OPERATION: Final = "hoodie.spark.sql.insert.into.operation"
INDEX_TYPE: Final = "hoodie.index.type"
INDEX_BLOOM_NUM_ENTRIES: Final = "hoodie.index.bloom.num_entries"
BLOOM_INDEX_FILTER_TYPE: Final = "hoodie.bloom.index.filter.type"
INDEX_BUCKET_ENGINE: Final = "hoodie.index.bucket.engine"
BUCKET_INDEX_NUM_BUCKETS: Final = "hoodie.bucket.index.num.buckets"
EMBED_TIMELINE_SERVER: Final = "hoodie.embed.timeline.server"
METADATA_ENABLE: Final = "hoodie.metadata.enable"
METADATA_INDEX_COLUMN_STATS_ENABLE: Final = "hoodie.metadata.index.column.stats.enable"
METADATA_INDEX_PARTITION_STATS_ENABLE: Final = "hoodie.metadata.index.partition.stats.enable"
ENABLE_DATA_SKIPPING: Final = "hoodie.enable.data.skipping"
PARQUET_BLOOM_FILTER_ENABLED: Final = "hoodie.parquet.bloom.filter.enabled"
TIME_GENERATOR_MAX_EXPECTED_CLOCK_SKEW_MS: Final = "hoodie.time.generator.max_expected_clock_skew_ms"
CLIENT_HEARTBEAT_INTERVAL_IN_MS: Final = "hoodie.client.heartbeat.interval_in_ms"
CLIENT_HEARTBEAT_TOLERABLE_MISSES: Final = "hoodie.client.heartbeat.tolerable.misses"
UPSERT_SHUFFLE_PARALLELISM: Final = "hoodie.upsert.shuffle.parallelism"
INSERT_SHUFFLE_PARALLELISM: Final = "hoodie.insert.shuffle.parallelism"
DELETE_SHUFFLE_PARALLELISM: Final = "hoodie.delete.shuffle.parallelism"
FINALIZE_WRITE_PARALLELISM: Final = "hoodie.finalize.write.parallelism"
MARKERS_DELETE_PARALLELISM: Final = "hoodie.markers.delete.parallelism"
MARKERS_TIMELINE_SERVER_BASED_BATCH_INTERVAL_MS: Final = (
    "hoodie.markers.timeline_server_based.batch.interval_ms"
)
ROLLBACK_PARALLELISM: Final = "hoodie.rollback.parallelism"

# A read.
MEMORY_DFS_BUFFER_MAX_SIZE: Final = "hoodie.memory.dfs.buffer.max.size"
READ_FILE_GROUP_READER_VERSION: Final = "hoodie.read.file.group.reader.version"
READ_USE_READ_OPTIMIZED_MODE: Final = "hoodie.read.use.read_optimized.mode"
DATASOURCE_QUERY_TYPE: Final = "hoodie.datasource.query.type"

# Table services.
COMPACT_INLINE: Final = "hoodie.compact.inline"
COMPACT_SCHEDULE_INLINE: Final = "hoodie.compact.schedule.inline"
COMPACT_INLINE_MAX_DELTA_COMMITS: Final = "hoodie.compact.inline.max.delta.commits"
DATASOURCE_COMPACTION_ASYNC_ENABLE: Final = "hoodie.datasource.compaction.async.enable"
COMPACTION_STRATEGY: Final = "hoodie.compaction.strategy"
CLUSTERING_INLINE: Final = "hoodie.clustering.inline"
CLUSTERING_INLINE_MAX_COMMITS: Final = "hoodie.clustering.inline.max.commits"
CLUSTERING_PLAN_STRATEGY_CLASS: Final = "hoodie.clustering.plan.strategy.class"
CLUSTERING_PLAN_STRATEGY_SORT_COLUMNS: Final = "hoodie.clustering.plan.strategy.sort.columns"
CLUSTERING_ASYNC_ENABLED: Final = "hoodie.clustering.async.enabled"
CLEAN_AUTOMATIC: Final = "hoodie.clean.automatic"
CLEAN_ASYNC_ENABLED: Final = "hoodie.clean.async.enabled"
CLEAN_POLICY: Final = "hoodie.clean.policy"
CLEAN_COMMITS_RETAINED: Final = "hoodie.clean.commits.retained"
CLEAN_PARALLELISM: Final = "hoodie.clean.parallelism"
CLEAN_FAILED_WRITES_POLICY: Final = "hoodie.clean.failed.writes.policy"
ARCHIVE_AUTOMATIC: Final = "hoodie.archive.automatic"
KEEP_MIN_COMMITS: Final = "hoodie.keep.min.commits"
KEEP_MAX_COMMITS: Final = "hoodie.keep.max.commits"

# A catalog outside.
DATASOURCE_META_SYNC_BASE_PATH: Final = "hoodie.datasource.meta.sync.base.path"
DATASOURCE_META_SYNC_ENABLE: Final = "hoodie.datasource.meta.sync.enable"
DATASOURCE_HIVE_SYNC_BASE_FILE_FORMAT: Final = "hoodie.datasource.hive_sync.base_file_format"
DATASOURCE_HIVE_SYNC_CREATE_MANAGED_TABLE: Final = "hoodie.datasource.hive_sync.create_managed_table"
DATASOURCE_HIVE_SYNC_ENABLE: Final = "hoodie.datasource.hive_sync.enable"
DATASOURCE_HIVE_SYNC_PARTITION_EXTRACTOR_CLASS: Final = (
    "hoodie.datasource.hive_sync.partition_extractor_class"
)
DATASOURCE_HIVE_SYNC_PARTITION_FIELDS: Final = "hoodie.datasource.hive_sync.partition_fields"
DATASOURCE_HIVE_SYNC_TABLE: Final = "hoodie.datasource.hive_sync.table"
META_SYNC_CLIENT_TOOL_CLASS: Final = "hoodie.meta.sync.client.tool.class"
META_SYNC_DECODE_PARTITION: Final = "hoodie.meta.sync.decode_partition"
META_SYNC_METADATA_FILE_LISTING: Final = "hoodie.meta.sync.metadata_file_listing"
