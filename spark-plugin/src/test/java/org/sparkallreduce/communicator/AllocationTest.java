// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.communicator;

import static org.assertj.core.api.Assertions.assertThat;

import com.sun.management.ThreadMXBean;
import java.lang.management.ManagementFactory;
import org.junit.jupiter.api.Test;
import org.sparkallreduce.DataType;
import org.sparkallreduce.ReduceOp;

/**
 * A collective in a loop leaves no work for the garbage collector. What the JIT compiler has not
 * compiled yet may allocate, so the loop runs warm first.
 */
class AllocationTest {
  private static final ThreadMXBean THREADS = (ThreadMXBean) ManagementFactory.getThreadMXBean();
  private static final int WARM_CALLS = 40_000;
  private static final int CALLS = 10_000;

  /** More than nothing, since the JVM may allocate on a thread's behalf; less than any object. */
  private static final double NEXT_TO_NOTHING = 8;

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
  private interface Preparation {
    Runnable prepare(Communicator communicator);
  }

  /** Of the rank that allocates most. */
  private static double bytesPerCall(Preparation preparation) {
    return Ranks.run(
            2,
            Ranks.settings(),
            communicator -> {
              Runnable call = preparation.prepare(communicator);
              repeat(call, WARM_CALLS);
              long before = THREADS.getCurrentThreadAllocatedBytes();
              repeat(call, CALLS);
              return (double) (THREADS.getCurrentThreadAllocatedBytes() - before) / CALLS;
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
