// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.communicator;

import static org.assertj.core.api.Assertions.assertThat;

import com.sun.management.ThreadMXBean;
import java.lang.management.ManagementFactory;
import org.junit.jupiter.api.Test;
import org.sparkallreduce.DataType;
import org.sparkallreduce.ReduceOp;
import org.sparkallreduce.Settings;

/**
 * A collective in a loop leaves no work for the garbage collector. What the JIT compiler has not
 * compiled yet may allocate, so the loop runs warm first.
 */
class AllocationTest {
  private static final ThreadMXBean THREADS = (ThreadMXBean) ManagementFactory.getThreadMXBean();
  private static final int WARM_CALLS = 40_000;
  private static final int CALLS = 10_000;

  /** More than nothing, since the JVM may allocate on a thread's behalf; less than any object. */
  static final double NEXT_TO_NOTHING = 8;

  @Test
  void aCollectiveOnRegisteredBuffersAllocatesNothing() {
    assertThat(
            bytesPerCall(
                communicator -> {
                  RegisteredBuffer in = communicator.allocate(DataType.FLOAT32, 16);
                  RegisteredBuffer out = communicator.allocate(DataType.FLOAT32, 16);
                  return () -> communicator.allReduce(in, out, ReduceOp.SUM);
                }))
        .isLessThan(NEXT_TO_NOTHING);
  }

  @Test
  void aCollectiveOnAnArrayAllocatesNothing() {
    assertThat(
            bytesPerCall(
                communicator -> {
                  double[] values = new double[16];
                  return () -> communicator.allReduce(values, ReduceOp.SUM);
                }))
        .isLessThan(NEXT_TO_NOTHING);
  }

  @Test
  void aBarrierAllocatesNothing() {
    assertThat(bytesPerCall(communicator -> communicator::barrier)).isLessThan(NEXT_TO_NOTHING);
  }

  /** What one rank repeats. */
  @FunctionalInterface
  interface Preparation {
    Runnable prepare(Communicator communicator);
  }

  private static double bytesPerCall(Preparation preparation) {
    return bytesPerCall(2, Ranks.settings(), WARM_CALLS, CALLS, preparation);
  }

  /** Of the rank that allocates most. */
  static double bytesPerCall(
      int ranks, Settings settings, int warmCalls, int calls, Preparation preparation) {
    return Ranks.run(
            ranks,
            settings,
            communicator -> {
              Runnable call = preparation.prepare(communicator);
              repeat(call, warmCalls);
              long before = THREADS.getCurrentThreadAllocatedBytes();
              repeat(call, calls);
              return (double) (THREADS.getCurrentThreadAllocatedBytes() - before) / calls;
            })
        .stream()
        .max(Double::compare)
        .orElseThrow();
  }

  private static void repeat(Runnable call, int times) {
    for (int i = 0; i < times; i++) {
      call.run();
    }
  }
}
