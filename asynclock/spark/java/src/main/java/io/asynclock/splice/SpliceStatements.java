package io.asynclock.splice;

import static org.apache.spark.sql.functions.coalesce;
import static org.apache.spark.sql.functions.col;
import static org.apache.spark.sql.functions.count;
import static org.apache.spark.sql.functions.expr;
import static org.apache.spark.sql.functions.lit;
import static org.apache.spark.sql.functions.raise_error;
import static org.apache.spark.sql.functions.when;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.stream.Collectors;
import org.apache.hadoop.fs.Path;
import org.apache.hudi.common.table.HoodieTableConfig;
import org.apache.spark.sql.AnalysisException;
import org.apache.spark.sql.Column;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.TableIdentifier;
import org.apache.spark.sql.catalyst.analysis.EliminateSubqueryAliases;
import org.apache.spark.sql.catalyst.analysis.ResolvedIdentifier;
import org.apache.spark.sql.catalyst.catalog.CatalogTable;
import org.apache.spark.sql.catalyst.catalog.HoodieCatalogTable;
import org.apache.spark.sql.catalyst.catalog.SessionCatalog;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.plans.LeftOuter$;
import org.apache.spark.sql.catalyst.plans.logical.Assignment;
import org.apache.spark.sql.catalyst.plans.logical.DeleteFromTable;
import org.apache.spark.sql.catalyst.plans.logical.DropTable;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.InsertAction;
import org.apache.spark.sql.catalyst.plans.logical.Join;
import org.apache.spark.sql.catalyst.plans.logical.JoinHint;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.MergeAction;
import org.apache.spark.sql.catalyst.plans.logical.MergeIntoTable;
import org.apache.spark.sql.catalyst.plans.logical.UpdateAction;
import org.apache.spark.sql.catalyst.plans.logical.UpdateTable;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.execution.command.AlterTableAddColumnsCommand;
import org.apache.spark.sql.execution.command.AlterTableChangeColumnCommand;
import org.apache.spark.sql.execution.command.AlterTableDropPartitionCommand;
import org.apache.spark.sql.execution.command.AlterTableRenameCommand;
import org.apache.spark.sql.execution.command.TruncateTableCommand;
import org.apache.spark.sql.execution.datasources.LogicalRelation;
import org.apache.spark.sql.expressions.Window;
import org.apache.spark.sql.hudi.command.AlterTableCommand;
import org.apache.spark.sql.hudi.command.InsertIntoHoodieTableCommand;
import org.apache.spark.sql.hudi.command.exception.HoodieAnalysisException;
import org.apache.spark.sql.types.StructField;
import scala.Option;
import scala.collection.JavaConverters;
import scala.collection.immutable.Map$;

/**
 * Rewrites the statements that change a splice table, and refuses those that would break it.
 *
 * <ul>
 *   <li>INSERT: the record key is worked out from the key columns.
 *   <li>UPDATE, and MERGE with UPDATE and INSERT clauses: an insert of the changed rows, with the columns of the
 *       streams whose columns are set and null for all others. Hudi would write every column of the row as it was
 *       read, over what other streams write at the same time with equal ordering values.
 *   <li>DELETE is left to Hudi: it appends a delete of the key, which removes what was committed before it.
 *   <li>Whatever overwrites, empties or restructures the table is refused.
 * </ul>
 */
public final class SpliceStatements extends Rule<LogicalPlan> {

  /** The property with the key columns, separated by commas. */
  public static final String KEY_COLUMNS = "hoodie.asynclock.key";

  /** Where a repair keeps rows while it moves them, as asynclock/spark/hudi/timeline.py says. */
  private static final String REPAIR_COPY = ".hoodie/asynclock-repair";
  private static final String MATCHED = "_asynclock_matched";
  private static final String STREAMS_DO_IT =
      "Nothing was changed. Change the spec of the pipeline instead, from which its streams and services work.";

  private final SparkSession session;

