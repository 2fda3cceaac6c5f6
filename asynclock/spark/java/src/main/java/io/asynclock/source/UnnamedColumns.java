package io.asynclock.source;

import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import java.util.TreeSet;
import org.apache.spark.util.AccumulatorV2;

/** The names of columns that files have and the spec does not, from all tasks; of very many only some. */
public final class UnnamedColumns extends AccumulatorV2<String, List<String>> {

  private static final int MOST = 100;
  private static final long serialVersionUID = 1L;

  private final Set<String> names = new TreeSet<>();

  /** Note those of a header. */
  void add(List<String> found, List<String> wanted) {
    found.stream().filter(name -> !wanted.contains(name)).forEach(this::add);
  }

  @Override
  public synchronized void add(String name) {
    // A CSV column may have no name.
    if (names.size() < MOST && !name.isEmpty()) {
      names.add(name);
    }
  }

  @Override
  public void merge(AccumulatorV2<String, List<String>> other) {
    other.value().forEach(this::add);
  }

  @Override
  public synchronized List<String> value() {
    return new ArrayList<>(names);
  }

  @Override
  public synchronized boolean isZero() {
    return names.isEmpty();
  }

  @Override
  public synchronized void reset() {
    names.clear();
  }

  @Override
  public UnnamedColumns copy() {
    UnnamedColumns copy = new UnnamedColumns();
    copy.merge(this);
    return copy;
  }
}
