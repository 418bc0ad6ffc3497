// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.communicator;

import java.util.concurrent.atomic.LongAdder;
import java.util.function.Supplier;
import org.sparkallreduce.ffm.Statistics;

/** What the ranks of this process have done in stages that have ended: the plugin's metrics. */
public final class Activity {
  private final LongAdder collectives = new LongAdder();
  private final LongAdder bytes = new LongAdder();
  private final LongAdder waitNanos = new LongAdder();
  private final LongAdder totalNanos = new LongAdder();
  private final LongAdder unregistered = new LongAdder();
  private volatile Statistics last = Statistics.NONE;

  Activity() {}

  /**
   * Will count what {@code communicator} does.
   *
   * @return gives what it did, and adds that to the sums; to be asked once, before the communicator
   *     is closed
   */
  public Supplier<Statistics> follow(Communicator communicator) {
    return () -> {
      Statistics done = communicator.statistics();
      add(done);
      return done;
    };
  }

  private void add(Statistics done) {
    collectives.add(done.collectives());
    bytes.add(done.bytes());
    waitNanos.add(done.waitNanos());
    totalNanos.add(done.totalNanos());
    unregistered.add(done.unregistered());
    last = done;
  }

  public long collectives() {
    return collectives.sum();
  }

  public long bytes() {
    return bytes.sum();
  }

  public long waitNanos() {
    return waitNanos.sum();
  }

  /** Waits included. */
  public long totalNanos() {
    return totalNanos.sum();
  }

  public long unregistered() {
    return unregistered.sum();
  }

  /** Of the rank of this process that ended last. */
  public Statistics last() {
    return last;
  }
}