  /** The rule for one session. */
  public SpliceStatements(SparkSession session) {
    this.session = session;
  }

  @Override
  public LogicalPlan apply(LogicalPlan plan) {
    if (plan instanceof InsertIntoHoodieTableCommand) {
      return insert((InsertIntoHoodieTableCommand) plan);
    }
    if (plan instanceof UpdateTable && plan.resolved()) {
      return update((UpdateTable) plan);
    }
    if (plan instanceof MergeIntoTable && plan.resolved()) {
      return merge((MergeIntoTable) plan);
    }
    if (plan instanceof DeleteFromTable && plan.resolved()) {
      changed(((DeleteFromTable) plan).table());
    }
    refuse(plan);
    return plan;
  }

  /** The splice table that a statement changes; null if there is none. */
  private Table changed(LogicalPlan relation) {
    Table table = Table.of(session, relation);
    if (table != null && table.isHalfRepaired()) {
      throw refused("A repair of the splice table " + table.name + " was interrupted and has rows still to append."
          + " Nothing was changed. Finish it first: asynclock pipeline repair SPEC.");
    }
    return table;
  }

  private LogicalPlan insert(InsertIntoHoodieTableCommand insert) {
    Table table = changed(insert.logicalRelation());
    if (table == null) {
      return insert;
    }
    if (insert.overwrite()) {
      throw refused("INSERT OVERWRITE of the splice table " + table.name + " would remove what its streams wrote."
          + " Nothing was changed. INSERT merges each row into the row of its key; DELETE removes rows.");
    }
    Dataset<Row> rows = rows(insert.query());
    Column[] columns = Arrays.stream(rows.columns()).map(table::ofEvent).toArray(Column[]::new);
    return insert.copy(insert.logicalRelation(), analyzed(rows.select(columns)), insert.partitionSpec(), false);
  }

  private LogicalPlan update(UpdateTable update) {
    Table table = changed(update.table());
    if (table == null) {
      return update;
    }
    LogicalPlan found = update.condition().isDefined()
        ? new Filter(update.condition().get(), update.table())
        : update.table();
    Map<String, Column> values = table.updated(table.assigned(update.assignments()), update.table());
    return table.insert(rows(found).select(table.columns(values)));
  }

  private LogicalPlan merge(MergeIntoTable merge) {
    Table table = changed(merge.targetTable());
    if (table == null) {
      return merge;
    }
    if (!merge.notMatchedBySourceActions().isEmpty()) {
      throw refused("MERGE into the splice table " + table.name + " takes no WHEN NOT MATCHED BY SOURCE."
          + " Nothing was changed. Write it as an UPDATE or DELETE of its own.");
    }
    if (merge.sourceTable().outputSet().intersect(merge.targetTable().outputSet()).nonEmpty()) {
      throw refused("MERGE into the splice table " + table.name + " cannot read its rows from that table itself."
          + " Nothing was changed. Write it as an UPDATE.");
    }
    LogicalPlan target = analyzed(rows(merge.targetTable()).withColumn(MATCHED, lit(true)));
    LogicalPlan joined = new Join(
        merge.sourceTable(), target, LeftOuter$.MODULE$, Option.apply(merge.mergeCondition()), JoinHint.NONE());
    Column matched = column(MATCHED).isNotNull();
    List<Column> applies = new ArrayList<>();
    List<Map<String, Column>> values = new ArrayList<>();
    for (MergeAction action : list(merge.matchedActions())) {
      applies.add(when(action, matched));
      if (!(action instanceof UpdateAction)) {
        throw refused("MERGE into the splice table " + table.name + " takes no DELETE. Nothing was changed."
            + " Set <stream>__deleted, or write a DELETE of its own.");
      }
      values.add(table.updated(table.assigned(((UpdateAction) action).assignments()), merge.targetTable()));
    }
    for (MergeAction action : list(merge.notMatchedActions())) {
      applies.add(when(action, matched.unary_$bang()));
      values.add(table.assigned(((InsertAction) action).assignments()));
    }
    Column[] columns = table.fields.stream()
        .map(field -> firstOf(applies, values, field).cast(field.dataType()).as(field.name()))
        .toArray(Column[]::new);
    Dataset<Row> changed = rows(joined).where(applies.stream().reduce(Column::or).orElseThrow()).select(columns);
    return table.insert(table.oncePerKey(changed));
  }

