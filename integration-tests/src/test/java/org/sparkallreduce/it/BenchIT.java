// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.it;

import static org.assertj.core.api.Assertions.assertThat;

import java.nio.file.Path;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** The benchmark of the exchange runs; what it measures is not tested. */
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
}
