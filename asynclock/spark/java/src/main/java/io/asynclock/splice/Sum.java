package io.asynclock.splice;

import java.math.BigDecimal;
import org.apache.hudi.exception.HoodieException;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.sql.types.DecimalType;
import org.apache.spark.sql.types.IntegerType;
import org.apache.spark.sql.types.LongType;

/**
 * Adds the partial sums of a column, each exactly once. The types are exact, so the order of the additions does not
 * matter. A sum that does not fit into the type is an error: a merge never wraps, rounds or cuts.
 */
final class Sum {

  private final String column;
  private final DataType type;

  /** The sum of a stored column of the merged row. */
  Sum(String column, DataType type) {
    this.column = column;
    this.type = type;
    if (!(type instanceof IntegerType || type instanceof LongType || type instanceof DecimalType)) {
      throw new HoodieException(String.format(
          "Cannot merge: column %s is a sum, and additions of %s are not exact. Nothing was written. Make it int,"
              + " bigint or decimal.", column, type.simpleString()));
    }
  }

  /** The sum of two values, neither of which is null. */
  Object of(Object first, Object second) {
    try {
      if (type instanceof DecimalType) {
        return decimal(exact(first).add(exact(second)), (DecimalType) type);
      }
      long sum = Math.addExact(((Number) first).longValue(), ((Number) second).longValue());
      // No conditional expression: it would turn the int into a long.
      if (type instanceof IntegerType) {
        return Math.toIntExact(sum);
      }
      return sum;
    } catch (ArithmeticException e) {
      throw new HoodieException(String.format(
          "Cannot merge: the sum of column %s does not fit into %s. Nothing was written. Declare a wider type in the"
              + " spec and write with it: bigint, or a decimal of more digits.", column, type.simpleString()), e);
    }
  }

  private static BigDecimal exact(Object value) {
    return value instanceof Decimal ? ((Decimal) value).toJavaBigDecimal() : new BigDecimal(value.toString());
  }

  private static Decimal decimal(BigDecimal sum, DecimalType type) {
    BigDecimal scaled = sum.setScale(type.scale());
    if (scaled.precision() > type.precision()) {
      throw new ArithmeticException("overflow");
    }
    return Decimal.apply(scaled, type.precision(), type.scale());
  }
}
