// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.tools;

import static org.assertj.core.api.Assertions.assertThat;

import java.util.List;
import org.junit.jupiter.api.Test;

class PerfTableTest {
  private final PerfTable table = new PerfTable(PerfFixture.JOB, 2);

  @Test
  void theTableHasTheColumnsOfRcclTests() {
    var text = new StringBuilder();
    PerfFixture.ALL.forEach(measured -> text.append(table.row(measured)));
    assertThat(text.toString())
        .isEqualTo(
            """
            # all-reduce, schedule one-shot
            #
            #                                                              out-of-place                      in-place
            #        size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
            #         (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
                        8             2     float     sum      -1     0.50    0.02    0.02      0     0.48    0.02    0.02      0
                  1048576        262144     float     sum      -1    100.0   10.49   10.49      0    123.5    8.49    8.49      3
            #
            # broadcast
            #
            #                                                              out-of-place                      in-place
            #        size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
            #         (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
                        8             1     int64    none       1      N/A     N/A     N/A    N/A     1.00    0.01    0.01    N/A
            """);
  }

  @Test
  void theHeadNamesRanksProcessesAndBuild() {
    assertThat(PerfTable.head(PerfFixture.INFO, PerfFixture.JOB, PerfFixture.RANKS, "minBytes 8"))
        .startsWith("# nRanks 2 minBytes 8 backend: host buffers: registered validation: 1\n")
        .contains("#  Rank  1  Pid    4712 on somewhere\n")
        .contains("2 processors (Some <CPU>)")
        .contains("# spark-allreduce 1.2, native build: build\n");
  }

  @Test
  void theFootHasWrongElementsAndTheAverageBusBandwidth() {
    assertThat(table.foot(PerfFixture.ALL))
        .isEqualTo(
            """
            # Out of bounds values : 3 FAILED
            # Avg bus bandwidth    : 3.8040
            #
            """);
    assertThat(table.foot(List.of(PerfFixture.ALL.getFirst())))
        .contains("# Out of bounds values : 0 OK\n");
  }
}
