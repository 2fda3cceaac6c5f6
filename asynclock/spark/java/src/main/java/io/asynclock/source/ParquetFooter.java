package io.asynclock.source;

import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.Set;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;
import org.apache.parquet.hadoop.ParquetFileReader;
import org.apache.parquet.hadoop.metadata.FileMetaData;
import org.apache.parquet.hadoop.metadata.ParquetMetadata;
import org.apache.parquet.hadoop.util.HadoopInputFile;
import org.apache.parquet.schema.LogicalTypeAnnotation;
import org.apache.parquet.schema.LogicalTypeAnnotation.DecimalLogicalTypeAnnotation;
import org.apache.parquet.schema.LogicalTypeAnnotation.IntLogicalTypeAnnotation;
import org.apache.parquet.schema.LogicalTypeAnnotation.TimestampLogicalTypeAnnotation;
import org.apache.parquet.schema.PrimitiveType.PrimitiveTypeName;
import org.apache.parquet.schema.Type;

/**
 * The columns of a parquet file, their types named {@code boolean}, {@code int8} to {@code int64}, {@code uint8} to
 * {@code uint64}, {@code float}, {@code double}, {@code string}, {@code decimal(p,s)}, {@code date} and
 * {@code timestamp(unit)}; any other name says what it is and has no conversion.
 */
final class ParquetFooter {

  static final String ABSENT = "absent";

  private static final String WRITTEN_BY_SPARK = "org.apache.spark.version";

  private final ParquetMetadata footer;
  private final FileMetaData meta;

  private ParquetFooter(ParquetFileReader reader) {
    this.footer = reader.getFooter();
    this.meta = footer.getFileMetaData();
  }

  static ParquetFooter read(Path path, Configuration conf) throws IOException, BadFile {
    HadoopInputFile file = HadoopInputFile.fromPath(path, conf);
    try (ParquetFileReader reader = ParquetFileReader.open(file)) {
      return new ParquetFooter(reader);
    } catch (RuntimeException | IOException error) {
      String message = String.valueOf(error.getMessage());
      // What else goes wrong is the store's fault and fails the task.
      if (message.contains("is not a Parquet file") || message.contains("corrupted file")
          || message.startsWith("can not read class")) {
        throw new BadFile("the file is no parquet file, or truncated or damaged (" + message.lines().findFirst().get() + ")");
      }
      throw error;
    }
  }

  ParquetMetadata metadata() {
    return footer;
  }

  List<String> names() {
    List<String> names = new ArrayList<>();
    meta.getSchema().getFields().forEach(field -> names.add(field.getName()));
    return names;
  }

  /** The types of the wanted columns; {@link #ABSENT} for an optional one that the file lacks. */
  String[] types(List<String> wanted, Set<String> optional) throws BadFile {
    Header.check(names(), wanted, optional);
    String[] types = new String[wanted.size()];
    for (int column = 0; column < types.length; column++) {
      String name = wanted.get(column);
      types[column] = meta.getSchema().containsField(name) ? type(meta.getSchema().getType(name)) : ABSENT;
    }
    return types;
  }

  private String type(Type field) {
    if (!field.isPrimitive() || field.isRepetition(Type.Repetition.REPEATED)) {
      return "nested type";
    }
    PrimitiveTypeName primitive = field.asPrimitiveType().getPrimitiveTypeName();
    LogicalTypeAnnotation logical = field.getLogicalTypeAnnotation();
    if (logical instanceof DecimalLogicalTypeAnnotation) {
      DecimalLogicalTypeAnnotation decimal = (DecimalLogicalTypeAnnotation) logical;
      return "decimal(" + decimal.getPrecision() + "," + decimal.getScale() + ")";
    }
    if (logical instanceof IntLogicalTypeAnnotation) {
      IntLogicalTypeAnnotation integer = (IntLogicalTypeAnnotation) logical;
      return (integer.isSigned() ? "int" : "uint") + integer.getBitWidth();
    }
    if (logical instanceof TimestampLogicalTypeAnnotation) {
      return "timestamp(" + ((TimestampLogicalTypeAnnotation) logical).getUnit().name().toLowerCase(Locale.ROOT) + ")";
    }
    if (logical != null) {
      return logical(logical.toString());
    }
    switch (primitive) {
      case INT32:
      case INT64:
      case BOOLEAN:
      case FLOAT:
      case DOUBLE:
        return primitive.name().toLowerCase(Locale.ROOT);
      case INT96:
        boolean bySpark = meta.getKeyValueMetaData().containsKey(WRITTEN_BY_SPARK);
        return bySpark ? "timestamp(int96)" : "int96 (which may hold nanoseconds)";
      default:
        return "binary";
    }
  }

  private static String logical(String name) {
    switch (name) {
      case "STRING":
      case "ENUM":
      case "JSON":
        return "string";
      default:
        return name.toLowerCase(Locale.ROOT);
    }
  }
}
