package io.asynclock.source;

import java.io.IOException;

/** The records of one file, one after the other. */
interface Records extends AutoCloseable {

  /** Advance to the next record; false at the end. */
  boolean next() throws BadFile;

  /** What is wrong with the record as a whole; null if it has fields. */
  String problem();

  /** The text of one of the wanted columns in this record; null for null. */
  String value(int column);

  /** The line on which the record begins, from 1. */
  long line();

  /** The record as it stands in the file. */
  String text();

  @Override
  void close() throws IOException;
}
