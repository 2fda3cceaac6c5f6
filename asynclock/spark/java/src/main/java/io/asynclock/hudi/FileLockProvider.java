package io.asynclock.hudi;

import io.asynclock.lock.TableLockFile;
import io.asynclock.timeline.InstantOrder;
import java.io.IOException;
import java.net.URI;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.util.concurrent.TimeUnit;
import org.apache.hudi.common.config.HoodieCommonConfig;
import org.apache.hudi.common.config.LockConfiguration;
import org.apache.hudi.common.lock.LockProvider;
import org.apache.hudi.exception.HoodieLockException;
import org.apache.hudi.storage.StorageConfiguration;
import org.apache.hudi.storage.StoragePath;

/**
 * Hudi's commit lock for tables on a local disk: the operating system's lock on one file of the table.
 *
 * <p>It excludes threads of this JVM and every other process of this machine that takes it, and the kernel
 * frees it the moment its holder ends, however it ends: a writer killed inside a commit leaves no lock
 * behind. It promises nothing between machines, so it refuses network file systems and shared folders.
 *
 * <p>Users who may write in the table's {@code .hoodie} folder can take the lock; others cannot.
 *
 * <p>The lock belongs to the thread that took it, as with Hudi's {@code InProcessLockProvider}: it is not
 * re-entrant, and unlocking on another thread does nothing.
 */
public final class FileLockProvider implements LockProvider<String> {

  private static final String SCHEME = "file";

  private final TableLockFile file;
  private final String base;
  private final StorageConfiguration<?> storage;
  private final long waitMillis;

  /**
   * Takes nothing yet and touches no file.
   *
   * @throws HoodieLockException if the table is not on a local disk
   */
  public FileLockProvider(LockConfiguration configuration, StorageConfiguration<?> storage) {
    base = configuration.getConfig().getString(HoodieCommonConfig.BASE_PATH.key());
    this.storage = storage;
    file = TableLockFile.of(localPath(base, storage));
    waitMillis = configuration.getConfig().getLong(
        LockConfiguration.LOCK_ACQUIRE_WAIT_TIMEOUT_MS_PROP_KEY,
        LockConfiguration.DEFAULT_LOCK_ACQUIRE_WAIT_TIMEOUT_MS);
  }

  /**
   * What this JVM has spent on the lock of a table so far, over all of its threads.
   *
   * @param base path of the table on the local disk, without a scheme
   * @return how often the lock was taken, the nanoseconds waited for it, failed attempts included, and the
   *     nanoseconds that it was held
   */
  public static long[] use(String base) {
    return TableLockFile.of(Paths.get(base)).use().total();
  }

  /**
   * What the calling thread has spent on the lock of a table since its last call of this.
   *
   * @param base path of the table on the local disk, without a scheme
   * @return as for {@link #use}
   */
  public static long[] takeOwnUse(String base) {
    return TableLockFile.of(Paths.get(base)).use().takeOwn();
  }

  private static Path localPath(String base, StorageConfiguration<?> configuration) {
    URI uri = new StoragePath(base).toUri();
    String scheme = uri.getScheme() == null ? defaultScheme(configuration) : uri.getScheme();
    if (!SCHEME.equals(scheme)) {
      throw new HoodieLockException(String.format(
          "%s locks tables on a local disk (file://) only, and %s is on %s://. Nothing was locked or"
              + " written. Set hoodie.write.lock.provider to"
              + " org.apache.hudi.client.transaction.lock.StorageBasedLockProvider.",
          FileLockProvider.class.getName(), base, scheme));
    }
    return Paths.get(uri.getPath());
  }

  /** The scheme of a path without one: the default of the configuration. */
  private static String defaultScheme(StorageConfiguration<?> configuration) {
    return URI.create(configuration.getString("fs.defaultFS").orElse("file:///")).getScheme();
  }

  @Override
  public boolean tryLock() {
    return tryLock(waitMillis, TimeUnit.MILLISECONDS);
  }

  /**
   * Waits up to the given time, in this JVM in order of arrival; false if the lock stayed taken.
   *
   * @throws HoodieLockException if this thread already holds it, was interrupted, or the file cannot be used
   * @throws InstantOrder.Refused if an instant made under it would be out of order; then it is free again
   */
  @Override
  public boolean tryLock(long time, TimeUnit unit) {
    try {
      if (!file.tryLock(unit.toNanos(time))) {
        return false;
      }
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
      throw new HoodieLockException("Interrupted while waiting for " + getLock() + ". Nothing was locked.", e);
    } catch (IOException e) {
      throw new HoodieLockException(
          "Cannot lock " + getLock() + ": " + e.getMessage() + ". Nothing was locked.", e);
    }
    try {
      InstantOrder.check(base, storage);
    } catch (Throwable e) { // errors too: Hudi frees only what it was given
      try {
        unlock();
      } catch (RuntimeException second) {
        e.addSuppressed(second);
      }
      throw e;
    }
    return true;
  }

  /** Frees the lock if this thread holds it; otherwise does nothing. */
  @Override
  public void unlock() {
    try {
      file.unlock();
    } catch (IOException e) {
      throw new HoodieLockException("Cannot unlock " + getLock() + "; it is free when this process ends.", e);
    }
  }

  /** As {@link #unlock}: a lock held by another thread outlives the provider that asked for it. */
  @Override
  public void close() {
    unlock();
  }

  @Override
  public String getLock() {
    return file.toString();
  }

  /** Who took the lock last, and when; for messages only. */
  @Override
  public String getCurrentOwnerLockInfo() {
    return file.owner();
  }
}
