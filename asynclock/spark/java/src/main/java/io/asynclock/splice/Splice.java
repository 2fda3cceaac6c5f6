package io.asynclock.splice;

import java.util.ArrayList;
import java.util.Collections;
import java.util.Comparator;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.hudi.common.model.HoodieRecord;
import org.apache.hudi.common.schema.HoodieSchema;
import org.apache.hudi.common.schema.HoodieSchemaField;
import org.apache.hudi.exception.HoodieException;
import org.apache.spark.sql.HoodieInternalRowUtils;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.LongType;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.types.TimestampNTZType;
import org.apache.spark.sql.types.TimestampType;

/**
 * How rows of one schema splice with rows of another: worked out once a pair of schemas, then used for
 * every record. Immutable.
 */
public final class Splice {

  /** The id by which a table names this merge; it never changes. */
  public static final String STRATEGY_ID = "3158b597-87e4-4016-bcb2-5fe63391c0b1";

  private static final int MISSING = -1;
  private static final Set<String> HUDI_COLUMNS = HoodieRecord.HOODIE_META_COLUMNS_WITH_OPERATION;

  /** The merged row's schema: the newer record's, unless the older has columns of the table which that lacks. */
  public final HoodieSchema schema;

  private final Group[] groups;
  private final Summed[] sums;
  private final Column[] rest;
  private final int width;
  private final boolean newerIsWhole;
  private final boolean olderIsWhole;

  /** Works out how rows of {@code older} splice with those of {@code newer}. */
  public Splice(HoodieSchema older, HoodieSchema newer) {
    Map<String, Integer> olderPositions = positions(older);
    Map<String, Integer> newerPositions = positions(newer);
    newerIsWhole = newerPositions.keySet().containsAll(columnsToKeep(olderPositions, newerPositions));
    olderIsWhole = olderPositions.keySet().containsAll(newerPositions.keySet());
    schema = newerIsWhole ? newer : olderIsWhole ? older : union(newer, older);

    StructType olderTypes = HoodieInternalRowUtils.getCachedSchema(older);
    StructType newerTypes = HoodieInternalRowUtils.getCachedSchema(newer);
    Map<String, List<Column>> byGroup = new LinkedHashMap<>();
    List<Column> shared = new ArrayList<>();
    List<Summed> summed = new ArrayList<>();
    List<HoodieSchemaField> fields = schema.getFields();
    for (int target = 0; target < fields.size(); target++) {
      String name = fields.get(target).name();
      Column column = new Column(
          name, target, new Cell(olderPositions, olderTypes, name), new Cell(newerPositions, newerTypes, name));
      if (Columns.isSum(name)) {
        DataType type = HoodieInternalRowUtils.getCachedSchema(schema).fields()[target].dataType();
        summed.add(new Summed(name, column, type));
        continue;
      }
      String group = Columns.group(name);
      (group == null ? shared : byGroup.computeIfAbsent(group, ignored -> new ArrayList<>())).add(column);
    }
    width = fields.size();
    rest = shared.toArray(new Column[0]);
    sums = summed.toArray(new Summed[0]);
    groups = byGroup.entrySet().stream()
        .map(entry -> new Group(entry.getKey(), entry.getValue(), fields))
        .toArray(Group[]::new);
  }

  /** Whether the newer row already is the merged row: the older one wins no group, and adds to no sum. */
  public boolean newerSuffices(InternalRow older, InternalRow newer) {
    if (!newerIsWhole) {
      return false;
    }
    for (Group group : groups) {
      if (group.olderWins(older, newer)) {
        return false;
      }
    }
    for (Summed sum : sums) {
      if (!sum.column.older.isNull(older)) {
        return false;
      }
    }
    return true;
  }

  /** Whether the older row already is the merged row: the newer one wins no group, and adds to no sum. */
  public boolean olderSuffices(InternalRow older, InternalRow newer) {
    if (!olderIsWhole) {
      return false;
    }
    for (Group group : groups) {
      if (group.isPresentIn(newer) && !group.olderWins(older, newer)) {
        return false;
      }
    }
    for (Summed sum : sums) {
      if (!sum.column.newer.isNull(newer)) {
        return false;
      }
    }
    return true;
  }

  /** The merged row's values, in the order of {@link #schema}. */
  public Object[] values(InternalRow older, InternalRow newer) {
    Object[] values = new Object[width];
    for (Column column : rest) {
      values[column.target] = column.newer.exists() ? column.newer.value(newer) : column.older.value(older);
    }
    for (Group group : groups) {
      boolean fromOlder = group.olderWins(older, newer);
      for (Column column : group.columns) {
        values[column.target] = fromOlder ? column.older.value(older) : column.newer.value(newer);
      }
    }
    for (Summed sum : sums) {
      values[sum.column.target] = sum.value(older, newer);
    }
    return values;
  }

  /**
   * The columns of the older record that the merged one needs. A copy-on-write write merges rows of a base file with
   * incoming ones that do not have Hudi's own columns yet, and adds those to what the merge has changed.
   */
  private static Set<String> columnsToKeep(Map<String, Integer> older, Map<String, Integer> newer) {
    Set<String> needed = new HashSet<>(older.keySet());
    if (Collections.disjoint(newer.keySet(), HUDI_COLUMNS)) {
      needed.removeAll(HUDI_COLUMNS);
    }
    return needed;
  }

