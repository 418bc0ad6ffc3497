// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.tools;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.within;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

class CollectiveTest {
  @ParameterizedTest
  @CsvSource({
    "ALL_REDUCE, 2, 1",
    "ALL_REDUCE, 4, 1.5",
    "ALL_REDUCE, 8, 1.75",
    "ALL_REDUCE, 1, 0",
    "REDUCE_SCATTER, 2, 0.5",
    "REDUCE_SCATTER, 4, 0.75",
    "ALL_GATHER, 4, 0.75",
    "BROADCAST, 2, 1",
    "BROADCAST, 8, 1"
  })
  void busBandwidthHasTheFactorsOfRcclTests(Collective collective, int ranks, double factor) {
    assertThat(collective.busFactor(ranks)).isEqualTo(factor, within(1e-12));
  }

  @ParameterizedTest
  @CsvSource({
    "ALL_REDUCE, 1024, 256, 1024",
    "BROADCAST, 1024, 256, 1024",
    "ALL_GATHER, 1024, 64, 1024",
    "REDUCE_SCATTER, 1024, 64, 1024",
    "REDUCE_SCATTER, 1000, 62, 992",
    "ALL_GATHER, 4, 1, 16",
    "ALL_REDUCE, 3, 0, 0"
  })
  void sizeIsThatOfTheLargerBufferAndCountIsWhatTheCallTakes(
      Collective collective, long bytes, long count, long actual) {
    assertThat(collective.count(bytes, 4, 4)).isEqualTo(count);
    assertThat(collective.bytes(count, 4, 4)).isEqualTo(actual);
  }

  @Test
  void bandwidthIsInBillionsOfBytesASecond() {
    var row = PerfFixture.allReduce(1 << 20, 1);
    var timing = new Timing(1_000_000, 0);
    assertThat(timing.algorithmBandwidth(row.bytes(4))).isEqualTo(1.048576, within(1e-9));
    assertThat(timing.busBandwidth(row, 4)).isEqualTo(1.572864, within(1e-9));
  }
}
