package io.asynclock.timeline;

import java.io.FileNotFoundException;
import java.io.IOException;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.hudi.common.model.HoodieWriteStat;
import org.apache.hudi.common.table.HoodieTableMetaClient;
import org.apache.hudi.common.table.timeline.HoodieInstant;
import org.apache.hudi.common.table.timeline.HoodieTimeline;
import org.apache.hudi.storage.StoragePath;
import org.apache.hudi.storage.StoragePathInfo;

/**
 * Files of a table that are shorter than their commits say; called from Python.
 *
 * <p>Hudi reads the remaining part of a log and skips the missing part without an error. A compaction makes the loss
 * permanent.
 */
public final class CutFiles {

  private CutFiles() {
  }

  /** Each file that is cut, below the table, with its size and the one that it had; by the active timeline. */
  public static List<String> of(HoodieTableMetaClient table) throws IOException {
    Map<String, Long> written = new TreeMap<>();
    HoodieTimeline commits = table.getActiveTimeline().getCommitsTimeline().filterCompletedInstants();
    for (HoodieInstant instant : commits.getInstants()) {
      for (HoodieWriteStat stat : commits.readCommitMetadata(instant).getWriteStats()) {
        if (stat.getPath() != null) {
          written.merge(stat.getPath(), stat.getFileSizeInBytes(), Math::max);
        }
      }
    }
    Map<StoragePath, Map<String, Long>> folders = new HashMap<>();
    List<String> cut = new ArrayList<>();
    for (Map.Entry<String, Long> file : written.entrySet()) {
      StoragePath path = new StoragePath(table.getBasePath(), file.getKey());
      if (!folders.containsKey(path.getParent())) {
        folders.put(path.getParent(), sizes(table, path.getParent()));
      }
      Long size = folders.get(path.getParent()).get(path.getName()); // null once it is cleaned
      if (size != null && size < file.getValue()) {
        cut.add(file.getKey() + " (" + size + " of " + file.getValue() + " bytes)");
      }
    }
    return cut;
  }

  private static Map<String, Long> sizes(HoodieTableMetaClient table, StoragePath folder) throws IOException {
    Map<String, Long> sizes = new HashMap<>();
    try {
      for (StoragePathInfo file : table.getStorage().listDirectEntries(folder)) {
        sizes.put(file.getPath().getName(), file.getLength());
      }
    } catch (FileNotFoundException removed) { // the partition was
      return sizes;
    }
    return sizes;
  }
}
