package io.asynclock.timeline;

import com.fasterxml.jackson.core.JsonFactory;
import com.fasterxml.jackson.core.JsonGenerator;
import java.io.ByteArrayInputStream;
import java.io.Closeable;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;
import java.util.Set;
import org.apache.avro.generic.GenericRecord;
import org.apache.hudi.common.model.HoodieCommitMetadata;
import org.apache.hudi.common.model.HoodieReplaceCommitMetadata;
import org.apache.hudi.common.table.HoodieTableMetaClient;
import org.apache.hudi.common.table.timeline.ArchivedTimelineLoader;
import org.apache.hudi.common.table.timeline.HoodieArchivedTimeline.LoadMode;
import org.apache.hudi.common.table.timeline.HoodieInstant;
import org.apache.hudi.common.table.timeline.HoodieTimeline;

/**
 * Writes what Python asks of a timeline into a file, one JSON object a line.
 *
 * <p>A timeline may have any number of commits, each with statistics of all files that it wrote. So no more than one is
 * kept in memory at a time, and none is handed over call by call.
 */
abstract class TimelineDump implements Closeable {

  /** How the names of asynclock's entries in a commit begin. */
  static final String PREFIX = "asynclock.";
  static final Set<String> COMMITS = Set.of(
      HoodieTimeline.DELTA_COMMIT_ACTION, HoodieTimeline.COMMIT_ACTION, HoodieTimeline.REPLACE_COMMIT_ACTION);

  final HoodieTableMetaClient table;
  final JsonGenerator lines;

  TimelineDump(HoodieTableMetaClient table, String file) throws IOException {
    this.table = table;
    lines = new JsonFactory().createGenerator(Files.newBufferedWriter(Path.of(file), StandardCharsets.UTF_8));
    lines.setRootValueSeparator(null);
  }

  /** Writes the fields of a line. */
  interface Fields {
    void write() throws IOException;
  }

  /** Whether an instant may have a line; called once for each instant of the timelines that are read. */
  abstract boolean isWanted(HoodieInstant instant);

  /**
   * Writes the line of an instant, or none.
   *
   * @param commit null for an instant that is no completed commit
   */
  abstract void write(HoodieInstant instant, HoodieCommitMetadata commit) throws IOException;

  /** Writes the instants of {@code timeline}, a part of the active timeline, in its order. */
  final void writeActive(HoodieTimeline timeline) throws IOException {
    for (HoodieInstant instant : timeline.getInstants()) {
      if (isWanted(instant)) {
        boolean committed = instant.isCompleted() && COMMITS.contains(instant.getAction());
        write(instant, committed ? commit(timeline, instant) : null);
      }
    }
  }

  /** Writes the instants of the archived timeline, in no order. */
  final void writeArchived() throws IOException {
    ArchivedTimelineLoader loader = table.getTimelineLayout().getTimelineFactory().createArchivedTimelineLoader();
    try {
      loader.loadInstants(table, null, LoadMode.METADATA, this::isWanted, this::write);
    } catch (UncheckedIOException wrapped) {
      throw wrapped.getCause();
    }
  }

  final void line(Fields fields) throws IOException {
    lines.writeStartObject();
    fields.write();
    lines.writeEndObject();
    lines.writeRaw('\n');
  }

  /** Writes asynclock's entries of a commit as fields. */
  final void writeEntries(HoodieCommitMetadata commit) throws IOException {
    for (Map.Entry<String, String> entry : commit.getExtraMetadata().entrySet()) {
      if (entry.getKey().startsWith(PREFIX)) {
        lines.writeStringField(entry.getKey(), entry.getValue());
      }
    }
  }

  @Override
  public void close() throws IOException {
    lines.close();
  }

  // Hudi reads archived files in parallel.
  private synchronized boolean isWanted(GenericRecord entry) {
    return isWanted(instant(entry));
  }

  private synchronized void write(String requested, GenericRecord entry) {
    HoodieInstant instant = instant(entry);
    try {
      write(instant, COMMITS.contains(instant.getAction()) ? commit(instant, entry) : null);
    } catch (IOException error) {
      throw new UncheckedIOException(error);
    }
  }

  private HoodieInstant instant(GenericRecord entry) {
    return table.getInstantGenerator().createNewInstant(
        HoodieInstant.State.COMPLETED, entry.get("action").toString(), entry.get("instantTime").toString(),
        entry.get("completionTime").toString());
  }

  private HoodieCommitMetadata commit(HoodieInstant instant, GenericRecord entry) throws IOException {
    ByteBuffer buffer = (ByteBuffer) entry.get("metadata");
    byte[] bytes = new byte[buffer.remaining()];
    buffer.duplicate().get(bytes);
    Class<? extends HoodieCommitMetadata> kind =
        isReplacing(instant) ? HoodieReplaceCommitMetadata.class : HoodieCommitMetadata.class;
    return table.getCommitMetadataSerDe().deserialize(
        instant, new ByteArrayInputStream(bytes), () -> bytes.length == 0, kind);
  }

  private static HoodieCommitMetadata commit(HoodieTimeline timeline, HoodieInstant instant) throws IOException {
    return isReplacing(instant) ? timeline.readReplaceCommitMetadata(instant) : timeline.readCommitMetadata(instant);
  }

  private static boolean isReplacing(HoodieInstant instant) {
    return HoodieTimeline.REPLACE_COMMIT_ACTION.equals(instant.getAction());
  }
}
