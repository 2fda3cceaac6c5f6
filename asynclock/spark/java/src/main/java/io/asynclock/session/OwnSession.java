package io.asynclock.session;

import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.RuntimeConfig;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.internal.SQLConf;
import scala.collection.JavaConverters;

/** A session for plans of the pipeline, in which a user's settings change no value and no type; called from Python. */
public final class OwnSession {

  private static final String MARK = "asynclock.own.session";
  /** Settings of Spark SQL about the place and the parallelism of work. All others may change its result. */
  private static final List<String> KEPT =
      List.of(
          "spark.sql.adaptive.",
          "spark.sql.autoBroadcastJoinThreshold",
          "spark.sql.broadcastTimeout",
          "spark.sql.catalog.",
          "spark.sql.catalogImplementation",
          "spark.sql.extensions",
          "spark.sql.files.max",
          "spark.sql.files.min",
          "spark.sql.files.open",
          "spark.sql.hive.metastore.",
          "spark.sql.redaction.",
          "spark.sql.shuffle.partitions",
          "spark.sql.sources.parallelPartitionDiscovery.",
          "spark.sql.streaming.",
          "spark.sql.ui.",
          "spark.sql.warehouse.dir");

  private OwnSession() {
  }

  /**
   * A session of the same Spark, with the user's settings but those of Spark SQL that are not {@link #KEPT}.
   *
   * @param settings the settings of Spark SQL that it has instead
   */
  public static SparkSession of(SparkSession session, Map<String, String> settings) {
    if (session.conf().contains(MARK)) {
      return session;
    }
    SparkSession own = session.newSession();
    RuntimeConfig conf = own.conf();
    Map<String, String> begun = all(own);
    // Of Spark's own settings no session can be given those of its core, although a builder notes them there.
    all(session).forEach(
        (name, value) -> {
          boolean isOfCore = name.startsWith("spark.") && !name.startsWith("spark.sql.");
          if (!value.equals(begun.get(name)) && isKept(name) && !isOfCore && !SQLConf.isStaticConfigKey(name)) {
            conf.set(name, value);
          }
        });
    begun.keySet().stream().filter(name -> !isKept(name) && conf.isModifiable(name)).forEach(conf::unset);
    settings.forEach(conf::set);
    conf.set(MARK, "true");
    return own;
  }

  private static boolean isKept(String name) {
    return !name.startsWith("spark.sql.") || KEPT.stream().anyMatch(name::startsWith);
  }

  private static Map<String, String> all(SparkSession session) {
    return new HashMap<>(JavaConverters.mapAsJavaMap(session.conf().getAll()));
  }
}
