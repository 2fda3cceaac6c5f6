package io.asynclock.session;

import java.util.Map;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.logging.log4j.LogManager;
import org.apache.logging.log4j.core.Appender;
import org.apache.logging.log4j.core.LoggerContext;
import org.apache.logging.log4j.core.appender.ConsoleAppender;
import org.apache.logging.log4j.core.config.Configuration;
import org.apache.logging.log4j.core.config.LoggerConfig;
import org.apache.logging.log4j.core.layout.PatternLayout;

/** Shows the times of Spark's log in the zone of the people who read it, since this JVM is in UTC. */
public final class LogTimes {

  /** A date of a pattern without a zone of its own: {@code %d}, perhaps with a format. */
  private static final Pattern DATE = Pattern.compile("%(?:d|date)(\\{[^}]*\\})?(?![{a-zA-Z])");
  private static final String FORMAT = "{DEFAULT}";

  private LogTimes() {}

  /** Gives a zone to each date that a console appender writes without one. */
  public static void showIn(String zone) {
    LoggerContext context = (LoggerContext) LogManager.getContext(false);
    Configuration configuration = context.getConfiguration();
    for (Map.Entry<String, Appender> named : configuration.getAppenders().entrySet()) {
      if (named.getValue() instanceof ConsoleAppender && named.getValue().getLayout() instanceof PatternLayout) {
        ConsoleAppender before = (ConsoleAppender) named.getValue();
        String pattern = ((PatternLayout) before.getLayout()).getConversionPattern();
        Matcher dates = DATE.matcher(pattern);
        String zoned = dates.replaceAll(date -> Matcher.quoteReplacement(
            "%d" + (date.group(1) == null ? FORMAT : date.group(1)) + "{" + zone + "}"));
        if (!zoned.equals(pattern)) {
          replace(configuration, before, zoned);
        }
      }
    }
    context.updateLoggers();
  }

  private static void replace(Configuration configuration, ConsoleAppender before, String pattern) {
    ConsoleAppender after = ConsoleAppender.newBuilder()
        .setName(before.getName())
        .setTarget(before.getTarget())
        .setLayout(PatternLayout.newBuilder().withPattern(pattern).withConfiguration(configuration).build())
        .setFilter(before.getFilter())
        .build();
    after.start();
    for (LoggerConfig logger : configuration.getLoggers().values()) {
      if (logger.getAppenders().containsKey(before.getName())) {
        logger.removeAppender(before.getName());
        logger.addAppender(after, null, null);
      }
    }
  }
}
