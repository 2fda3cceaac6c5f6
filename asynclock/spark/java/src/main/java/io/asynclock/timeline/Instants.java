package io.asynclock.timeline;

import java.io.IOException;
import java.text.ParseException;
import java.util.Collection;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import org.apache.hudi.common.model.HoodieCommitMetadata;
import org.apache.hudi.common.model.HoodieTimelineTimeZone;
import org.apache.hudi.common.model.HoodieWriteStat;
import org.apache.hudi.common.table.HoodieTableMetaClient;
import org.apache.hudi.common.table.timeline.HoodieInstant;
import org.apache.hudi.common.table.timeline.HoodieInstantTimeGenerator;
import org.apache.hudi.common.table.timeline.HoodieTimeline;

/**
 * Writes the instants of a timeline: {@code requested}, {@code completed}, {@code action}, {@code state},
 * {@code latencyMs}, and of a commit also {@code rows}, {@code bytes} and {@code metadata}, which has asynclock's
 * entries.
 */
public final class Instants extends TimelineDump {

  private final Set<String> known;

  private Instants(HoodieTableMetaClient table, Collection<String> known, String file) throws IOException {
    super(table, file);
    this.known = new HashSet<>(known);
  }

  /**
   * Writes the instants of {@code timeline} but those that are known.
   *
   * @param known for each instant to leave out: the time of its request, its action and its state, with spaces
   */
  public static void active(
      HoodieTableMetaClient table, HoodieTimeline timeline, Collection<String> known, String file)
      throws IOException {
    try (Instants instants = new Instants(table, known, file)) {
      instants.writeActive(timeline);
    }
  }

  /** Writes the instants of the archived timeline, in no order. */
  public static void archived(HoodieTableMetaClient table, String file) throws IOException {
    try (Instants instants = new Instants(table, List.of(), file)) {
      instants.writeArchived();
    }
  }

  @Override
  boolean isWanted(HoodieInstant instant) {
    return !known.contains(instant.requestedTime() + " " + instant.getAction() + " " + instant.getState());
  }

  @Override
  void write(HoodieInstant instant, HoodieCommitMetadata commit) throws IOException {
    line(() -> {
      lines.writeStringField("requested", instant.requestedTime());
      lines.writeStringField("completed", instant.getCompletionTime());
      lines.writeStringField("action", instant.getAction());
      lines.writeStringField("state", instant.getState().toString());
      if (instant.getCompletionTime() != null) {
        lines.writeNumberField("latencyMs", millis(instant.getCompletionTime()) - millis(instant.requestedTime()));
      }
      if (commit != null) {
        lines.writeNumberField("rows", commit.getWriteStats().stream().mapToLong(Instants::rows).sum());
        lines.writeNumberField(
            "bytes", commit.getWriteStats().stream().mapToLong(HoodieWriteStat::getTotalWriteBytes).sum());
        lines.writeObjectFieldStart("metadata");
        writeEntries(commit);
        lines.writeEndObject();
      }
    });
  }

  static long rows(HoodieWriteStat stat) {
    return stat.getNumInserts() + stat.getNumUpdateWrites() + stat.getNumDeletes();
  }

  // Days of a local time zone may have 23 or 25 hours; Hudi parses times in that of this JVM, whatever the table's is.
  private long millis(String time) throws IOException {
    if (table.getTableConfig().getTimelineTimezone() == HoodieTimelineTimeZone.UTC) {
      return InstantOrder.millis(time);
    }
    try {
      return HoodieInstantTimeGenerator.parseDateFromInstantTime(time).getTime();
    } catch (ParseException error) {
      throw new IOException("the timeline has the instant " + time, error);
    }
  }
}
