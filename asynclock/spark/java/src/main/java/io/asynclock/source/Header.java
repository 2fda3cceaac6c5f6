package io.asynclock.source;

import java.util.Collections;
import java.util.List;
import java.util.Set;
import java.util.stream.Collectors;

/** The names of a file's columns next to those that the spec wants. */
final class Header {

  private static final int SHOWN = 50;

  private Header() {
  }

  /**
   * Gives up a file that lacks a wanted column, or has it twice.
   *
   * @param exact the wanted ones that other names may differ from in case alone
   */
  static void check(List<String> found, List<String> wanted, Set<String> optional, Set<String> exact) throws BadFile {
    for (String name : wanted) {
      for (String other : found) {
        if (isOtherCase(other, name) && !exact.contains(name) && !wanted.contains(other)) {
          throw new BadFile(otherCase(other, name));
        }
      }
      int times = Collections.frequency(found, name);
      if (times == 0 && !optional.contains(name)) {
        throw new BadFile("it has no column '" + name + "' (it has: " + list(found) + "); correct the file or the spec");
      }
      if (times > 1) {
        throw new BadFile("it has the column '" + name + "' " + times + " times; correct the file");
      }
    }
  }

  static boolean isOtherCase(String found, String wanted) {
    return found.equalsIgnoreCase(wanted) && !found.equals(wanted);
  }

  static String otherCase(String found, String wanted) {
    return "its column '" + found + "' differs from '" + wanted + "' in case alone; correct the file or the spec";
  }

  private static String list(List<String> names) {
    String shown = names.stream().limit(SHOWN).map(name -> "'" + name + "'").collect(Collectors.joining(", "));
    return names.size() > SHOWN ? shown + ", ..." : shown;
  }
}
