package io.asynclock.hudi;

import java.lang.reflect.Field;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hdfs.HdfsConfiguration;
import org.apache.hadoop.mapreduce.util.ConfigUtil;

/**
 * Makes Hadoop's settings cheap to send; called from Python. Hudi puts them into the closures of a dozen jobs a
 * batch.
 */
public final class HadoopSettings {

  private static final String SOURCES = "updatingResource";

  private HadoopSettings() {
  }

  /**
   * Forgets the file that each setting comes from, here and so in all copies.
   *
   * <p>Hadoop writes these names with the settings, each compressed by itself, which takes twelve times as long as the
   * settings. Nothing but {@link Configuration#getPropertySources} reads them. A Hadoop without the field keeps them.
   */
  public static void forgetSources(Configuration settings) {
    // Each of these adds files of its own when it is first used, and then all are read again.
    ConfigUtil.loadResources();
    HdfsConfiguration.init();
    settings.size();
    try {
      Field sources = Configuration.class.getDeclaredField(SOURCES);
      sources.setAccessible(true);
      sources.set(settings, null);
    } catch (ReflectiveOperationException | RuntimeException unknown) {
      return; // only slower
    }
  }
}
