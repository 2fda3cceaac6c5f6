package io.asynclock.splice;

import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.stream.Collectors;
import org.apache.spark.sql.AnalysisException;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.FunctionIdentifier;
import org.apache.spark.sql.catalyst.TableIdentifier;
import org.apache.spark.sql.catalyst.analysis.UnresolvedRelation;
import org.apache.spark.sql.catalyst.catalog.CatalogTable;
import org.apache.spark.sql.catalyst.catalog.CatalogTableType;
import org.apache.spark.sql.catalyst.catalog.SessionCatalog;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.parser.ParseException;
import org.apache.spark.sql.catalyst.parser.ParserInterface;
import org.apache.spark.sql.catalyst.plans.logical.InsertIntoStatement;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructType;
import scala.Option;
import scala.collection.JavaConverters;
import scala.collection.Seq;
import scala.runtime.AbstractPartialFunction;

/**
 * A parser that lets INSERT name the view of a splice table, and columns by their names there.
 *
 * <p>The statement becomes one on the stored table. Spark's analyzer refuses an INSERT into a view before any rule of
 * an extension sees it, so the parser is the place.
 */
public final class WritableViews implements ParserInterface {

  /** The property of a view with the name of its stored table. */
  public static final String STORED = "asynclock.stored";

  /** The property of a view with its columns in order, each as {@code name=stored name}, separated by commas. */
  public static final String COLUMNS = "asynclock.columns";

  private static final String CATALOG = "spark_catalog";

  private final SparkSession session;
  private final ParserInterface next;

  /** A parser for one session, before the one that the session would have. */
  public WritableViews(SparkSession session, ParserInterface next) {
    this.session = session;
    this.next = next;
  }

  @Override
  public LogicalPlan parsePlan(String text) throws ParseException {
    return next.parsePlan(text).transform(new AbstractPartialFunction<LogicalPlan, LogicalPlan>() {
      @Override
      public boolean isDefinedAt(LogicalPlan plan) {
        return plan instanceof InsertIntoStatement
            && ((InsertIntoStatement) plan).table() instanceof UnresolvedRelation;
      }

      @Override
      public LogicalPlan apply(LogicalPlan plan) {
        return stored((InsertIntoStatement) plan);
      }
    });
  }

  /** The same statement on the stored table; a statement on anything but a view of ours stays as it is. */
  private LogicalPlan stored(InsertIntoStatement insert) {
    UnresolvedRelation relation = (UnresolvedRelation) insert.table();
    CatalogTable view = view(relation.multipartIdentifier());
    if (view == null) {
      return insert;
    }
    String name = view.identifier().unquotedString();
    if (insert.byName()) {
      throw SpliceStatements.refused("INSERT INTO the view " + name + " takes no BY NAME. Nothing was changed. Name"
          + " the columns in parentheses.");
    }
    Map<String, String> columns = columns(view);
    List<String> given = JavaConverters.seqAsJavaList(insert.userSpecifiedCols());
    List<String> named = (given.isEmpty() ? List.copyOf(columns.keySet()) : given).stream()
        .map(column -> storedName(columns, column, name))
        .collect(Collectors.toList());
    String database = view.identifier().database().isDefined()
        ? view.identifier().database().get()
        : session.sessionState().catalog().getCurrentDatabase();
    UnresolvedRelation stored = new UnresolvedRelation(
        seq(Arrays.asList(CATALOG, database, view.properties().apply(STORED))),
        relation.options(), relation.isStreaming());
    return insert.copy(stored, insert.partitionSpec(), seq(named), insert.query(), insert.overwrite(),
        insert.ifPartitionNotExists(), false);
  }

  /** The view of a splice table that has this name; null if the name is of something else, or of nothing. */
  private CatalogTable view(Seq<String> parts) {
    List<String> name = JavaConverters.seqAsJavaList(parts);
    SessionCatalog catalog = session.sessionState().catalog();
    boolean named = name.size() == 3 && name.get(0).equalsIgnoreCase(CATALOG);
    boolean current = session.sessionState().catalogManager().currentCatalog().name().equals(CATALOG);
    if (!named && (name.size() > 2 || !current) || catalog.isTempView(parts)) {
      return null;
    }
    TableIdentifier identifier = new TableIdentifier(
        name.get(name.size() - 1), name.size() == 1 ? Option.empty() : Option.apply(name.get(name.size() - 2)));
    try {
      CatalogTable found = catalog.tableExists(identifier) ? catalog.getTableMetadata(identifier) : null;
      boolean ours = found != null && found.tableType().equals(CatalogTableType.VIEW())
          && found.properties().contains(STORED) && found.properties().contains(COLUMNS);
      return ours ? found : null;
    } catch (AnalysisException e) {
      return null; // dropped meanwhile; the analyzer says so
    }
  }

  private static Map<String, String> columns(CatalogTable view) {
    Map<String, String> columns = new LinkedHashMap<>();
    for (String pair : view.properties().apply(COLUMNS).split(",")) {
      columns.put(pair.split("=")[0], pair.split("=")[1]);
    }
    return columns;
  }

  private String storedName(Map<String, String> columns, String spelled, String view) {
    return columns.keySet().stream()
        .filter(column -> (Boolean) session.sessionState().conf().resolver().apply(column, spelled))
        .map(columns::get)
        .findFirst()
        .orElseThrow(() -> SpliceStatements.refused("The view " + view + " has no column " + spelled + " to insert."
            + " Nothing was changed. It has " + String.join(", ", columns.keySet()) + "."));
  }

  private static Seq<String> seq(List<String> values) {
    return JavaConverters.asScalaBuffer(values).toSeq();
  }

  @Override
  public LogicalPlan parseQuery(String text) throws ParseException {
    return next.parseQuery(text);
  }

  @Override
  public Expression parseExpression(String text) throws ParseException {
    return next.parseExpression(text);
  }

  @Override
  public TableIdentifier parseTableIdentifier(String text) throws ParseException {
    return next.parseTableIdentifier(text);
  }

  @Override
  public FunctionIdentifier parseFunctionIdentifier(String text) throws ParseException {
    return next.parseFunctionIdentifier(text);
  }

  @Override
  public Seq<String> parseMultipartIdentifier(String text) throws ParseException {
    return next.parseMultipartIdentifier(text);
  }

  @Override
  public StructType parseTableSchema(String text) throws ParseException {
    return next.parseTableSchema(text);
  }

  @Override
  public DataType parseDataType(String text) throws ParseException {
    return next.parseDataType(text);
  }
}
