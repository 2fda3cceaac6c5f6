package io.asynclock.hudi;

import java.lang.reflect.Field;
import java.util.Arrays;
import java.util.Map;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hdfs.HdfsConfiguration;
import org.apache.hadoop.mapreduce.util.ConfigUtil;

/**
 * Makes Hadoop's settings cheap to send; called from Python. Hudi puts them into the closures of a dozen jobs a
 * batch.
 */
public final class HadoopSettings {

  private static final String SOURCES = "updatingResource";
  private static final String[] OF_YARN = {"yarn-default.xml"};

  private HadoopSettings() {
  }

  /**
   * Forgets the file that each setting comes from, and YARN's own defaults, here and so in all copies.
   *
   * <p>Hadoop writes the names of these files with the settings, each compressed by itself, which takes twelve times
   * as long as the settings. Nothing but {@link Configuration#getPropertySources} reads them. A Hadoop without the field
   * keeps them.
   *
   * <p>Almost half of Hadoop's settings are defaults of YARN, which nothing reads unless Spark runs there.
   *
   * @param isOnYarn whether it does
   */
  public static void makeSmall(Configuration settings, boolean isOnYarn) {
    // Each of these adds files of its own when it is first used, and then all are read again.
    ConfigUtil.loadResources();
    HdfsConfiguration.init();
    for (Map.Entry<String, String> setting : settings) {
      if (!isOnYarn && Arrays.equals(settings.getPropertySources(setting.getKey()), OF_YARN)) {
        settings.unset(setting.getKey());
      }
    }
    try {
      Field sources = Configuration.class.getDeclaredField(SOURCES);
      sources.setAccessible(true);
      sources.set(settings, null);
    } catch (ReflectiveOperationException | RuntimeException unknown) {
      return; // only slower
    }
  }
}
