package io.asynclock.source;

import java.io.Serializable;
import java.math.BigDecimal;
import java.time.LocalDate;
import java.time.YearMonth;
import java.util.Locale;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;

/** Text read as a value of one type, exactly or not at all. */
enum Value {
  STRING(DataTypes.StringType) {
    @Override
    Object read(String text, int precision, int scale) {
      return text;
    }
  },
  BOOLEAN(DataTypes.BooleanType) {
    @Override
    Object read(String text, int precision, int scale) {
      return text.equalsIgnoreCase("true") ? Boolean.TRUE : text.equalsIgnoreCase("false") ? Boolean.FALSE : null;
    }
  },
  INT(DataTypes.IntegerType) {
    @Override
    Object read(String text, int precision, int scale) {
      Long value = whole(text);
      return value == null || value.longValue() != value.intValue() ? null : (Object) value.intValue();
    }
  },
  BIGINT(DataTypes.LongType) {
    @Override
    Object read(String text, int precision, int scale) {
      return whole(text);
    }
  },
  FLOAT(DataTypes.FloatType) {
    @Override
    Object read(String text, int precision, int scale) {
      if (!isNumber(text)) {
        Double name = notFinite(text);
        return name == null ? null : (Object) name.floatValue();
      }
      float value = Float.parseFloat(text);
      return Float.isInfinite(value) || value == 0 && !isZero(text) ? null : (Object) value;
    }
  },
  DOUBLE(DataTypes.DoubleType) {
    @Override
    Object read(String text, int precision, int scale) {
      if (!isNumber(text)) {
        return notFinite(text);
      }
      double value = Double.parseDouble(text);
      return Double.isInfinite(value) || value == 0 && !isZero(text) ? null : (Object) value;
    }
  },
  DECIMAL(null) {
    @Override
    Object read(String text, int precision, int scale) {
      if (!isNumber(text)) {
        return null;
      }
      if (isZero(text)) {
        return BigDecimal.ZERO.setScale(scale);
      }
      try {
        BigDecimal value = new BigDecimal(text).stripTrailingZeros();
        // Both sides are checked before the digits of an exponent are written out.
        boolean fits = value.scale() <= scale && (long) value.precision() - value.scale() <= precision - scale;
        return fits ? value.setScale(scale) : null;
      } catch (NumberFormatException | ArithmeticException exponent) {
        return null;
      }
    }
  },
  /** As days since 1970. */
  DATE(DataTypes.IntegerType) {
    @Override
    Object read(String text, int precision, int scale) {
      Matcher date = DAY.matcher(text);
      Long day = date.matches() ? day(date) : null;
      return day == null ? null : (Object) day.intValue();
    }
  },
  /** As microseconds since 1970 in UTC. */
  TIMESTAMP(DataTypes.LongType) {
    @Override
    Object read(String text, int precision, int scale) {
      Matcher time = TIME.matcher(text);
      Long day = time.matches() ? day(time) : null;
      if (day == null) {
        return null;
      }
      long seconds = day * SECONDS_A_DAY;
      long micros = 0;
      if (time.group("hour") != null) {
        seconds += 3600L * number(time, "hour") + 60 * number(time, "minute") + number(time, "second");
        if (time.group("fraction") != null) {
          long nanos = Long.parseLong((time.group("fraction") + "00000000").substring(0, 9));
          if (nanos % 1000 != 0) {
            return null;
          }
          micros = nanos / 1000;
        }
        int offset = 60 * number(time, "zoneHours") + number(time, "zoneMinutes");
        if (offset > LARGEST_OFFSET) {
          return null;
        }
        seconds -= 60L * ("-".equals(time.group("sign")) ? -offset : offset);
      }
      return seconds < FIRST_SECOND || seconds > LAST_SECOND ? null : (Object) (seconds * 1_000_000 + micros);
    }
  };

