package io.asynclock.timeline;

import io.asynclock.splice.Splice;
import java.io.IOException;
import java.util.HashMap;
import java.util.Map;
import java.util.Set;
import java.util.regex.Pattern;
import java.util.stream.Collectors;
import org.apache.hudi.common.model.HoodieCommitMetadata;
import org.apache.hudi.common.model.HoodieTableType;
import org.apache.hudi.common.model.HoodieWriteStat;
import org.apache.hudi.common.table.HoodieTableMetaClient;
import org.apache.hudi.common.table.timeline.HoodieInstant;
import org.apache.hudi.common.table.timeline.HoodieTimeline;

/**
 * Writes the commits of a table: {@code requested}, {@code completed} and {@code metadata}, which has asynclock's
 * entries and {@code schema}. A schema is written once; later lines have its number, counted from 0. A commit to a
 * splice table that is no batch may also have {@code strays}: the paths of files that it wrote outside of the buckets,
 * one a line.
 */
public final class Commits extends TimelineDump {

  private static final String SCHEMA = "schema";
  private static final String NUM_BUCKETS = "hoodie.bucket.index.num.buckets";
  private static final Map<HoodieTableType, Pattern> BUCKETS = Map.of(
      HoodieTableType.MERGE_ON_READ, Pattern.compile("\\d{8}-0000-0000-0000-000000000000(-0)?"),
      HoodieTableType.COPY_ON_WRITE, Pattern.compile("\\d{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}(-0)?"));
  // A compaction completes as a commit too, without asynclock's entries.
  private static final Set<String> ACTIONS =
      Set.of(HoodieTimeline.DELTA_COMMIT_ACTION, HoodieTimeline.COMMIT_ACTION);

  private final boolean splice;
  private final int buckets;
  private final Map<String, Integer> schemas = new HashMap<>();

  private Commits(HoodieTableMetaClient table, String file) throws IOException {
    super(table, file);
    splice = Splice.STRATEGY_ID.equals(table.getTableConfig().getRecordMergeStrategyId());
    // A table that has lost its guard lacks this.
    buckets = Integer.parseInt(
        table.getTableConfig().getProps().getProperty(NUM_BUCKETS, String.valueOf(Integer.MAX_VALUE)));
  }

  /** Writes the completed commits of {@code timeline}, a part of the active timeline, in its order. */
  public static void active(HoodieTableMetaClient table, HoodieTimeline timeline, String file) throws IOException {
    try (Commits commits = new Commits(table, file)) {
      commits.writeActive(timeline);
    }
  }

  /** Writes the commits of the archived timeline, in no order. */
  public static void archived(HoodieTableMetaClient table, String file) throws IOException {
    try (Commits commits = new Commits(table, file)) {
      commits.writeArchived();
    }
  }

  @Override
  boolean isWanted(HoodieInstant instant) {
    return ACTIONS.contains(instant.getAction());
  }

  @Override
  void write(HoodieInstant instant, HoodieCommitMetadata commit) throws IOException {
    line(() -> {
      lines.writeStringField("requested", instant.requestedTime());
      lines.writeStringField("completed", instant.getCompletionTime());
      lines.writeObjectFieldStart("metadata");
      writeEntries(commit);
      writeSchema(commit.getMetadata(SCHEMA));
      if (splice && commit.getMetadata(PREFIX + "stream") == null) {
        lines.writeStringField("strays", strays(commit));
      }
      lines.writeEndObject();
    });
  }

  private void writeSchema(String schema) throws IOException {
    if (schema == null) {
      return;
    }
    Integer number = schemas.putIfAbsent(schema, schemas.size());
    if (number == null) {
      lines.writeStringField(SCHEMA, schema);
    } else {
      lines.writeNumberField(SCHEMA, number);
    }
  }

  private String strays(HoodieCommitMetadata commit) {
    return commit.getWriteStats().stream()
        .filter(stat -> stat.getPath() != null && !isBucket(stat.getFileId()))
        .map(HoodieWriteStat::getPath)
        .collect(Collectors.joining("\n"));
  }

  private boolean isBucket(String group) {
    return BUCKETS.get(table.getTableType()).matcher(group).matches()
        && Integer.parseInt(group.substring(0, 8)) < buckets;
  }
}
