package io.asynclock.source;

import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.EOFException;
import java.io.IOException;
import java.io.InputStream;
import java.io.SequenceInputStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;
import org.apache.parquet.bytes.BytesUtils;
import org.apache.parquet.format.ColumnChunk;
import org.apache.parquet.format.FileMetaData;
import org.apache.parquet.format.RowGroup;
import org.apache.parquet.format.SchemaElement;
import org.apache.parquet.format.Util;
import org.apache.parquet.io.DelegatingSeekableInputStream;
import org.apache.parquet.io.InputFile;
import org.apache.parquet.io.SeekableInputStream;

/**
 * A parquet file as its store gives it, or as if it had the wanted columns only.
 *
 * <p>A library refuses a whole file for one column that is newer than itself. So a file can be shown with a footer
 * that omits the columns that nobody wants.
 */
final class StoredParquet implements InputFile {

  private static final byte[] MAGIC = "PAR1".getBytes(StandardCharsets.US_ASCII);
  private static final byte[] ENCRYPTED = "PARE".getBytes(StandardCharsets.US_ASCII);
  private static final int TAIL = 8; // the size of the footer, and the magic bytes
  private static final int HEAD = 4;

  private final Path path;
  private final Configuration conf;
  /** The beginning of the file, up to its footer; then its bytes are {@link #end}. */
  private final long begin;
  private final byte[] end;

  private StoredParquet(Path path, Configuration conf, long begin, byte[] end) {
    this.path = path;
    this.conf = conf;
    this.begin = begin;
    this.end = end;
  }

  /** The file itself. */
  static StoredParquet open(Path path, Configuration conf) throws IOException {
    long length = Stored.length(path, conf);
    if (length < HEAD + TAIL) {
      throw none("it has " + length + " bytes");
    }
    try (Stored bytes = Stored.open(path, conf)) {
      bytes.seek(length - TAIL);
      byte[] tail = bytes.readNBytes(TAIL);
      String magic = new String(tail, TAIL - MAGIC.length, MAGIC.length, StandardCharsets.ISO_8859_1);
      if (magic.equals(new String(ENCRYPTED, StandardCharsets.US_ASCII))) {
        throw new BadFile("the footer of the file is encrypted; deliver it decrypted");
      }
      if (!magic.equals(new String(MAGIC, StandardCharsets.US_ASCII))) {
        throw none("it does not end in PAR1");
      }
      long size = BytesUtils.readIntLittleEndian(new ByteArrayInputStream(tail)) & 0xFFFFFFFFL;
      if (size > length - HEAD - TAIL) {
        throw none("its footer would have " + size + " bytes");
      }
      long begin = length - TAIL - size;
      bytes.seek(begin);
      byte[] footer = bytes.readNBytes((int) size);
      return new StoredParquet(path, conf, begin, join(footer, tail));
    }
  }

  /** The footer as it is in the file. */
  FileMetaData footer() throws BadFile {
    try {
      return Util.readFileMetaData(new ByteArrayInputStream(end, 0, end.length - TAIL));
    } catch (IOException | RuntimeException damaged) {
      throw none("its footer cannot be decoded");
    }
  }

  /** The names of all columns. */
  static List<String> names(FileMetaData footer) {
    List<String> names = new ArrayList<>();
    List<SchemaElement> schema = footer.getSchema();
    for (int place = 1; place < schema.size(); place = after(schema, place)) {
      names.add(schema.get(place).getName());
    }
    return names;
  }

  /** The columns of the type FLOAT16, which is newer than this library: no other one of two bytes is. */
  static Set<String> halves(FileMetaData footer) {
    Set<String> halves = new HashSet<>();
    for (SchemaElement element : footer.getSchema()) {
      if (isNewer(element) && element.isSetType_length() && element.getType_length() == 2) {
        halves.add(element.getName());
      }
    }
    return halves;
  }

  /** The columns that hold nothing but nulls, of no type. */
  static Set<String> nulls(FileMetaData footer) {
    Set<String> nulls = new HashSet<>();
    for (SchemaElement element : footer.getSchema()) {
      if (element.isSetLogicalType() && element.getLogicalType().isSetUNKNOWN()) {
        nulls.add(element.getName());
      }
    }
    return nulls;
  }

  static boolean isEncrypted(FileMetaData footer) {
    return footer.getRow_groups().stream()
        .flatMap(group -> group.getColumns().stream())
        .anyMatch(ColumnChunk::isSetCrypto_metadata);
  }

