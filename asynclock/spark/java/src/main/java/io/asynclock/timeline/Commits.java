package io.asynclock.timeline;

import com.fasterxml.jackson.core.JsonFactory;
import com.fasterxml.jackson.core.JsonGenerator;
import io.asynclock.splice.Splice;
import java.io.ByteArrayInputStream;
import java.io.Closeable;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.io.Writer;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.Map;
import java.util.Set;
import java.util.regex.Pattern;
import java.util.stream.Collectors;
import org.apache.avro.generic.GenericRecord;
import org.apache.hudi.common.model.HoodieCommitMetadata;
import org.apache.hudi.common.model.HoodieReplaceCommitMetadata;
import org.apache.hudi.common.model.HoodieTableType;
import org.apache.hudi.common.model.HoodieWriteStat;
import org.apache.hudi.common.table.HoodieTableMetaClient;
import org.apache.hudi.common.table.timeline.ArchivedTimelineLoader;
import org.apache.hudi.common.table.timeline.HoodieArchivedTimeline.LoadMode;
import org.apache.hudi.common.table.timeline.HoodieInstant;
import org.apache.hudi.common.table.timeline.HoodieTimeline;

/**
 * Writes the commits of a table into a file, one JSON object a line: {@code requested}, {@code completed} and
 * {@code metadata}, which has asynclock's entries and {@code schema}. A schema is written once; later lines have its
 * number, counted from 0. A commit to a splice table that is no batch may also have {@code strays}: the paths of files
 * that it wrote outside of the buckets, one a line.
 *
 * <p>A timeline may have any number of commits, each with statistics of all files that it wrote. So no more than one is
 * kept in memory at a time, and none is handed over call by call.
 */
public final class Commits implements Closeable {

  private static final String PREFIX = "asynclock.";
  private static final String SCHEMA = "schema";
  private static final String NUM_BUCKETS = "hoodie.bucket.index.num.buckets";
  private static final Map<HoodieTableType, Pattern> BUCKETS = Map.of(
      HoodieTableType.MERGE_ON_READ, Pattern.compile("\\d{8}-0000-0000-0000-000000000000(-0)?"),
      HoodieTableType.COPY_ON_WRITE, Pattern.compile("\\d{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}(-0)?"));
  // A compaction completes as a commit too, without asynclock's entries.
  private static final Set<String> ACTIONS =
      Set.of(HoodieTimeline.DELTA_COMMIT_ACTION, HoodieTimeline.COMMIT_ACTION);

  private final HoodieTableMetaClient table;
  private final boolean splice;
  private final int buckets;
  private final JsonGenerator lines;
  private final Map<String, Integer> schemas = new HashMap<>();

  private Commits(HoodieTableMetaClient table, String file) throws IOException {
    this.table = table;
    splice = Splice.STRATEGY_ID.equals(table.getTableConfig().getRecordMergeStrategyId());
    // A table that has lost its guard lacks this.
    buckets = Integer.parseInt(
        table.getTableConfig().getProps().getProperty(NUM_BUCKETS, String.valueOf(Integer.MAX_VALUE)));
    Writer writer = Files.newBufferedWriter(Path.of(file), StandardCharsets.UTF_8);
    lines = new JsonFactory().createGenerator(writer);
    lines.setRootValueSeparator(null);
  }

  /** Writes the completed commits of {@code timeline}, a part of the active timeline, in its order. */
  public static void active(HoodieTableMetaClient table, HoodieTimeline timeline, String file) throws IOException {
    try (Commits commits = new Commits(table, file)) {
      for (HoodieInstant instant : timeline.getInstants()) {
        if (ACTIONS.contains(instant.getAction())) {
          commits.write(instant.requestedTime(), instant.getCompletionTime(), timeline.readCommitMetadata(instant));
        }
      }
    }
  }

  /** Writes the commits of the archived timeline, in no order. */
  public static void archived(HoodieTableMetaClient table, String file) throws IOException {
    ArchivedTimelineLoader loader = table.getTimelineLayout().getTimelineFactory().createArchivedTimelineLoader();
    try (Commits commits = new Commits(table, file)) {
      loader.loadInstants(table, null, LoadMode.METADATA, Commits::isCommit, commits::write);
    } catch (UncheckedIOException wrapped) {
      throw wrapped.getCause();
    }
  }

  private static boolean isCommit(GenericRecord entry) {
    return ACTIONS.contains(entry.get("action").toString());
  }

  private void write(String requested, GenericRecord entry) {
    HoodieInstant instant = archivedInstant(table, requested, entry);
    try {
      write(requested, instant.getCompletionTime(), metadata(table, instant, entry));
    } catch (IOException error) {
      throw new UncheckedIOException(error);
    }
  }

  /** Returns the instant of an entry of the archived timeline. */
  static HoodieInstant archivedInstant(HoodieTableMetaClient table, String requested, GenericRecord entry) {
    return table.getInstantGenerator().createNewInstant(
        HoodieInstant.State.COMPLETED, entry.get("action").toString(), requested,
        entry.get("completionTime").toString());
  }

  /** Returns the metadata of a commit in the archived timeline. */
  static HoodieCommitMetadata metadata(HoodieTableMetaClient table, HoodieInstant instant, GenericRecord entry)
      throws IOException {
    ByteBuffer buffer = (ByteBuffer) entry.get("metadata");
    byte[] bytes = new byte[buffer.remaining()];
    buffer.duplicate().get(bytes);
    Class<? extends HoodieCommitMetadata> kind =
        HoodieTimeline.REPLACE_COMMIT_ACTION.equals(instant.getAction())
            ? HoodieReplaceCommitMetadata.class
            : HoodieCommitMetadata.class;
    return table.getCommitMetadataSerDe().deserialize(
        instant, new ByteArrayInputStream(bytes), () -> bytes.length == 0, kind);
  }

  // Hudi reads archived files in parallel.
  private synchronized void write(String requested, String completed, HoodieCommitMetadata metadata)
      throws IOException {
    lines.writeStartObject();
    lines.writeStringField("requested", requested);
    lines.writeStringField("completed", completed);
    lines.writeObjectFieldStart("metadata");
    for (Map.Entry<String, String> entry : metadata.getExtraMetadata().entrySet()) {
      if (entry.getKey().startsWith(PREFIX)) {
        lines.writeStringField(entry.getKey(), entry.getValue());
      }
    }
    String schema = metadata.getMetadata(SCHEMA);
    if (schema != null) {
      Integer number = schemas.putIfAbsent(schema, schemas.size());
      if (number == null) {
        lines.writeStringField(SCHEMA, schema);
      } else {
        lines.writeNumberField(SCHEMA, number);
      }
    }
    if (splice && metadata.getMetadata(PREFIX + "stream") == null) {
      lines.writeStringField("strays", strays(metadata));
    }
    lines.writeEndObject();
    lines.writeEndObject();
    lines.writeRaw('\n');
  }

  private String strays(HoodieCommitMetadata metadata) {
    return metadata.getWriteStats().stream()
        .filter(stat -> stat.getPath() != null && !isBucket(stat.getFileId()))
        .map(HoodieWriteStat::getPath)
        .collect(Collectors.joining("\n"));
  }

  private boolean isBucket(String group) {
    return BUCKETS.get(table.getTableType()).matcher(group).matches()
        && Integer.parseInt(group.substring(0, 8)) < buckets;
  }

  @Override
  public void close() throws IOException {
    lines.close();
  }
}
