package io.asynclock.source;

/** One record: the texts of its columns, or its problem. */
interface Record {

  /** The problem of the record as a whole; null if it has fields. */
  String problem();

  /** The text of one of the wanted columns in this record; null for null. */
  String value(int column);

  /** The record as it is in the source. */
  String text();
}
