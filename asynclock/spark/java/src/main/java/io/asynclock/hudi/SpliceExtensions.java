package io.asynclock.hudi;

import io.asynclock.splice.SpliceStatements;
import io.asynclock.splice.WritableViews;
import org.apache.spark.sql.SparkSessionExtensions;
import scala.runtime.AbstractFunction1;
import scala.runtime.BoxedUnit;

/**
 * Makes SQL statements on splice tables append and merge like a stream, and INSERT take the names of the view.
 *
 * <p>Named in {@code spark.sql.extensions} before Hudi's own extension, which would otherwise take the statements
 * first.
 */
public final class SpliceExtensions extends AbstractFunction1<SparkSessionExtensions, BoxedUnit> {

  @Override
  public BoxedUnit apply(SparkSessionExtensions extensions) {
    extensions.injectParser(WritableViews::new);
    extensions.injectPostHocResolutionRule(SpliceStatements::new);
    return BoxedUnit.UNIT;
  }
}