  private static final int LONGEST_NUMBER = 1000;
  private static final long SECONDS_A_DAY = 86_400;
  private static final long FIRST_SECOND = LocalDate.of(1, 1, 1).toEpochDay() * SECONDS_A_DAY;
  private static final long LAST_SECOND = LocalDate.of(10_000, 1, 1).toEpochDay() * SECONDS_A_DAY - 1;
  private static final int LARGEST_OFFSET = 18 * 60;
  private static final Pattern NAME = Pattern.compile("([+-]?)(?:(nan)|inf|infinity)", Pattern.CASE_INSENSITIVE);
  private static final String DAY_TEXT = "(?<year>[0-9]{4})-(?<month>[0-9]{2})-(?<day>[0-9]{2})";
  private static final Pattern DAY = Pattern.compile(DAY_TEXT);
  private static final Pattern TIME =
      Pattern.compile(
          DAY_TEXT
              + "(?:[T ](?<hour>[01][0-9]|2[0-3]):(?<minute>[0-5][0-9])"
              + "(?::(?<second>[0-5][0-9])(?:\\.(?<fraction>[0-9]{1,9}))?)?"
              + "(?:Z|(?<sign>[+-])(?<zoneHours>[0-9]{2})(?::?(?<zoneMinutes>[0-5][0-9]))?)?)?");

  final DataType stored;

  Value(DataType stored) {
    this.stored = stored;
  }

  /** The value of {@code text}; null if it is none of this type. */
  abstract Object read(String text, int precision, int scale);

  private static Long whole(String text) {
    int first = afterSign(text, 0);
    int end = afterDigits(text, first);
    boolean isNumber = end > first && end == text.length() && end <= LONGEST_NUMBER;
    try {
      return isNumber ? Long.valueOf(text) : null;
    } catch (NumberFormatException outOfRange) {
      return null;
    }
  }

  private static boolean isNumber(String text) {
    int first = afterSign(text, 0);
    int end = afterDigits(text, first);
    int digits = end - first;
    if (isAt(text, end, '.', '.')) {
      int fraction = end + 1;
      end = afterDigits(text, fraction);
      digits += end - fraction;
    }
    boolean isWhole = true;
    if (isAt(text, end, 'e', 'E')) {
      int exponent = afterSign(text, end + 1);
      end = afterDigits(text, exponent);
      isWhole = end > exponent;
    }
    return digits > 0 && isWhole && end == text.length() && end <= LONGEST_NUMBER;
  }

  private static int afterSign(String text, int at) {
    return isAt(text, at, '+', '-') ? at + 1 : at;
  }

  private static int afterDigits(String text, int from) {
    int end = from;
    while (end < text.length() && text.charAt(end) >= '0' && text.charAt(end) <= '9') {
      end++;
    }
    return end;
  }

  private static boolean isAt(String text, int at, char one, char other) {
    return at < text.length() && (text.charAt(at) == one || text.charAt(at) == other);
  }

  /** Whether all digits of a number before its exponent are 0. */
  private static boolean isZero(String number) {
    int index = afterSign(number, 0);
    while (isAt(number, index, '0', '.')) {
      index++;
    }
    return index == number.length() || isAt(number, index, 'e', 'E');
  }

  private static Double notFinite(String text) {
    Matcher name = NAME.matcher(text);
    if (!name.matches()) {
      return null;
    }
    if (name.group(2) != null) {
      return Double.NaN;
    }
    return name.group(1).equals("-") ? Double.NEGATIVE_INFINITY : Double.POSITIVE_INFINITY;
  }

  /** Days since 1970; null if the calendar has no such day. */
  private static Long day(Matcher date) {
    int year = number(date, "year");
    int month = number(date, "month");
    int day = number(date, "day");
    boolean exists = year >= 1 && month >= 1 && month <= 12 && day >= 1 && YearMonth.of(year, month).isValidDay(day);
    return exists ? (Long) LocalDate.of(year, month, day).toEpochDay() : null;
  }

  private static int number(Matcher matcher, String group) {
    String digits = matcher.group(group);
    return digits == null ? 0 : Integer.parseInt(digits);
  }

  /** A column's type as the spec writes it. */
  static final class Type implements Serializable {

    private static final Pattern DECIMAL_TYPE = Pattern.compile("decimal\\((\\d+),(\\d+)\\)");

    final String name;
    final Value value;
    private final int precision;
    private final int scale;

    Type(String name) {
      Matcher decimal = DECIMAL_TYPE.matcher(name);
      boolean isDecimal = decimal.matches();
      this.name = name;
      this.value = isDecimal ? DECIMAL : Value.valueOf(name.toUpperCase(Locale.ROOT));
      this.precision = isDecimal ? Integer.parseInt(decimal.group(1)) : 0;
      this.scale = isDecimal ? Integer.parseInt(decimal.group(2)) : 0;
    }

    Object read(String text) {
      return value.read(text, precision, scale);
    }

    DataType stored() {
      return value == DECIMAL ? DataTypes.createDecimalType(precision, scale) : value.stored;
    }
  }
}
