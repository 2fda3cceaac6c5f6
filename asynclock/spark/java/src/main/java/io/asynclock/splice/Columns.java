package io.asynclock.splice;

/** The names of a splice table's columns: {@code <stream>__<column>}. */
public final class Columns {

  /** The record key: the key columns as one text. */
  public static final String RECORD_KEY = "_asynclock_key";

  private static final String SEPARATOR = "__";
  private static final String ORDERING = "ts";
  private static final String TOMBSTONE = "deleted";

  private Columns() {
  }

  /** The stream that owns the column; null for key, partition and Hudi's own columns. */
  public static String stream(String column) {
    int end = column.indexOf(SEPARATOR);
    // At 0 there is no stream name: such a column is not ours.
    return end > 0 ? column.substring(0, end) : null;
  }

  /** The name of a stream's ordering column. */
  public static String ordering(String stream) {
    return stream + SEPARATOR + ORDERING;
  }

  public static boolean isOrdering(String column) {
    String stream = stream(column);
    return stream != null && column.equals(ordering(stream));
  }

  public static boolean isTombstone(String column) {
    String stream = stream(column);
    return stream != null && column.equals(stream + SEPARATOR + TOMBSTONE);
  }
}
