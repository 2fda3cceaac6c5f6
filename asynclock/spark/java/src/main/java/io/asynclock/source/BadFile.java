package io.asynclock.source;

/** A file none of whose rows can be trusted; the message is the reason in its quarantine entry. */
final class BadFile extends Exception {

  BadFile(String reason) {
    super(reason);
  }
}
