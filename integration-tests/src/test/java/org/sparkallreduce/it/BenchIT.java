// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.it;

import static org.assertj.core.api.Assertions.assertThat;

import java.nio.file.Path;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** The benchmark programs run; what they measure is not tested. */
class BenchIT {
  @TempDir private Path folder;

  @Test
  void theExchangeBenchPrintsItsTables() throws Exception {
    Submit.Ended ended = Submit.run(folder, "bench-exchange", "--quick");
    assertThat(ended.output())
        .contains("2 executor processes", "4 executor processes")
        .contains("Spark's allGather", "nudged allGather", "attach to a lease")
        .contains("open a communicator", "close it", "register a buffer")
        .contains("times faster than Spark's");
    assertThat(ended.exitCode()).isZero();
  }

  @Test
  void theStepBenchComparesTheSameTraining() throws Exception {
    Submit.Ended ended = Submit.run(folder, "bench-step", "--quick");
    assertThat(ended.output())
        .contains("| bytes | all-reduce | treeAggregate + broadcast | times faster |")
        .contains("\n| 4096 | ", "\n| 65536 | ");
    assertThat(ended.exitCode()).isZero();
  }
}
