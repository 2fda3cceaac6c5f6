package io.asynclock.source;

import java.io.Serializable;
import java.util.Map;

/** The format of a stream's CSV files: the spec's {@code csv} table, checked in Python. */
final class Dialect implements Serializable {

  /** Equal to no character. */
  private static final int NONE = -2;

  final int separator;
  final int quote;
  final int escape;
  final String encoding;
  final String nullText;
  final boolean multiline;

  Dialect(Map<String, String> settings) {
    separator = character(settings.get("separator"));
    quote = character(settings.get("quote"));
    escape = character(settings.get("escape"));
    encoding = settings.get("encoding");
    nullText = settings.get("null");
    multiline = Boolean.parseBoolean(settings.get("multiline"));
  }

  private static int character(String text) {
    return text.isEmpty() ? NONE : text.charAt(0);
  }
}
