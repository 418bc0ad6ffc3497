// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.dataset;

import static org.assertj.core.api.Assertions.assertThat;

import java.util.List;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.sparkallreduce.ffm.Statistics;

class StageSummaryTest {
  private static RankStatistics rank(int attempt, int rank, long total, Long... waits) {
    long wait = List.of(waits).stream().mapToLong(Long::longValue).sum();
    return new RankStatistics(
        3,
        attempt,
        rank,
        "executor %d on h".formatted(rank + 1),
        new Statistics(120, 15_000_000, wait, total, 0, List.of(waits)));
  }

  private static SlowestPeer accumulated(RankStatistics... ranks) {
    var sum = new SlowestPeer();
    for (RankStatistics rank : ranks) {
      var ofTask = new SlowestPeer();
      ofTask.add(rank);
      sum.merge(ofTask);
    }
    return sum;
  }

  @Test
  void theLineNamesTheRankForWhichTheOthersWaitedLongest() {
    SlowestPeer sum =
        accumulated(
            rank(0, 2, 950_000_000L, 40_000_000L, 60_000_000L, 0L),
            rank(0, 0, 950_000_000L, 0L, 20_000_000L, 800_000_000L),
            rank(0, 1, 940_000_000L, 100_000_000L, 0L, 720_000_000L));
    assertThat(StageSummary.of(sum.value().last()))
        .isEqualTo(
            "Stage 3 (attempt 0), 3 ranks: 120 collectives, 15.0 MB per rank; waiting 100 ms to"
                + " 820 ms, reducing 120 ms to 850 ms; the others waited longest for rank 2"
                + " (executor 3 on h), 1.52 s of 1.74 s in all");
  }

  @Test
  void nobodyIsNamedWhereNobodyWaited() {
    assertThat(StageSummary.of(accumulated(rank(0, 0, 5_000L, 0L)).value().last()))
        .isEqualTo(
            "Stage 3 (attempt 0), 1 ranks: 120 collectives, 15.0 MB per rank; waiting 0 ns,"
                + " reducing 5.00 us; no rank waited for another");
  }

  @Test
  void onlyTheLastAttemptOfAStageIsReported() {
    SlowestPeer sum =
        accumulated(rank(0, 1, 9L, 9L, 0L), rank(1, 1, 7L, 2L, 0L), rank(1, 0, 7L, 0L, 5L));
    assertThat(sum.value().last())
        .extracting(RankStatistics::attempt, RankStatistics::rank)
        .containsExactly(
            org.assertj.core.groups.Tuple.tuple(1, 0), org.assertj.core.groups.Tuple.tuple(1, 1));
  }

  @Test
  void theStagePageSaysForWhomEachTaskWaited() {
    SlowestPeer sum = accumulated(rank(0, 0, 9_000L, 0L, 1_500L, 1_600L));
    assertThat(sum.value()).hasToString("rank 0 waited 1.60 us for rank 2");
    assertThat(sum.isZero()).isFalse();
    assertThat(sum.copyAndReset().isZero()).isTrue();
  }

  @ParameterizedTest
  @CsvSource({
    "0, 0 ns",
    "999, 999 ns",
    "1000, 1.00 us",
    "1234567, 1.23 ms",
    "2100000000, 2.10 s",
    "345000000000, 345 s",
    "9996000, 10.0 ms",
    "999700, 1.00 ms",
    "4000000000000, 4000 s"
  })
  void timesHaveTheUnitThatFits(long nanos, String text) {
    assertThat(StageSummary.time(nanos)).isEqualTo(text);
  }
}
