package io.asynclock.source;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.regex.Pattern;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.execution.datasources.HadoopFsRelation;
import org.apache.spark.sql.execution.datasources.LogicalRelation;
import org.apache.spark.sql.execution.datasources.PartitioningAwareFileIndex;
import scala.collection.JavaConverters;

/**
 * The log in which Spark notes the files of a streaming source; called from Python.
 *
 * <p>Read here and not by a query: Spark itself keeps all of these files in memory while the stream runs, and a
 * query would take longer than a small batch.
 */
public final class SourceLog {

  private static final Pattern ENTRY = Pattern.compile("\\d+(\\.compact)?");
  private static final ObjectMapper JSON = new ObjectMapper();

  private SourceLog() {
  }

  /**
   * The files of a log, a line each: the number of its first entry, its modification time then in ms, its URL.
   *
   * @param folder of the log
   */
  public static String arrivals(String folder, Configuration conf) throws IOException {
    StringBuilder lines = new StringBuilder();
    noted(folder, conf).forEach((url, noted) -> lines.append(noted[0] + " " + noted[1] + " " + url + "\n"));
    return lines.toString();
  }

  /**
   * The URLs of the files whose modification time is another one now than in the log.
   *
   * @param now a frame of the files that are there
   * @param folder of the log
   */
  public static List<String> changed(Dataset<Row> now, String folder) throws IOException {
    Map<String, long[]> before = noted(folder, now.sparkSession().sparkContext().hadoopConfiguration());
    List<String> changed = new ArrayList<>();
    for (FileStatus file : files(now)) {
      String url = plain(file.getPath().toUri().toString());
      long[] noted = before.get(url);
      if (noted != null && noted[1] != file.getModificationTime()) {
        changed.add(url);
      }
    }
    return changed;
  }

  /** The number of the first entry of each file, and its modification time then. */
  private static Map<String, long[]> noted(String folder, Configuration conf) throws IOException {
    Path path = new Path(folder);
    FileSystem system = path.getFileSystem(conf);
    Map<String, long[]> files = new HashMap<>();
    for (FileStatus entry : entries(system, path)) {
      try (BufferedReader lines =
          new BufferedReader(new InputStreamReader(system.open(entry.getPath()), StandardCharsets.UTF_8))) {
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
          JsonNode file = parsed(line);
          if (file.hasNonNull("path")) { // the first line is a version
            long[] noted = {file.get("batchId").asLong(), file.get("timestamp").asLong()};
            files.merge(plain(file.get("path").asText()), noted, SourceLog::first);
          }
        }
      } catch (FileNotFoundException compacted) {
        // A later entry repeats it.
      }
    }
    return files;
  }

  /** Of two notes of a file the first: a compact entry repeats those before it. */
  private static long[] first(long[] one, long[] other) {
    return new long[] {Math.min(one[0], other[0]), Math.min(one[1], other[1])};
  }

  private static JsonNode parsed(String line) {
    try {
      return JSON.readTree(line);
    } catch (JsonProcessingException cut) {
      return JSON.missingNode();
    }
  }

  private static List<FileStatus> entries(FileSystem system, Path folder) throws IOException {
    try {
      return List.of(system.listStatus(folder, path -> ENTRY.matcher(path.getName()).matches()));
    } catch (FileNotFoundException none) {
      return List.of();
    }
  }

  private static List<FileStatus> files(Dataset<Row> now) {
    List<FileStatus> files = new ArrayList<>();
    for (LogicalPlan leaf : JavaConverters.seqAsJavaList(now.queryExecution().analyzed().collectLeaves())) {
      HadoopFsRelation relation = (HadoopFsRelation) ((LogicalRelation) leaf).relation();
      files.addAll(JavaConverters.seqAsJavaList(((PartitioningAwareFileIndex) relation.location()).allFiles()));
    }
    return files;
  }

  /** A URL in one spelling: Spark writes a local file as {@code file:/x} or as {@code file:///x}. */
  private static String plain(String url) {
    return url.startsWith("file:/") && !url.startsWith("file://") ? "file:///" + url.substring("file:/".length()) : url;
  }
}