  private static Column when(MergeAction action, Column matched) {
    return action.condition().isDefined()
        ? matched.and(coalesce(new Column(action.condition().get()), lit(false)))
        : matched;
  }

  private static Column firstOf(List<Column> applies, List<Map<String, Column>> values, StructField field) {
    Column chosen = null;
    for (int at = 0; at < applies.size(); at++) {
      Column value = values.get(at).getOrDefault(field.name(), lit(null));
      chosen = chosen == null
          ? org.apache.spark.sql.functions.when(applies.get(at), value)
          : chosen.when(applies.get(at), value);
    }
    return chosen;
  }

  private void refuse(LogicalPlan plan) {
    TableIdentifier name = null;
    String what = null;
    if (plan instanceof TruncateTableCommand) {
      name = ((TruncateTableCommand) plan).tableName();
      what = "TRUNCATE";
    } else if (plan instanceof DropTable && ((DropTable) plan).purge()
        && ((DropTable) plan).child() instanceof ResolvedIdentifier) {
      Identifier identifier = ((ResolvedIdentifier) ((DropTable) plan).child()).identifier();
      String[] database = identifier.namespace();
      name = new TableIdentifier(
          identifier.name(), database.length == 1 ? Option.apply(database[0]) : Option.empty());
      what = "DROP ... PURGE";
    } else if (plan instanceof AlterTableAddColumnsCommand) {
      name = ((AlterTableAddColumnsCommand) plan).table();
      what = "ALTER TABLE ... ADD COLUMNS";
    } else if (plan instanceof AlterTableChangeColumnCommand) {
      name = ((AlterTableChangeColumnCommand) plan).tableName();
      what = "ALTER TABLE ... CHANGE COLUMN";
    } else if (plan instanceof AlterTableDropPartitionCommand) {
      name = ((AlterTableDropPartitionCommand) plan).tableName();
      what = "ALTER TABLE ... DROP PARTITION";
    } else if (plan instanceof AlterTableRenameCommand) {
      name = ((AlterTableRenameCommand) plan).oldName();
      what = "ALTER TABLE ... RENAME";
    } else if (plan instanceof AlterTableCommand) {
      name = ((AlterTableCommand) plan).table().identifier();
      what = "ALTER TABLE";
    }
    if (name != null && isSplice(name)) {
      throw refused(what + " of the splice table " + name.unquotedString() + " would break it. " + STREAMS_DO_IT);
    }
  }

  private boolean isSplice(TableIdentifier name) {
    SessionCatalog catalog = session.sessionState().catalog();
    try {
      return catalog.tableExists(name) && Table.of(session, catalog.getTableMetadata(name)) != null;
    } catch (AnalysisException e) {
      throw SpliceStatements.<RuntimeException>unchecked(e);
    }
  }

  private Dataset<Row> rows(LogicalPlan plan) {
    return Dataset.ofRows(session, plan);
  }

  private static LogicalPlan analyzed(Dataset<Row> rows) {
    return rows.queryExecution().analyzed();
  }

  private static <T> List<T> list(scala.collection.Seq<T> values) {
    return JavaConverters.seqAsJavaList(values);
  }

  /** A column by its exact name, which may have dots. */
  private static Column column(String name) {
    return col("`" + name + "`");
  }

  /** A splice table of the catalog. */
  private static final class Table {
    private final String name;
    private final List<StructField> fields;
    private final SparkSession session;
    private final HoodieCatalogTable hudi;
    private final LogicalRelation relation;
    private final List<String> key;

