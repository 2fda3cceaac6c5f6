package io.asynclock.hudi;

import java.util.List;
import java.util.stream.Collectors;
import org.apache.hudi.common.util.collection.Pair;
import org.apache.hudi.config.HoodieWriteConfig;
import org.apache.hudi.table.action.compact.strategy.LogFileSizeBasedCompactionStrategy;

/**
 * Hudi's default plan of a compaction, with each partition once; {@link DistinctClusteringPlanStrategy} says
 * why Hudi may list one twice.
 */
public final class DistinctCompactionStrategy extends LogFileSizeBasedCompactionStrategy {

  private static final long serialVersionUID = 1L;

  @Override
  public Pair<List<String>, List<String>> filterPartitionPaths(
      HoodieWriteConfig config, List<String> partitions) {
    return super.filterPartitionPaths(
        config, partitions.stream().distinct().collect(Collectors.toList()));
  }
}
