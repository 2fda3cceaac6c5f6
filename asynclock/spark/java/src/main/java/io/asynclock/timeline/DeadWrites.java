package io.asynclock.timeline;

import java.io.IOException;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import org.apache.hudi.client.SparkRDDWriteClient;
import org.apache.hudi.client.transaction.TransactionManager;
import org.apache.hudi.common.heartbeat.HoodieHeartbeatUtils;
import org.apache.hudi.common.table.HoodieTableMetaClient;
import org.apache.hudi.common.table.timeline.HoodieActiveTimeline;
import org.apache.hudi.common.table.timeline.HoodieInstant;
import org.apache.hudi.common.table.timeline.HoodieTimeline;
import org.apache.hudi.common.util.Option;
import org.apache.hudi.config.HoodieWriteConfig;
import org.apache.hudi.table.HoodieSparkTable;
import org.apache.hudi.table.action.rollback.RollbackUtils;

/**
 * Takes the writes of dead writers off the timeline before a rollback removes their files.
 *
 * <p>Hudi asks whether a write counts as dead before it waits for the commit lock, and not again. A driver that was
 * paused in between would commit files that a rollback is removing. Without its instant a write cannot be committed.
 */
public final class DeadWrites {

  private static final Set<String> WRITES = Set.of(HoodieTimeline.COMMIT_ACTION, HoodieTimeline.DELTA_COMMIT_ACTION);

  private DeadWrites() {}

  /**
   * Under the commit lock, plans the rollback of each write that counts as dead, and removes its instant. Hudi carries
   * out the plans when it cleans. An interruption leaves what an interrupted rollback leaves.
   *
   * @param silenceMs after so long without a heartbeat a write counts as dead
   * @return the requested times of all writes whose rollback is planned, by this call or an earlier one
   */
  public static List<String> withdraw(SparkRDDWriteClient<?> client, long silenceMs) throws IOException {
    TransactionManager commits = client.getTransactionManager();
    commits.beginStateChange(Option.empty(), Option.empty());
    try {
      return withdrawLocked(client, silenceMs);
    } finally {
      commits.endStateChange(Option.empty());
    }
  }

  private static List<String> withdrawLocked(SparkRDDWriteClient<?> client, long silenceMs) throws IOException {
    HoodieWriteConfig config = client.getConfig();
    HoodieSparkTable<?> table = HoodieSparkTable.create(config, client.getEngineContext());
    HoodieTableMetaClient meta = table.getMetaClient();
    HoodieActiveTimeline timeline = meta.getActiveTimeline();
    Set<String> planned = planned(meta);
    for (HoodieInstant write : timeline.getTimelineOfActions(WRITES).filterInflightsAndRequested().getInstants()) {
      String instant = write.requestedTime();
      if (!planned.contains(instant)) {
        if (!HoodieHeartbeatUtils.isHeartbeatExpired(instant, silenceMs, meta.getStorage(), config.getBasePath())) {
          continue;
        }
        table.scheduleRollback(client.getEngineContext(), client.createNewInstantTime(false), write, false,
            config.shouldRollbackUsingMarkers(), false);
        planned.add(instant);
      }
      timeline.deletePending(write);
      if (write.isInflight()) {
        timeline.deletePending(meta.getInstantGenerator().getRequestedInstant(write));
      }
    }
    return new ArrayList<>(planned);
  }

  /** Returns the requested times of the writes whose rollback is planned and not yet carried out. */
  public static List<String> planned(SparkRDDWriteClient<?> client) {
    HoodieSparkTable<?> table = HoodieSparkTable.create(client.getConfig(), client.getEngineContext());
    return new ArrayList<>(planned(table.getMetaClient()));
  }

  private static Set<String> planned(HoodieTableMetaClient meta) {
    Set<String> planned = new HashSet<>();
    for (HoodieInstant rollback : meta.getActiveTimeline().filterPendingRollbackTimeline().getInstants()) {
      try {
        planned.add(RollbackUtils.getRollbackPlan(meta, rollback).getInstantToRollback().getCommitTime());
      } catch (IOException | RuntimeException torn) {
        continue; // its planner died while it wrote the plan, which Hudi leaves aside as well
      }
    }
    return planned;
  }
}
