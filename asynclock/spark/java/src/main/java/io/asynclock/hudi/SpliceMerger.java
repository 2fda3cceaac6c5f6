package io.asynclock.hudi;

import io.asynclock.splice.Columns;
import io.asynclock.splice.Splice;
import java.util.Arrays;
import java.util.LinkedHashSet;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.hudi.common.config.TypedProperties;
import org.apache.hudi.common.engine.RecordContext;
import org.apache.hudi.common.model.HoodieOperation;
import org.apache.hudi.common.model.HoodieRecord.HoodieRecordType;
import org.apache.hudi.common.model.HoodieRecord;
import org.apache.hudi.common.model.HoodieRecordMerger;
import org.apache.hudi.common.schema.HoodieSchema;
import org.apache.hudi.common.schema.HoodieSchemaField;
import org.apache.hudi.common.table.HoodieTableConfig;
import org.apache.hudi.common.table.read.BufferedRecord;
import org.apache.hudi.common.table.read.DeleteContext;
import org.apache.spark.sql.catalyst.InternalRow;

/**
 * Merges two records of one key, stream by stream: each stream's columns come from the event with the
 * newer ordering value of <em>that</em> stream.
 *
 * <p>The columns {@code <stream>__<column>} are one group, {@code <stream>__ts} is its ordering column.
 * A group is present when its ordering column is not null. A present group replaces an absent one, the
 * newer ordering value wins the group whole (its nulls included), and equal ordering values keep arrival
 * order: the newer record wins. {@code <stream>__deleted} is an ordinary column of its group: a tombstone
 * keeps the group present, so a late event still loses against it; readers hide the group. All other
 * columns (key, partition, Hudi's own) come from the newer record, or stay when it changes nothing.
 *
 * <p>A Hudi delete removes every group written before it. An event after it starts the row afresh; the
 * merged record then carries {@link HoodieOperation#INSERT}, so that what the delete removed stays removed
 * when the pair meets a still older record (log over base). One batch must not hold a Hudi delete and an
 * event of the same key: Hudi reduces a batch to one record before it writes.
 *
 * <p>The rule is associative and, for different ordering values, commutative: compaction may happen at any
 * time and streams may interleave in any way. But for sums it is idempotent, too: those need each event once,
 * for which the commits of batches care. It reads nothing but the schema's column
 * names, so no reader can merge with other groups than the writer's.
 */
public final class SpliceMerger implements HoodieRecordMerger {

  /** Written into {@code hoodie.properties} of every splice table; never changes. */
  public static final String STRATEGY_ID = Splice.STRATEGY_ID;

  private static final long serialVersionUID = 1L;

  // Static: Hudi shares one merger between threads, and a session meets few schemas.
  private static final Map<HoodieSchema, Map<HoodieSchema, Splice>> SPLICES = new ConcurrentHashMap<>();

  @Override
  public <T> BufferedRecord<T> merge(
      BufferedRecord<T> older, BufferedRecord<T> newer, RecordContext<T> context, TypedProperties props) {
    if (older == null || newer == null) {
      return newer == null ? older : newer;
    }
    if (removesOlder(newer)) {
      return newer;
    }
    if (isDelete(older)) {
      return withOperation(newer, HoodieOperation.INSERT);
    }
    HoodieSchema olderSchema = context.getSchemaFromBufferRecord(older);
    HoodieSchema newerSchema = context.getSchemaFromBufferRecord(newer);
    Splice splice = splice(olderSchema, newerSchema);
    InternalRow olderRow = (InternalRow) older.getRecord();
    InternalRow newerRow = (InternalRow) newer.getRecord();
    if (splice.newerSuffices(olderRow, newerRow)) {
      return withOperation(newer, older.getHoodieOperation());
    }
    if (splice.olderSuffices(olderRow, newerRow)) {
      return older;
    }
    Integer schemaId = splice.schema == newerSchema ? newer.getSchemaId() : context.encodeSchema(splice.schema);
    T merged = context.constructEngineRecord(splice.schema, splice.values(olderRow, newerRow));
    return new BufferedRecord<>(
        newer.getRecordKey(), newer.getOrderingValue(), merged, schemaId, older.getHoodieOperation());
  }

  private static boolean removesOlder(BufferedRecord<?> record) {
    return isDelete(record) || record.getHoodieOperation() == HoodieOperation.INSERT;
  }

  private static boolean isDelete(BufferedRecord<?> record) {
    return record.isDelete() || record.isEmpty();
  }

  private static <T> BufferedRecord<T> withOperation(BufferedRecord<T> record, HoodieOperation operation) {
    if (record.getHoodieOperation() == operation) {
      return record;
    }
    // A copy: Hudi may still hold the record it gave us.
    return new BufferedRecord<>(
        record.getRecordKey(), record.getOrderingValue(), record.getRecord(), record.getSchemaId(), operation);
  }

  private static Splice splice(HoodieSchema older, HoodieSchema newer) {
    Map<HoodieSchema, Splice> byNewer = SPLICES.get(older);
    if (byNewer == null) {
      byNewer = SPLICES.computeIfAbsent(older, ignored -> new ConcurrentHashMap<>());
    }
    Splice splice = byNewer.get(newer);
    return splice != null ? splice : byNewer.computeIfAbsent(newer, ignored -> new Splice(older, newer));
  }

  /** True: the ordering columns alone decide which group wins, and those are mandatory. */
  @Override
  public boolean isProjectionCompatible() {
    return true;
  }

  /**
   * The columns that a read needs in addition to its own: the key, every stream's ordering, and the columns in which
   * Hudi finds deletes and instants. Hudi adds the latter for its own merge modes only.
   */
  @Override
  public String[] getMandatoryFieldsForMerging(
      HoodieSchema schema, HoodieTableConfig table, TypedProperties props) {
    Set<String> fields = new LinkedHashSet<>(
        Arrays.asList(HoodieRecordMerger.super.getMandatoryFieldsForMerging(schema, table, props)));
    Set<String> optional = new LinkedHashSet<>(Arrays.asList(
        HoodieRecord.COMMIT_TIME_METADATA_FIELD,
        HoodieRecord.OPERATION_METADATA_FIELD,
        HoodieRecord.HOODIE_IS_DELETED_FIELD));
    new DeleteContext(props, schema).getCustomDeleteMarkerKeyValue()
        .ifPresent(marker -> optional.add(marker.getLeft()));
    for (HoodieSchemaField field : schema.getFields()) {
      if (Columns.isOrdering(field.name()) || optional.contains(field.name())) {
        fields.add(field.name());
      }
    }
    return fields.toArray(new String[0]);
  }

  @Override
  public HoodieRecordType getRecordType() {
    return HoodieRecordType.SPARK;
  }

  @Override
  public String getMergingStrategy() {
    return STRATEGY_ID;
  }
}