  /** The file as if it had no other than the wanted columns. */
  StoredParquet with(Set<String> wanted) throws BadFile {
    FileMetaData footer = footer();
    try {
      List<SchemaElement> schema = footer.getSchema();
      List<SchemaElement> kept = new ArrayList<>(List.of(schema.get(0)));
      int columns = 0;
      for (int place = 1; place < schema.size(); ) {
        int next = after(schema, place);
        if (wanted.contains(schema.get(place).getName())) {
          kept.addAll(schema.subList(place, next));
          columns++;
        }
        place = next;
      }
      for (SchemaElement element : kept) {
        if (isNewer(element)) {
          element.unsetLogicalType();
        }
      }
      kept.get(0).setNum_children(columns);
      footer.setSchema(kept);
      footer.unsetColumn_orders();
      footer.unsetEncryption_algorithm();
      footer.unsetFooter_signing_key_metadata();
      for (RowGroup group : footer.getRow_groups()) {
        group.unsetSorting_columns();
        group.getColumns().removeIf(chunk -> !wanted.contains(root(chunk)));
        for (ColumnChunk chunk : group.getColumns()) {
          if (chunk.isSetCrypto_metadata()) {
            throw new BadFile("its column '" + root(chunk) + "' is encrypted; deliver it decrypted");
          }
          chunk.getMeta_data().unsetStatistics();
        }
      }
      ByteArrayOutputStream written = new ByteArrayOutputStream();
      Util.writeFileMetaData(footer, written);
      byte[] tail = new byte[TAIL];
      for (int place = 0; place < TAIL - MAGIC.length; place++) {
        tail[place] = (byte) (written.size() >>> 8 * place);
      }
      System.arraycopy(MAGIC, 0, tail, TAIL - MAGIC.length, MAGIC.length);
      return new StoredParquet(path, conf, begin, join(written.toByteArray(), tail));
    } catch (IOException | RuntimeException damaged) {
      throw BadFile.of(damaged, "no parquet file, or truncated or damaged");
    }
  }

  @Override
  public long getLength() {
    return begin + end.length;
  }

  @Override
  public SeekableInputStream newStream() throws IOException {
    Stored bytes = Stored.open(path, conf);
    return new Joined(bytes, begin, end);
  }

  private static boolean isNewer(SchemaElement element) {
    return element.isSetLogicalType() && element.getLogicalType().getSetField() == null;
  }

  private static String root(ColumnChunk chunk) {
    // Without metadata the whole column is encrypted; where its pages are says nothing of its name.
    if (!chunk.isSetMeta_data()) {
      if (chunk.isSetCrypto_metadata() && chunk.getCrypto_metadata().isSetENCRYPTION_WITH_COLUMN_KEY()) {
        return chunk.getCrypto_metadata().getENCRYPTION_WITH_COLUMN_KEY().getPath_in_schema().get(0);
      }
      return "";
    }
    return chunk.getMeta_data().getPath_in_schema().get(0);
  }

  private static int after(List<SchemaElement> schema, int place) {
    int next = place + 1;
    for (int child = 0; child < schema.get(place).getNum_children(); child++) {
      next = after(schema, next);
    }
    return next;
  }

  private static byte[] join(byte[] first, byte[] second) throws IOException {
    return new SequenceInputStream(new ByteArrayInputStream(first), new ByteArrayInputStream(second)).readAllBytes();
  }

  private static BadFile none(String why) {
    return new BadFile("the file is no parquet file, or truncated or damaged (" + why + ")");
  }

  /** The bytes of the file before its footer, then others. */
  private static final class Joined extends DelegatingSeekableInputStream {

    private final Place bytes;

    Joined(Stored file, long begin, byte[] end) {
      this(new Place(file, begin, end));
    }

    private Joined(Place bytes) {
      super(bytes);
      this.bytes = bytes;
    }

    @Override
    public long getPos() {
      return bytes.place;
    }

    @Override
    public void seek(long place) throws IOException {
      if (place < 0 || place > bytes.begin + bytes.end.length) {
        throw new EOFException("a part of the file would begin at " + place);
      }
      bytes.place = place;
    }
  }

  private static final class Place extends InputStream {

    private final Stored file;
    private final long begin;
    private final byte[] end;
    private long place;

    Place(Stored file, long begin, byte[] end) {
      this.file = file;
      this.begin = begin;
      this.end = end;
    }

    @Override
    public int read() throws IOException {
      byte[] one = new byte[1];
      return read(one, 0, 1) < 0 ? -1 : one[0] & 0xFF;
    }

    @Override
    public int read(byte[] target, int offset, int length) throws IOException {
      if (length == 0) {
        return 0;
      }
      int count;
      if (place < begin) {
        if (file.place() != place) {
          file.seek(place);
        }
        count = file.read(target, offset, (int) Math.min(length, begin - place));
      } else {
        int from = (int) (place - begin);
        count = Math.min(length, end.length - from);
        System.arraycopy(end, from, target, offset, count);
        count = count == 0 ? -1 : count;
      }
      place += Math.max(0, count);
      return count;
    }

    @Override
    public void close() throws IOException {
      file.close();
    }
  }
}
