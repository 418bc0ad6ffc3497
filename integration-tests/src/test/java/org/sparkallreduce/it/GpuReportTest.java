// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.it;

import static org.assertj.core.api.Assertions.assertThat;

import java.nio.file.Files;
import java.nio.file.Path;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.condition.DisabledIfSystemProperty;
import org.junit.jupiter.api.io.TempDir;

/** bin/gpu-report on two devices of the simulated driver: NOT ON A GPU. */
@DisabledIfSystemProperty(named = "native.gpu", matches = "OFF")
class GpuReportTest {
  @TempDir private Path folder;

  @Test
  void theReportSaysWhatRanAndWhatDidNotAndThatItWasASimulation() throws Exception {
    Submit.Ended ended =
        Submit.run(folder, "gpu-report", "--simulated", "2", folder.resolve("report").toString());
    assertThat(ended.exitCode()).describedAs(ended.output()).isZero();
    String report = Files.readString(folder.resolve("report/report.md"));
    assertThat(report)
        .startsWith("# SIMULATED: no GPU, no figure. GPU report of 2 simulated devices")
        .contains(
            "| all native tests of the GPU library, 2 ranks on 2 simulated devices | passed |")
        .contains("processes over IPC | passed |")
        .contains("| bench, 2 ranks on 2 simulated devices | passed |")
        .contains("# 2 ranks on 2 devices, bfloat16 sum, graph replay")
        .contains("# 2 ranks on 2 devices, float32 sum, graph replay")
        .contains("NCCL: not run: ")
        .contains("| demo and integration tests | not run: ")
        .contains("| fault campaign | not run: ")
        .doesNotContain("failed");
    assertThat(report.lines().filter(line -> line.startsWith("## ")))
        .allSatisfy(line -> assertThat(line).startsWith("## SIMULATED"));
  }
}
