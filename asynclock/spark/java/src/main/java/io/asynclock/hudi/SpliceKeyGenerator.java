package io.asynclock.hudi;

import io.asynclock.splice.Columns;
import io.asynclock.splice.SpliceStatements;
import java.net.URLEncoder;
import java.nio.charset.StandardCharsets;
import java.time.LocalDate;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Set;
import org.apache.avro.generic.GenericRecord;
import org.apache.hudi.common.config.TypedProperties;
import org.apache.hudi.exception.HoodieException;
import org.apache.hudi.exception.HoodieKeyException;
import org.apache.hudi.keygen.BuiltinKeyGenerator;
import org.apache.hudi.keygen.ComplexKeyGenerator;
import org.apache.hudi.keygen.NonpartitionedKeyGenerator;
import org.apache.hudi.keygen.SimpleKeyGenerator;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DateType;
import org.apache.spark.sql.types.IntegerType;
import org.apache.spark.sql.types.LongType;
import org.apache.spark.sql.types.StringType;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * The guard of a splice table. {@code hoodie.properties} names it, so that Spark asks it for the key of every row
 * that any session inserts, even one that does not know asynclock.
 *
 * <p>Keys and partition folders are those of Hudi's own generators. The guard refuses rows that the table could not
 * merge: a record key that is not the encoded key columns (the key would be stored twice), columns of a stream
 * without its ordering value (the merge would drop them) and a row without any; and the operations that do not append
 * to the logs, or on copy-on-write do not merge.
 */
public final class SpliceKeyGenerator extends BuiltinKeyGenerator {

  private static final long serialVersionUID = 1L;
  private static final String OPERATION = "hoodie.datasource.write.operation";
  private static final String PARTITION_FIELDS = "hoodie.datasource.write.partitionpath.field";
  private static final String TABLE_TYPE = "hoodie.table.type";
  private static final Set<String> UPSERTS = Set.of("upsert", "upsert_prepped");
  private static final Set<String> INSERTS = Set.of("insert", "insert_prepped");
  private static final Set<String> DELETES = Set.of("delete", "delete_prepped");

  private final BuiltinKeyGenerator generator;
  private final boolean deletes;
  private final String[] keyColumns;
  private transient StructType known;
  private transient Layout layout;

  /**
   * Checks the operation; nothing is written yet.
   *
   * @throws HoodieException if the operation would not append to the table's logs
   */
  public SpliceKeyGenerator(TypedProperties properties) {
    super(properties);
    String operation = properties.getString(OPERATION, "upsert").toLowerCase(Locale.ROOT);
    deletes = DELETES.contains(operation);
    if (INSERTS.contains(operation) && properties.getString(TABLE_TYPE, "").equals("COPY_ON_WRITE")) {
      throw new HoodieException(
          "On copy-on-write a splice table takes no INSERT, UPDATE or MERGE of asynclock's SQL and no insert of Hudi's,"
              + " which would store a key twice. Nothing was written. Write events to a stream instead (Splice.write).");
    }
    if (!deletes && !UPSERTS.contains(operation) && !INSERTS.contains(operation)) {
      throw new HoodieException(String.format(
          "A splice table takes upsert, insert and delete, and this is %s, which would write files outside of its"
              + " buckets or remove what streams wrote. Nothing was written. Leave out %s.",
          operation, OPERATION));
    }
    String named = properties.getString(SpliceStatements.KEY_COLUMNS, "");
    keyColumns = named.isEmpty() ? new String[0] : named.split(",");
    generator = generator(properties);
    recordKeyFields = generator.getRecordKeyFieldNames();
    partitionPathFields = generator.getPartitionPathFields();
  }

  /** The generator that Hudi would have inferred, so that keys and folders are those of every other writer. */
  private static BuiltinKeyGenerator generator(TypedProperties properties) {
    long partitions = Arrays.stream(properties.getString(PARTITION_FIELDS, "").split(","))
        .filter(field -> !field.trim().isEmpty())
        .count();
    if (partitions == 0) {
      return new NonpartitionedKeyGenerator(properties);
    }
    return partitions == 1 ? new SimpleKeyGenerator(properties) : new ComplexKeyGenerator(properties);
  }

  @Override
  public UTF8String getRecordKey(InternalRow row, StructType schema) {
    layout(schema).check(row);
    return generator.getRecordKey(row, schema);
  }

  @Override
  public UTF8String getPartitionPath(InternalRow row, StructType schema) {
    return generator.getPartitionPath(row, schema);
  }

  @Override
  public String getPartitionPath(Row row) {
    return generator.getPartitionPath(row);
  }

  @Override
  public String getPartitionPath(GenericRecord row) {
    return generator.getPartitionPath(row);
  }

  /** The key of a row to delete; refused otherwise, since only a writer without the merger makes Avro records. */
  @Override
  public String getRecordKey(GenericRecord row) {
    if (deletes) {
      return generator.getRecordKey(row);
    }
    throw withoutMerger();
  }

  /** Refuses: only bulk inserts ask for the keys of external rows. */
  @Override
  public String getRecordKey(Row row) {
    throw withoutMerger();
  }

