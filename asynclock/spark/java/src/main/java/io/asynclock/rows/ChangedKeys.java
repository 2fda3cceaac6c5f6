package io.asynclock.rows;

import java.io.Closeable;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.Arrays;
import java.util.Collections;
import java.util.Iterator;
import java.util.List;
import java.util.NoSuchElementException;
import java.util.Set;
import org.apache.avro.generic.IndexedRecord;
import org.apache.hudi.common.config.HoodieConfig;
import org.apache.hudi.common.model.DeleteRecord;
import org.apache.hudi.common.model.HoodieLogFile;
import org.apache.hudi.common.model.HoodieRecord;
import org.apache.hudi.common.model.HoodieRecord.HoodieRecordType;
import org.apache.hudi.common.schema.HoodieSchema;
import org.apache.hudi.common.table.log.HoodieLogFormat;
import org.apache.hudi.common.table.log.block.HoodieDataBlock;
import org.apache.hudi.common.table.log.block.HoodieDeleteBlock;
import org.apache.hudi.common.table.log.block.HoodieLogBlock;
import org.apache.hudi.common.util.collection.ClosableIterator;
import org.apache.hudi.hadoop.fs.HadoopFSUtils;
import org.apache.hudi.io.storage.HoodieFileReader;
import org.apache.hudi.io.storage.HoodieIOFactory;
import org.apache.hudi.storage.HoodieStorage;
import org.apache.hudi.storage.StoragePath;
import org.apache.hudi.storage.hadoop.HoodieHadoopStorage;
import org.apache.spark.TaskContext;
import org.apache.spark.api.java.function.FlatMapFunction;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Encoders;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.RowFactory;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.util.SerializableConfiguration;
import org.apache.spark.util.TaskCompletionListener;

/** The record keys in log files and base files, read in the executors, each file in one task; called from Python. */
public final class ChangedKeys {

  private static final String SCHEMA =
      "{\"type\":\"record\",\"name\":\"key\",\"fields\":["
          + "{\"name\":\"" + HoodieRecord.RECORD_KEY_METADATA_FIELD + "\",\"type\":[\"null\",\"string\"],"
          + "\"default\":null},"
          + "{\"name\":\"" + HoodieRecord.COMMIT_TIME_METADATA_FIELD + "\",\"type\":[\"null\",\"string\"],"
          + "\"default\":null}]}";
  private static final int KEY = 0;
  private static final int COMMIT = 1;

  private ChangedKeys() {
  }

  /**
   * The keys of files, as rows of {@code key}, {@code role} and {@code file_group}.
   *
   * @param files path, role and file group of each. The role {@code log} stands for all keys of a log file, those of
   *     its deletes too; {@code base} for the rows of a base file that {@code commits} wrote; any other for all its
   *     rows.
   * @param commits request times
   * @return the rows; a missing file is one row: its path and the role {@code missing}
   */
  public static Dataset<Row> read(Dataset<Row> files, List<String> commits) {
    SerializableConfiguration conf =
        new SerializableConfiguration(files.sparkSession().sparkContext().hadoopConfiguration());
    Set<String> wanted = Set.copyOf(commits);
    StructType schema =
        new StructType()
            .add("key", DataTypes.StringType)
            .add("role", DataTypes.StringType)
            .add("file_group", DataTypes.StringType);
    FlatMapFunction<Row, Row> read =
        file -> {
          String role = file.getString(1);
          String group = file.getString(2);
          try {
            Keys keys = open(file.getString(0), conf, role, wanted);
            TaskContext.get().addTaskCompletionListener((TaskCompletionListener) ended -> keys.close());
            return new Rows(keys, role, group);
          } catch (FileNotFoundException missing) {
            Row row = RowFactory.create(file.getString(0), "missing", group);
            return Collections.singletonList(row).iterator();
          }
        };
    return files.flatMap(read, Encoders.row(schema));
  }