  private static Map<String, Integer> positions(HoodieSchema schema) {
    Map<String, Integer> positions = new HashMap<>();
    for (HoodieSchemaField field : schema.getFields()) {
      positions.put(field.name(), field.pos());
    }
    return positions;
  }

  private static HoodieSchema union(HoodieSchema first, HoodieSchema second) {
    Map<String, HoodieSchemaField> fields = new LinkedHashMap<>();
    for (HoodieSchema schema : new HoodieSchema[] {first, second}) {
      for (HoodieSchemaField field : schema.getFields()) {
        // A copy: an Avro field belongs to one schema only.
        fields.putIfAbsent(field.name(), field.withSchema(field.schema()));
      }
    }
    return HoodieSchema.createRecord(
        first.getName(), first.getNamespace().orElse(null), null, new ArrayList<>(fields.values()));
  }

  /** The place of a column in one of the two rows, if it has one. */
  private static final class Cell {
    private final int position;
    private final DataType type;

    Cell(Map<String, Integer> positions, StructType types, String name) {
      position = positions.getOrDefault(name, MISSING);
      StructField field = position == MISSING ? null : types.fields()[position];
      type = field == null ? null : field.dataType();
    }

    boolean exists() {
      return position != MISSING;
    }

    /** Whether the row holds its values of this column as 64-bit integers. */
    boolean isLong() {
      return type instanceof LongType || type instanceof TimestampType || type instanceof TimestampNTZType;
    }

    boolean isNull(InternalRow row) {
      return position == MISSING || row.isNullAt(position);
    }

    Object value(InternalRow row) {
      return isNull(row) ? null : row.get(position, type);
    }
  }

  /** One column of the merged row. */
  private static final class Column {
    private final String name;
    private final int turn;
    private final int target;
    private final Cell older;
    private final Cell newer;

    Column(String name, int target, Cell older, Cell newer) {
      this.name = name;
      this.turn = Columns.turn(name);
      this.target = target;
      this.older = older;
      this.newer = newer;
    }
  }

  /** A column whose values are added; a null adds nothing. */
  private static final class Summed {
    private final Column column;
    private final Sum sum;

    Summed(String name, Column column, DataType type) {
      this.column = column;
      this.sum = new Sum(name, type);
    }

    Object value(InternalRow older, InternalRow newer) {
      Object before = column.older.value(older);
      Object after = column.newer.value(newer);
      if (before == null || after == null) {
        return before == null ? after : before;
      }
      return sum.of(before, after);
    }
  }

  /** Columns that are merged as one. */
  private static final class Group {
    private final String name;
    private final boolean isReversed;
    private final Column[] columns;
    private final Column[] orderings;

    Group(String name, List<Column> columns, List<HoodieSchemaField> fields) {
      this.name = name;
      this.isReversed = Columns.isReversed(name);
      this.columns = columns.toArray(new Column[0]);
      this.orderings = columns.stream()
          .filter(column -> column.turn > 0)
          .sorted(Comparator.comparingInt(column -> column.turn))
          .toArray(Column[]::new);
      if (orderings.length == 0 || orderings[0].turn > 1) {
        throw new HoodieException(String.format(
            "Cannot merge: column %s has no ordering column %s next to it, so nothing says which of two events is"
                + " newer. Nothing was written. Add the ordering column, or rename the column without a double"
                + " underscore.",
            fields.get(columns.get(0).target).name(), Columns.ordering(name)));
      }
    }

    boolean isPresentIn(InternalRow newer) {
      for (Column ordering : orderings) {
        if (ordering.newer.isNull(newer)) {
          return false;
        }
      }
      return true;
    }

    private boolean isPresentInOlder(InternalRow older) {
      for (Column ordering : orderings) {
        if (ordering.older.isNull(older)) {
          return false;
        }
      }
      return true;
    }

    /** Present in the older row, and not replaced by the newer one. */
    boolean olderWins(InternalRow older, InternalRow newer) {
      if (!isPresentInOlder(older)) {
        return false;
      }
      if (!isPresentIn(newer)) {
        return true;
      }
      int order = 0;
      for (int turn = 0; order == 0 && turn < orderings.length; turn++) {
        Column ordering = orderings[turn];
        // Apart from the rest for speed: nothing is boxed.
        order = ordering.older.isLong() && ordering.newer.isLong()
            ? Long.compare(older.getLong(ordering.older.position), newer.getLong(ordering.newer.position))
            : compare(ordering, ordering.older.value(older), ordering.newer.value(newer));
      }
      return isReversed ? order <= 0 : order > 0;
    }

    @SuppressWarnings("unchecked")
    private static int compare(Column ordering, Object before, Object after) {
      if (before.getClass() != after.getClass()) {
        throw new HoodieException(String.format(
            "Cannot merge: the ordering column %s holds %s in one record and %s in the other. Nothing was"
                + " written. Write a stream's ordering values with one type.",
            ordering.name, before.getClass().getSimpleName(), after.getClass().getSimpleName()));
      }
      return ((Comparable<Object>) before).compareTo(after);
    }
  }
}
