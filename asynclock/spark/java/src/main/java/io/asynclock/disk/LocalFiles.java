package io.asynclock.disk;

import java.io.FileNotFoundException;
import java.io.IOException;
import java.io.OutputStream;
import java.net.URI;
import java.net.URISyntaxException;
import java.nio.file.DirectoryIteratorException;
import java.nio.file.DirectoryStream;
import java.nio.file.FileSystemException;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.NotDirectoryException;
import java.nio.file.attribute.FileTime;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.ChecksumFs;
import org.apache.hadoop.fs.DelegateToFileSystem;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FileAlreadyExistsException;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.FsConstants;
import org.apache.hadoop.fs.FsServerDefaults;
import org.apache.hadoop.fs.LocalFileSystem;
import org.apache.hadoop.fs.LocatedFileStatus;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.PathFilter;
import org.apache.hadoop.fs.RawLocalFileSystem;
import org.apache.hadoop.fs.RemoteIterator;
import org.apache.hadoop.fs.local.LocalConfigKeys;
import org.apache.hadoop.fs.permission.FsPermission;
import org.apache.hadoop.util.Progressable;
import org.apache.hadoop.util.functional.RemoteIterators;

/**
 * Hadoop's local file system for Hudi's tables, different in three points.
 *
 * <p>Permissions and links are Java's. Without its native library, as in PySpark, Hadoop starts {@code chmod},
 * {@code readlink} or {@code ls} for each: sixty processes a batch of a stream.
 *
 * <p>A listing leaves out folders and files that others remove meanwhile, such as the heartbeats of a table, on which
 * Hadoop's fails.
 *
 * <p>A file of a timeline appears only when it is whole, like an object in a store. Hudi creates the file under its
 * name and then writes it. A full disk or a kill in between would leave an empty instant, which counts as completed.
 */
public final class LocalFiles extends LocalFileSystem {

  private static final String MODE = "unix:mode";
  private static final String GROUP = "unix:gid";
  private static final int SET_IDS = 06000;
  private static final int SET_GID = 02000;

  public LocalFiles() {
    super(new Raw());
  }

  /**
   * Makes this the local file system of the whole JVM, for each later call of {@link FileSystem#get}.
   *
   * @throws IOException if the one before cannot be closed
   */
  public static void install() throws IOException {
    Configuration configuration = new Configuration();
    FileSystem.get(FsConstants.LOCAL_FS_URI, configuration).close();
    configuration.setClass("fs.file.impl", LocalFiles.class, FileSystem.class);
    FileSystem.get(FsConstants.LOCAL_FS_URI, configuration);
  }

  @Override
  public FSDataOutputStream create(
      Path path, FsPermission permission, boolean overwrite, int bufferSize, short replication, long blockSize,
      Progressable progress) throws IOException {
    if (!isInstant(path)) {
      return super.create(path, permission, overwrite, bufferSize, replication, blockSize, progress);
    }
    if (!overwrite && exists(path)) {
      throw new FileAlreadyExistsException("File already exists: " + path);
    }
    mkdirs(path.getParent());
    Path meta = path.getParent().getParent();
    Path unnamed = new Path(meta, ".unnamed-" + UUID.randomUUID());
    OutputStream file = getRaw().create(
        unnamed, permission, false, bufferSize, replication, blockSize, progress);
    takeGroup(toFile(unnamed), toFile(path.getParent()));
    return new FSDataOutputStream(
        new WholeFile(file, toFile(unnamed), toFile(path), toFile(getChecksumFile(path)), overwrite), null);
  }

  @Override
  public RemoteIterator<LocatedFileStatus> listFiles(Path path, boolean recursive) throws IOException {
    List<LocatedFileStatus> files = new ArrayList<>();
    Deque<Path> folders = new ArrayDeque<>();
    addFiles(listLocatedStatus(path), files, folders);
    while (recursive && !folders.isEmpty()) {
      try {
        addFiles(listLocatedStatus(folders.removeFirst()), files, folders);
      } catch (FileNotFoundException removed) {
        continue;
      }
    }
    return RemoteIterators.remoteIteratorFromIterable(files);
  }

  private static void addFiles(
      RemoteIterator<LocatedFileStatus> listed, List<LocatedFileStatus> files, Deque<Path> folders)
      throws IOException {
    while (listed.hasNext()) {
      LocatedFileStatus one = listed.next();
      if (one.isDirectory()) {
        folders.add(one.getPath());
      } else {
        files.add(one);
      }
    }
  }

  private static boolean isInstant(Path path) {
    Path folder = path.getParent();
    return folder != null && folder.getName().equals("timeline")
        && folder.getParent() != null && folder.getParent().getName().equals(".hoodie");
  }

  /** Gives a file the group that one made in that folder has. */
  private static void takeGroup(java.nio.file.Path file, java.nio.file.Path folder) throws IOException {
    try {
      boolean inherited = ((int) Files.getAttribute(folder, MODE) & SET_GID) != 0;
      Object group = Files.getAttribute(folder, GROUP);
      if (inherited && !group.equals(Files.getAttribute(file, GROUP))) {
        Files.setAttribute(file, GROUP, group);
      }
    } catch (UnsupportedOperationException | IllegalArgumentException | FileSystemException e) {
      // Not a POSIX file system, or not a member of that group.
    }
  }

  private java.nio.file.Path toFile(Path path) {
    return pathToFile(path).toPath();
  }

