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
    Submit.Ended ended = Submit.run(folder, "fault-campaign", "--seed", "674487773");
    System.out.println(ended.output());
    assertThat(ended.output()).contains("all went as they must").doesNotContain("FAILED");
    assertThat(ended.exitCode()).isZero();
  }

  @Test
  void theCommandExplainsItsArguments() throws Exception {
    Submit.Ended ended = Submit.run(folder, "fault-campaign", "--help");
    assertThat(ended.output()).startsWith("usage: bin/fault-campaign");
    assertThat(ended.exitCode()).isEqualTo(2);
  }
}
