// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.it;

import static org.assertj.core.api.Assertions.assertThat;

import java.nio.file.Path;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.condition.DisabledIfSystemProperty;
import org.junit.jupiter.api.io.TempDir;

/**
 * Two hundred faults, the same in every run; bin/fault-campaign draws others. What it prints says
 * how to play a fault again that went wrong.
 */
class FaultCampaignIT {
  private static final int SEED = 674_487_773;

  @TempDir private Path folder;

  @Test
  void faultsEndInTheRightResultOrTheRightExceptionAndLeaveNothing() throws Exception {
    campaign(
        "200 faults on \\d+ worker processes, seed 674487773: all went as they must",
        200,
        SEED,
        "--layer",
        "processes");
  }

  /**
   * On a GPU if there is one, and the output says on what. The first faults of this seed are all
   * those that only a GPU can suffer, and others.
   */
  @Test
  @DisabledIfSystemProperty(named = "native.gpu", matches = "OFF")
  void faultsOnGpusEndInTheRightResultOrTheRightExceptionAndLeaveNothing() throws Exception {
    campaign(
        "28 faults on \\d+ worker processes on (a GPU|the SIMULATED driver), seed 50503: all went"
            + " as they must",
        28,
        50_503,
        "--backend",
        "gpu");
  }

  @Test
  void faultsOfJobsEndInTheRightResultAndLeaveNothing() throws Exception {
    campaign(
        "16 faults of jobs on \\d+ executors, seed 674487773: all went as they must",
        16,
        SEED,
        "--layer",
        "spark");
  }

  private void campaign(String outcome, int faults, int seed, String where, String what)
      throws Exception {
    Submit.Ended ended =
        Submit.run(
            folder,
            "fault-campaign",
            "--seed",
            Integer.toString(seed),
            "--faults",
            Integer.toString(faults),
            where,
            what);
    System.out.println(ended.output());
    assertThat(ended.output()).containsPattern(outcome).doesNotContain("FAILED:");
    assertThat(ended.exitCode()).isZero();
  }

  @Test
  void theCommandsExplainTheirArguments() throws Exception {
    for (String script : new String[] {"fault-campaign", "soak"}) {
      Submit.Ended ended = Submit.run(folder, script, "--help");
      assertThat(ended.output()).startsWith("usage: bin/" + script);
      assertThat(ended.exitCode()).isEqualTo(2);
    }
  }
}
