package io.asynclock.timeline;

import java.io.FileNotFoundException;
import java.io.IOException;
import java.time.Duration;
import java.time.Instant;
import java.time.LocalDateTime;
import java.time.ZoneId;
import java.time.ZoneOffset;
import java.time.format.DateTimeFormatter;
import java.time.zone.ZoneOffsetTransition;
import java.time.zone.ZoneRules;
import java.util.Date;
import java.util.TimeZone;
import java.util.concurrent.TimeUnit;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hudi.common.model.HoodieTimelineTimeZone;
import org.apache.hudi.common.table.HoodieTableConfig;
import org.apache.hudi.common.table.timeline.HoodieInstantTimeGenerator;
import org.apache.hudi.exception.HoodieException;
import org.apache.hudi.exception.HoodieIOException;
import org.apache.hudi.storage.HoodieStorage;
import org.apache.hudi.storage.HoodieStorageUtils;
import org.apache.hudi.storage.StorageConfiguration;
import org.apache.hudi.storage.StoragePath;
import org.apache.hudi.storage.StoragePathInfo;

/**
 * The rule that a new instant of a table is later than all that the table has.
 *
 * <p>Hudi orders commits by their instants, which are texts of the wall clock in a time zone, and checks nothing: a
 * commit with an earlier text than the last compaction is acknowledged, and no read shows it. So both commit locks
 * call this whenever they are taken, before Hudi makes an instant under them: that covers requests and completions of
 * batches, deletes, services and SQL statements. The pipeline also calls it before it begins a piece of work.
 */
public final class InstantOrder {

  private static final Pattern INSTANT = Pattern.compile("(\\d{14,17})(?:_(\\d{14,17}))?\\..+");
  private static final Pattern MADE = Pattern.compile("\\d{14,17}");
  private static final DateTimeFormatter DIGITS = DateTimeFormatter.ofPattern("yyyyMMddHHmmssSSS");
  private static final int LENGTH = 17;
  /** Clocks that share a table may differ by this much: such a difference is waited out instead of refused. */
  private static final long PATIENCE_MILLIS = 1000;
  private static final long SECONDS_MILLIS = 60_000;
  private static final long QUARTER_SECONDS = 900;

  private InstantOrder() {}

  /** A new instant would not be later than those of the table, or not in its zone; nothing was written. */
  public static final class Refused extends HoodieException {

    private final long early;

    Refused(String message, long early) {
      super(message);
      this.early = early;
    }

    /** The milliseconds by which the new instant would be too early; 0: this JVM is in another zone. */
    public long early() {
      return early;
    }
  }

  /**
   * Makes sure that an instant that this JVM makes now would be in the zone of a table, and later than all of its
   * instants. For the commit locks.
   *
   * @param base path of the table
   * @throws Refused if not
   */
  public static void check(String base, StorageConfiguration<?> configuration) {
    if (isReadable(base, configuration)) {
      check(base, configuration, "", false);
    }
  }

  /** Whether this JVM has a file system for a path; without one it can take the lock there, but not write. */
  private static boolean isReadable(String base, StorageConfiguration<?> configuration) {
    String scheme = new StoragePath(base).toUri().getScheme();
    try {
      return scheme == null
          || FileSystem.getFileSystemClass(scheme, configuration.unwrapAs(Configuration.class)) != null;
    } catch (IOException e) {
      return false;
    }
  }

  /**
   * The same before a piece of work begins.
   *
   * @param base path of the table; a new one will be in UTC
   * @param archived the newest instant that is known to be archived; empty if none is
   * @throws Refused if not
   */
  public static void check(String base, StorageConfiguration<?> configuration, String archived) {
    check(base, configuration, archived, true);
  }

  private static void check(String base, StorageConfiguration<?> configuration, String archived, boolean newInUtc) {
    ZoneId zone = TimeZone.getDefault().toZoneId();
    HoodieStorage storage = HoodieStorageUtils.getStorage(new StoragePath(base), configuration);
    try {
      boolean inUtc = isUtc(zone);
      if (!inUtc && isTableInUtc(storage, base, newInUtc)) {
        throw new Refused(otherZone(base, zone), 0);
      }
      Newest newest = newest(storage, base, archived);
      // Hudi waits, with the lock held, until its next instant is later than the last that it made for any table.
      String last = HoodieInstantTimeGenerator.getLastInstantTime();
      newest = MADE.matcher(last).matches() ? newest.or(last, null) : newest;
      String now = now();
      if (newest.isAfter(now) && millis(newest.text) - millis(now) < PATIENCE_MILLIS) {
        TimeUnit.MILLISECONDS.sleep(millis(newest.text) - millis(now) + 1);
        now = now();
      }
      if (newest.isAfter(now)) {
        throw new Refused(
            tooEarly(base, zone, newest.text, newest.written, now, System.currentTimeMillis()),
            millis(newest.text) - millis(now));
      }
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
      throw new HoodieException("Interrupted while waiting for the clock. Nothing was written.", e);
    } catch (IOException e) {
      throw new HoodieIOException("Cannot list the timeline of " + base + ". Nothing was written.", e);
    }
  }

  /** The instant that Hudi would make now. */
  public static String now() {
    return HoodieInstantTimeGenerator.formatDateBasedOnTimeZone(new Date());
  }

  /** The newest text on the timeline of a table, of requests and completions; empty without an instant. */
  public static String newest(String base, StorageConfiguration<?> configuration) throws IOException {
    return newest(HoodieStorageUtils.getStorage(new StoragePath(base), configuration), base, "").text;
  }

  /** Whether the times of this JVM are UTC, now and from now on. */
  public static boolean isUtc(ZoneId zone) {
    ZoneRules rules = zone.getRules();
    Instant now = Instant.now();
    return rules.getOffset(now).equals(ZoneOffset.UTC) && rules.nextTransition(now) == null;
  }

