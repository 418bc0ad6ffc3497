// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.communicator;

import static org.assertj.core.api.Assertions.assertThat;
import static org.sparkallreduce.communicator.AllocationTest.NEXT_TO_NOTHING;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.condition.DisabledIfSystemProperty;
import org.junit.jupiter.api.condition.EnabledIfEnvironmentVariable;
import org.sparkallreduce.DataType;
import org.sparkallreduce.ReduceOp;
import org.sparkallreduce.Settings;

/**
 * What a training loop repeats on the GPU backend leaves no work for the garbage collector. On the
 * simulated driver, NOT ON A GPU, which makes no difference to Java; one rank, since a simulated
 * barrier takes long.
 */
@EnabledIfEnvironmentVariable(named = SimulatedDriver.VARIABLE, matches = ".*simulated_cuda.*")
@DisabledIfSystemProperty(named = "native.gpu", matches = "OFF")
class SimulatedGpuAllocationTest {
  private static final Settings GPU = Ranks.settings("spark.allreduce.backend", "gpu");

  /** As few as let the JIT compiler come to its end: a simulated launch takes long. */
  private static final int WARM_STEPS = 5_500;

  private static final int STEPS = 300;

  @Test
  void simulatedEagerEnqueuedAndReplayedCallsAllocateNothing() {
    double bytes =
        AllocationTest.bytesPerCall(
            1,
            GPU,
            WARM_STEPS,
            STEPS,
            communicator -> {
              RegisteredBuffer in = communicator.allocate(DataType.FLOAT32, 16);
              RegisteredBuffer out = communicator.allocate(DataType.FLOAT32, 16);
              Graph graph =
                  communicator.capture(() -> communicator.allReduce(in, out, ReduceOp.SUM));
              return () -> {
                communicator.allReduce(in, out, ReduceOp.SUM);
                communicator.enqueueAllReduce(in, out, ReduceOp.SUM);
                graph.replay();
                communicator.waitFor();
              };
            });
    assertThat(bytes).isLessThan(NEXT_TO_NOTHING);
  }
}