    private Table(SparkSession session, HoodieCatalogTable hudi, LogicalRelation relation, String key) {
      this.session = session;
      this.hudi = hudi;
      this.relation = relation;
      this.key = Arrays.asList(key.split(","));
      name = hudi.table().identifier().unquotedString();
      fields = Arrays.asList(hudi.tableSchemaWithoutMetaFields().fields());
    }

    /** The splice table behind the plan; null if it is none, or has no guard yet. */
    static Table of(SparkSession session, LogicalPlan plan) {
      LogicalPlan relation = EliminateSubqueryAliases.apply(plan);
      if (!(relation instanceof LogicalRelation) || ((LogicalRelation) relation).catalogTable().isEmpty()) {
        return null;
      }
      return of(session, ((LogicalRelation) relation).catalogTable().get(), (LogicalRelation) relation);
    }

    static Table of(SparkSession session, CatalogTable table) {
      return of(session, table, null);
    }

    private static Table of(SparkSession session, CatalogTable table, LogicalRelation relation) {
      if (table.provider().isEmpty() || !table.provider().get().equalsIgnoreCase("hudi")) {
        return null;
      }
      HoodieCatalogTable hudi = new HoodieCatalogTable(session, table);
      HoodieTableConfig config = hudi.tableConfig();
      String key = config.getProps().getString(KEY_COLUMNS, "");
      return key.isEmpty() ? null : new Table(session, hudi, relation, key);
    }

    /** Whether a repair was interrupted; a key that is deleted now would come back with its rows. */
    boolean isHalfRepaired() {
      Path copy = new Path(hudi.tableLocation(), REPAIR_COPY);
      try {
        return copy.getFileSystem(session.sessionState().newHadoopConf()).exists(copy);
      } catch (IOException e) {
        throw new UncheckedIOException(e);
      }
    }

    /** The record key, encoded as asynclock/spark/spec/keys.py does. */
    Column recordKey() {
      String values = key.stream()
          .map(column -> "url_encode(CAST(`" + column + "` AS STRING))")
          .collect(Collectors.joining(", "));
      return expr("concat_ws('|', " + values + ")").as(Columns.RECORD_KEY);
    }

    /** The assigned values by the names that the columns have in the table, however the statement spells them. */
    Map<String, Column> assigned(scala.collection.Seq<Assignment> assignments) {
      Map<String, Column> values = new HashMap<>();
      for (Assignment assignment : list(assignments)) {
        String spelled = ((Attribute) assignment.key()).name();
        String column = named(spelled);
        if (column == null) {
          throw refused("The splice table " + name + " has no column " + spelled + " to set. Nothing was changed.");
        }
        if (values.put(column, new Column(assignment.value())) != null) {
          throw refused("The statement sets " + column + " twice. Nothing was changed. Set it once in the splice"
              + " table " + name + ".");
        }
      }
      return values;
    }

    /** The field's name in the table; null if the table has none of that name. */
    private String named(String spelled) {
      return fields.stream()
          .map(StructField::name)
          .filter(field -> (Boolean) session.sessionState().conf().resolver().apply(field, spelled))
          .findFirst()
          .orElse(null);
    }

    /** The values of the columns of an update: as assigned, as they are in the same group, else null. */
    Map<String, Column> updated(Map<String, Column> assigned, LogicalPlan target) {
      Set<String> touched = new HashSet<>();
      for (String column : assigned.keySet()) {
        String group = Columns.group(column);
        if (group == null) {
          throw refused(column + " of the splice table " + name + " belongs to the key or the partition of its"
              + " rows and cannot be set. Nothing was changed. INSERT the row under its new key and DELETE the old.");
        }
        if (Columns.isSum(column)) {
          throw refused(noSum(column) + " Nothing was changed. Take it out of the statement.");
        }
        touched.add(group);
      }
      Map<String, Column> stored = new HashMap<>();
      for (Attribute attribute : list(target.output())) {
        String column = named(attribute.name());
        if (column != null) {
          stored.put(column, new Column(attribute));
        }
      }
      Map<String, Column> values = new HashMap<>(assigned);
      for (StructField field : fields) {
        String group = Columns.group(field.name());
        if (group != null && !touched.contains(group)) {
          continue;
        }
        if (!stored.containsKey(field.name())) {
          throw refused("The catalog's splice table " + name + " lacks " + field.name() + ", which a stream added, and"
              + " the statement would write null over it. Nothing was changed. Drop the table from the catalog,"
              + " which leaves its data, and register the table again.");
        }
        values.putIfAbsent(field.name(), stored.get(field.name()));
      }
      return values;
    }