  private static HoodieException withoutMerger() {
    return new HoodieException(
        "A splice table is written with " + SpliceMerger.class.getName() + ", which this writer does not use."
            + " Nothing was written. Leave out hoodie.write.record.merge.custom.implementation.classes.");
  }

  private Layout layout(StructType schema) {
    // The same object for every row of a task.
    if (schema != known) {
      layout = new Layout(schema);
      known = schema;
    }
    return layout;
  }

  /** The places of the checked columns in the rows of one schema. */
  private final class Layout {
    private final int recordKey;
    private final int[] key;
    private final DataType[] keyTypes;
    private final List<Group> groups = new ArrayList<>();

    Layout(StructType schema) {
      String[] names = schema.fieldNames();
      Map<String, Integer> positions = new LinkedHashMap<>();
      Map<String, Group> byName = new LinkedHashMap<>();
      for (int at = 0; at < names.length; at++) {
        positions.put(names[at], at);
        String group = Columns.group(names[at]);
        if (group != null) {
          byName.computeIfAbsent(group, Group::new).add(names[at], at);
        }
      }
      recordKey = positions.getOrDefault(Columns.RECORD_KEY, -1);
      // Hudi prunes the rows of a delete to the record key and the partition.
      boolean whole = recordKey >= 0 && Arrays.stream(keyColumns).allMatch(positions::containsKey);
      key = new int[whole ? keyColumns.length : 0];
      keyTypes = new DataType[key.length];
      for (int at = 0; at < key.length; at++) {
        key[at] = positions.get(keyColumns[at]);
        keyTypes[at] = schema.fields()[key[at]].dataType();
      }
      if (!deletes) {
        groups.addAll(byName.values());
      }
    }

    void check(InternalRow row) {
      if (key.length > 0) {
        checkKey(row);
      }
      boolean present = groups.isEmpty();
      for (Group group : groups) {
        present |= group.isPresentIn(row);
      }
      if (!present) {
        throw refused("it has no ordering value of any stream, so it would not be seen; give <stream>__ts");
      }
    }

    private void checkKey(InternalRow row) {
      StringBuilder encoded = new StringBuilder();
      for (int at = 0; at < key.length; at++) {
        if (row.isNullAt(key[at])) {
          throw refused("its key column " + keyColumns[at] + " is null");
        }
        encoded.append(at == 0 ? "" : "|").append(encoded(row, key[at], keyTypes[at]));
      }
      UTF8String given = row.isNullAt(recordKey) ? null : row.getUTF8String(recordKey);
      if (given == null || !given.equals(UTF8String.fromString(encoded.toString()))) {
        throw refused(String.format(
            "its %s is %s, and its key columns make it '%s': another would store the key twice. A session with"
                + " the extension %s sets it",
            Columns.RECORD_KEY, given == null ? "null" : "'" + given + "'", encoded, SpliceExtensions.class.getName()));
      }
    }

    private String encoded(InternalRow row, int at, DataType type) {
      String text;
      if (type instanceof StringType) {
        text = row.getUTF8String(at).toString();
      } else if (type instanceof IntegerType) {
        text = Integer.toString(row.getInt(at));
      } else if (type instanceof LongType) {
        text = Long.toString(row.getLong(at));
      } else if (type instanceof DateType) {
        text = LocalDate.ofEpochDay(row.getInt(at)).toString();
      } else {
        throw refused("a key of type " + type.simpleString() + " is not known");
      }
      if (text.isEmpty()) {
        throw refused("one of its key columns is empty");
      }
      return URLEncoder.encode(text, StandardCharsets.UTF_8);
    }
  }

  private static HoodieKeyException refused(String why) {
    return new HoodieKeyException("A row cannot be written: " + why + ". Nothing was written.");
  }

  /** Columns that are merged as one. */
  private static final class Group {
    private final String group;
    private final List<Integer> columns = new ArrayList<>();
    private final List<String> names = new ArrayList<>();
    private final List<Integer> orderings = new ArrayList<>();
    private int tombstone = -1;

    Group(String group) {
      this.group = group;
    }

    void add(String name, int at) {
      if (Columns.isOrdering(name) || Columns.isSum(name)) {
        orderings.add(columns.size());
      }
      if (Columns.isTombstone(name)) {
        tombstone = at;
      }
      columns.add(at);
      names.add(name);
    }

    boolean isPresentIn(InternalRow row) {
      String lacking = orderings.isEmpty() ? Columns.ordering(group) : null;
      for (int at : orderings) {
        if (lacking == null && row.isNullAt(columns.get(at))) {
          lacking = names.get(at);
        }
      }
      if (lacking == null) {
        return true;
      }
      for (int at = 0; at < columns.size(); at++) {
        int column = columns.get(at);
        // A tombstone that is false says nothing; a row given by position may have it.
        boolean says = !row.isNullAt(column) && (column != tombstone || row.getBoolean(column));
        if (says) {
          throw refused(String.format(
              "it has %s but no %s, without which the merge would drop it", names.get(at), lacking));
        }
      }
      return false;
    }
  }
}
