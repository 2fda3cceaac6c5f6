package io.asynclock.source;

import java.io.IOException;
import java.util.Iterator;
import java.util.NoSuchElementException;
import org.apache.hadoop.conf.Configuration;
import org.apache.spark.TaskContext;
import org.apache.spark.TaskKilledException;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;

/** The rows of one file, read while they are asked for; after the damage of a bad file comes its own row. */
final class FileRows implements Iterator<Row> {

  /** The place of a row: its file and the age of that, its line, and its number in the file. */
  static final StructType PLACE =
      new StructType()
          .add("_asynclock_file", DataTypes.StringType)
          .add("_asynclock_modified", DataTypes.LongType)
          .add("_asynclock_line", DataTypes.LongType)
          .add("_asynclock_row", DataTypes.LongType);

  private final String file;
  private final long modified;
  private final Layout layout;
  private final TaskContext task = TaskContext.get();
  private Records records;
  private Row next;
  private long place;

  private FileRows(String file, long modified, Layout layout) {
    this.file = file;
    this.modified = modified;
    this.layout = layout;
  }

  static Iterator<Row> of(
      String file, long modified, Configuration conf, Dialect csv, Layout layout, UnnamedColumns unnamed) {
    FileRows rows = new FileRows(file, modified, layout);
    rows.task.<Void>addTaskCompletionListener(ended -> { rows.close(); return null; });
    rows.open(conf, csv, unnamed);
    return rows;
  }

  @Override
  public boolean hasNext() {
    if (next == null && records != null) {
      advance();
    }
    return next != null;
  }

  @Override
  public Row next() {
    if (!hasNext()) {
      throw new NoSuchElementException(file);
    }
    Row row = next;
    next = null;
    return row;
  }

  private void open(Configuration conf, Dialect csv, UnnamedColumns unnamed) {
    try {
      Bytes bytes = Bytes.open(SourceFiles.path(file), conf);
      if (csv == null) {
        records = new JsonRecords(new Characters(bytes, "utf-8"), layout, unnamed);
      } else {
        CsvRecords table = new CsvRecords(new Characters(bytes, csv.encoding), csv, layout.isText());
        records = table;
        unnamed.add(table.header(), layout.sources);
        table.find(layout);
      }
    } catch (IOException | RuntimeException error) {
      giveUp(error);
    }
  }

  private void advance() {
    if (task.isInterrupted()) { // Spark itself looks between files only
      throw new TaskKilledException();
    }
    try {
      if (records.next()) {
        next = layout.row(records, file, modified, records.line(), place++);
      } else {
        close();
      }
    } catch (IOException | RuntimeException error) {
      giveUp(error);
    }
  }

  private void giveUp(Exception error) {
    close();
    next = layout.bad(BadFile.of(error, "unreadable").getMessage(), file, modified, null, 0L);
  }

  private void close() {
    Records closed = records;
    records = null;
    try {
      if (closed != null) {
        closed.close();
      }
    } catch (IOException harmless) { // all that is needed has been read
      return;
    }
  }
}
