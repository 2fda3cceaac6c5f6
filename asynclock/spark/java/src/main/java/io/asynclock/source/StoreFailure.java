package io.asynclock.source;

import java.io.IOException;
import java.io.UncheckedIOException;

/**
 * A store did not give the bytes of a file. This fails the task, since a file is not bad because a network is
 * down.
 */
final class StoreFailure extends UncheckedIOException {

  StoreFailure(String message, IOException cause) {
    super(message, cause);
  }
}
