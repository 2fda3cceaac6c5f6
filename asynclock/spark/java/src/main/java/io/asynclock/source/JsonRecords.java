package io.asynclock.source;

import java.io.IOException;

/**
 * Lines of JSON objects.
 *
 * <p>A line is parsed to its end before its first record is given out, so that it counts whole or not at all.
 */
final class JsonRecords implements Records {

  private final Characters source;
  private final JsonObjects json;
  private final StringBuilder line = new StringBuilder();
  private String[] record;
  private String problem;
  private String text;
  private long number;

  JsonRecords(Characters source, Layout layout, UnnamedColumns unnamed) {
    this.source = source;
    this.json = JsonObjects.of("line", layout, unnamed);
  }

  @Override
  public boolean next() throws BadFile {
    problem = null;
    while (json.objects().isEmpty()) {
      if (!readLine()) {
        return false;
      }
      if (source.replacedSome()) {
        problem = "it has bytes that are not utf-8";
      } else {
        json.parse(text);
        problem = json.problem();
      }
      if (problem != null) {
        return true;
      }
    }
    record = json.objects().removeFirst();
    return true;
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
  public long line() {
    return number;
  }

  @Override
  public String text() {
    return text;
  }

  @Override
  public void close() throws IOException {
    source.close();
  }

  private boolean readLine() throws BadFile {
    if (source.peek() == Characters.END) {
      return false;
    }
    number++;
    line.setLength(0);
    for (int character = source.read(); character != '\n' && character != Characters.END; character = source.read()) {
      if (line.length() == Characters.LONGEST) {
        throw new BadFile("line " + number + " is longer than " + Characters.LONGEST + " characters");
      }
      line.append((char) character);
    }
    int length = line.length();
    text = line.substring(0, length > 0 && line.charAt(length - 1) == '\r' ? length - 1 : length);
    return true;
  }
}
