package io.asynclock.source;

import java.io.BufferedInputStream;
import java.io.FilterInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.util.List;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.Path;
import org.apache.parquet.format.PageHeader;
import org.apache.parquet.format.Util;
import org.apache.parquet.hadoop.metadata.BlockMetaData;
import org.apache.parquet.hadoop.metadata.ColumnChunkMetaData;
import org.apache.parquet.hadoop.metadata.CompressionCodecName;
import org.apache.parquet.hadoop.metadata.ParquetMetadata;

/**
 * The headers of a parquet file's pages, looked at before Spark reads them.
 *
 * <p>Spark believes the sizes in them: a wrong one lets its task run for ever, or takes the memory of the whole
 * process. Whatever else is wrong with a page ends the task with an error.
 */
final class ParquetPages {

  private static final int HEADER = 1024;

  private ParquetPages() {
  }

  /** Looks at the pages of the named columns. */
  static void check(Path path, Configuration conf, ParquetMetadata footer, List<String> names)
      throws IOException, BadFile {
    try (FSDataInputStream file = path.getFileSystem(conf).open(path)) {
      for (BlockMetaData block : footer.getBlocks()) {
        for (ColumnChunkMetaData chunk : block.getColumns()) {
          String[] column = chunk.getPath().toArray();
          if (column.length == 1 && names.contains(column[0]) && !fit(file, chunk)) {
            throw new BadFile("the file is damaged (a page header of the column " + column[0] + " cannot be right)");
          }
        }
      }
    }
  }

  /** Whether the pages are no larger than the footer says that they are together. */
  private static boolean fit(FSDataInputStream file, ColumnChunkMetaData chunk) throws IOException {
    long place = chunk.getStartingPos();
    long stored = 0;
    long size = 0;
    for (long values = 0; values < chunk.getValueCount(); ) {
      file.seek(place + stored);
      Counted bytes = new Counted(new BufferedInputStream(new Stored(file), HEADER));
      PageHeader header;
      try {
        header = Util.readPageHeader(bytes);
      } catch (UncheckedIOException store) {
        throw store;
      } catch (IOException | RuntimeException damaged) {
        return false;
      }
      stored += bytes.count + header.getCompressed_page_size();
      size += bytes.count + header.getUncompressed_page_size();
      int few = Math.min(header.getCompressed_page_size(), header.getUncompressed_page_size());
      boolean packed = chunk.getCodec() != CompressionCodecName.UNCOMPRESSED; // else nothing takes place by the size
      if (few < 0 || stored > chunk.getTotalSize() || packed && size > chunk.getTotalUncompressedSize()) {
        return false;
      }
      values += Math.max(0, values(header));
    }
    return true;
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
