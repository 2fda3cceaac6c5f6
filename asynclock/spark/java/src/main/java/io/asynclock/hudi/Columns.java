package io.asynclock.hudi;

/** The names of a splice table's columns: {@code <stream>__<column>}. */
final class Columns {

  private static final String SEPARATOR = "__";
  private static final String ORDERING = "ts";
  private static final String TOMBSTONE = "deleted";

  private Columns() {
  }

  /** The stream that owns the column; null for key, partition and Hudi's own columns. */
  static String stream(String column) {
    int end = column.indexOf(SEPARATOR);
    // At 0 there is no stream name: such a column is not ours.
    return end > 0 ? column.substring(0, end) : null;
  }

  /** The name of a stream's ordering column. */
  static String ordering(String stream) {
    return stream + SEPARATOR + ORDERING;
  }

  static boolean isOrdering(String column) {
    String stream = stream(column);
    return stream != null && column.equals(ordering(stream));
  }

  static boolean isTombstone(String column) {
    String stream = stream(column);
    return stream != null && column.equals(stream + SEPARATOR + TOMBSTONE);
  }
}
