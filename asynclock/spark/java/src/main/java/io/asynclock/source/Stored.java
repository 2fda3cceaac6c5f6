package io.asynclock.source;

import java.io.EOFException;
import java.io.FileNotFoundException;
import java.io.FilterInputStream;
import java.io.IOException;
import java.nio.file.AccessDeniedException;
import java.nio.file.Files;
import java.nio.file.Paths;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.ChecksumException;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FSError;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RemoteIterator;
import org.apache.hadoop.security.AccessControlException;

/**
 * The bytes of a file as they are stored.
 *
 * <p>It separates defects of this file alone, a {@link BadFile} (it is gone, nobody may read it, it differs from its
 * checksum), from possible defects of the store, a {@link StoreFailure}.
 */
final class Stored extends FilterInputStream {

  private static final int NEIGHBOURS = 10;

  private final Path path;
  private final Configuration conf;

  private Stored(FSDataInputStream in, Path path, Configuration conf) {
    super(in);
    this.path = path;
    this.conf = conf;
  }

  static Stored open(Path path, Configuration conf) throws BadFile {
    refuseDevice(path, conf);
    try {
      return new Stored(path.getFileSystem(conf).open(path), path, conf);
    } catch (IOException error) {
      throw reason(error, path, conf);
    }
  }

  /** A pipe would block forever, and a device has no end. */
  private static void refuseDevice(Path path, Configuration conf) throws BadFile {
    String scheme = path.toUri().getScheme();
    if ("file".equals(scheme == null ? FileSystem.getDefaultUri(conf).getScheme() : scheme)) {
      java.nio.file.Path local = Paths.get(path.toUri().getPath());
      if (Files.exists(local) && !Files.isRegularFile(local) && !Files.isDirectory(local)) {
        throw new BadFile("it is no file but a pipe, a socket or a device; take it out of the source's folder");
      }
    }
  }

  /** The size of a file in bytes. */
  static long length(Path path, Configuration conf) throws BadFile {
    refuseDevice(path, conf);
    try {
      return path.getFileSystem(conf).getFileStatus(path).getLen();
    } catch (IOException error) {
      throw reason(error, path, conf);
    }
  }

  long place() throws BadFile {
    try {
      return ((FSDataInputStream) in).getPos();
    } catch (IOException error) {
      throw reason(error, path, conf);
    }
  }

  void seek(long place) throws BadFile {
    try {
      ((FSDataInputStream) in).seek(place);
    } catch (EOFException outside) {
      throw new BadFile("the file is truncated or damaged (" + outside.getMessage() + ")");
    } catch (IOException error) {
      throw reason(error, path, conf);
    }
  }

  @Override
  public int read() throws BadFile {
    byte[] one = new byte[1];
    return read(one, 0, 1) < 0 ? -1 : one[0] & 0xFF;
  }

  @Override
  public int read(byte[] target, int offset, int length) throws BadFile {
    try {
      return super.read(target, offset, length);
    } catch (IOException error) {
      throw reason(error, path, conf);
    } catch (FSError error) { // Hadoop's name for a refusal of a local disk
      throw reason(new IOException(error.getMessage(), error), path, conf);
    }
  }

  private static BadFile reason(IOException error, Path path, Configuration conf) {
    if (error instanceof BadFile) {
      return (BadFile) error;
    }
    if (error instanceof ChecksumException) {
      return new BadFile("the file differs from the checksum in the hidden .crc file next to it (" + error.getMessage()
          + "); deliver it again, without that file if you have edited it");
    }
    try {
      if (error instanceof FileNotFoundException && !isDenied(error) && isSourceThere(path, conf)) {
        return new BadFile("the file is not there any more; deliver it again under another name");
      }
      if (isDenied(error) && (isPermitted(path) || readsAnother(path, conf))) {
        return new BadFile("the file may not be read (" + error.getMessage() + "); permit it, and deliver it again");
      }
    } catch (IOException alsoFails) {
      error.addSuppressed(alsoFails);
    }
    throw new StoreFailure("cannot read " + path + ": " + error.getMessage(), error);
  }

  private static boolean isDenied(IOException error) {
    return error instanceof AccessControlException
        || error instanceof AccessDeniedException
        || error instanceof FileNotFoundException && String.valueOf(error.getMessage()).endsWith("(Permission denied)");
  }

  /** Whether the folder of a file exists, or the one above: a file system that is not mounted has neither. */
  private static boolean isSourceThere(Path path, Configuration conf) throws IOException {
    FileSystem system = path.getFileSystem(conf);
    Path folder = path.getParent();
    return system.exists(folder) || folder.getParent() != null && system.exists(folder.getParent());
  }

  /** Whether each file has permissions of its own, apart from the credentials for the store. */
  private static boolean isPermitted(Path path) {
    String scheme = path.toUri().getScheme();
    return scheme == null || scheme.equals("file") || scheme.equals("hdfs");
  }

  /** Whether some other file of the folder can be read; if none can, the credentials are to blame. */
  private static boolean readsAnother(Path path, Configuration conf) throws IOException {
    FileSystem system = path.getFileSystem(conf);
    RemoteIterator<FileStatus> files = system.listStatusIterator(path.getParent());
    for (int tried = 0; tried < NEIGHBOURS && files.hasNext(); ) {
      FileStatus other = files.next();
      if (!other.isFile() || other.getLen() == 0 || other.getPath().getName().equals(path.getName())) {
        continue;
      }
      tried++;
      try (FSDataInputStream bytes = system.open(other.getPath())) {
        return bytes.read() >= 0;
      } catch (IOException denied) {
        continue;
      }
    }
    return false;
  }
}
