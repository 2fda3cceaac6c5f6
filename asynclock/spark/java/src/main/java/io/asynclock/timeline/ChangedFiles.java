package io.asynclock.timeline;

import com.fasterxml.jackson.core.JsonFactory;
import com.fasterxml.jackson.core.JsonGenerator;
import java.io.Closeable;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.io.Writer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Set;
import org.apache.avro.generic.GenericRecord;
import org.apache.hadoop.conf.Configuration;
import org.apache.hudi.common.fs.FSUtils;
import org.apache.hudi.common.model.HoodieCommitMetadata;
import org.apache.hudi.common.model.HoodieWriteStat;
import org.apache.hudi.common.table.HoodieTableMetaClient;
import org.apache.hudi.common.table.timeline.ArchivedTimelineLoader;
import org.apache.hudi.common.table.timeline.HoodieActiveTimeline;
import org.apache.hudi.common.table.timeline.HoodieArchivedTimeline.LoadMode;
import org.apache.hudi.common.table.timeline.HoodieInstant;
import org.apache.hudi.common.table.timeline.HoodieTimeline;
import org.apache.hudi.hadoop.fs.HadoopFSUtils;
import org.apache.hudi.storage.StoragePath;

/**
 * Writes into a file which files the commits of a range of completion times have written, one JSON object a line:
 * {@code commit} (the time of the request), {@code completed}, {@code action}, {@code operation} and {@code files}. The
 * last line says whether a commit completed before the range ({@code reached}), whether a restore has ended since
 * ({@code restored}) and whether one is under way ({@code restoring}).
 *
 * <p>A commit that is archived meanwhile may be written twice.
 */
public final class ChangedFiles implements Closeable {

  // As asynclock/spark/hudi/instants.py has them.
  private static final String STREAM = "asynclock.stream";
  private static final String OFFSET = "asynclock.offset";
  private static final String DELETES = "__deletes";
  private static final Set<String> ACTIONS =
      Set.of(
          HoodieTimeline.DELTA_COMMIT_ACTION, HoodieTimeline.COMMIT_ACTION, HoodieTimeline.REPLACE_COMMIT_ACTION);

  private final HoodieTableMetaClient table;
  private final String since;
  private final String until;
  private final boolean statementsOnly;
  private final JsonGenerator lines;
  private boolean reached;
  private boolean restored;
  private boolean restoring;

  private ChangedFiles(
      HoodieTableMetaClient table, String since, String until, boolean statementsOnly, String file)
      throws IOException {
    this.table = table;
    this.since = since;
    this.until = until;
    this.statementsOnly = statementsOnly;
    Writer writer = Files.newBufferedWriter(Path.of(file), StandardCharsets.UTF_8);
    lines = new JsonFactory().createGenerator(writer);
    lines.setRootValueSeparator(null);
  }

  /**
   * Writes the commits that completed after {@code since} and not after {@code until}.
   *
   * @param path the table's base path
   * @param file the local file to write
   */
  public static void write(Configuration conf, String path, String since, String until, String file)
      throws IOException {
    write(conf, path, since, until, false, file);
  }

  /**
   * Writes which of them are neither a batch that was read from a source nor a delete of the pipeline.
   *
   * @param path the table's base path
   * @param file the local file to write
   */
  public static void statements(Configuration conf, String path, String until, String file) throws IOException {
    write(conf, path, "", until, true, file);
  }

  private static void write(
      Configuration conf, String path, String since, String until, boolean statementsOnly, String file)
      throws IOException {
    HoodieTableMetaClient table = HoodieTableMetaClient.builder()
        .setConf(HadoopFSUtils.getStorageConf(conf)).setBasePath(path).build();
    try (ChangedFiles files = new ChangedFiles(table, since, until, statementsOnly, file)) {
      // The archive last: a commit that is archived meanwhile is then seen twice instead of never.
      files.active();
      files.archived();
      files.end();
    } catch (UncheckedIOException wrapped) {
      throw wrapped.getCause();
    }
  }

  private void active() throws IOException {
    HoodieActiveTimeline timeline = table.reloadActiveTimeline();
    for (HoodieInstant instant : timeline.getInstants()) {
      String action = instant.getAction();
      if (!instant.isCompleted()) {
        restoring |= HoodieTimeline.RESTORE_ACTION.equals(action);
      } else if (isWanted(action, instant.getCompletionTime())) {
        HoodieCommitMetadata metadata = HoodieTimeline.REPLACE_COMMIT_ACTION.equals(action)
            ? timeline.readReplaceCommitMetadata(instant)
            : timeline.readCommitMetadata(instant);
        write(instant.requestedTime(), instant.getCompletionTime(), action, metadata);
      }
    }
  }

  private void archived() {
    ArchivedTimelineLoader loader = table.getTimelineLayout().getTimelineFactory().createArchivedTimelineLoader();
    loader.loadInstants(
        table,
        null,
        LoadMode.METADATA,
        entry -> isWanted(entry.get("action").toString(), entry.get("completionTime").toString()),
        this::write);
  }

  // Hudi reads archived files in parallel.
  private synchronized boolean isWanted(String action, String completed) {
    boolean isLater = completed.compareTo(since) > 0;
    if (HoodieTimeline.RESTORE_ACTION.equals(action)) {
      restored |= isLater;
    } else if (ACTIONS.contains(action)) {
      reached |= !isLater;
      return isLater && completed.compareTo(until) <= 0;
    }
    return false;
  }

  private void write(String requested, GenericRecord entry) {
    HoodieInstant instant = Commits.archivedInstant(table, requested, entry);
    try {
      HoodieCommitMetadata metadata = Commits.metadata(table, instant, entry);
      write(requested, instant.getCompletionTime(), instant.getAction(), metadata);
    } catch (IOException error) {
      throw new UncheckedIOException(error);
    }
  }

  private synchronized void write(String requested, String completed, String action, HoodieCommitMetadata metadata)
      throws IOException {
    String stream = metadata.getMetadata(STREAM);
    if (statementsOnly && stream != null && (stream.equals(DELETES) || hasSource(metadata))) {
      return;
    }
    lines.writeStartObject();
    lines.writeStringField("commit", requested);
    lines.writeStringField("completed", completed);
    lines.writeStringField("action", action);
    lines.writeStringField("operation", String.valueOf(metadata.getOperationType()));
    lines.writeArrayFieldStart("files");
    for (HoodieWriteStat stat : metadata.getWriteStats()) {
      if (stat.getPath() != null) {
        lines.writeStartObject();
        lines.writeStringField("path", stat.getPath());
        lines.writeBooleanField("log", FSUtils.isLogFile(new StoragePath(stat.getPath())));
        lines.writeStringField("partition", stat.getPartitionPath());
        lines.writeStringField("group", stat.getFileId());
        lines.writeStringField("previous", stat.getPrevCommit());
        lines.writeNumberField("deletes", stat.getNumDeletes());
        lines.writeEndObject();
      }
    }
    lines.writeEndArray();
    lines.writeEndObject();
    lines.writeRaw('\n');
  }

  /** Whether a commit says where it ends in its source; a write by the API does not. */
  private static boolean hasSource(HoodieCommitMetadata metadata) {
    String offset = metadata.getMetadata(OFFSET);
    return offset != null && !offset.isEmpty();
  }

  private void end() throws IOException {
    lines.writeStartObject();
    lines.writeBooleanField("reached", reached);
    lines.writeBooleanField("restored", restored);
    lines.writeBooleanField("restoring", restoring);
    lines.writeEndObject();
    lines.writeRaw('\n');
  }

  @Override
  public void close() throws IOException {
    lines.close();
  }
}
