// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.communicator;

import static java.nio.charset.StandardCharsets.UTF_8;
import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import java.util.Optional;
import java.util.UUID;
import org.junit.jupiter.api.Test;
import org.sparkallreduce.AllReduceException;
import org.sparkallreduce.DataType;
import org.sparkallreduce.JavaProcess;
import org.sparkallreduce.ReduceOp;

/** The backends where no rank has a GPU. */
class BackendSettingTest {
  /** In a process of its own, in which nobody else has had to do with GPUs. */
  static final class AutoMain {
    public static void main(String[] args) {
      var identity = new RankIdentity(0, 1, UUID.randomUUID(), "0", "localhost", Optional.empty());
      try (var communicator =
          Communicator.open(Ranks.LIBRARY, Ranks.settings(), identity, Ranks.exchange(1))) {
        System.out.printf(
            "%s, %s, GPU library loaded: %s%n",
            communicator.backend(), communicator.fallback(), GpuPart.isLoaded());
      }
    }
  }

  @Test
  void autoWithoutAGpuCostsNothingAndSaysNothing() throws Exception {
    Process process = JavaProcess.start(AutoMain.class);
    String output = new String(process.getInputStream().readAllBytes(), UTF_8);

    assertThat(process.waitFor()).as(output).isZero();
    assertThat(output).contains("HOST, Optional.empty, GPU library loaded: false");
    assertThat(output).doesNotContain("Opening: ", "host backend is used");
  }

  @Test
  void onTheHostAGraphRepeatsTheCallsThatItCaptured() {
    Ranks.run(
        2,
        Ranks.settings(),
        communicator -> {
          RegisteredBuffer buffer = communicator.allocate(DataType.INT32, 2);
          buffer.copyFrom(new int[] {1, 2});
          int[] values = new int[2];
          try (Graph step =
              communicator.capture(() -> communicator.enqueueAllReduce(buffer, ReduceOp.SUM))) {
            buffer.copyTo(values);
            assertThat(values).containsExactly(1, 2); // recorded only
            step.replay();
            step.replay();
          }
          communicator.waitFor();
          buffer.copyTo(values);
          assertThat(values).containsExactly(4, 8);
          return true;
        });
  }

  @Test
  void onTheHostWhatOnlyAGpuHasIsRefusedByName() {
    Ranks.run(
        1,
        Ranks.settings(),
        communicator -> {
          assertThat(communicator.device()).isEmpty();
          assertThatThrownBy(communicator::stream)
              .isInstanceOf(AllReduceException.Usage.class)
              .hasMessageContaining("belongs to the GPU backend");
          assertThatThrownBy(() -> communicator.useStream(1))
              .isInstanceOf(AllReduceException.Usage.class);
          assertThatThrownBy(() -> communicator.adopt(4096, 64, DataType.INT32))
              .isInstanceOf(AllReduceException.Usage.class);
          return true;
        });
  }
}
