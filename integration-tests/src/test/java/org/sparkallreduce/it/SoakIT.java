// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.it;

import static org.assertj.core.api.Assertions.assertThat;

import java.nio.file.Path;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.api.parallel.Execution;
import org.junit.jupiter.api.parallel.ExecutionMode;

/**
 * Five minutes of the soak, beside all other tests: it works a tenth of the time, with low
 * priority. bin/soak runs for an hour.
 */
@Execution(ExecutionMode.CONCURRENT)
class SoakIT {
  @TempDir private Path folder;

  @Test
  void memoryDescriptorsAndThreadsStayConstantAndEveryResultIsRight() throws Exception {
    Submit.Ended ended = Submit.run(folder, "soak", "--minutes", "5", "--gentle");
    System.out.println(ended.output());
    assertThat(ended.output()).contains("nothing grew, every result was right");
    assertThat(ended.exitCode()).isZero();
  }
}
