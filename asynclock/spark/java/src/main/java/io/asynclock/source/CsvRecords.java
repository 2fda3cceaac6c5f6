package io.asynclock.source;

import java.io.IOException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;

/**
 * CSV by RFC 4180, strictly.
 *
 * <p>If quotes appear where the dialect allows none, the file was written by other rules. Then no line end surely
 * ends a record, and {@link #next} gives up the whole file. If no field may have a line end, it gives up only the
 * line.
 */
final class CsvRecords implements Records {

  private final Characters source;
  private final Dialect dialect;
  private final List<String> header = new ArrayList<>();
  private final int[] wanted;
  private final boolean[] isText;
  // By character: whether a run of plain text ends before it, inside quotes and outside.
  private final boolean[] endsQuoted = new boolean[Character.MAX_VALUE + 1];
  private final boolean[] endsUnquoted = new boolean[Character.MAX_VALUE + 1];

  // The record: its characters, those of its fields without quotes and escapes, and where each field ends.
  private char[] text = new char[256];
  private int textLength;
  private char[] fields = new char[256];
  private int fieldsLength;
  private int[] ends = new int[16];
  private boolean[] quoted = new boolean[16];
  private int count;
  private long line;
  private long nextLine = 1;
  private String problem;

  /**
   * Read the header; a file without one has no records.
   *
   * @param isText which of the wanted columns are of the type string
   */
  CsvRecords(Characters source, Dialect dialect, boolean[] isText) throws BadFile {
    this.source = source;
    this.dialect = dialect;
    this.isText = isText;
    this.wanted = new int[isText.length];
    for (int character : new int[] {dialect.separator, dialect.quote, dialect.escape, '\r', '\n'}) {
      if (character >= 0) { // a dialect may have no quote
        endsUnquoted[character] = true;
        endsQuoted[character] = character == dialect.quote || character == dialect.escape || character == '\n';
      }
    }
    if (!scan()) {
      return;
    }
    if (problem != null) {
      throw new BadFile("the header, line " + line + ": " + problem);
    }
    for (int column = 0; column < count; column++) {
      header.add(field(column));
    }
  }

  /** The names of the columns; empty if the file has none. */
  List<String> header() {
    return header;
  }

  /** Give up a file whose header has a wanted column twice, or lacks one that is not optional. */
  void find(Layout layout) throws BadFile {
    if (!header.isEmpty()) {
      Header.check(header, layout.sources, layout.optional, layout.exact());
      Arrays.setAll(wanted, column -> header.indexOf(layout.sources.get(column)));
    }
  }

  @Override
  public boolean next() throws BadFile {
    if (!scan()) {
      return false;
    }
    if (problem == null && count != header.size()) {
      problem = "the record has " + count + " fields, the header " + header.size();
    }
    return true;
  }

  @Override
  public String problem() {
    return problem;
  }

  @Override
  public String value(int column) {
    int index = wanted[column];
    if (index < 0) {
      return null;
    }
    int length = ends[index] - start(index);
    if (length == 0 && !isText[column]) {
      return null;
    }
    String value = field(index);
    return !quoted[index] && value.equals(dialect.nullText) ? null : value;
  }

  @Override
  public long line() {
    return line;
  }

  @Override
  public String text() {
    return new String(text, 0, textLength);
  }

  @Override
  public void close() throws IOException {
    source.close();
  }

  private int start(int index) {
    return index == 0 ? 0 : ends[index - 1];
  }

  private String field(int index) {
    return new String(fields, start(index), ends[index] - start(index));
  }

  /** Read a record, over empty lines; false at the end. */
  private boolean scan() throws BadFile {
    do {
      if (source.peek() == Characters.END) {
        return false;
      }
      line = nextLine;
      textLength = 0;
      fieldsLength = 0;
      count = 0;
      problem = null;
      readRecord();
      nextLine++;
    } while (textLength == 0);
    if (source.replacedSome()) {
      problem = "it has bytes that are not " + dialect.encoding;
    }
    return true;
  }

