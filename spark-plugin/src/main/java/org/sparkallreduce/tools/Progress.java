// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.tools;

import java.util.concurrent.TimeUnit;

/** A line on standard error every few seconds, so that a long run is seen to go on. */
final class Progress {
  private static final long PAUSE_NANOS = TimeUnit.SECONDS.toNanos(5);

  private final int total;
  private final long start = System.nanoTime();
  private long shown = start;

  Progress(int total) {
    this.total = total;
  }

  void show(int done) {
    long now = System.nanoTime();
    if (now - shown >= PAUSE_NANOS) {
      shown = now;
      System.err.printf(
          "allreduce-perf: %d of %d measured, %d s%n",
          done, total, TimeUnit.NANOSECONDS.toSeconds(now - start));
    }
  }
}
