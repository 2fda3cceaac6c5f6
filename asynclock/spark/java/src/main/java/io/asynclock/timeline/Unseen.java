package io.asynclock.timeline;

import java.io.IOException;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import org.apache.hudi.avro.model.HoodieCompactionOperation;
import org.apache.hudi.common.model.HoodieCommitMetadata;
import org.apache.hudi.common.model.HoodieDeltaWriteStat;
import org.apache.hudi.common.model.HoodieWriteStat;
import org.apache.hudi.common.model.WriteOperationType;
import org.apache.hudi.common.table.HoodieTableMetaClient;
import org.apache.hudi.common.table.timeline.HoodieInstant;
import org.apache.hudi.common.table.timeline.HoodieTimeline;
import org.apache.hudi.common.util.CompactionUtils;

/**
 * Finds commits that no read shows, because their instants are earlier than that of a compaction without them.
 *
 * <p>Hudi reads a log file with the newest base file whose compaction was requested before the log was completed. So
 * if a log belongs before a compaction whose plan does not name it, it is on a base file that has been replaced.
 */
public final class Unseen extends TimelineDump {

  private final Map<String, TreeMap<String, Set<String>>> compacted;

  private Unseen(HoodieTableMetaClient table, HoodieTimeline done, String file) throws IOException {
    super(table, file);
    compacted = compacted(table, done);
  }

  /**
   * Writes such commits of the active timeline: {@code requested}, {@code completed}, {@code rows} that are not seen,
   * and {@code compaction}, the instant of that compaction.
   */
  public static void dump(HoodieTableMetaClient table, String file) throws IOException {
    HoodieTimeline done = table.reloadActiveTimeline().filterCompletedInstants();
    try (Unseen unseen = new Unseen(table, done, file)) {
      unseen.writeActive(done);
    }
  }

  @Override
  boolean isWanted(HoodieInstant instant) {
    return HoodieTimeline.DELTA_COMMIT_ACTION.equals(instant.getAction()) && !compacted.isEmpty();
  }

  @Override
  void write(HoodieInstant instant, HoodieCommitMetadata commit) throws IOException {
    long rows = 0;
    String behind = null;
    for (HoodieWriteStat stat : commit.getWriteStats()) {
      Map.Entry<String, Set<String>> next = next(stat, instant.getCompletionTime());
      if (next != null && !next.getValue().containsAll(logs(stat))) {
        rows += Instants.rows(stat);
        behind = next.getKey();
      }
    }
    if (behind != null) {
      String compaction = behind;
      long unseen = rows;
      line(() -> {
        lines.writeStringField("requested", instant.requestedTime());
        lines.writeStringField("completed", instant.getCompletionTime());
        lines.writeNumberField("rows", unseen);
        lines.writeStringField("compaction", compaction);
      });
    }
  }

  /** The logs that each compaction of a file group has merged, by its instant. */
  private static Map<String, TreeMap<String, Set<String>>> compacted(
      HoodieTableMetaClient table, HoodieTimeline done) throws IOException {
    Map<String, TreeMap<String, Set<String>>> found = new HashMap<>();
    for (HoodieInstant instant : done.getInstants()) {
      if (!instant.getAction().equals(HoodieTimeline.COMMIT_ACTION)) {
        continue;
      }
      HoodieCommitMetadata metadata = done.readCommitMetadata(instant);
      if (metadata.getOperationType() != WriteOperationType.COMPACT) {
        continue;
      }
      List<HoodieCompactionOperation> operations =
          CompactionUtils.getCompactionPlan(table, instant.requestedTime()).getOperations();
      for (HoodieCompactionOperation operation : operations == null ? List.<HoodieCompactionOperation>of() : operations) {
        Set<String> logs = new HashSet<>();
        operation.getDeltaFilePaths().forEach(path -> logs.add(name(path)));
        found.computeIfAbsent(group(operation.getPartitionPath(), operation.getFileId()), key -> new TreeMap<>())
            .put(instant.requestedTime(), logs);
      }
    }
    return found;
  }

  private Map.Entry<String, Set<String>> next(HoodieWriteStat stat, String completed) {
    TreeMap<String, Set<String>> ofGroup = compacted.get(group(stat.getPartitionPath(), stat.getFileId()));
    return ofGroup == null ? null : ofGroup.higherEntry(completed);
  }

  private static Set<String> logs(HoodieWriteStat stat) {
    Set<String> logs = new HashSet<>();
    if (stat instanceof HoodieDeltaWriteStat) {
      ((HoodieDeltaWriteStat) stat).getLogFiles().forEach(path -> logs.add(name(path)));
    }
    if (stat.getPath() != null && name(stat.getPath()).contains(".log.")) {
      logs.add(name(stat.getPath()));
    }
    return logs;
  }

  private static String group(String partition, String file) {
    return partition + "/" + file;
  }

  private static String name(String path) {
    return path.substring(path.lastIndexOf('/') + 1);
  }
}
