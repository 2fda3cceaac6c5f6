package io.asynclock.source;

import java.io.IOException;

/** The records of one file, one after the other; it is itself the one that was read last. */
interface Records extends Record, AutoCloseable {

  /** Advance to the next record; false at the end. */
  boolean next() throws BadFile;

  /** The line on which the record begins, from 1. */
  long line();

  @Override
  void close() throws IOException;
}
