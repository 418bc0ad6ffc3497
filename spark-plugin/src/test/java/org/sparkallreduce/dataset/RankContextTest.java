// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.dataset;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatExceptionOfType;

import java.util.List;
import java.util.Map;
import org.apache.spark.resource.ResourceInformation;
import org.junit.jupiter.api.Test;
import org.sparkallreduce.AllReduceException;

class RankContextTest {
  private static Map<String, ResourceInformation> gpus(String... addresses) {
    return Map.of("gpu", new ResourceInformation("gpu", addresses));
  }

  @Test
  void theDeviceIsTheOneThatSparkAssigned() {
    assertThat(RankContext.device(gpus("5"), List.of(), 1)).contains("5");
    assertThat(RankContext.device(gpus("5"), List.of("0", "1"), 1)).contains("5");
  }

  @Test
  void inLocalModeTheDeviceIsTheDriversByRank() {
    assertThat(RankContext.device(Map.of(), List.of("0", "7"), 1)).contains("7");
    assertThat(RankContext.device(Map.of(), List.of("0", "7"), 2)).isEmpty();
  }

  @Test
  void withoutGpusThereIsNoDevice() {
    assertThat(RankContext.device(Map.of(), List.of(), 0)).isEmpty();
    assertThat(RankContext.device(gpus(), List.of(), 0)).isEmpty();
  }

  @Test
  void aThreadWithoutATaskIsToldWhereToCall() {
    assertThatExceptionOfType(AllReduceException.Setup.class)
        .isThrownBy(RankContext::open)
        .withMessageContaining("this thread runs none")
        .withMessageContaining("Collectives.run");
  }
}
