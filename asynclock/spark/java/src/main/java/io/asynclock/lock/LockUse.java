package io.asynclock.lock;

import java.util.concurrent.atomic.LongAdder;

/** The use of one lock by this JVM and by each of its threads. */
public final class LockUse {

  private final LongAdder taken = new LongAdder();
  private final LongAdder waitedNanos = new LongAdder();
  private final LongAdder heldNanos = new LongAdder();
  private final ThreadLocal<long[]> own = ThreadLocal.withInitial(() -> new long[3]);

  /** Counts that the lock was taken. */
  public void addTaken() {
    taken.increment();
    own.get()[0]++;
  }

  /** Adds the nanoseconds since a reading of {@link System#nanoTime}. */
  public void addWaited(long since) {
    long waited = System.nanoTime() - since;
    waitedNanos.add(waited);
    own.get()[1] += waited;
  }

  /** As {@link #addWaited}, for the time in which the lock was held. */
  public void addHeld(long since) {
    long held = System.nanoTime() - since;
    heldNanos.add(held);
    own.get()[2] += held;
  }

  /**
   * The number of times that this JVM has taken the lock, and the nanoseconds that it has waited for it and held
   * it.
   */
  public long[] total() {
    return new long[] {taken.sum(), waitedNanos.sum(), heldNanos.sum()};
  }

  /** The same of the calling thread, since its last call of this. */
  public long[] takeOwn() {
    long[] use = own.get();
    own.remove();
    return use;
  }
}
