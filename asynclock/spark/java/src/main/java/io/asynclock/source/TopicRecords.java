package io.asynclock.source;

import java.nio.ByteBuffer;
import java.nio.charset.CharacterCodingException;
import java.nio.charset.StandardCharsets;
import java.util.Iterator;
import java.util.List;
import org.apache.spark.api.java.function.MapPartitionsFunction;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Encoders;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;

/** The records of a Kafka topic, each one JSON object; called from Python. */
public final class TopicRecords implements Record {

  private static final StructType PLACE =
      new StructType()
          .add("_asynclock_topic", DataTypes.StringType)
          .add("_asynclock_partition", DataTypes.IntegerType)
          .add("_asynclock_offset", DataTypes.LongType);

  private final JsonObjects json;
  private String[] record;
  private String problem;
  private String text;

  private TopicRecords(Layout layout, UnnamedColumns unnamed) {
    this.json = JsonObjects.of("record", layout, unnamed);
  }

  /**
   * The rows of records, each with its values or a reason.
   *
   * @param records topic, partition, offset and value of each
   * @param sources the names of the columns in the records
   * @param isEnveloped whether the rows are in Debezium's envelope
   * @param unnamed takes the names of other fields that the records have
   */
  public static Dataset<Row> rows(
      Dataset<Row> records,
      List<String> names,
      List<String> types,
      List<String> sources,
      List<String> required,
      boolean isEnveloped,
      UnnamedColumns unnamed) {
    Layout layout = new Layout(names, types, sources, required, List.of(), isEnveloped);
    MapPartitionsFunction<Row, Row> read = some -> new TopicRecords(layout, unnamed).rows(some, layout);
    return records.mapPartitions(read, Encoders.row(layout.schema(PLACE)));
  }

  @Override
  public String problem() {
    return problem;
  }

  @Override
  public String value(int column) {
    return record[column];
  }

  @Override
  public String text() {
    return text;
  }

  private Iterator<Row> rows(Iterator<Row> records, Layout layout) {
    return new Iterator<>() {
      @Override
      public boolean hasNext() {
        return records.hasNext();
      }

      @Override
      public Row next() {
        Row found = records.next();
        take((byte[]) found.get(3));
        return layout.row(TopicRecords.this, found.get(0), found.get(1), found.get(2));
      }
    };
  }

  private void take(byte[] value) {
    text = null;
    if (value == null) {
      problem = "it has no value";
      return;
    }
    try {
      text = StandardCharsets.UTF_8.newDecoder().decode(ByteBuffer.wrap(value)).toString();
    } catch (CharacterCodingException undecodable) {
      text = new String(value, StandardCharsets.UTF_8);
      problem = "it has bytes that are not utf-8";
      return;
    }
    if (text.length() > Characters.LONGEST) {
      problem = "it is longer than " + Characters.LONGEST + " characters";
      return;
    }
    json.parse(text);
    problem = json.problem();
    if (problem == null && json.objects().size() != 1) {
      problem = "it has " + json.objects().size() + " JSON objects, not one";
    }
    record = problem == null ? json.objects().removeFirst() : null;
  }
}
