package io.asynclock.source;

import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;

/**
 * Changes of rows in the envelope of Debezium: the row is in {@code after}, or in {@code before} if it was deleted.
 *
 * <p>Columns from {@code __op}, {@code __ts_ms} and {@code __source_lsn} are fields of the envelope and of its
 * {@code source}; the tombstone is true if the row was deleted.
 *
 * @see <a href="https://debezium.io/documentation/reference/stable/transformations/event-flattening.html">Debezium,
 *     New Record State Extraction: these names</a>
 */
final class DebeziumJson implements JsonObjects {

  private static final String TOMBSTONE = "deleted";
  private static final String ENVELOPE = "__";
  private static final String SOURCE = "__source_";
  private static final List<String> PARTS = List.of("payload", "op", "before", "after", "source");
  /** Where the row of each change is: created, updated, read in a snapshot, deleted. */
  private static final Map<String, String> ROWS =
      Map.of("c", "after", "u", "after", "r", "after", "d", "before");
  /** What a connector of PostgreSQL writes for a large value that did not change, also as the element of an array. */
  private static final String UNAVAILABLE = "__debezium_unavailable_value";

  private final Fields envelope;
  private final Fields source;
  private final Fields row;
  private final int columns;
  private final int tombstone;
  private final ArrayDeque<String[]> objects = new ArrayDeque<>();
  private String problem;

  DebeziumJson(String unit, Layout layout, UnnamedColumns unnamed) {
    columns = layout.sources.size();
    tombstone = layout.names.indexOf(TOMBSTONE);
    Map<String, Integer> ofEnvelope = new LinkedHashMap<>();
    Map<String, Integer> ofSource = new LinkedHashMap<>();
    Map<String, Integer> ofRow = new LinkedHashMap<>();
    for (int column = 0; column < columns; column++) {
      String name = layout.sources.get(column);
      if (name.startsWith(SOURCE)) {
        ofSource.put(name.substring(SOURCE.length()), column);
      } else if (name.startsWith(ENVELOPE)) {
        ofEnvelope.put(name.substring(ENVELOPE.length()), column);
      } else if (column != tombstone) {
        ofRow.put(name, column);
      }
    }
    UnnamedColumns others = new UnnamedColumns();
    envelope = new Fields(unit, ofEnvelope, PARTS, null, others);
    source = new Fields("source", ofSource, List.of(), null, others);
    row = new Fields("row", ofRow, List.of(), layout.exact(), unnamed);
  }

  @Override
  public void parse(String text) {
    objects.clear();
    envelope.json.parse(text);
    problem = envelope.json.problem();
    List<String[]> changes = new ArrayList<>(envelope.json.objects());
    for (int number = 0; problem == null && number < changes.size(); number++) {
      unwrap(changes.get(number));
    }
    if (problem != null) {
      objects.clear();
    }
  }

  @Override
  public String problem() {
    return problem;
  }

  @Override
  public ArrayDeque<String[]> objects() {
    return objects;
  }

  private void unwrap(String[] outer) {
    String payload = envelope.part(outer, "payload"); // if the schema of each record is next to it
    String[] change = isObject(payload) ? parsed(envelope, payload) : outer;
    if (change == null) {
      return;
    }
    String op = envelope.part(change, "op");
    if (op == null) {
      problem = "it is no change in Debezium's envelope: it has no op";
      return;
    }
    if (!ROWS.containsKey(op)) {
      problem = "its op is '" + op + "', which is no change of a row";
      return;
    }
    String changed = envelope.part(change, ROWS.get(op));
    if (!isObject(changed)) {
      problem = "its op is '" + op + "', and it has no row in " + ROWS.get(op);
      return;
    }
    String[] values = new String[columns];
    envelope.place(change, values);
    String from = envelope.part(change, "source");
    if (!place(row, changed, values) || isObject(from) && !place(source, from, values)) {
      return;
    }
    for (Map.Entry<String, Integer> column : row.places.entrySet()) {
      String value = values[column.getValue()];
      if (UNAVAILABLE.equals(value) || ("[\"" + UNAVAILABLE + "\"]").equals(value)) {
        problem = "Debezium has left out " + column.getKey() + ", which did not change; set REPLICA IDENTITY FULL for its"
            + " table";
        return;
      }
    }
    if (tombstone >= 0) {
      values[tombstone] = Boolean.toString(op.equals("d"));
    }
    objects.add(values);
  }

  private boolean place(Fields fields, String text, String[] values) {
    String[] found = parsed(fields, text);
    if (found != null) {
      fields.place(found, values);
    }
    return found != null;
  }

  /** The fields of the one object in a text; null if there is a problem. */
  private String[] parsed(Fields fields, String text) {
    fields.json.parse(text);
    problem = fields.json.problem();
    if (problem == null && fields.json.objects().size() != 1) {
      problem = "no well-formed JSON: it has several objects in a field";
    }
    return problem == null ? fields.json.objects().removeFirst() : null;
  }

  /** Whether a text is an object, or a string with one in it, as some connectors write rows. */
  private static boolean isObject(String text) {
    return text != null && text.startsWith("{");
  }

  /** The wanted fields of one object, and the columns that they become. */
  private static final class Fields {

    final JsonText json;
    private final List<String> names = new ArrayList<>();
    private final Map<String, Integer> places;

    /**
     * @param parts the fields that are wanted though they may be no column
     * @param exact null: all names must match exactly
     */
    Fields(String unit, Map<String, Integer> places, List<String> parts, Set<String> exact, UnnamedColumns unnamed) {
      this.places = places;
      Set<String> wanted = new LinkedHashSet<>(parts);
      wanted.addAll(places.keySet());
      names.addAll(wanted);
      json = new JsonText(unit, names, exact == null ? wanted : exact, unnamed);
    }

    String part(String[] found, String name) {
      return found[names.indexOf(name)];
    }

    void place(String[] found, String[] values) {
      places.forEach((name, column) -> values[column] = part(found, name));
    }
  }
}
