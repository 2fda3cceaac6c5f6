package io.asynclock.rows;

import java.io.FileNotFoundException;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.math.BigDecimal;
import java.math.BigInteger;
import java.nio.ByteBuffer;
import java.util.Arrays;
import java.util.Collections;
import java.util.Iterator;
import java.util.List;
import java.util.NoSuchElementException;
import org.apache.avro.LogicalTypes;
import org.apache.avro.Schema;
import org.apache.avro.generic.GenericFixed;
import org.apache.avro.generic.IndexedRecord;
import org.apache.hudi.common.model.DeleteRecord;
import org.apache.hudi.common.model.HoodieLogFile;
import org.apache.hudi.common.model.HoodieRecord;
import org.apache.hudi.common.model.HoodieRecord.HoodieRecordType;
import org.apache.hudi.common.table.log.HoodieLogFormat;
import org.apache.hudi.common.table.log.block.HoodieDataBlock;
import org.apache.hudi.common.table.log.block.HoodieDeleteBlock;
import org.apache.hudi.common.table.log.block.HoodieLogBlock;
import org.apache.hudi.common.util.collection.ClosableIterator;
import org.apache.hudi.hadoop.fs.HadoopFSUtils;
import org.apache.hudi.storage.HoodieStorage;
import org.apache.hudi.storage.StoragePath;
import org.apache.hudi.storage.hadoop.HoodieHadoopStorage;
import org.apache.spark.TaskContext;
import org.apache.spark.api.java.function.FlatMapFunction;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Encoders;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.RowFactory;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.DecimalType;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.util.SerializableConfiguration;
import org.apache.spark.util.TaskCompletionListener;

/** The rows and deletes in log files, read in the executors, each file in one task; called from Python. */
public final class LogRows implements Iterator<Row>, AutoCloseable {

  private final HoodieLogFormat.Reader blocks;
  private final Row file;
  private final List<String> columns;
  private final StructField[] types;
  private Iterator<Row> rows = Collections.emptyIterator();
  private ClosableIterator<HoodieRecord<IndexedRecord>> records;

  private LogRows(HoodieLogFormat.Reader blocks, Row file, List<String> columns, StructField[] types) {
    this.blocks = blocks;
    this.file = file;
    this.columns = columns;
    this.types = types;
  }

  /**
   * The rows of log files as they were written: {@code place}, {@code kind}, {@code record_key}, {@code parts}, then the
   * columns, null where a file does not have them.
   *
   * @param files {@code place}, {@code parts} and {@code path} of each; the first two come back with its rows
   * @param columns names of the columns in the files
   * @param types names and types of the columns that are returned, as SQL; dates are read as whole numbers of days,
   *     timestamps of microseconds
   * @return the kind is {@code row}, {@code delete} for a delete of Hudi, or {@code missing} for a file that is not
   *     there
   */
  public static Dataset<Row> read(Dataset<Row> files, List<String> columns, String types) {
    SerializableConfiguration conf =
        new SerializableConfiguration(files.sparkSession().sparkContext().hadoopConfiguration());
    List<String> names = List.copyOf(columns);
    StructField[] fields = StructType.fromDDL(types).fields();
    StructType schema =
        new StructType()
            .add("place", DataTypes.IntegerType)
            .add("kind", DataTypes.StringType)
            .add("record_key", DataTypes.StringType)
            .add("parts", DataTypes.createArrayType(DataTypes.StringType));
    for (StructField field : fields) {
      schema = schema.add(field);
    }
    FlatMapFunction<Row, Row> read =
        file -> {
          try {
            LogRows rows = new LogRows(open(file.getString(2), conf), file, names, fields);
            TaskContext.get().addTaskCompletionListener((TaskCompletionListener) ended -> rows.close());
            return rows;
          } catch (FileNotFoundException missing) {
            return Collections.singletonList(row(file, fields.length, "missing", null)).iterator();
          }
        };
    return files.flatMap(read, Encoders.row(schema));
  }

  private static HoodieLogFormat.Reader open(String file, SerializableConfiguration conf) throws IOException {
    StoragePath path = new StoragePath(file);
    HoodieStorage storage = new HoodieHadoopStorage(path, HadoopFSUtils.getStorageConf(conf.value()));
    // Without a schema each block is read with its own.
    return HoodieLogFormat.newReader(storage, new HoodieLogFile(storage.getPathInfo(path)), null);
  }

  private static Row row(Row file, int columns, String kind, String key, Object... values) {
    Object[] cells = new Object[4 + columns];
    cells[0] = file.get(0);
    cells[1] = kind;
    cells[2] = key;
    cells[3] = file.get(1);
    System.arraycopy(values, 0, cells, 4, values.length);
    return RowFactory.create(cells);
  }

  @Override
  public boolean hasNext() {
    while (!rows.hasNext()) {
      if (records != null && records.hasNext()) {
        IndexedRecord record = records.next().getData();
        rows = Collections.singletonList(row(record)).iterator();
      } else if (blocks.hasNext()) {
        open(blocks.next());
      } else {
        return false;
      }
    }
    return true;
  }

  // Hudi shows no rows of other blocks, such as an incomplete one that a retry wrote again.
  private void open(HoodieLogBlock block) {
    if (records != null) {
      records.close();
      records = null;
    }
    if (block instanceof HoodieDeleteBlock) {
      rows = Arrays.stream(((HoodieDeleteBlock) block).getRecordsToDelete()).map(this::row).iterator();
    } else if (block instanceof HoodieDataBlock) {
      records = ((HoodieDataBlock) block).getRecordIterator(HoodieRecordType.AVRO);
    }
  }

  private Row row(DeleteRecord deleted) {
    return row(file, types.length, "delete", deleted.getRecordKey());
  }

  private Row row(IndexedRecord record) {
    Object[] values = new Object[types.length];
    for (int at = 0; at < types.length; at++) {
      Schema.Field field = record.getSchema().getField(columns.get(at));
      Object value = field == null ? null : record.get(field.pos());
      values[at] = value == null ? null : value(value, field.schema(), types[at].dataType());
    }
    return row(file, types.length, "row", null, values);
  }

  private static Object value(Object value, Schema schema, DataType type) {
    if (type instanceof DecimalType) {
      return decimal(value, schema);
    } else if (type.equals(DataTypes.StringType)) {
      return value.toString();
    } else if (type.equals(DataTypes.IntegerType)) {
      return ((Number) value).intValue();
    } else if (type.equals(DataTypes.LongType)) {
      return ((Number) value).longValue();
    } else if (type.equals(DataTypes.FloatType)) {
      return ((Number) value).floatValue();
    } else if (type.equals(DataTypes.DoubleType)) {
      return ((Number) value).doubleValue();
    }
    return value;
  }

  private static BigDecimal decimal(Object value, Schema schema) {
    if (value instanceof BigDecimal) {
      return (BigDecimal) value;
    }
    byte[] bytes;
    if (value instanceof ByteBuffer) {
      bytes = new byte[((ByteBuffer) value).remaining()];
      ((ByteBuffer) value).duplicate().get(bytes);
    } else {
      bytes = ((GenericFixed) value).bytes();
    }
    Schema present =
        schema.isUnion()
            ? schema.getTypes().stream().filter(one -> one.getType() != Schema.Type.NULL).findFirst().orElseThrow()
            : schema;
    return new BigDecimal(new BigInteger(bytes), ((LogicalTypes.Decimal) present.getLogicalType()).getScale());
  }

  @Override
  public Row next() {
    if (!hasNext()) {
      throw new NoSuchElementException();
    }
    return rows.next();
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
