package io.asynclock.source;

import java.io.IOException;
import java.net.URI;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;
import org.apache.spark.api.java.function.FlatMapFunction;
import org.apache.spark.sql.Column;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Encoders;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.RowFactory;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.objects.StaticInvoke;
import org.apache.spark.sql.types.AbstractDataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.util.SerializableConfiguration;
import scala.collection.JavaConverters;
import scala.collection.Seq;

/**
 * Source files read strictly, one file in one task; called from Python.
 *
 * <p>docs/concepts/pipeline/files.md says what a file may say. A row carries its values or a reason; a row without a line
 * stands for a bad file, whose other rows the caller drops.
 */
public final class SourceFiles {

  /** A Spark job takes longer than reading this many footers one after the other. */
  private static final int FEW = 8;

  private SourceFiles() {
  }

  /**
   * The rows of CSV or JSON files.
   *
   * @param sources the names of the columns in the files
   * @param optional those that a CSV file may lack
   * @param files URL and modification time (in microseconds) of each file
   * @param dialect null for JSON
   * @param isEnveloped whether the rows are in Debezium's envelope
   * @param unnamed takes the names of other columns that the files have
   */
  public static Dataset<Row> rows(
      Dataset<Row> files,
      Map<String, String> dialect,
      List<String> names,
      List<String> types,
      List<String> sources,
      List<String> required,
      List<String> optional,
      boolean isEnveloped,
      UnnamedColumns unnamed) {
    SerializableConfiguration conf = configuration(files);
    Dialect csv = dialect == null ? null : new Dialect(dialect);
    Layout layout = new Layout(names, types, sources, required, optional, isEnveloped);
    FlatMapFunction<Row, Row> read =
        file -> FileRows.of(file.getString(0), file.getLong(1), conf.value(), csv, layout, unnamed);
    return files.flatMap(read, Encoders.row(layout.schema(FileRows.PLACE)));
  }

  /** A frame of some files: URL and modification time (in microseconds) of each. */
  public static Dataset<Row> listed(SparkSession session, List<String> urls, List<Number> modified) {
    List<Row> files = new ArrayList<>();
    for (int file = 0; file < urls.size(); file++) {
      files.add(RowFactory.create(urls.get(file), modified.get(file).longValue()));
    }
    StructType schema = new StructType().add("file", DataTypes.StringType).add("modified", DataTypes.LongType);
    return session.createDataset(files, Encoders.row(schema));
  }

  /** The collector for columns of this session's files that the spec does not name. */
  public static UnnamedColumns unnamed(SparkSession session) {
    UnnamedColumns unnamed = new UnnamedColumns();
    session.sparkContext().register(unnamed);
    return unnamed;
  }

  /** The names in the header of a CSV or parquet file; none if it has no header or cannot be read. */
  public static List<String> header(String file, Map<String, String> dialect, Configuration conf)
      throws IOException {
    Path path = path(file);
    if (dialect == null) {
      try {
        return StoredParquet.names(StoredParquet.open(path, conf).footer());
      } catch (BadFile unreadable) {
        return List.of();
      }
    }
    Dialect csv = new Dialect(dialect);
    try (Bytes bytes = Bytes.open(path, conf)) {
      return new CsvRecords(new Characters(bytes, csv.encoding), csv, new boolean[0]).header();
    } catch (BadFile | RuntimeException unreadable) {
      BadFile.of(unreadable, "unreadable"); // unless the store is to blame
      return List.of();
    }
  }

  /**
   * What parquet files say about the wanted columns.
   *
   * @param sources the names of the columns in the files
   * @param optional those that a file may lack
   * @param unnamed takes the names of other columns that the files have
   * @return for each file its URL, its path, the types of the columns as {@link ParquetFooter} names them,
   *     whether Spark can read it, and the reason if it is a bad file
   */
  public static Dataset<Row> footers(
      Dataset<Row> files, List<String> names, List<String> sources, List<String> optional, UnnamedColumns unnamed)
      throws Exception {
    SerializableConfiguration conf = configuration(files);
    List<String> wanted = List.copyOf(sources);
    Set<String> mayLack = Set.copyOf(optional);
    Set<String> exact = new HashSet<>(sources);
    exact.removeAll(names);
    FlatMapFunction<Row, Row> read =
        file -> {
          String[] types = null;
          String reason = null;
          boolean forSpark = false;
          Path path = path(file.getString(0));
          try {
            if (Stored.length(path, conf.value()) == 0) { // as an empty file of text, it has no rows
              return List.<Row>of().iterator();
            }
            ParquetFooter footer = ParquetFooter.read(path, conf.value(), wanted);
            unnamed.add(footer.names(), wanted);
            types = footer.types(wanted, mayLack, exact);
            forSpark = footer.isForSpark(wanted);
            ParquetPages.check(path, conf.value(), footer.metadata(), wanted);
          } catch (BadFile bad) {
            reason = bad.getMessage();
          }
          Object[] said = {file.getString(0), path.toString(), file.getLong(1), types, forSpark, reason};
          return List.of(RowFactory.create(said)).iterator();
        };
    StructType schema =
        new StructType()
            .add("file", DataTypes.StringType)
            .add("path", DataTypes.StringType)
            .add("modified", DataTypes.LongType)
            .add("types", DataTypes.createArrayType(DataTypes.StringType))
            .add("for_spark", DataTypes.BooleanType)
            .add("reason", DataTypes.StringType);
    List<Row> found = files.collectAsList();
    if (found.size() > FEW) {
      return files.sparkSession().createDataset(found, files.encoder()).flatMap(read, Encoders.row(schema));
    }
    List<Row> footers = new ArrayList<>();
    for (Row file : found) {
      read.call(file).forEachRemaining(footers::add);
    }
    return files.sparkSession().createDataset(footers, Encoders.row(schema));
  }

  /**
   * The rows of parquet files of one kind, as {@link ParquetRows} has them.
   *
   * @param files URL and modification time (in microseconds) of each file
   * @param names the columns that the files have and that are wanted
   * @param sources their names in the files
   * @param types their types, as {@link ParquetFooter} names them
   */
  public static Dataset<Row> parquetRows(
      Dataset<Row> files, List<String> names, List<String> sources, List<String> types) {
    SerializableConfiguration conf = configuration(files);
    List<String> wanted = List.copyOf(sources);
    List<String> kinds = List.copyOf(types);
    FlatMapFunction<Row, Row> read =
        file -> ParquetRows.of(file.getString(0), file.getLong(1), conf.value(), wanted, kinds);
    return files.flatMap(read, Encoders.row(ParquetRows.schema(names, kinds)));
  }

  /** Whether the bytes of a binary column are UTF-8. */
  public static Column isUtf8(Column bytes) {
    Seq<Expression> arguments = JavaConverters.asScalaBuffer(List.of(bytes.expr())).toList();
    Seq<AbstractDataType> unconverted = JavaConverters.asScalaBuffer(List.<AbstractDataType>of()).toList();
    return new Column(
        new StaticInvoke(Utf8.class, DataTypes.BooleanType, "isValid", arguments, unconverted, true, false, true));
  }

  static Path path(String url) {
    return new Path(URI.create(url));
  }

  private static SerializableConfiguration configuration(Dataset<Row> files) {
    return new SerializableConfiguration(files.sparkSession().sparkContext().hadoopConfiguration());
  }
}
