package io.asynclock.source;

import com.github.luben.zstd.ZstdInputStream;
import java.io.IOException;
import java.io.InputStream;
import org.apache.commons.compress.compressors.bzip2.BZip2CompressorInputStream;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.io.compress.BZip2Codec;
import org.apache.hadoop.io.compress.CompressionCodec;
import org.apache.hadoop.io.compress.CompressionCodecFactory;

/** The decompressed bytes of a file. */
final class Bytes implements AutoCloseable {

  private final InputStream stream;

  private Bytes(InputStream stream) {
    this.stream = stream;
  }

  static Bytes open(Path path, Configuration conf) throws IOException, BadFile {
    InputStream raw = Stored.open(path, conf);
    try {
      if (path.getName().endsWith(".zst")) { // Hadoop's own codec needs a library that few machines have
        return new Bytes(new ZstdInputStream(raw));
      }
      CompressionCodec codec = new CompressionCodecFactory(conf).getCodec(path);
      if (codec == null || Stored.length(path, conf) == 0) {
        return new Bytes(raw);
      }
      if (codec instanceof BZip2Codec) { // its reader mistakes a file without its end for a whole one
        return new Bytes(new BZip2CompressorInputStream(raw, true));
      }
      return new Bytes(codec.createInputStream(raw));
    } catch (IOException | RuntimeException | LinkageError damaged) { // a codec may lack its native library
      raw.close();
      throw unreadable(damaged);
    }
  }

  /** The number of bytes read into {@code target}, at least one; -1 at the end. */
  int read(byte[] target, int offset, int length) throws BadFile {
    try {
      return stream.read(target, offset, length);
    } catch (IOException | RuntimeException | LinkageError damaged) { // Hadoop's bzip2 trusts what it reads
      throw unreadable(damaged);
    }
  }

  @Override
  public void close() throws IOException {
    stream.close();
  }

  private static BadFile unreadable(Throwable damaged) {
    return BadFile.of(damaged, "truncated or damaged");
  }
}
