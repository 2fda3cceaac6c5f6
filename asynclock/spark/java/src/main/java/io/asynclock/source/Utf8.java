package io.asynclock.source;

import java.nio.ByteBuffer;
import java.nio.charset.CharacterCodingException;
import java.nio.charset.StandardCharsets;

/** A look at the bytes of texts, which Spark takes over from parquet files as they are; called by its own code. */
public final class Utf8 {

  private Utf8() {
  }

  /** Whether the bytes are well-formed UTF-8. */
  public static boolean isValid(byte[] bytes) {
    return isAscii(bytes) || isDecodable(bytes);
  }

  private static boolean isAscii(byte[] bytes) {
    for (byte one : bytes) {
      if (one < 0) {
        return false;
      }
    }
    return true;
  }

  private static boolean isDecodable(byte[] bytes) {
    try {
      StandardCharsets.UTF_8.newDecoder().decode(ByteBuffer.wrap(bytes));
      return true;
    } catch (CharacterCodingException malformed) {
      return false;
    }
  }
}
