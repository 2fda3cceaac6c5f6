package io.asynclock.timeline;

import java.io.IOException;
import org.apache.hadoop.conf.Configuration;
import org.apache.hudi.common.fs.FSUtils;
import org.apache.hudi.common.model.HoodieCommitMetadata;
import org.apache.hudi.common.model.HoodieWriteStat;
import org.apache.hudi.common.table.HoodieTableMetaClient;
import org.apache.hudi.common.table.timeline.HoodieInstant;
import org.apache.hudi.common.table.timeline.HoodieTimeline;
import org.apache.hudi.hadoop.fs.HadoopFSUtils;
import org.apache.hudi.storage.StoragePath;

/**
 * Writes which files the commits of a range of completion times have written: {@code commit} (the time of the request), {@code completed}, {@code action}, {@code operation} and {@code files}. The
 * last line says whether a commit completed before the range ({@code reached}), whether a restore has ended since
 * ({@code restored}) and whether one is under way ({@code restoring}).
 *
 * <p>A commit that is archived meanwhile may be written twice.
 */
public final class ChangedFiles extends TimelineDump {

  // As asynclock/spark/hudi/instants.py has them.
  private static final String STREAM = PREFIX + "stream";
  private static final String OFFSET = PREFIX + "offset";
  private static final String DELETES = "__deletes";

  private final String since;
  private final String until;
  private final boolean statementsOnly;
  private boolean reached;
  private boolean restored;
  private boolean restoring;

  private ChangedFiles(
      HoodieTableMetaClient table, String since, String until, boolean statementsOnly, String file)
      throws IOException {
    super(table, file);
    this.since = since;
    this.until = until;
    this.statementsOnly = statementsOnly;
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
      files.writeActive(table.reloadActiveTimeline());
      files.writeArchived();
      files.writeEnd();
    }
  }

  @Override
  boolean isWanted(HoodieInstant instant) {
    boolean isRestore = HoodieTimeline.RESTORE_ACTION.equals(instant.getAction());
    if (!instant.isCompleted()) {
      restoring |= isRestore;
      return false;
    }
    String completed = instant.getCompletionTime();
    boolean isLater = completed.compareTo(since) > 0;
    restored |= isRestore && isLater;
    if (!COMMITS.contains(instant.getAction())) {
      return false;
    }
    reached |= !isLater;
    return isLater && completed.compareTo(until) <= 0;
  }

  @Override
  void write(HoodieInstant instant, HoodieCommitMetadata commit) throws IOException {
    String stream = commit.getMetadata(STREAM);
    if (statementsOnly && stream != null && (stream.equals(DELETES) || hasSource(commit))) {
      return;
    }
    line(() -> {
      lines.writeStringField("commit", instant.requestedTime());
      lines.writeStringField("completed", instant.getCompletionTime());
      lines.writeStringField("action", instant.getAction());
      lines.writeStringField("operation", String.valueOf(commit.getOperationType()));
      lines.writeArrayFieldStart("files");
      for (HoodieWriteStat stat : commit.getWriteStats()) {
        if (stat.getPath() != null) {
          writeFile(stat);
        }
      }
      lines.writeEndArray();
    });
  }

  private void writeFile(HoodieWriteStat stat) throws IOException {
    lines.writeStartObject();
    lines.writeStringField("path", stat.getPath());
    lines.writeBooleanField("log", FSUtils.isLogFile(new StoragePath(stat.getPath())));
    lines.writeStringField("partition", stat.getPartitionPath());
    lines.writeStringField("group", stat.getFileId());
    lines.writeStringField("previous", stat.getPrevCommit());
    lines.writeNumberField("deletes", stat.getNumDeletes());
    lines.writeEndObject();
  }

  /** Whether a commit says where it ends in its source; a write by the API does not. */
  private static boolean hasSource(HoodieCommitMetadata commit) {
    String offset = commit.getMetadata(OFFSET);
    return offset != null && !offset.isEmpty();
  }

  private void writeEnd() throws IOException {
    line(() -> {
      lines.writeBooleanField("reached", reached);
      lines.writeBooleanField("restored", restored);
      lines.writeBooleanField("restoring", restoring);
    });
  }
}