  /** The same behind Hadoop's second interface, which Spark's checkpoints use. */
  public static final class Context extends ChecksumFs {
    /** As Hadoop creates every file system of that interface. */
    public Context(URI uri, Configuration configuration) throws IOException, URISyntaxException {
      super(new RawContext(configuration));
    }
  }

  private static final class Raw extends RawLocalFileSystem {

    @Override
    public void setPermission(Path path, FsPermission permission) throws IOException {
      java.nio.file.Path file = pathToFile(path).toPath();
      int mode = permission.toShort();
      try {
        if (Files.isDirectory(file)) {
          mode |= (int) Files.getAttribute(file, MODE) & SET_IDS; // a folder keeps these, as with chmod
        }
        Files.setAttribute(file, MODE, mode);
      } catch (UnsupportedOperationException | IllegalArgumentException e) { // not a POSIX file system
        super.setPermission(path, permission);
      }
    }

    /** Hadoop calls a folder that was removed meanwhile unreadable or invalid; here it is a missing file. */
    @Override
    public FileStatus[] listStatus(Path path) throws IOException {
      java.nio.file.Path folder = pathToFile(path).toPath();
      if (!Files.isDirectory(folder)) { // to list a pipe would be to open it, and to wait for its writer
        try {
          return new FileStatus[] {status(folder)};
        } catch (NoSuchFileException removed) {
          throw absent(path);
        }
      }
      List<FileStatus> found = new ArrayList<>();
      try (DirectoryStream<java.nio.file.Path> entries = Files.newDirectoryStream(folder)) {
        for (java.nio.file.Path entry : entries) {
          try {
            found.add(status(entry));
          } catch (FileNotFoundException | NoSuchFileException removed) {
            continue;
          }
        }
      } catch (NoSuchFileException | NotDirectoryException removed) {
        throw absent(path);
      } catch (DirectoryIteratorException failed) {
        throw failed.getCause();
      }
      return found.toArray(FileStatus[]::new);
    }

    /** The status of a file by one look at it; Hadoop takes four, and makes its path three times. */
    private FileStatus status(java.nio.file.Path file) throws IOException {
      // Spelled file:///x as by Hadoop: Spark compares the texts with those in its checkpoints.
      Path path = makeQualified(new Path(null, null, file.toString()));
      try {
        return new Status(
            Files.readAttributes(file, "unix:size,isDirectory,lastModifiedTime,lastAccessTime,mode"),
            getDefaultBlockSize(path), file, path);
      } catch (UnsupportedOperationException | IllegalArgumentException e) { // not a POSIX file system
        return getFileStatus(path);
      }
    }

    @Override
    public FileStatus getFileStatus(Path path) throws IOException {
      try {
        return super.getFileStatus(path);
      } catch (NoSuchFileException removed) { // between two looks of Hadoop's
        throw absent(path);
      }
    }

    private static FileNotFoundException absent(Path path) {
      return new FileNotFoundException("File " + path + " does not exist");
    }

    @Override
    protected RemoteIterator<LocatedFileStatus> listLocatedStatus(Path path, PathFilter filter) throws IOException {
      List<LocatedFileStatus> found = new ArrayList<>();
      for (FileStatus one : listStatus(path, filter)) {
        found.add(new LocatedFileStatus(one, one.isFile() ? getFileBlockLocations(one, 0, one.getLen()) : null));
      }
      return RemoteIterators.remoteIteratorFromIterable(found);
    }

    @Override
    public FileStatus getFileLinkStatus(Path path) throws IOException {
      return Files.isSymbolicLink(pathToFile(path).toPath())
          ? super.getFileLinkStatus(path)
          : getFileStatus(path);
    }
  }

  /** A status that looks up the names of owner and group only if they are asked for. */
  private static final class Status extends FileStatus {

    private static final long serialVersionUID = 1L;

    private final String file;

    Status(Map<String, Object> read, long blockSize, java.nio.file.Path file, Path path) {
      super(
          (long) read.get("size"), (boolean) read.get("isDirectory"), 1, blockSize,
          ((FileTime) read.get("lastModifiedTime")).toMillis(), ((FileTime) read.get("lastAccessTime")).toMillis(),
          new FsPermission((int) read.get("mode") & 07777), null, null, path);
      this.file = file.toString();
    }

    @Override
    public String getOwner() {
      return name("owner");
    }

    @Override
    public String getGroup() {
      return name("group");
    }

    private String name(String attribute) {
      try {
        return Files.getAttribute(java.nio.file.Path.of(file), "unix:" + attribute).toString();
      } catch (IOException removed) {
        return "";
      }
    }
  }

  /** As Hadoop's {@code RawLocalFs}, which takes no other file system than its own. */
  private static final class RawContext extends DelegateToFileSystem {

    RawContext(Configuration configuration) throws IOException, URISyntaxException {
      super(FsConstants.LOCAL_FS_URI, new Raw(), configuration, FsConstants.LOCAL_FS_URI.getScheme(), false);
    }

    @Override
    public int getUriDefaultPort() {
      return -1;
    }

    @Override
    public FsServerDefaults getServerDefaults(Path path) throws IOException {
      return LocalConfigKeys.getServerDefaults();
    }

    @Override
    @Deprecated
    public FsServerDefaults getServerDefaults() throws IOException {
      return LocalConfigKeys.getServerDefaults();
    }

    @Override
    public boolean isValidName(String name) {
      return true; // the operating system decides
    }
  }
}
