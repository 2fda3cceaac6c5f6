package io.asynclock.source;

import java.io.IOException;
import java.util.List;
import java.util.Locale;
import java.util.Set;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;
import org.apache.parquet.column.Encoding;
import org.apache.parquet.format.converter.ParquetMetadataConverter;
import org.apache.parquet.hadoop.metadata.ColumnChunkMetaData;
import org.apache.parquet.hadoop.metadata.CompressionCodecName;
import org.apache.parquet.hadoop.metadata.FileMetaData;
import org.apache.parquet.hadoop.metadata.ParquetMetadata;
import org.apache.parquet.schema.LogicalTypeAnnotation.DecimalLogicalTypeAnnotation;
import org.apache.parquet.schema.LogicalTypeAnnotation.IntLogicalTypeAnnotation;
import org.apache.parquet.schema.LogicalTypeAnnotation.TimestampLogicalTypeAnnotation;
import org.apache.parquet.schema.LogicalTypeAnnotation;
import org.apache.parquet.schema.PrimitiveType.PrimitiveTypeName;
import org.apache.parquet.schema.Type;

/**
 * The columns of a parquet file, their types named {@code boolean}, {@code int8} to {@code int64}, {@code uint8} to
 * {@code uint64}, {@code float16}, {@code float}, {@code double}, {@code string}, {@code decimal(p,s)}, {@code date},
 * {@code timestamp(unit)} and {@code null}; any other name says what it is and has no conversion.
 */
final class ParquetFooter {

  static final String ABSENT = "absent";

  private static final Set<CompressionCodecName> UNPACKABLE =
      Set.of(CompressionCodecName.BROTLI, CompressionCodecName.LZO);
  private static final String WRITTEN_BY_SPARK = "org.apache.spark.version";

  private final StoredParquet file;
  private final List<String> names;
  private final Set<String> halves;
  private final Set<String> nulls;
  private final boolean isKnown;
  private final ParquetMetadata footer;
  private final FileMetaData meta;

  private ParquetFooter(
      org.apache.parquet.format.FileMetaData whole, StoredParquet file, boolean isKnown, ParquetMetadata footer) {
    this.file = file;
    this.names = StoredParquet.names(whole);
    this.halves = StoredParquet.halves(whole);
    this.nulls = StoredParquet.nulls(whole);
    this.isKnown = isKnown;
    this.footer = footer;
    this.meta = footer.getFileMetaData();
  }

  static ParquetFooter read(Path path, Configuration conf, List<String> wanted) throws IOException {
    StoredParquet file = StoredParquet.open(path, conf);
    org.apache.parquet.format.FileMetaData whole = file.footer();
    ParquetMetadataConverter converter = new ParquetMetadataConverter();
    try {
      if (!StoredParquet.isEncrypted(whole)) {
        return new ParquetFooter(whole, file, true, converter.fromParquetMetadata(whole));
      }
    } catch (IOException | RuntimeException newer) { // than this library; columns that nobody wants may be so
      return less(whole, file.with(Set.copyOf(wanted)), converter);
    }
    return less(whole, file.with(Set.copyOf(wanted)), converter);
  }

  private static ParquetFooter less(
      org.apache.parquet.format.FileMetaData whole, StoredParquet file, ParquetMetadataConverter converter)
      throws BadFile {
    try {
      return new ParquetFooter(whole, file, false, converter.fromParquetMetadata(file.footer()));
    } catch (IOException | RuntimeException damaged) {
      throw BadFile.of(damaged, "no parquet file, or truncated or damaged");
    }
  }

  ParquetMetadata metadata() {
    return footer;
  }

  /** The file, as far as this library knows what is in it. */
  StoredParquet file() {
    return file;
  }

  List<String> names() {
    return names;
  }

  /** Whether Spark reads the file, and tells the wanted columns from the others. */
  boolean isForSpark(List<String> wanted) {
    boolean isSplit = chunks(wanted).anyMatch(chunk -> chunk.getEncodings().contains(Encoding.BYTE_STREAM_SPLIT));
    return isKnown && !isSplit && wanted.stream().noneMatch(this::isAmbiguous);
  }

  private Stream<ColumnChunkMetaData> chunks(List<String> wanted) {
    return footer.getBlocks().stream()
        .flatMap(block -> block.getColumns().stream())
        .filter(chunk -> wanted.contains(chunk.getPath().toArray()[0]));
  }

  /** Give up a file of which no library here can read a wanted column. */
  private void checkReadable(List<String> wanted) throws BadFile {
    for (ColumnChunkMetaData chunk : chunks(wanted).collect(Collectors.toList())) {
      PrimitiveTypeName type = chunk.getPrimitiveType().getPrimitiveTypeName();
      boolean isSplit = chunk.getEncodings().contains(Encoding.BYTE_STREAM_SPLIT);
      String how = null;
      if (UNPACKABLE.contains(chunk.getCodec())) {
        how = "compressed by " + chunk.getCodec();
      } else if (isSplit && type != PrimitiveTypeName.FLOAT && type != PrimitiveTypeName.DOUBLE) {
        how = "encoded as BYTE_STREAM_SPLIT of " + type;
      }
      if (how != null) {
        throw new BadFile("its column '" + chunk.getPath().toArray()[0] + "' is " + how
            + ", which no library here reads; write the file in another way");
      }
    }
  }

  private boolean isAmbiguous(String name) {
    boolean isOfSpark = name.equalsIgnoreCase("_metadata");
    boolean isUnwritable = name.chars().anyMatch(one -> one == '`' || Character.isISOControl(one));
    return isOfSpark || isUnwritable || names.stream().anyMatch(other -> Header.isOtherCase(other, name));
  }

  /** The types of the wanted columns; {@link #ABSENT} for an optional one that the file lacks. */
  String[] types(List<String> wanted, Set<String> optional, Set<String> exact) throws BadFile {
    Header.check(names, wanted, optional, exact);
    checkReadable(wanted);
    String[] types = new String[wanted.size()];
    for (int column = 0; column < types.length; column++) {
      String name = wanted.get(column);
      types[column] = names.contains(name) ? type(name) : ABSENT;
    }
    return types;
  }

  private String type(String name) {
    return nulls.contains(name) ? "null" : halves.contains(name) ? "float16" : type(meta.getSchema().getType(name));
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
