// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.communicator;

import java.util.concurrent.atomic.LongAdder;
import org.sparkallreduce.ffm.Statistics;

/**
 * What the ranks of this process have done, over all stages that have ended: the plugin's metrics.
 */
public final class Activity {
  private final LongAdder collectives = new LongAdder();
  private final LongAdder bytes = new LongAdder();
  private final LongAdder waitNanos = new LongAdder();
  private final LongAdder totalNanos = new LongAdder();
  private final LongAdder unregistered = new LongAdder();

  Activity() {}

  /**
   * Begins to count what {@code communicator} does. The counts are added when the returned action
   * is run, before it is closed; it may have been used by other stages before.
   */
  public Runnable follow(Communicator communicator) {
    Statistics before = communicator.statistics();
    return () -> add(before, communicator.statistics());
  }

  private void add(Statistics before, Statistics after) {
    collectives.add(after.collectives() - before.collectives());
    bytes.add(after.bytes() - before.bytes());
    waitNanos.add(after.waitNanos() - before.waitNanos());
    totalNanos.add(after.totalNanos() - before.totalNanos());
    unregistered.add(after.unregistered() - before.unregistered());
  }

  /** The sums so far, over all ranks of this process. */
  public Statistics sums() {
    return new Statistics(
        collectives.sum(), bytes.sum(), waitNanos.sum(), totalNanos.sum(), unregistered.sum());
  }
}