  private static Keys open(String file, SerializableConfiguration conf, String role, Set<String> commits)
      throws IOException {
    StoragePath path = new StoragePath(file);
    HoodieStorage storage = new HoodieHadoopStorage(path, HadoopFSUtils.getStorageConf(conf.value()));
    HoodieSchema schema = HoodieSchema.parse(SCHEMA);
    if (role.equals("log")) {
      HoodieLogFile log = new HoodieLogFile(storage.getPathInfo(path));
      return new LogKeys(HoodieLogFormat.newReader(storage, log, schema));
    }
    storage.getPathInfo(path); // else Hudi wraps the exception for a missing file
    HoodieFileReader<?> reader =
        HoodieIOFactory.getIOFactory(storage).getReaderFactory(HoodieRecordType.AVRO)
            .getFileReader(new HoodieConfig(), path);
    return new BaseKeys(reader, schema, role.equals("base") ? commits : null);
  }

  /** Keys one after the other; null at the end. */
  private interface Keys extends Closeable {
    String next() throws IOException;

    @Override
    void close();
  }

  /** The keys of all blocks of a log file. */
  private static final class LogKeys implements Keys {
    private final HoodieLogFormat.Reader blocks;
    private Iterator<String> deletes = Collections.emptyIterator();
    private ClosableIterator<HoodieRecord<IndexedRecord>> records;

    LogKeys(HoodieLogFormat.Reader blocks) {
      this.blocks = blocks;
    }

    @Override
    public String next() {
      while (true) {
        if (deletes.hasNext()) {
          return deletes.next();
        }
        if (records != null) {
          if (records.hasNext()) {
            return text(records.next().getData(), KEY);
          }
          records.close();
          records = null;
        }
        if (!blocks.hasNext()) {
          return null;
        }
        // Hudi shows no rows of other blocks, such as an incomplete one that a retry wrote again.
        HoodieLogBlock block = blocks.next();
        if (block instanceof HoodieDeleteBlock) {
          deletes = Arrays.stream(((HoodieDeleteBlock) block).getRecordsToDelete())
              .map(DeleteRecord::getRecordKey).iterator();
        } else if (block instanceof HoodieDataBlock) {
          records = ((HoodieDataBlock) block).getRecordIterator(HoodieRecordType.AVRO);
        }
      }
    }

    @Override
    public void close() {
      if (records != null) {
        records.close();
      }
      try {
        blocks.close();
      } catch (IOException error) {
        throw new UncheckedIOException(error);
      }
    }
  }

  /** The keys of a base file; of rows that some commits wrote, unless those are null. */
  private static final class BaseKeys implements Keys {
    private final HoodieFileReader<?> reader;
    private final ClosableIterator<? extends HoodieRecord<?>> records;
    private final Set<String> commits;

    BaseKeys(HoodieFileReader<?> reader, HoodieSchema schema, Set<String> commits) throws IOException {
      this.reader = reader;
      this.commits = commits;
      records = reader.getRecordIterator(schema);
    }

    @Override
    public String next() {
      while (records.hasNext()) {
        IndexedRecord record = (IndexedRecord) records.next().getData();
        if (commits == null || commits.contains(text(record, COMMIT))) {
          return text(record, KEY);
        }
      }
      return null;
    }

    @Override
    public void close() {
      records.close();
      try {
        reader.close();
      } catch (Exception error) {
        throw new IllegalStateException(error);
      }
    }
  }

  /** The rows of {@link #read}. */
  private static final class Rows implements Iterator<Row> {
    private final Keys keys;
    private final String role;
    private final String group;
    private String next;
    private boolean ended;

    Rows(Keys keys, String role, String group) {
      this.keys = keys;
      this.role = role;
      this.group = group;
    }

    @Override
    public boolean hasNext() {
      if (next == null && !ended) {
        try {
          next = keys.next();
        } catch (IOException error) {
          throw new UncheckedIOException(error);
        }
        ended = next == null;
      }
      return next != null;
    }

    @Override
    public Row next() {
      if (!hasNext()) {
        throw new NoSuchElementException();
      }
      Row row = RowFactory.create(next, role, group);
      next = null;
      return row;
    }
  }

  private static String text(IndexedRecord record, int position) {
    Object value = record.get(position);
    return value == null ? "" : value.toString();
  }
}
