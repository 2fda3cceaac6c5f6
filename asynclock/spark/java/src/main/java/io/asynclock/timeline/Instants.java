package io.asynclock.timeline;

import com.fasterxml.jackson.core.JsonFactory;
import com.fasterxml.jackson.core.JsonGenerator;
import java.io.Closeable;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.text.ParseException;
import java.util.Collection;
import java.util.HashSet;
import java.util.Map;
import java.util.Set;
import org.apache.avro.generic.GenericRecord;
import org.apache.hudi.common.model.HoodieCommitMetadata;
import org.apache.hudi.common.model.HoodieTimelineTimeZone;
import org.apache.hudi.common.model.HoodieWriteStat;
import org.apache.hudi.common.table.HoodieTableMetaClient;
import org.apache.hudi.common.table.timeline.ArchivedTimelineLoader;
import org.apache.hudi.common.table.timeline.HoodieArchivedTimeline.LoadMode;
import org.apache.hudi.common.table.timeline.HoodieInstant;
import org.apache.hudi.common.table.timeline.HoodieInstantTimeGenerator;
import org.apache.hudi.common.table.timeline.HoodieTimeline;

/**
 * Writes the instants of a timeline into a file, one JSON object a line: {@code requested}, {@code completed},
 * {@code action}, {@code state}, {@code latencyMs}, and of a commit also {@code rows}, {@code bytes} and
 * {@code metadata}, which has asynclock's entries. As with {@link Commits}, one commit at a time is in memory.
 */
public final class Instants implements Closeable {

  private static final String PREFIX = "asynclock.";
  private static final Set<String> COMMITS = Set.of(
      HoodieTimeline.COMMIT_ACTION, HoodieTimeline.DELTA_COMMIT_ACTION, HoodieTimeline.REPLACE_COMMIT_ACTION);

  private final HoodieTableMetaClient table;
  private final JsonGenerator lines;

  private Instants(HoodieTableMetaClient table, String file) throws IOException {
    this.table = table;
    lines = new JsonFactory().createGenerator(Files.newBufferedWriter(Path.of(file), StandardCharsets.UTF_8));
    lines.setRootValueSeparator(null);
  }

  /**
   * Writes the instants of {@code timeline} but those that are known.
   *
   * @param known for each instant to leave out: the time of its request, its action and its state, with spaces
   */
  public static void active(
      HoodieTableMetaClient table, HoodieTimeline timeline, Collection<String> known, String file)
      throws IOException {
    Set<String> seen = new HashSet<>(known);
    try (Instants instants = new Instants(table, file)) {
      for (HoodieInstant instant : timeline.getInstants()) {
        if (!seen.contains(instant.requestedTime() + " " + instant.getAction() + " " + instant.getState())) {
          boolean committed = instant.isCompleted() && COMMITS.contains(instant.getAction());
          instants.write(instant, committed ? timeline.readCommitMetadata(instant) : null);
        }
      }
    }
  }

  /** Writes the instants of the archived timeline, in no order. */
  public static void archived(HoodieTableMetaClient table, String file) throws IOException {
    ArchivedTimelineLoader loader = table.getTimelineLayout().getTimelineFactory().createArchivedTimelineLoader();
    try (Instants instants = new Instants(table, file)) {
      loader.loadInstants(table, null, LoadMode.METADATA, entry -> true, instants::write);
    } catch (UncheckedIOException wrapped) {
      throw wrapped.getCause();
    }
  }

  private void write(String requested, GenericRecord entry) {
    HoodieInstant instant = Commits.archivedInstant(table, requested, entry);
    try {
      write(instant, COMMITS.contains(instant.getAction()) ? Commits.metadata(table, instant, entry) : null);
    } catch (IOException error) {
      throw new UncheckedIOException(error);
    }
  }

  // Hudi reads archived files in parallel.
  private synchronized void write(HoodieInstant instant, HoodieCommitMetadata commit) throws IOException {
    lines.writeStartObject();
    lines.writeStringField("requested", instant.requestedTime());
    lines.writeStringField("completed", instant.getCompletionTime());
    lines.writeStringField("action", instant.getAction());
    lines.writeStringField("state", instant.getState().toString());
    if (instant.getCompletionTime() != null) {
      lines.writeNumberField("latencyMs", millis(instant.getCompletionTime()) - millis(instant.requestedTime()));
    }
    if (commit != null) {
      long rows = 0;
      long bytes = 0;
      for (HoodieWriteStat stat : commit.getWriteStats()) {
        rows += stat.getNumInserts() + stat.getNumUpdateWrites() + stat.getNumDeletes();
        bytes += stat.getTotalWriteBytes();
      }
      lines.writeNumberField("rows", rows);
      lines.writeNumberField("bytes", bytes);
      lines.writeObjectFieldStart("metadata");
      for (Map.Entry<String, String> entry : commit.getExtraMetadata().entrySet()) {
        if (entry.getKey().startsWith(PREFIX)) {
          lines.writeStringField(entry.getKey(), entry.getValue());
        }
      }
      lines.writeEndObject();
    }
    lines.writeEndObject();
    lines.writeRaw('\n');
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

  @Override
  public void close() throws IOException {
    lines.close();
  }
}
