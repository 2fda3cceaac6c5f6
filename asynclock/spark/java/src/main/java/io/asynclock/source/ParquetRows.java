package io.asynclock.source;

import java.io.IOException;
import java.math.BigDecimal;
import java.math.BigInteger;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.Iterator;
import java.util.List;
import java.util.NoSuchElementException;
import java.util.Set;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;
import org.apache.parquet.HadoopReadOptions;
import org.apache.parquet.column.page.PageReadStore;
import org.apache.parquet.example.data.Group;
import org.apache.parquet.example.data.simple.convert.GroupRecordConverter;
import org.apache.parquet.hadoop.ParquetFileReader;
import org.apache.parquet.io.ColumnIOFactory;
import org.apache.parquet.io.RecordReader;
import org.apache.parquet.io.api.Binary;
import org.apache.parquet.schema.LogicalTypeAnnotation.DecimalLogicalTypeAnnotation;
import org.apache.parquet.schema.MessageType;
import org.apache.parquet.schema.PrimitiveType;
import org.apache.spark.TaskContext;
import org.apache.spark.TaskKilledException;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.RowFactory;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;

/**
 * The rows of one parquet file that Spark does not read, by the library that Spark has; after the damage of a bad file
 * comes its own row.
 *
 * <p>It is slower than Spark, but it reads a file with columns newer than itself, and a defect of one file costs no
 * other. The values are those that Spark gives: whole numbers, dates and times as numbers, text as bytes.
 */
final class ParquetRows implements Iterator<Row> {

  private static final long EPOCH_AS_JULIAN_DAY = 2_440_588;
  private static final long MICROS_A_DAY = 86_400_000_000L;

  private final TaskContext task = TaskContext.get();
  private final String url;
  private final long modified;
  private final List<String> names;
  private final List<String> types;
  private ParquetFileReader file;
  private MessageType schema;
  private RecordReader<Group> group;
  private long left;
  private long place;
  private Row next;

  private ParquetRows(String url, long modified, List<String> names, List<String> types) {
    this.url = url;
    this.modified = modified;
    this.names = names;
    this.types = types;
  }

  /**
   * The rows of a file.
   *
   * @param names the columns that it has and that are wanted
   * @param types their types, as {@link ParquetFooter} names them
   */
  static Iterator<Row> of(String url, long modified, Configuration conf, List<String> names, List<String> types) {
    ParquetRows rows = new ParquetRows(url, modified, names, types);
    rows.task.<Void>addTaskCompletionListener(ended -> { rows.close(); return null; });
    try {
      Path path = SourceFiles.path(url);
      StoredParquet shown = StoredParquet.open(path, conf).with(Set.copyOf(names));
      HadoopReadOptions.Builder options = HadoopReadOptions.builder(conf);
      options.usePageChecksumVerification(true);
      rows.file = ParquetFileReader.open(shown, options.build());
      rows.schema = rows.file.getFooter().getFileMetaData().getSchema();
    } catch (IOException | RuntimeException | LinkageError damaged) {
      rows.giveUp(damaged);
    }
    return rows;
  }

  /** The columns of the rows: the values, where they stand, and what is wrong with a row or with its file. */
  static StructType schema(List<String> names, List<String> types) {
    StructType schema = new StructType();
    for (int column = 0; column < names.size(); column++) {
      schema = schema.add(names.get(column), type(types.get(column)));
    }
    schema = schema.add("_asynclock_file", DataTypes.StringType).add("_asynclock_modified", DataTypes.LongType);
    return schema.add("_asynclock_row", DataTypes.LongType).add("_asynclock_problem", DataTypes.StringType);
  }

  @Override
  public boolean hasNext() {
    if (next == null && file != null) {
      advance();
    }
    return next != null;
  }

  @Override
  public Row next() {
    if (!hasNext()) {
      throw new NoSuchElementException(url);
    }
    Row row = next;
    next = null;
    return row;
  }

  private void advance() {
    if (task.isInterrupted()) { // Spark itself looks between files only
      throw new TaskKilledException();
    }
    try {
      while (left == 0) {
        PageReadStore pages = file.readNextRowGroup();
        if (pages == null) {
          close();
          return;
        }
        left = pages.getRowCount();
        if (left > 0 && !names.isEmpty()) {
          group = new ColumnIOFactory().getColumnIO(schema).getRecordReader(pages, new GroupRecordConverter(schema));
        }
      }
      left--;
      next = row(names.isEmpty() ? null : group.read());
    } catch (IOException | RuntimeException | LinkageError damaged) { // a codec may lack its native library
      giveUp(damaged);
    }
  }

