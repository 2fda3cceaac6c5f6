package io.asynclock.hudi;

import java.util.List;
import java.util.stream.Collectors;
import org.apache.hudi.avro.model.HoodieClusteringPlan;
import org.apache.hudi.client.clustering.plan.strategy.SparkSizeBasedClusteringPlanStrategy;
import org.apache.hudi.common.engine.HoodieEngineContext;
import org.apache.hudi.common.util.Option;
import org.apache.hudi.config.HoodieWriteConfig;
import org.apache.hudi.table.HoodieTable;
import org.apache.hudi.table.action.cluster.ClusteringPlanActionExecutor;
import org.apache.hudi.util.Lazy;

/**
 * Hudi's default plan of a clustering, but with each partition once.
 *
 * <p>Hudi 1.2 lists a partition once for each file whose name begins with {@code .hoodie_partition_metadata}.
 * On file systems with a rename, two such files exist while a second task marks the same new partition. A kill or a
 * full disk at that moment makes this permanent. The plan then has each file of the partition twice, and the
 * clustering doubles its rows.
 */
@SuppressWarnings({"rawtypes", "unchecked"}) // as Hudi declares what is overridden
public final class DistinctClusteringPlanStrategy<T> extends SparkSizeBasedClusteringPlanStrategy<T> {

  /** As Hudi's. */
  public DistinctClusteringPlanStrategy(
      HoodieTable table, HoodieEngineContext context, HoodieWriteConfig config) {
    super(table, context, config);
  }

  @Override
  public Option<HoodieClusteringPlan> generateClusteringPlan(
      ClusteringPlanActionExecutor executor, Lazy<List<String>> partitions) {
    return super.generateClusteringPlan(executor, Lazy.lazily(() -> distinct(partitions.get())));
  }

  private static List<String> distinct(List<String> partitions) {
    return partitions.stream().distinct().collect(Collectors.toList());
  }
}
