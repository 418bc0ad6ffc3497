// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.tools;

import static org.assertj.core.api.Assertions.assertThat;

import java.util.Map;
import org.junit.jupiter.api.Test;
import org.sparkallreduce.AutoTable.Row;
import org.sparkallreduce.Backend;
import org.sparkallreduce.Schedule;

class TunerTest {
  private static Map<Schedule, Double> times(double oneShot, double loadReduceStore) {
    return Map.of(Schedule.ONE_SHOT, oneShot, Schedule.LOAD_REDUCE_STORE, loadReduceStore);
  }

  @Test
  void aRowReachesToTheLargestSizeOfItsSchedule() {
    assertThat(
            Tuner.rows(
                4,
                Map.of(8L, times(1, 2), 64L, times(1, 2), 512L, times(3, 2), 4096L, times(9, 5))))
        .containsExactly(
            new Row(Backend.HOST, 4, 64, Schedule.ONE_SHOT),
            new Row(Backend.HOST, 4, Long.MAX_VALUE, Schedule.LOAD_REDUCE_STORE));
  }

  @Test
  void aSmallAdvantageChangesNothing() {
    assertThat(Tuner.rows(2, Map.of(8L, times(1, 2), 64L, times(2.02, 2), 512L, times(1, 2))))
        .containsExactly(new Row(Backend.HOST, 2, Long.MAX_VALUE, Schedule.ONE_SHOT));
  }
}
