package io.asynclock.source;

import java.util.ArrayDeque;

/** The rows in a text of JSON. */
interface JsonObjects {

  /** Parse a text; {@link #objects} are then in it, unless there is a {@link #problem}. */
  void parse(String text);

  /** What is wrong with the text; null if it has objects only, or nothing. */
  String problem();

  /** The objects that are left, each as the texts of the wanted columns; the caller takes them out. */
  ArrayDeque<String[]> objects();

  /**
   * A parser of the texts of a stream.
   *
   * @param unit what a text is called where something is wrong with it
   * @param unnamed takes the names of fields that the spec does not name
   */
  static JsonObjects of(String unit, Layout layout, UnnamedColumns unnamed) {
    return layout.isEnveloped
        ? new DebeziumJson(unit, layout, unnamed)
        : new JsonText(unit, layout.sources, layout.exact(), unnamed);
  }
}
