// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.dataset;

import java.io.Serializable;
import org.sparkallreduce.ffm.Statistics;

/**
 * What one rank did in its stage.
 *
 * @param stage number of the stage
 * @param attempt the stage's attempt
 * @param where executor and host
 */
record RankStatistics(int stage, int attempt, int rank, String where, Statistics done)
    implements Serializable {

  /** The time that it waited for one rank. */
  long waitFor(int peer) {
    return done.peerWaitNanos().get(peer);
  }
}
