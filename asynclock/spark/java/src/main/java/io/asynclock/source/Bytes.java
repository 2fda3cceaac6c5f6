package io.asynclock.source;

import com.github.luben.zstd.ZstdInputStream;
import java.io.IOException;
import java.io.InputStream;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.io.compress.CompressionCodec;
import org.apache.hadoop.io.compress.CompressionCodecFactory;

/**
 * The decompressed bytes of a file.
 *
 * <p>Tells apart what is wrong with the file, {@link BadFile}, from what is wrong with the store, an
 * {@link java.io.UncheckedIOException} that fails the task: a file must not be put aside for a network that was down.
 */
final class Bytes implements AutoCloseable {

  private final InputStream stream;

  private Bytes(InputStream stream) {
    this.stream = stream;
  }

  static Bytes open(Path path, Configuration conf) throws IOException, BadFile {
    InputStream raw = new Stored(path.getFileSystem(conf).open(path));
    if (path.getName().endsWith(".zst")) { // Hadoop's own codec needs a library that few machines have
      return new Bytes(new ZstdInputStream(raw));
    }
    CompressionCodec codec = new CompressionCodecFactory(conf).getCodec(path);
    if (codec == null) {
      return new Bytes(raw);
    }
    try {
      return new Bytes(codec.createInputStream(raw));
    } catch (IOException damaged) {
      raw.close();
      throw unreadable(damaged);
    }
  }

  /** Reads all bytes as they are stored. */
  static void readThrough(Path path, Configuration conf) throws IOException {
    try (InputStream raw = new Stored(path.getFileSystem(conf).open(path))) {
      byte[] buffer = new byte[1 << 16];
      while (raw.read(buffer) >= 0) {
        continue;
      }
    }
  }

  /** The number of bytes read into {@code target}, at least one; -1 at the end. */
  int read(byte[] target, int offset, int length) throws BadFile {
    try {
      return stream.read(target, offset, length);
    } catch (IOException | IndexOutOfBoundsException damaged) { // Hadoop's bzip2 trusts what it reads
      throw unreadable(damaged);
    }
  }

  @Override
  public void close() throws IOException {
    stream.close();
  }

  private static BadFile unreadable(Exception damaged) {
    String detail = damaged.getMessage() == null ? damaged.getClass().getSimpleName() : damaged.getMessage();
    return new BadFile("the file is truncated or damaged (" + detail + ")");
  }
}
