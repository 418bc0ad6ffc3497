// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.tools;

import java.io.Serializable;
import org.sparkallreduce.DataType;
import org.sparkallreduce.ReduceOp;
import org.sparkallreduce.Schedule;

/**
 * One line of the table.
 *
 * @param count elements, as the call takes them
 * @param root of a broadcast
 * @param warmup calls before the time is taken
 * @param iterations calls whose time is taken
 */
record Case(
    Collective collective,
    Schedule schedule,
    DataType type,
    ReduceOp op,
    int root,
    long count,
    int warmup,
    int iterations)
    implements Serializable {
  /** What travels beside the flag. */
  private static final long LOW_LATENCY_BYTES = 16;

  private static final long BYTES_PER_LINE = 64L << 20;
  private static final int FEWEST = 10;
  private static final int MOST = 10_000;
  private static final int MOST_OVERSUBSCRIBED = 1_000;

  /** Whether {@code schedule} can move so many bytes at all. */
  static boolean carries(Schedule schedule, long bytes) {
    return schedule != Schedule.LOW_LATENCY || bytes <= LOW_LATENCY_BYTES;
  }

  long bytes(int ranks) {
    return collective.bytes(count, type.bytes(), ranks);
  }

  /**
   * How many calls are timed where the user says nothing: enough for a steady mean of small ones,
   * few of those that take long. Where ranks share processors each call may cost a time slice.
   */
  static int defaultIterations(long bytes, int ranks, int processors) {
    int most = ranks > processors ? MOST_OVERSUBSCRIBED : MOST;
    return Math.clamp(BYTES_PER_LINE / Math.max(1, bytes), FEWEST, most);
  }

  static int defaultWarmup(int iterations) {
    return Math.max(5, iterations / 10);
  }
}
