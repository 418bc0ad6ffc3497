// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.tools;

import java.lang.management.CompilationMXBean;
import java.lang.management.ManagementFactory;
import org.sparkallreduce.ReduceOp;
import org.sparkallreduce.communicator.Communicator;

/**
 * Keeps a measurement from beginning before the JIT compilers have ended: they run on the cores of
 * the ranks, so that what they do while a time is taken would count as theirs, and what they have
 * not compiled yet is many times slower.
 */
public final class CompilerWatch {
  // A compiler is taken to be done when it has not finished anything for so long. What reports a
  // result is new to it too, once.
  private static final long QUIET_NANOS = 20_000_000;

  // Before the first time, when nearly everything is new to it, and its queue is long.
  private static final long QUIET_AT_FIRST_NANOS = 500_000_000;
  private static final long PATIENCE_NANOS = 10_000_000_000L;

  private final Communicator communicator;
  private long quietNanos = QUIET_AT_FIRST_NANOS;

  /** For the ranks of {@code communicator}, each of which has one. */
  public CompilerWatch(Communicator communicator) {
    this.communicator = communicator;
  }

  /**
   * Collective. Repeats {@code batch}, some calls of what is to be measured, for nothing, until the
   * compilers of all ranks are quiet: they agree when.
   */
  public void untilQuiet(Runnable batch) {
    CompilationMXBean compiler = ManagementFactory.getCompilationMXBean();
    long start = System.nanoTime();
    long compiledAt = start;
    long millis = compiler.getTotalCompilationTime();
    long[] busy = {1};
    while (busy[0] == 1) {
      batch.run();
      long now = System.nanoTime();
      if (compiler.getTotalCompilationTime() != millis) {
        millis = compiler.getTotalCompilationTime();
        compiledAt = now;
      }
      boolean quiet = now - compiledAt > quietNanos;
      busy[0] = quiet || now - start > PATIENCE_NANOS ? 0 : 1;
      communicator.allReduce(busy, ReduceOp.MAX);
    }
    quietNanos = QUIET_NANOS;
  }
}
