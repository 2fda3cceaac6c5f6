package io.asynclock.splice;

import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.hudi.exception.HoodieException;

/**
 * The names of a splice table's columns, which say how they are merged.
 *
 * <p>A column is {@code <stream>__<column>}, and one in a column group of the stream
 * {@code _in_<group>_<stream>__<column>}: those with one prefix are merged as one, ordered by the column {@code ts}
 * among them. A column with a rule of its own is a group for itself: {@code _max_} and {@code _min_} keep the greatest
 * and the least value, {@code _last_} the value with the greatest ordering value, and {@code _first_} and
 * {@code _firstany_} that with the least one. The ordering value is in the column of the same name after
 * {@code _lastts_}, {@code _firstts_} and {@code _firstanyts_}. {@code _sum_} adds the values, so nothing orders it.
 *
 * <p>If several columns order a group, they are compared in turn. The second and later ones are
 * {@code _ts2_<stream>__<column>}, {@code _ts2in_<group>_<stream>__<column>} and {@code _lastts2_<stream>__<column>}.
 */
public final class Columns {

  /** The record key: the key columns as one text. */
  public static final String RECORD_KEY = "_asynclock_key";

  private static final String SEPARATOR = "__";
  private static final String ORDERING = SEPARATOR + "ts";
  private static final String TOMBSTONE = SEPARATOR + "deleted";
  private static final String LAST = "_last_";
  private static final String LAST_ORDERING = "_lastts_";
  private static final String LAST_TOMBSTONE = "_lastdeleted_";
  private static final String FIRST = "_first_";
  private static final String FIRST_ORDERING = "_firstts_";
  private static final String FIRST_OF_ALL = "_firstany_";
  private static final String FIRST_OF_ALL_ORDERING = "_firstanyts_";
  private static final String MAX = "_max_";
  private static final String MIN = "_min_";
  private static final Pattern FURTHER =
      Pattern.compile("_(?<rule>|last|first|firstany)ts(?<turn>[1-9][0-9]*)(?<in>|in)_(?<rest>.*)");
  private static final String SUM = "_sum_";

  private Columns() {
  }

  /**
   * The group that the column is merged with; null for key, partition and Hudi's own columns.
   *
   * @throws HoodieException if a later version has named the column, by whose rule it must be merged
   */
  public static String group(String column) {
    int end = column.indexOf(SEPARATOR);
    // At 0 there is no stream name: such a column is not ours.
    if (end <= 0) {
      return null;
    }
    if (column.charAt(0) != '_' || column.startsWith("_in_")) {
      return column.substring(0, end);
    }
    Matcher further = FURTHER.matcher(column);
    if (further.matches()) {
      String rest = further.group("rest");
      return further.group("rule").isEmpty()
          ? (further.group("in").isEmpty() ? "" : "_in_") + rest.substring(0, rest.indexOf(SEPARATOR))
          : "_" + further.group("rule") + "_" + rest;
    }
    if (isAny(column, MAX, MIN, LAST, FIRST, FIRST_OF_ALL, SUM)) {
      return column;
    }
    if (isAny(column, LAST_ORDERING, LAST_TOMBSTONE)) {
      return LAST + afterWord(column);
    }
    if (column.startsWith(FIRST_ORDERING)) {
      return FIRST + afterWord(column);
    }
    if (column.startsWith(FIRST_OF_ALL_ORDERING)) {
      return FIRST_OF_ALL + afterWord(column);
    }
    throw new HoodieException(String.format(
        "Cannot merge: this version of asynclock does not know the rule of column %s. Nothing was written. Use the"
            + " version that wrote it.", column));
  }

  /** The name of a group's first ordering column. */
  public static String ordering(String group) {
    if (isAny(group, MAX, MIN)) {
      return group;
    }
    if (group.startsWith(LAST)) {
      return LAST_ORDERING + afterWord(group);
    }
    if (group.startsWith(FIRST_OF_ALL)) {
      return FIRST_OF_ALL_ORDERING + afterWord(group);
    }
    return group.startsWith(FIRST) ? FIRST_ORDERING + afterWord(group) : group + ORDERING;
  }

  /** The stream of a group that keeps one value of one column, and the value's ordering next to it; else null. */
  public static String streamOfKept(String group) {
    if (!isAny(group, LAST, FIRST, FIRST_OF_ALL)) {
      return null;
    }
    String column = afterWord(group);
    return column.substring(0, column.indexOf(SEPARATOR));
  }

  /** Whether a kept value may be null. */
  public static boolean keepsNulls(String group) {
    return group.startsWith(FIRST_OF_ALL);
  }

  /** Whether the values of the column are added. */
  public static boolean isSum(String column) {
    return column.startsWith(SUM) && group(column) != null;
  }

  /** Whether the least ordering value wins the group, and of equal ones the first to arrive. */
  public static boolean isReversed(String group) {
    return isAny(group, MIN, FIRST, FIRST_OF_ALL);
  }

  public static boolean isOrdering(String column) {
    return turn(column) > 0;
  }

  /** The place of an ordering column among those that are compared in turn, from 1; 0: it orders nothing. */
  public static int turn(String column) {
    String group = group(column);
    if (group == null) {
      return 0;
    }
    Matcher further = FURTHER.matcher(column);
    return further.matches() ? Integer.parseInt(further.group("turn")) : column.equals(ordering(group)) ? 1 : 0;
  }

  public static boolean isTombstone(String column) {
    String group = group(column);
    return group != null && (column.startsWith(LAST_TOMBSTONE) || column.equals(group + TOMBSTONE));
  }

  private static boolean isAny(String column, String... words) {
    for (String word : words) {
      if (column.startsWith(word)) {
        return true;
      }
    }
    return false;
  }

  /** What is after the word between the first two underscores. */
  private static String afterWord(String column) {
    return column.substring(column.indexOf('_', 1) + 1);
  }
}
