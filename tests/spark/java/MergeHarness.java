import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import io.asynclock.hudi.SpliceMerger;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.math.BigDecimal;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Deque;
import java.util.HashMap;
import java.util.LinkedList;
import java.util.List;
import java.util.Map;
import org.apache.hudi.SparkFileFormatInternalRecordContext;
import org.apache.hudi.common.config.TypedProperties;
import org.apache.hudi.common.engine.RecordContext;
import org.apache.hudi.common.model.HoodieOperation;
import org.apache.hudi.common.schema.HoodieSchema;
import org.apache.hudi.common.table.HoodieTableConfig;
import org.apache.hudi.common.table.read.BufferedRecord;
import org.apache.spark.sql.HoodieInternalRowUtils;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.util.ArrayData;
import org.apache.spark.sql.catalyst.util.GenericArrayData;
import org.apache.spark.sql.types.ArrayType;
import org.apache.spark.sql.types.BooleanType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DateType;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.sql.types.DecimalType;
import org.apache.spark.sql.types.DoubleType;
import org.apache.spark.sql.types.IntegerType;
import org.apache.spark.sql.types.StringType;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * Drives the compiled merger with Hudi's own record context: JSON lines in, one JSON line out for each.
 *
 * <p>{"schemas": {name: avro}} defines schemas and answers {}; {"mandatory": name} answers the columns the
 * merger asks for; {"strategy": true} its id; {"records": [...], "programs": [...]} runs each program on the records. A program is a
 * postfix expression: n pushes record n, "+" merges the two topmost (the lower is the older), "b" makes the
 * topmost binary, as Hudi does when it buffers a record.
 */
public final class MergeHarness {
  private static final ObjectMapper JSON = new ObjectMapper();
  private static final TypedProperties PROPS = new TypedProperties();

  private final Map<String, HoodieSchema> schemas = new HashMap<>();
  // A Scala trait, whose Java view does not show what it extends.
  @SuppressWarnings("unchecked")
  private final RecordContext<InternalRow> context =
      (RecordContext<InternalRow>) (Object) SparkFileFormatInternalRecordContext.apply(new HoodieTableConfig());
  private final SpliceMerger merger = new SpliceMerger();

  public static void main(String[] args) throws Exception {
    MergeHarness harness = new MergeHarness();
    BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
    for (String line = in.readLine(); line != null; line = in.readLine()) {
      out.println(JSON.writeValueAsString(harness.answer(JSON.readTree(line))));
    }
  }

  private JsonNode answer(JsonNode request) throws Exception {
    if (request.has("schemas")) {
      request.get("schemas").fields()
          .forEachRemaining(e -> schemas.put(e.getKey(), HoodieSchema.parse(e.getValue().toString())));
      return JSON.createObjectNode();
    }
    if (request.has("strategy")) {
      return JSON.valueToTree(merger.getMergingStrategy());
    }
    if (request.has("mandatory")) {
      HoodieSchema schema = schemas.get(request.get("mandatory").asText());
      return JSON.valueToTree(merger.getMandatoryFieldsForMerging(schema, new HoodieTableConfig(), PROPS));
    }
    ArrayNode results = JSON.createArrayNode();
    for (JsonNode program : request.get("programs")) {
      // Fresh records for each program: Hudi's are mutable.
      List<BufferedRecord<InternalRow>> records = new ArrayList<>();
      request.get("records").forEach(record -> records.add(record(record)));
      results.add(run(program, records));
    }
    return results;
  }

  private JsonNode run(JsonNode program, List<BufferedRecord<InternalRow>> records) {
    // Not an ArrayDeque: a missing record is null.
    Deque<BufferedRecord<InternalRow>> stack = new LinkedList<>();
    try {
      for (JsonNode step : program) {
        if (step.isInt()) {
          stack.push(records.get(step.asInt()));
        } else if (step.asText().equals("b")) {
          stack.peek().toBinary(context);
        } else {
          BufferedRecord<InternalRow> newer = stack.pop();
          stack.push(merger.merge(stack.pop(), newer, context, PROPS));
        }
      }
    } catch (RuntimeException e) {
      return JSON.createObjectNode().put("error", String.valueOf(e.getMessage()));
    }
    ObjectNode result = JSON.createObjectNode();
    BufferedRecord<InternalRow> merged = stack.pop();
    for (int i = 0; i < records.size(); i++) {
      if (records.get(i) == merged) {
        result.put("is", i);
      }
    }
    return merged.isDelete() ? result.put("deleted", true) : result.set("row", row(merged));
  }

  private BufferedRecord<InternalRow> record(JsonNode node) {
    if (node.isNull()) {
      return null;
    }
    HoodieOperation operation = node.has("delete") ? HoodieOperation.DELETE : null;
    if (!node.has("row")) {
      return new BufferedRecord<>("key", 0, null, null, operation);
    }
    HoodieSchema schema = schemas.get(node.get("schema").asText());
    StructField[] fields = HoodieInternalRowUtils.getCachedSchema(schema).fields();
    Object[] values = new Object[fields.length];
    for (int i = 0; i < fields.length; i++) {
      values[i] = fromJson(node.get("row").path(fields[i].name()), fields[i].dataType());
    }
    return new BufferedRecord<>(
        "key", 0, new GenericInternalRow(values), context.encodeSchema(schema), operation);
  }

  private ObjectNode row(BufferedRecord<InternalRow> record) {
    StructType type = HoodieInternalRowUtils.getCachedSchema(context.getSchemaFromBufferRecord(record));
    ObjectNode node = JSON.createObjectNode();
    StructField[] fields = type.fields();
    for (int i = 0; i < fields.length; i++) {
      boolean isNull = record.getRecord().isNullAt(i);
      node.set(fields[i].name(), isNull ? null : toJson(record.getRecord(), i, fields[i].dataType()));
    }
    return node;
  }

  private static Object fromJson(JsonNode value, DataType type) {
    if (value.isNull() || value.isMissingNode()) {
      return null;
    }
    if (type instanceof StringType) {
      return UTF8String.fromString(value.asText());
    }
    if (type instanceof IntegerType || type instanceof DateType) {
      return value.asInt();
    }
    if (type instanceof BooleanType) {
      return value.asBoolean();
    }
    if (type instanceof DoubleType) {
      return value.asDouble();
    }
    if (type instanceof DecimalType) {
      DecimalType decimal = (DecimalType) type;
      return Decimal.apply(new BigDecimal(value.asText()), decimal.precision(), decimal.scale());
    }
    if (type instanceof ArrayType) {
      List<Object> items = new ArrayList<>();
      value.forEach(item -> items.add(fromJson(item, ((ArrayType) type).elementType())));
      return new GenericArrayData(items.toArray());
    }
    return value.asLong();
  }

  private static JsonNode toJson(InternalRow row, int position, DataType type) {
    Object value = row.get(position, type);
    if (type instanceof ArrayType) {
      ArrayNode items = JSON.createArrayNode();
      for (Object item : ((ArrayData) value).toObjectArray(((ArrayType) type).elementType())) {
        items.add(String.valueOf(item));
      }
      return items;
    }
    boolean plain = value instanceof Number || value instanceof Boolean;
    return plain ? JSON.valueToTree(value) : JSON.valueToTree(value.toString());
  }
}
