// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.it;

import static org.assertj.core.api.Assertions.assertThat;

import java.nio.file.Path;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/**
 * Two hundred faults of a new seed in every run. What it prints says how to play a fault again that
 * went wrong.
 */
class FaultCampaignIT {
  @TempDir private Path folder;

  private void campaign(String layer, int faults) throws Exception {
    Submit.Ended ended =
        Submit.run(
            folder, "fault-campaign", "--layer", layer, "--faults", Integer.toString(faults));
    System.out.println(ended.output());
    assertThat(ended.output()).contains("all went as they must").doesNotContain("FAILED");
    assertThat(ended.exitCode()).isZero();
  }

  @Test
  void faultsOfProcessesEndInTheRightResultOrTheRightExceptionAndLeaveNothing() throws Exception {
    campaign("processes", 172);
  }

  @Test
  void faultsOfJobsEndInTheRightResultOrTheRightExceptionAndLeaveNothing() throws Exception {
    campaign("spark", 28);
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
