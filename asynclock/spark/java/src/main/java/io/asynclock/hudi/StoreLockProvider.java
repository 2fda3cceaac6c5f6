package io.asynclock.hudi;

import io.asynclock.lock.LockUse;
import io.asynclock.timeline.InstantOrder;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;
import org.apache.hudi.client.transaction.lock.StorageBasedLockProvider;
import org.apache.hudi.client.transaction.lock.metrics.HoodieLockMetrics;
import org.apache.hudi.common.config.ConfigProperty;
import org.apache.hudi.common.config.HoodieCommonConfig;
import org.apache.hudi.common.config.LockConfiguration;
import org.apache.hudi.common.config.TypedProperties;
import org.apache.hudi.config.StorageBasedLockConfig;
import org.apache.hudi.exception.HoodieLockException;
import org.apache.hudi.storage.StorageConfiguration;
import org.apache.hudi.storage.StoragePath;

/**
 * Hudi's commit lock for tables in an object store, with counters and with more frequent looks while it is taken.
 *
 * <p>It is Hudi's {@code StorageBasedLockProvider} with the same lock object: writers with either of the two
 * exclude each other. Hudi's class sleeps for a second after each look at a taken lock, which is longer than most
 * commits hold it.
 *
 * <p>The lock of a writer that was killed in a commit is free when its validity has passed, 300 s by default.
 * {@code hoodie.write.lock.storage.validity.timeout.secs} and {@code renew.interval.secs} may also be set in
 * Hadoop's configuration. Hudi's client of S3 takes them as numbers only, and Spark has texts.
 */
public final class StoreLockProvider extends StorageBasedLockProvider {

  private static final long SHORTEST_PAUSE_MILLIS = 100;
  private static final long LONGEST_PAUSE_MILLIS = 300;
  private static final Map<String, LockUse> USES = new ConcurrentHashMap<>();

  private final LockUse use;
  private final String base;
  private final StorageConfiguration<?> storage;
  private volatile Long lockedAt;

  /** As Hudi's. */
  public StoreLockProvider(LockConfiguration configuration, StorageConfiguration<?> storage) {
    super(withTimes(configuration, storage), storage);
    base = base(configuration);
    this.storage = storage;
    use = useOf(base);
  }

  /** As Hudi's. */
  public StoreLockProvider(
      LockConfiguration configuration, StorageConfiguration<?> storage, HoodieLockMetrics metrics) {
    super(withTimes(configuration, storage), storage, metrics);
    base = base(configuration);
    this.storage = storage;
    use = useOf(base);
  }

  /**
   * What this JVM has spent on the lock of a table so far, over all of its threads.
   *
   * @param base path of the table
   * @return how often the lock was taken, the nanoseconds that it took to take it and to give it back, failed
   *     attempts included, and the nanoseconds that it was held
   */
  public static long[] use(String base) {
    return useOf(base).total();
  }

  /**
   * What the calling thread has spent on the lock of a table since its last call of this.
   *
   * @param base path of the table
   * @return as for {@link #use}
   */
  public static long[] takeOwnUse(String base) {
    return useOf(base).takeOwn();
  }

  private static LockConfiguration withTimes(
      LockConfiguration configuration, StorageConfiguration<?> storage) {
    TypedProperties properties = TypedProperties.copy(configuration.getConfig());
    for (ConfigProperty<Long> time : List.of(
        StorageBasedLockConfig.VALIDITY_TIMEOUT_SECONDS, StorageBasedLockConfig.RENEW_INTERVAL_SECS)) {
      Object given = properties.get(time.key());
      String text = given == null ? storage.getString(time.key(), "") : given.toString();
      if (!text.isBlank()) {
        properties.put(time.key(), Long.valueOf(text.trim()));
      }
    }
    return new LockConfiguration(properties);
  }

  private static String base(LockConfiguration configuration) {
    return configuration.getConfig().getString(HoodieCommonConfig.BASE_PATH.key());
  }

  private static LockUse useOf(String base) {
    return USES.computeIfAbsent(new StoragePath(base).toString(), path -> new LockUse());
  }

  /**
   * Waits up to the given time; false if the lock stayed taken.
   *
   * @throws HoodieLockException if this thread was interrupted, or as Hudi's
   */
  @Override
  public boolean tryLock(long time, TimeUnit unit) {
    long start = System.nanoTime();
    try {
      while (!tryLock()) {
        if (System.nanoTime() - start >= unit.toNanos(time)) {
          return false;
        }
        TimeUnit.MILLISECONDS.sleep(
            ThreadLocalRandom.current().nextLong(SHORTEST_PAUSE_MILLIS, LONGEST_PAUSE_MILLIS));
      }
      return true;
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
      throw new HoodieLockException("Interrupted while waiting for the commit lock. Nothing was locked.", e);
    } finally {
      use.addWaited(start);
    }
  }

  /**
   * Takes the lock if it is free.
   *
   * @throws InstantOrder.Refused if an instant made under it would be out of order; then it is free again
   */
  @Override
  public synchronized boolean tryLock() {
    boolean held = lockedAt != null; // then this adds nothing, and a refusal must not free it
    boolean locked = super.tryLock();
    if (locked && !held) {
      use.addTaken();
      lockedAt = System.nanoTime();
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
    }
    return locked;
  }

  @Override
  public void unlock() {
    Long since = lockedAt;
    if (since == null) {
      super.unlock();
      return;
    }
    lockedAt = null;
    use.addHeld(since);
    long start = System.nanoTime();
    try {
      super.unlock();
    } finally {
      use.addWaited(start);
    }
  }
}
