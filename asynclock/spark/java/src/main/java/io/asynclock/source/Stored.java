package io.asynclock.source;

import java.io.FilterInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;

/** The bytes of a file as they are stored; what goes wrong here is the store's fault, not the file's. */
final class Stored extends FilterInputStream {

  Stored(InputStream in) {
    super(in);
  }

  @Override
  public int read() throws IOException {
    byte[] one = new byte[1];
    return read(one, 0, 1) < 0 ? -1 : one[0] & 0xFF;
  }

  @Override
  public int read(byte[] target, int offset, int length) {
    try {
      return super.read(target, offset, length);
    } catch (IOException error) {
      throw new UncheckedIOException(error);
    }
  }
}
