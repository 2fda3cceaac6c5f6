package org.apache.hudi.client.transaction.lock;

import org.apache.hudi.common.config.LockConfiguration;
import org.apache.hudi.storage.StorageConfiguration;

/** Hudi's provider on a machine whose clock is wrong: it reads its clock here and nowhere else. */
public class SkewedProvider extends StorageBasedLockProvider {
  private final long skewMs;

  public SkewedProvider(LockConfiguration lock, StorageConfiguration<?> storage, long skewMs) {
    super(lock, storage);
    this.skewMs = skewMs;
  }

  @Override
  long getCurrentEpochMs() {
    return System.currentTimeMillis() + skewMs;
  }

  /** The heartbeat's own call. */
  public boolean renew() {
    return renewLock();
  }
}
