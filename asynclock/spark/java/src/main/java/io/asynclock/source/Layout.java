package io.asynclock.source;

import java.io.Serializable;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.RowFactory;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;

/** The wanted columns of a stream, and the rows that its records become. */
final class Layout implements Serializable {

  private static final int SHOWN = 100;

  /** The columns by their names in the source. */
  final List<String> sources;
  /** Those of the sources that a file may lack. */
  final Set<String> optional;
  /** The columns. */
  final List<String> names;
  /** Whether the rows of JSON are in Debezium's envelope. */
  final boolean isEnveloped;
  private final List<Value.Type> types = new ArrayList<>();
  private final Set<String> required;

  Layout(
      List<String> names,
      List<String> types,
      List<String> sources,
      List<String> required,
      List<String> optional,
      boolean isEnveloped) {
    this.isEnveloped = isEnveloped;
    this.names = new ArrayList<>(names);
    this.sources = new ArrayList<>(sources);
    this.optional = Set.copyOf(optional);
    types.forEach(type -> this.types.add(new Value.Type(type)));
    this.required = Set.copyOf(required);
  }

  /** The values as they are stored, then the place of the record in its source, reason and record. */
  StructType schema(StructType place) {
    StructType schema = new StructType();
    for (int column = 0; column < names.size(); column++) {
      schema = schema.add(names.get(column), types.get(column).stored());
    }
    for (StructField field : place.fields()) {
      schema = schema.add(field);
    }
    return schema.add("_asynclock_reason", DataTypes.StringType).add("_asynclock_record", DataTypes.StringType);
  }

  /** The sources of columns with another name. These must match exactly, even if others differ in case. */
  Set<String> exact() {
    Set<String> exact = new HashSet<>(sources);
    exact.removeAll(names);
    return exact;
  }

  boolean[] isText() {
    boolean[] isText = new boolean[names.size()];
    for (int column = 0; column < isText.length; column++) {
      isText[column] = types.get(column).value == Value.STRING;
    }
    return isText;
  }

  /** The row of a record, with its values or with its problem. */
  Row row(Record record, Object... place) {
    Object[] values = new Object[names.size()];
    StringBuilder complaints = new StringBuilder();
    if (record.problem() == null) {
      read(record, values, complaints);
    } else {
      complaints.append(record.problem());
    }
    boolean isBad = complaints.length() > 0;
    return complete(values, place, isBad ? complaints.toString() : null, isBad ? record.text() : null);
  }

  /** The row that stands for a bad file. */
  Row bad(String reason, Object... place) {
    return complete(new Object[names.size()], place, reason, null);
  }

  private void read(Record record, Object[] row, StringBuilder complaints) {
    for (int column = 0; column < names.size(); column++) {
      String text = record.value(column);
      Value.Type type = types.get(column);
      row[column] = text == null ? null : type.read(text);
      if ((text == null || text.isEmpty()) && required.contains(names.get(column))) {
        complain(complaints, names.get(column) + " is missing");
      } else if (text != null && row[column] == null) {
        complain(complaints, names.get(column) + " is no " + type.name + ": " + shown(text));
      }
    }
  }

  private static Row complete(Object[] values, Object[] place, String reason, String record) {
    Object[] row = Arrays.copyOf(values, values.length + place.length + 2);
    System.arraycopy(place, 0, row, values.length, place.length);
    row[row.length - 2] = reason;
    row[row.length - 1] = record;
    return RowFactory.create(row);
  }

  private static void complain(StringBuilder complaints, String complaint) {
    complaints.append(complaints.length() > 0 ? "; " : "").append(complaint);
  }

  private static String shown(String text) {
    return text.length() > SHOWN ? text.substring(0, SHOWN) + "..." : text;
  }
}
