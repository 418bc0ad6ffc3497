// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.it;

import static org.assertj.core.api.Assertions.assertThat;

import java.nio.file.Path;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/**
 * Two hundred faults, the same in every run; bin/fault-campaign draws others. What it prints says
 * how to play a fault again that went wrong.
 */
class FaultCampaignIT {
  @TempDir private Path folder;

  @Test
  void faultsEndInTheRightResultOrTheRightExceptionAndLeaveNothing() throws Exception {
    campaign(
        "200 faults on \\d+ worker processes, seed 674487773: all went as they must",
        "processes",
        200);
  }

  @Test
  void faultsOfJobsEndInTheRightResultAndLeaveNothing() throws Exception {
    campaign(
        "16 faults of jobs on \\d+ executors, seed 674487773: all went as they must", "spark", 16);
  }

  private void campaign(String outcome, String layer, int faults) throws Exception {
    Submit.Ended ended =
        Submit.run(
            folder,
            "fault-campaign",
            "--seed",
            "674487773",
            "--layer",
            layer,
            "--faults",
            Integer.toString(faults));
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
