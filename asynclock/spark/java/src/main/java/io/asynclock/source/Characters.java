package io.asynclock.source;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.CharBuffer;
import java.nio.charset.Charset;
import java.nio.charset.CharsetDecoder;
import java.nio.charset.CoderResult;
import java.util.ArrayDeque;

/** The characters of a file, with U+FFFD for each run of bytes that the encoding does not allow. */
final class Characters implements AutoCloseable {

  /** The result of {@link #read} at the end of the file. */
  static final int END = -1;

  /** Longest record, in characters: a quote that is never closed must not fill the memory. */
  static final int LONGEST = 1 << 24;

  private static final char REPLACEMENT = '\uFFFD';
  private static final char BYTE_ORDER_MARK = '\uFEFF';
  private static final int CHUNK = 1 << 16;

  private final Bytes bytes;
  private final CharsetDecoder decoder;
  private final ByteBuffer encoded = ByteBuffer.allocate(CHUNK).flip();
  private final CharBuffer decoded = CharBuffer.allocate(CHUNK + 1).flip();
  private final char[] buffer = decoded.array();
  /** Positions of replacements that no record has accounted for. */
  private final ArrayDeque<Long> replacements = new ArrayDeque<>();
  private boolean atEnd;
  private boolean flushed;
  /** Position in the file, in characters, of {@code buffer[0]}. */
  private long offset;
  private int next;
  private int limit;

  Characters(Bytes bytes, String encoding) throws BadFile {
    this.bytes = bytes;
    fill();
    this.decoder = charset(encoding).newDecoder();
    if (peek() == BYTE_ORDER_MARK) {
      next++;
    }
  }

  /** The next character, or {@link #END}. */
  int read() throws BadFile {
    return next < limit || decode() ? buffer[next++] : END;
  }

  /** The character that {@link #read} returns next. */
  int peek() throws BadFile {
    return next < limit || decode() ? buffer[next] : END;
  }

  /** The number of decoded characters before the first of {@code stops}. */
  int run(boolean[] stops) {
    int end = next;
    while (end < limit && !stops[buffer[end]]) {
      end++;
    }
    return end - next;
  }

  /** Read this many characters of a {@link #run}. */
  void read(char[] target, int from, int count) {
    System.arraycopy(buffer, next, target, from, count);
    next += count;
  }

  /** Whether bytes could not be decoded between the last call and the character read last. */
  boolean replacedSome() {
    boolean some = false;
    while (!replacements.isEmpty() && replacements.peekFirst() < offset + next) {
      replacements.removeFirst();
      some = true;
    }
    return some;
  }

  @Override
  public void close() throws IOException {
    bytes.close();
  }

  private Charset charset(String encoding) throws BadFile {
    if (!encoding.equals("utf-16") || !encoded.hasRemaining()) {
      return Charset.forName(encoding);
    }
    int mark = encoded.remaining() < 2 ? 0 : encoded.getShort(encoded.position()) & 0xFFFF;
    if (mark != 0xFEFF && mark != 0xFFFE) {
      throw new BadFile("the file has no byte order mark, which utf-16 needs; declare utf-16le or utf-16be");
    }
    return Charset.forName(mark == 0xFEFF ? "utf-16be" : "utf-16le");
  }

  private boolean decode() throws BadFile {
    offset += limit;
    next = 0;
    decoded.clear();
    while (decoded.position() == 0 && !flushed) {
      decoded.limit(CHUNK);
      CoderResult result = decoder.decode(encoded, decoded, atEnd);
      decoded.limit(CHUNK + 1); // room for a replacement
      if (result.isError()) {
        encoded.position(encoded.position() + result.length());
        replacements.addLast(offset + decoded.position());
        decoded.put(REPLACEMENT);
      } else if (result.isUnderflow() && atEnd) {
        flushed = decoder.flush(decoded).isUnderflow();
      } else if (result.isUnderflow()) {
        fill();
      }
    }
    decoded.flip();
    limit = decoded.limit();
    return limit > 0;
  }

  /** Read on behind the bytes that are not decoded yet. */
  private void fill() throws BadFile {
    encoded.compact();
    int least = encoded.position() + 2; // a byte order mark, if this is the start
    while (!atEnd && encoded.position() < least) {
      int count = bytes.read(encoded.array(), encoded.position(), encoded.remaining());
      atEnd = count < 0;
      encoded.position(encoded.position() + Math.max(count, 0));
    }
    encoded.flip();
  }
}