  private void readRecord() throws BadFile {
    String broken;
    do {
      broken = source.peek() == dialect.quote ? readQuoted() : readUnquoted();
      if (broken != null) {
        giveUp(broken);
        return;
      }
      endField();
    } while (take(dialect.separator));
    if (source.peek() == '\r') {
      source.read();
      if (source.peek() != '\n') {
        append('\r');
        giveUp("a carriage return that no line feed follows, outside of quotes");
        return;
      }
    }
    source.read(); // the line feed, or nothing at the end
  }

  /** Read up to a separator or a line end; returns what is broken. */
  private String readUnquoted() throws BadFile {
    quote(false);
    keepRun(endsUnquoted);
    while (!isFieldEnd(source.peek())) {
      int character = source.read();
      append(character);
      if (character == dialect.quote) {
        return "a quote inside a field that does not begin with one";
      }
      if (character == dialect.escape) {
        return "the escape character outside of quotes";
      }
      keep(character);
      keepRun(endsUnquoted);
    }
    return null;
  }

  /** Read a field from its opening to its closing quote; returns what is broken. */
  private String readQuoted() throws BadFile {
    quote(true);
    append(source.read());
    while (true) {
      keepRun(endsQuoted);
      int character = source.peek();
      if (character == Characters.END || character == '\n' && !dialect.multiline) {
        return "a quote that is never closed";
      }
      append(source.read());
      if (character == dialect.escape && isEscaped(source.peek())) {
        character = source.read();
        append(character);
        keep(character);
      } else if (character == dialect.quote) {
        return isFieldEnd(source.peek()) ? null : "a closing quote that no separator or line end follows";
      } else if (character == dialect.escape) {
        return "an escape character that stands before nothing to escape";
      } else {
        nextLine += character == '\n' ? 1 : 0;
        keep(character);
      }
    }
  }

  private boolean isEscaped(int character) {
    return character == dialect.quote || character == dialect.escape;
  }

  private boolean isFieldEnd(int character) {
    return character == dialect.separator || character == '\n' || character == '\r' || character == Characters.END;
  }

  private boolean take(int character) throws BadFile {
    if (source.peek() != character) {
      return false;
    }
    append(source.read());
    return true;
  }

  private void giveUp(String broken) throws BadFile {
    if (dialect.multiline) {
      throw new BadFile(
          "broken quoting in the record at line " + line + " (" + broken + "), so that nobody knows where records"
              + " begin; correct the file or the dialect (csv), or set multiline = false if no field has line ends");
    }
    problem = "broken quoting: " + broken;
    while (source.peek() != '\n' && source.peek() != Characters.END) {
      append(source.read());
    }
    boolean endsInCrLf = source.read() == '\n' && textLength > 0 && text[textLength - 1] == '\r';
    textLength -= endsInCrLf ? 1 : 0;
  }

  /** Take over plain text, as far as it is decoded. */
  private void keepRun(boolean[] stops) throws BadFile {
    int length = source.run(stops);
    makeRoom(length);
    source.read(text, textLength, length);
    System.arraycopy(text, textLength, fields, fieldsLength, length);
    textLength += length;
    fieldsLength += length;
  }

  private void append(int character) throws BadFile {
    makeRoom(1);
    text[textLength++] = (char) character;
  }

  private void makeRoom(int length) throws BadFile {
    if (textLength + length > Characters.LONGEST) {
      throw new BadFile("the record at line " + line + " is longer than " + Characters.LONGEST + " characters");
    }
    if (textLength + length > text.length) {
      text = Arrays.copyOf(text, Math.max(2 * text.length, textLength + length));
      fields = Arrays.copyOf(fields, text.length); // never longer than the text
    }
  }

  private void keep(int character) {
    fields[fieldsLength++] = (char) character;
  }

  private void quote(boolean isQuoted) {
    if (count == ends.length) {
      ends = Arrays.copyOf(ends, 2 * count);
      quoted = Arrays.copyOf(quoted, 2 * count);
    }
    quoted[count] = isQuoted;
  }

  private void endField() {
    ends[count++] = fieldsLength;
  }
}