  private Row row(Group record) {
    Object[] row = new Object[names.size() + 4];
    StringBuilder problem = new StringBuilder();
    for (int column = 0; column < names.size(); column++) {
      int field = schema.getFieldIndex(names.get(column));
      if (record.getFieldRepetitionCount(field) > 0) {
        try {
          row[column] = value(record, field, types.get(column));
        } catch (ArithmeticException beyond) {
          problem.append(problem.length() > 0 ? "; " : "").append(names.get(column)).append(" is out of range");
        }
      }
    }
    return place(row, place++, problem.length() > 0 ? problem.toString() : null);
  }

  private Row place(Object[] row, Long number, String problem) {
    row[names.size()] = url;
    row[names.size() + 1] = modified;
    row[names.size() + 2] = number;
    row[names.size() + 3] = problem;
    return RowFactory.create(row);
  }

  private void giveUp(Throwable damaged) {
    close();
    next = place(new Object[names.size() + 4], null, BadFile.of(damaged, "damaged").getMessage());
  }

  private void close() {
    ParquetFileReader closed = file;
    file = null;
    try {
      if (closed != null) {
        closed.close();
      }
    } catch (IOException harmless) { // all that is needed has been read
      return;
    }
  }

  private static DataType type(String type) {
    switch (type) {
      case "boolean":
        return DataTypes.BooleanType;
      case "float16":
      case "float":
        return DataTypes.FloatType;
      case "double":
        return DataTypes.DoubleType;
      case "string":
        return DataTypes.BinaryType;
      case "uint64":
        return DataTypes.createDecimalType(20, 0);
      default:
        return type.startsWith("decimal") ? new Value.Type(type).stored() : DataTypes.LongType;
    }
  }

  private Object value(Group record, int field, String type) {
    switch (type) {
      case "boolean":
        return record.getBoolean(field, 0);
      case "float16":
        return half(record.getBinary(field, 0).getBytes());
      case "float":
        return record.getFloat(field, 0);
      case "double":
        return record.getDouble(field, 0);
      case "string":
        return record.getBinary(field, 0).getBytes();
      case "int8":
        return (long) (byte) record.getInteger(field, 0);
      case "int16":
        return (long) (short) record.getInteger(field, 0);
      case "uint8":
        return record.getInteger(field, 0) & 0xFFL;
      case "uint16":
        return record.getInteger(field, 0) & 0xFFFFL;
      case "uint32":
        return record.getInteger(field, 0) & 0xFFFFFFFFL;
      case "int32":
      case "date":
        return (long) record.getInteger(field, 0);
      case "uint64":
        return new BigDecimal(Long.toUnsignedString(record.getLong(field, 0)));
      case "int64":
      case "timestamp(micros)":
      case "timestamp(nanos)":
        return record.getLong(field, 0);
      case "timestamp(millis)":
        return Math.multiplyExact(record.getLong(field, 0), 1000L);
      case "timestamp(int96)":
        return micros(record.getInt96(field, 0));
      default:
        return decimal(record, field);
    }
  }

  private static long micros(Binary value) {
    ByteBuffer bytes = value.toByteBuffer().order(ByteOrder.LITTLE_ENDIAN);
    long nanos = bytes.getLong();
    int day = bytes.getInt();
    return (day - EPOCH_AS_JULIAN_DAY) * MICROS_A_DAY + nanos / 1000;
  }

  private BigDecimal decimal(Group record, int field) {
    PrimitiveType type = schema.getType(field).asPrimitiveType();
    DecimalLogicalTypeAnnotation decimal = (DecimalLogicalTypeAnnotation) type.getLogicalTypeAnnotation();
    BigInteger unscaled;
    switch (type.getPrimitiveTypeName()) {
      case INT32:
        unscaled = BigInteger.valueOf(record.getInteger(field, 0));
        break;
      case INT64:
        unscaled = BigInteger.valueOf(record.getLong(field, 0));
        break;
      default:
        unscaled = new BigInteger(record.getBinary(field, 0).getBytes());
    }
    BigDecimal value = new BigDecimal(unscaled, decimal.getScale());
    if (value.precision() > decimal.getPrecision()) {
      throw new ArithmeticException();
    }
    return value;
  }

  /** The number in two bytes: a sign, five bits of the exponent, ten of the fraction. */
  private static float half(byte[] bytes) {
    int bits = bytes[0] & 0xFF | (bytes[1] & 0xFF) << 8;
    int exponent = bits >> 10 & 0x1F;
    int fraction = bits & 0x3FF;
    float size;
    if (exponent == 0x1F) {
      size = fraction == 0 ? Float.POSITIVE_INFINITY : Float.NaN;
    } else if (exponent == 0) {
      size = fraction * 0x1p-24f;
    } else {
      size = Math.scalb(0x400 + fraction, exponent - 25);
    }
    return bits >> 15 == 0 ? size : -size;
  }
}