  private static boolean isTableInUtc(HoodieStorage storage, String base, boolean newInUtc)
      throws IOException {
    StoragePath meta = new StoragePath(base, ".hoodie");
    if (!storage.exists(new StoragePath(meta, "hoodie.properties"))
        && !storage.exists(new StoragePath(meta, "hoodie.properties.backup"))) {
      return newInUtc;
    }
    return new HoodieTableConfig(storage, meta).getTimelineTimezone() == HoodieTimelineTimeZone.UTC;
  }

  private static Newest newest(HoodieStorage storage, String base, String archived) throws IOException {
    Newest newest = new Newest(archived, 0);
    try {
      for (StoragePathInfo file : storage.listDirectEntries(new StoragePath(base, ".hoodie/timeline"))) {
        Matcher instant = INSTANT.matcher(file.getPath().getName());
        if (instant.matches()) {
          newest = newest.or(instant.group(1), file).or(instant.group(2), file);
        }
      }
    } catch (FileNotFoundException e) {
      // No table yet.
    }
    return newest;
  }

  private static String otherZone(String base, ZoneId zone) {
    return String.format(
        "the timeline of the table %s is in UTC, and the JVM of this Spark is in %s, so its commits would have times"
            + " of another zone, and some would never be seen. Nothing was written. Start Spark with"
            + " -Duser.timezone=UTC in spark.driver.extraJavaOptions (spark-submit: --driver-java-options) and"
            + " spark.executor.extraJavaOptions, or let asynclock start it; spark.sql.session.timeZone may stay as"
            + " it is.",
        base, zone.getId());
  }

  /**
   * The cause of an instant that would be too early, and the remedy.
   *
   * @param base path of the table
   * @param zone that of this JVM
   * @param newest the newest instant of the table
   * @param written when its file was written, in milliseconds since 1970; 0: not known
   * @param own the instant that would be made
   * @param at the time now, in milliseconds since 1970
   */
  public static String tooEarly(String base, ZoneId zone, String newest, long written, String own, long at) {
    long early = millis(newest) - millis(own);
    return String.format(
        "the newest instant of the table %s is %s, and this process would make %s, which is %s earlier: what it"
            + " commits might never be seen. Nothing was written. %s",
        base, newest, own, duration(early), remedy(zone, offset(newest, written), early, Instant.ofEpochMilli(at)));
  }

  private static String remedy(ZoneId zone, ZoneOffset writers, long early, Instant now) {
    String wait = "in " + duration(early);
    if (early <= SECONDS_MILLIS) {
      return "The clocks of two drivers differ, or this one was set back: correct them; it can write again " + wait
          + ".";
    }
    ZoneRules rules = zone.getRules();
    ZoneOffsetTransition change = rules.previousTransition(now);
    if (change != null && change.isOverlap()
        && Duration.between(change.getInstant(), now).compareTo(Duration.ofDays(1)) < 0
        && early <= -change.getDuration().toMillis() + SECONDS_MILLIS) {
      return String.format(
          "The clocks of %s have just been set back by %s: wait, it can write again %s. A table in UTC has no such"
              + " hour: asynclock pipeline to-utc SPEC moves this one.",
          zone.getId(), duration(-change.getDuration().toMillis()), wait);
    }
    if (writers == null || writers.equals(rules.getOffset(now))) {
      return "The clock of this machine was set back, or that of another driver is ahead: correct it, or wait; it"
          + " can write again " + wait + ".";
    }
    String offset = writers.equals(ZoneOffset.UTC) ? "+00:00" : writers.getId();
    return String.format(
        "That instant was made by a driver in the zone UTC%s, and this one is in %s. Start this one with"
            + " -Duser.timezone=GMT%s, or the name of that zone, in spark.driver.extraJavaOptions; or stop the drivers"
            + " of that zone and wait: it can write again %s, and then asynclock pipeline to-utc SPEC moves the table"
            + " to UTC. If no driver has another zone, the clock of one was wrong: correct it.",
        offset, zone.getId(), offset, wait);
  }

  /** The offset of the clock that made an instant; null if it cannot be known. */
  private static ZoneOffset offset(String instant, long written) {
    if (written == 0) {
      return null;
    }
    long seconds = Math.round((millis(instant) - written) / 1000.0 / QUARTER_SECONDS) * QUARTER_SECONDS;
    return Math.abs(seconds) > ZoneOffset.MAX.getTotalSeconds() ? null : ZoneOffset.ofTotalSeconds((int) seconds);
  }

  private static String duration(long millis) {
    long seconds = (millis + 999) / 1000;
    if (seconds < 60) {
      return seconds + " s";
    }
    long minutes = (seconds + 59) / 60;
    return minutes < 60 ? minutes + " min" : minutes / 60 + " h " + minutes % 60 + " min";
  }

  /** A text as milliseconds since 1970, as if it were of UTC: the differences are those of the texts. */
  static long millis(String text) {
    return parsed(text).toInstant(ZoneOffset.UTC).toEpochMilli();
  }

  private static LocalDateTime parsed(String text) {
    return LocalDateTime.parse((text + "000").substring(0, LENGTH), DIGITS);
  }

  /** The newest instant, and when its file was written; 0: not known. */
  private static final class Newest {
    private final String text;
    private final long written;

    Newest(String text, long written) {
      this.text = text;
      this.written = written;
    }

    Newest or(String other, StoragePathInfo file) {
      boolean later = other != null && other.compareTo(text) > 0;
      return later ? new Newest(other, file == null ? 0 : file.getModificationTime()) : this;
    }

    boolean isAfter(String now) {
      return text.compareTo(now) >= 0;
    }
  }
}
