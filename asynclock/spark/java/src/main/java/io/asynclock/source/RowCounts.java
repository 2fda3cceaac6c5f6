package io.asynclock.source;

import java.io.Serializable;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import java.util.Set;
import java.util.TreeSet;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.catalyst.InternalRow;

/**
 * The numbers of parsed rows, and the bad files among them; called from Python.
 *
 * <p>Counted by a job of one stage. An aggregation would have another one behind it, and adaptive execution makes
 * three jobs of the two, which take longer than the reading of a small batch.
 */
public final class RowCounts implements Serializable {

  private static final long serialVersionUID = 1L;

  private final Set<String> files = new TreeSet<>();
  private long rows;
  private long bad;

  private RowCounts() {
  }

  /**
   * Counts the rows.
   *
   * @param marks of each row: whether it is bad, and the URL of its file if that is bad as a whole
   */
  public static RowCounts of(Dataset<Row> marks) {
    RowCounts all = new RowCounts();
    List<RowCounts> parts = marks.queryExecution().toRdd().toJavaRDD().mapPartitions(RowCounts::part).collect();
    for (RowCounts part : parts) {
      all.rows += part.rows;
      all.bad += part.bad;
      all.files.addAll(part.files);
    }
    return all;
  }

  public long rows() {
    return rows;
  }

  public long bad() {
    return bad;
  }

  /** The URLs of the bad files. */
  public List<String> files() {
    return new ArrayList<>(files);
  }

  private static Iterator<RowCounts> part(Iterator<InternalRow> marks) {
    RowCounts counts = new RowCounts();
    while (marks.hasNext()) {
      InternalRow mark = marks.next();
      counts.rows++;
      counts.bad += mark.getBoolean(0) ? 1 : 0;
      if (!mark.isNullAt(1)) {
        counts.files.add(mark.getUTF8String(1).toString());
      }
    }
    return List.of(counts).iterator();
  }
}