    Column[] columns(Map<String, Column> values) {
      return fields.stream()
          .map(field -> values.getOrDefault(field.name(), lit(null)).cast(field.dataType()).as(field.name()))
          .toArray(Column[]::new);
    }

    /** Rows of which no two have the same key: the order of their merge would be arbitrary. */
    Dataset<Row> oncePerKey(Dataset<Row> rows) {
      Column[] keys = key.stream().map(SpliceStatements::column).toArray(Column[]::new);
      Column twice = count(lit(1)).over(Window.partitionBy(keys)).gt(1);
      String first = key.get(0);
      Column error = raise_error(lit("MERGE: two rows of the source have the same key. Nothing was written."));
      return rows.withColumn(
          first, org.apache.spark.sql.functions.when(twice, error).otherwise(column(first)));
    }

    /**
     * The value that a statement appends. A sum has none: a statement that is repeated would count again, for nothing
     * recognises it, as its number does a batch.
     */
    Column inserted(String field) {
      if (field.equals(Columns.RECORD_KEY)) {
        return recordKey();
      }
      if (!Columns.isSum(field)) {
        return column(field);
      }
      Column error = raise_error(lit(noSum(field) + " Nothing was written. Leave the column out."));
      return org.apache.spark.sql.functions.when(column(field).isNotNull(), error).otherwise(column(field)).as(field);
    }

    /** As {@link #inserted}; a kept value without an ordering value has that of its stream, as in an event. */
    Column ofEvent(String field) {
      String group = Columns.group(field);
      int turn = Columns.turn(field);
      String stream = turn == 0 ? null : Columns.streamOfKept(group);
      if (stream == null) {
        return inserted(field);
      }
      Column ordering = fields.stream().map(StructField::name)
          .filter(name -> stream.equals(Columns.group(name)) && Columns.turn(name) == turn)
          .findFirst().map(SpliceStatements::column).orElse(lit(null));
      Column ofStream = Columns.keepsNulls(group)
          ? ordering
          : org.apache.spark.sql.functions.when(column(group).isNotNull(), ordering);
      return coalesce(column(field), ofStream).as(field);
    }

    private String noSum(String field) {
      return "Only the batches of its stream count in the sum " + field + " of the splice table " + name
          + ": a statement that is repeated would count twice.";
    }

    /** The command that appends the rows, whose columns are the table's. */
    LogicalPlan insert(Dataset<Row> rows) {
      Column[] columns = fields.stream().map(field -> inserted(field.name())).toArray(Column[]::new);
      LogicalPlan aligned = InsertIntoHoodieTableCommand.alignQueryOutput(
          analyzed(rows.select(columns)), hudi, Map$.MODULE$.empty(), session.sessionState().conf());
      return new InsertIntoHoodieTableCommand(relation, aligned, Map$.MODULE$.empty(), false);
    }
  }

  static RuntimeException refused(String why) {
    return SpliceStatements.<RuntimeException>unchecked(new HoodieAnalysisException(why, Option.empty(), Option.empty()));
  }

  /** Throws Spark's exception, which is checked for Java but not for Scala. */
  @SuppressWarnings("unchecked")
  private static <E extends Exception> RuntimeException unchecked(Exception exception) throws E {
    throw (E) exception;
  }
}
