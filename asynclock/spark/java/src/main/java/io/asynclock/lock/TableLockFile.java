package io.asynclock.lock;

import io.asynclock.disk.SharedFiles;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.channels.FileLock;
import java.nio.channels.OverlappingFileLockException;
import java.nio.charset.StandardCharsets;
import java.nio.file.FileAlreadyExistsException;
import java.nio.file.Files;
import java.nio.file.LinkOption;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.nio.file.attribute.BasicFileAttributes;
import java.time.Instant;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.ReentrantLock;
import org.apache.hudi.exception.HoodieLockException;

/**
 * The lock file of one table: a mutex between the threads of this JVM around the operating system's lock,
 * which only knows processes.
 *
 * <p>One object and one open channel per table and JVM, kept for good: POSIX drops a process's lock on a
 * file when <em>any</em> of its descriptors of that file is closed, so nothing here opens it twice.
 */
public final class TableLockFile {

  private static final Map<Path, TableLockFile> OPEN = new ConcurrentHashMap<>();
  private static final long POLL_NANOS = TimeUnit.MILLISECONDS.toNanos(10);
  private static final int OWNER_BYTES = 512;

  private final Path path;
  private final ReentrantLock mutex = new ReentrantLock(true);
  private final LockUse use = new LockUse();

  // Only the thread that holds the mutex touches these.
  private FileChannel channel;
  private Object channelKey;
  private FileLock lock;
  private long lockedAt;

  private volatile String owner = "";

  private TableLockFile(Path path) {
    this.path = path;
  }

  /** The lock file of the table at {@code base}; creates nothing. */
  public static TableLockFile of(Path base) {
    Path real;
    try {
      real = base.toRealPath();
    } catch (IOException e) {
      // Not there yet, so no other name leads to it.
      real = base.toAbsolutePath().normalize();
    }
    return OPEN.computeIfAbsent(
        real.resolve(".hoodie").resolve(".locks").resolve("asynclock.lock"), TableLockFile::new);
  }

  public boolean tryLock(long nanos) throws IOException, InterruptedException {
    if (mutex.isHeldByCurrentThread()) {
      throw new HoodieLockException(
          "This thread already holds " + path + ", and waiting for itself would never end.");
    }
    long start = System.nanoTime();
    try {
      return tryLockUntil(start + nanos);
    } finally {
      use.addWaited(start);
    }
  }

  private boolean tryLockUntil(long deadline) throws IOException, InterruptedException {
    if (!mutex.tryLock(deadline - System.nanoTime(), TimeUnit.NANOSECONDS)) {
      return false;
    }
    boolean locked = false;
    try {
      while (!(locked = tryOnce())) {
        long left = deadline - System.nanoTime();
        if (left <= 0) {
          readOwner();
          return false;
        }
        TimeUnit.NANOSECONDS.sleep(Math.min(POLL_NANOS, left));
      }
      use.addTaken();
      lockedAt = System.nanoTime();
      return true;
    } finally {
      if (!locked) {
        mutex.unlock();
      }
    }
  }

  public void unlock() throws IOException {
    if (!mutex.isHeldByCurrentThread()) {
      return;
    }
    try {
      lock.release();
    } finally {
      lock = null;
      use.addHeld(lockedAt);
      mutex.unlock();
    }
  }

  public LockUse use() {
    return use;
  }

  /** Who held the lock when this JVM last looked; may be gone since. */
  public String owner() {
    return owner;
  }

  @Override
  public String toString() {
    return path.toString();
  }

  private boolean tryOnce() throws IOException {
    if (!openCurrent()) {
      return false;
    }
    FileLock taken;
    try {
      taken = channel.tryLock();
    } catch (OverlappingFileLockException e) {
      // A second class loader's copy of this class holds it, in this very process.
      return false;
    }
    if (taken == null) {
      return false;
    }
    try {
      // Otherwise the table was dropped or replaced meanwhile, and others now lock another file.
      if (channelKey.equals(key())) {
        writeOwner();
        lock = taken;
      }
    } finally {
      if (lock == null) {
        taken.release();
      }
    }
    return lock != null;
  }

  /** Opens the channel of the file that now has the name; false if the name moved meanwhile. */
  private boolean openCurrent() throws IOException {
    // An interrupt closes a channel under the thread that uses it.
    if (channel != null && channel.isOpen() && channelKey.equals(key())) {
      return true;
    }
    if (channel != null) {
      channel.close();
      channel = null;
    }
    create();
    channelKey = key();
    if (channelKey == null) {
      return false;
    }
    channel = FileChannel.open(
        path, StandardOpenOption.READ, StandardOpenOption.WRITE, LinkOption.NOFOLLOW_LINKS);
    // Only if it was the same file before and after is it surely the one that was opened.
    return channelKey.equals(key());
  }

  private void create() throws IOException {
    Path directory = path.getParent();
    try {
      // Not createDirectories: to Hudi a path with a .hoodie directory is a table.
      Files.createDirectory(directory);
      SharedFiles.likeItsFolder(directory);
    } catch (FileAlreadyExistsException e) {
      // The usual case.
    } catch (NoSuchFileException e) {
      throw new IOException("there is no Hudi table at " + directory.getParent().getParent(), e);
    }
    if (!Files.isDirectory(directory, LinkOption.NOFOLLOW_LINKS)) {
      throw new IOException(directory + " is a link or a file; remove it");
    }
    String kind = Files.getFileStore(directory).type();
    if (SharedFiles.isShared(kind)) {
      throw new IOException(directory + " is on a network file system or a shared folder (" + kind
          + "), which other machines may write at the same time; move the table to a local disk or a store");
    }
    if (key() == null) {
      SharedFiles.create(path);
    }
  }

  /** The identity of the file that has the name; null if there is none. */
  private Object key() throws IOException {
    try {
      BasicFileAttributes found =
          Files.readAttributes(path, BasicFileAttributes.class, LinkOption.NOFOLLOW_LINKS);
      if (!found.isRegularFile()) {
        throw new IOException("a link, a folder or a FIFO stands in the place of a file; remove it");
      }
      return found.fileKey();
    } catch (NoSuchFileException e) {
      return null;
    }
  }

  private void writeOwner() throws IOException {
    owner = String.format("pid %d, thread %s, since %s",
        ProcessHandle.current().pid(), Thread.currentThread().getName(), Instant.now());
    channel.truncate(0);
    channel.write(ByteBuffer.wrap(owner.getBytes(StandardCharsets.UTF_8)), 0);
  }

  // Through the one channel, and only by a thread that may lock: opening the file again to read it would
  // drop this process's lock, and so would an interrupt of another thread reading through the channel.
  private void readOwner() throws IOException {
    if (channel == null || !channel.isOpen()) {
      return;
    }
    ByteBuffer buffer = ByteBuffer.allocate(OWNER_BYTES);
    channel.read(buffer, 0);
    owner = new String(buffer.array(), 0, buffer.position(), StandardCharsets.UTF_8);
  }
}
