// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.dataset;

import java.util.List;
import java.util.Locale;
import java.util.function.ToLongFunction;
import java.util.stream.IntStream;

/** The line that the driver logs at the end of a stage. */
final class StageSummary {
  private StageSummary() {}

  /**
   * One line, such as: Stage 3 (attempt 0), 4 ranks: 120 collectives, 15.0 MB per rank; waiting
   * 0.10 to 0.82 s, reducing 0.31 to 0.33 s; waited longest for rank 2 (executor 1 on h), 2.10 s in
   * all.
   */
  static String of(List<RankStatistics> ranks) {
    RankStatistics first = ranks.getFirst();
    return "Stage %d (attempt %d), %d ranks: %d collectives, %.1f MB per rank; waiting %s, reducing %s; %s"
        .formatted(
            first.stage(),
            first.attempt(),
            ranks.size(),
            first.done().collectives(),
            first.done().bytes() / 1e6,
            range(ranks, rank -> rank.done().waitNanos()),
            range(ranks, rank -> rank.done().reduceNanos()),
            slowest(ranks));
  }

  private static String range(List<RankStatistics> ranks, ToLongFunction<RankStatistics> nanos) {
    var all = ranks.stream().mapToLong(nanos).summaryStatistics();
    return all.getMin() == all.getMax()
        ? time(all.getMax())
        : "%s to %s".formatted(time(all.getMin()), time(all.getMax()));
  }

  private static String slowest(List<RankStatistics> ranks) {
    RankStatistics slowest = ranks.getFirst();
    for (RankStatistics rank : ranks) {
      if (waitsFor(rank.rank(), ranks) > waitsFor(slowest.rank(), ranks)) {
        slowest = rank;
      }
    }
    long waits = waitsFor(slowest.rank(), ranks);
    if (waits == 0) {
      return "no rank waited for another";
    }
    return "the others waited longest for rank %d (%s), %s of %s in all"
        .formatted(
            slowest.rank(),
            slowest.where(),
            time(waits),
            time(ranks.stream().mapToLong(rank -> rank.done().waitNanos()).sum()));
  }

  /** How long all ranks together waited for {@code rank}. */
  private static long waitsFor(int rank, List<RankStatistics> ranks) {
    return ranks.stream().mapToLong(other -> other.waitFor(rank)).sum();
  }

  /** A duration in the unit that fits it. */
  static String time(long nanos) {
    String[] units = {"ns", "us", "ms", "s"};
    int unit =
        IntStream.range(0, units.length - 1)
            .filter(u -> nanos < Math.pow(1000, u + 1))
            .findFirst()
            .orElse(units.length - 1);
    return unit == 0
        ? nanos + " ns"
        : String.format(Locale.ROOT, "%.3g %s", nanos / Math.pow(1000, unit), units[unit]);
  }
}
