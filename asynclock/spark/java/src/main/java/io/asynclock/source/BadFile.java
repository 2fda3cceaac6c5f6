package io.asynclock.source;

import java.io.IOException;

/** No row of the file can be trusted; the message is the reason in its quarantine entry. */
final class BadFile extends IOException {

  BadFile(String reason) {
    super(reason);
  }

  /**
   * The reason why a file cannot be read, from the exception that ended the reading.
   *
   * @throws StoreFailure it ended because the store failed, which says nothing about the file
   */
  static BadFile of(Throwable error, String what) {
    Throwable cause = error;
    for (int depth = 0; depth < 50; depth++) {
      if (cause instanceof StoreFailure) {
        throw (StoreFailure) cause;
      }
      if (cause instanceof BadFile) {
        return (BadFile) cause;
      }
      if (cause.getCause() == null) {
        break;
      }
      cause = cause.getCause();
    }
    String detail = cause.getMessage() == null ? cause.getClass().getSimpleName() : cause.getMessage();
    return new BadFile("the file is " + what + " (" + detail.lines().findFirst().orElse("") + ")");
  }
}
