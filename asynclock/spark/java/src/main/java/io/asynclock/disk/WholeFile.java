package io.asynclock.disk;

import java.io.FilterOutputStream;
import java.io.IOException;
import java.io.OutputStream;
import java.nio.file.FileAlreadyExistsException;
import java.nio.file.FileSystemException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;

/** A file that gets its name when it is closed, and no name at all if a byte of it could not be written. */
final class WholeFile extends FilterOutputStream {

  private final Path unnamed;
  private final Path name;
  private final Path checksums;
  private final boolean overwrite;
  private boolean whole = true;
  private boolean closed;

  /**
   * Takes over a new file.
   *
   * @param out writes it
   * @param unnamed its place until it is closed, on the disk of {@code name}
   * @param name its final place
   * @param checksums those of an earlier file of that name, which are removed
   * @param overwrite whether it replaces such a file; else there must be none
   */
  WholeFile(OutputStream out, Path unnamed, Path name, Path checksums, boolean overwrite) {
    super(out);
    this.unnamed = unnamed;
    this.name = name;
    this.checksums = checksums;
    this.overwrite = overwrite;
  }

  @Override
  public void write(int one) throws IOException {
    write(new byte[] {(byte) one}, 0, 1);
  }

  @Override
  public void write(byte[] bytes, int offset, int length) throws IOException {
    boolean before = whole;
    whole = false;
    out.write(bytes, offset, length);
    whole = before;
  }

  @Override
  public void flush() throws IOException {
    boolean before = whole;
    whole = false;
    out.flush();
    whole = before;
  }

  @Override
  public void close() throws IOException {
    if (closed) {
      return;
    }
    closed = true;
    try {
      out.close();
      if (whole) {
        Files.deleteIfExists(checksums);
        giveName();
      }
    } finally {
      Files.deleteIfExists(unnamed);
    }
  }

  private void giveName() throws IOException {
    if (overwrite) {
      Files.move(unnamed, name, StandardCopyOption.ATOMIC_MOVE);
      return;
    }
    try {
      Files.createLink(name, unnamed); // unlike a move it is refused where a file is
    } catch (FileAlreadyExistsException e) {
      throw e;
    } catch (UnsupportedOperationException | FileSystemException e) { // a disk without links
      Files.move(unnamed, name);
    }
  }
}
