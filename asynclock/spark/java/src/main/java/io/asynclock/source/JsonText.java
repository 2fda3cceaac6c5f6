package io.asynclock.source;

import com.fasterxml.jackson.core.JsonFactory;
import com.fasterxml.jackson.core.JsonParser;
import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.core.JsonToken;
import com.fasterxml.jackson.core.JsonTokenId;
import com.fasterxml.jackson.core.StreamReadConstraints;
import com.fasterxml.jackson.core.StreamReadFeature;
import com.fasterxml.jackson.core.json.JsonReadFeature;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.ArrayDeque;
import java.util.List;
import java.util.Set;

/** The JSON objects in one text, parsed to its end: it counts whole or not at all. */
final class JsonText implements JsonObjects {

  /** As many as the second reader, by which the table is validated, can follow. */
  private static final int DEEPEST = 500;
  private static final String HALVED = "a \\u escape makes half a surrogate pair";
  private static final Set<String> NO_NUMBERS = Set.of("NaN", "Infinity", "-Infinity");
  private static final JsonFactory FACTORY =
      JsonFactory.builder()
          .enable(StreamReadFeature.STRICT_DUPLICATE_DETECTION)
          .enable(JsonReadFeature.ALLOW_NON_NUMERIC_NUMBERS)
          .disable(JsonFactory.Feature.INTERN_FIELD_NAMES)
          .disable(JsonFactory.Feature.CANONICALIZE_FIELD_NAMES)
          .streamReadConstraints(
              StreamReadConstraints.builder()
                  .maxNestingDepth(DEEPEST)
                  .maxNumberLength(Characters.LONGEST)
                  .maxStringLength(Characters.LONGEST)
                  .build())
          .build();

  private final String unit;
  private final List<String> names;
  private final Set<String> exact;
  private final UnnamedColumns unnamed;
  private final ArrayDeque<String[]> objects = new ArrayDeque<>();
  private String text;
  private String problem;

  /**
   * A parser of many texts.
   *
   * @param unit what a text is called where something is wrong with it
   * @param names the names of the wanted columns
   * @param exact those of them that must match exactly, even if other fields differ in case alone
   * @param unnamed takes the names of other fields
   */
  JsonText(String unit, List<String> names, Set<String> exact, UnnamedColumns unnamed) {
    this.unit = unit;
    this.names = names;
    this.exact = exact;
    this.unnamed = unnamed;
  }

  @Override
  public void parse(String newText) {
    text = newText;
    problem = null;
    objects.clear();
    try (JsonParser parser = FACTORY.createParser(text)) {
      boolean mayHalve = text.contains("\\u"); // bytes give whole pairs only
      for (JsonToken token = parser.nextToken(); token != null; token = parser.nextToken()) {
        if (token != JsonToken.START_OBJECT) {
          problem = "the " + unit + " has something else than JSON objects";
          return;
        }
        readObject(parser, mayHalve);
        if (problem != null) {
          return;
        }
      }
    } catch (JsonProcessingException malformed) {
      String message = malformed.getOriginalMessage();
      int location = message.indexOf(" (start marker at ");
      problem = "no well-formed JSON: " + (location < 0 ? message : message.substring(0, location));
    } catch (IOException impossible) {
      throw new UncheckedIOException(impossible);
    } finally {
      if (problem != null) {
        objects.clear();
      }
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

  private void readObject(JsonParser parser, boolean mayHalve) throws IOException {
    String[] values = new String[names.size()];
    while (parser.nextToken() != JsonToken.END_OBJECT) {
      String name = parser.getCurrentName();
      int column = names.indexOf(name);
      for (int other = 0; column < 0 && other < names.size(); other++) {
        if (Header.isOtherCase(name, names.get(other)) && !exact.contains(names.get(other))) {
          problem = Header.otherCase(name, names.get(other));
          return;
        }
      }
      JsonToken token = parser.nextToken();
      int begin = (int) parser.currentTokenLocation().getCharOffset();
      String value = scalar(parser, token);
      if (token.isStructStart()) {
        skip(parser, mayHalve);
        value = text.substring(begin, (int) parser.currentLocation().getCharOffset());
      }
      if (mayHalve && (isHalved(name) || token == JsonToken.VALUE_STRING && isHalved(value))) {
        problem = HALVED;
      }
      if (problem != null) {
        return;
      }
      if (column >= 0) {
        values[column] = value;
      } else {
        unnamed.add(name);
      }
    }
    objects.add(values);
  }

  /** The text of a scalar; null for null, objects and arrays. */
  private String scalar(JsonParser parser, JsonToken token) throws IOException {
    switch (token.id()) {
      case JsonTokenId.ID_NULL:
      case JsonTokenId.ID_START_OBJECT:
      case JsonTokenId.ID_START_ARRAY:
        return null;
      case JsonTokenId.ID_NUMBER_FLOAT:
        String digits = parser.getText();
        char last = digits.charAt(digits.length() - 1);
        if (!Character.isDigit(last) && !NO_NUMBERS.contains(digits)) {
          problem = "no well-formed JSON: " + digits;
        }
        return digits;
      default:
        return parser.getText();
    }
  }

  /** Go over an object or an array, to its last token. */
  private void skip(JsonParser parser, boolean mayHalve) throws IOException {
    for (int depth = 1; depth > 0; ) {
      JsonToken token = parser.nextToken();
      depth += token.isStructStart() ? 1 : token.isStructEnd() ? -1 : 0;
      String value = scalar(parser, token);
      if (mayHalve && (token == JsonToken.VALUE_STRING || token == JsonToken.FIELD_NAME) && isHalved(value)) {
        problem = HALVED;
      }
    }
  }

  private static boolean isHalved(String value) {
    return value.codePoints().anyMatch(point -> point >= Character.MIN_SURROGATE && point <= Character.MAX_SURROGATE);
  }
}
