// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.dataset;

import java.util.List;
import java.util.Locale;
import java.util.function.ToLongFunction;

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

  /** A duration in the unit that fits it, with three digits, but whole seconds. */
  static String time(long nanos) {
    if (nanos < 1_000) {
      return nanos + " ns";
    }
    String[] units = {"us", "ms", "s"};
    double value = nanos / 1e3;
    int unit = 0;
    for (; value >= 999.5 && unit < units.length - 1; unit++) {
      value /= 1e3;
    }
    int decimals = value < 9.995 ? 2 : value < 99.95 ? 1 : 0;
    return String.format(Locale.ROOT, "%." + decimals + "f " + units[unit], value);
  }
}
