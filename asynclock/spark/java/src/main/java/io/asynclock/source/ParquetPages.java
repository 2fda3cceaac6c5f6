package io.asynclock.source;

import io.airlift.compress.MalformedInputException;
import io.airlift.compress.lz4.Lz4Decompressor;
import java.io.BufferedInputStream;
import java.io.FilterInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.util.List;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;
import org.apache.parquet.format.DataPageHeaderV2;
import org.apache.parquet.format.PageHeader;
import org.apache.parquet.format.Util;
import org.apache.parquet.hadoop.metadata.BlockMetaData;
import org.apache.parquet.hadoop.metadata.ColumnChunkMetaData;
import org.apache.parquet.hadoop.metadata.CompressionCodecName;
import org.apache.parquet.hadoop.metadata.ParquetMetadata;

/**
 * The pages of a parquet file.
 *
 * <p>Their headers are checked before Spark reads them, because Spark trusts the sizes there. A wrong size makes its
 * task run forever, or takes the memory of the whole process. Any other defect ends its task with an error; then
 * {@link ParquetRows} reads the files.
 */
final class ParquetPages {

  private static final int HEADER = 1024;

  private ParquetPages() {
  }

  /** Looks at the pages of the named columns. */
  static void check(Path path, Configuration conf, ParquetMetadata footer, List<String> names)
      throws IOException {
    try (Stored file = Stored.open(path, conf)) {
      for (BlockMetaData block : footer.getBlocks()) {
        for (ColumnChunkMetaData chunk : block.getColumns()) {
          String[] column = chunk.getPath().toArray();
          if (column.length == 1 && names.contains(column[0]) && !fit(file, chunk)) {
            throw new BadFile("the file is damaged (a page of the column " + column[0] + " is not what its header says)");
          }
        }
      }
    }
  }

  /** Whether the pages are what their headers say, and together no more than the footer says. */
  private static boolean fit(Stored file, ColumnChunkMetaData chunk) throws IOException {
    long place = chunk.getStartingPos();
    long stored = 0;
    long size = 0;
    for (long values = 0; values < chunk.getValueCount(); ) {
      if (place + stored < 0) {
        return false;
      }
      file.seek(place + stored);
      Counted bytes = new Counted(new BufferedInputStream(file, HEADER));
      PageHeader header;
      try {
        header = Util.readPageHeader(bytes);
      } catch (IOException | RuntimeException damaged) {
        BadFile.of(damaged, "damaged"); // unless the store is to blame
        return false;
      }
      stored += bytes.count + header.getCompressed_page_size();
      size += bytes.count + header.getUncompressed_page_size();
      int few = Math.min(header.getCompressed_page_size(), header.getUncompressed_page_size());
      boolean packed = chunk.getCodec() != CompressionCodecName.UNCOMPRESSED; // else nobody uses the size
      if (few < 0 || stored > chunk.getTotalSize() || packed && size > chunk.getTotalUncompressedSize()) {
        return false;
      }
      if (!unpacksToItsSize(header, bytes, chunk.getCodec())) {
        return false;
      }
      values += Math.max(0, values(header));
    }
    return true;
  }

  /**
   * Whether a page gives as many bytes as its header says: with these codecs, Spark would wait for the rest
   * forever.
   */
  private static boolean unpacksToItsSize(PageHeader header, InputStream bytes, CompressionCodecName codec)
      throws IOException {
    int plain = 0;
    if (header.isSetData_page_header_v2()) {
      DataPageHeaderV2 second = header.getData_page_header_v2();
      plain = second.getRepetition_levels_byte_length() + second.getDefinition_levels_byte_length();
      if (!second.isIs_compressed()) {
        return true;
      }
    }
    int packed = header.getCompressed_page_size() - plain;
    int size = header.getUncompressed_page_size() - plain;
    if (plain < 0 || packed < 0 || size < 0) {
      return false;
    }
    bytes.readNBytes(plain);
    switch (codec) {
      case SNAPPY:
        return packed == 0 ? size == 0 : size == snappySize(bytes);
      case LZ4_RAW: // which does not say what comes of it
        try {
          return size == new Lz4Decompressor().decompress(bytes.readNBytes(packed), 0, packed, new byte[size], 0, size);
        } catch (MalformedInputException damaged) {
          return false;
        }
      default:
        return true;
    }
  }

  private static long snappySize(InputStream bytes) throws IOException {
    long size = 0;
    for (int shift = 0; shift < Integer.SIZE; shift += 7) {
      int part = bytes.read();
      size |= (part & 0x7FL) << shift;
      if (part < 0x80) {
        break;
      }
    }
    return size;
  }

  private static int values(PageHeader header) {
    if (header.isSetData_page_header()) {
      return header.getData_page_header().getNum_values();
    }
    return header.isSetData_page_header_v2() ? header.getData_page_header_v2().getNum_values() : 0;
  }

  private static final class Counted extends FilterInputStream {

    private long count;

    Counted(InputStream in) {
      super(in);
    }

    @Override
    public int read() throws IOException {
      int one = super.read();
      count += one < 0 ? 0 : 1;
      return one;
    }

    @Override
    public int read(byte[] target, int offset, int length) throws IOException {
      int read = super.read(target, offset, length);
      count += Math.max(0, read);
      return read;
    }
  }
}
