// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.communicator;

import org.jspecify.annotations.Nullable;
import org.sparkallreduce.ffm.NativeCommunicator;

/**
 * Ends the opening of a rank's communicator early, from any thread: what {@link Communicator#abort}
 * is once there is one. Without it a cancelled rank would wait for peers that have not connected.
 */
public final class OpeningAbort {
  private @Nullable NativeCommunicator opening;
  private @Nullable String cause;
  private int rank;

  /** Whoever connects with it, now or later, gets an abort with {@code newCause}. Never blocks. */
  public synchronized void raise(String newCause) {
    if (cause == null) {
      cause = newCause;
    }
    if (opening != null) {
      opening.abort(rank, cause);
    }
  }

  synchronized void begin(NativeCommunicator comm, int ownRank) {
    opening = comm;
    rank = ownRank;
    if (cause != null) {
      comm.abort(ownRank, cause);
    }
  }

  synchronized void end() {
    opening = null;
  }
}
