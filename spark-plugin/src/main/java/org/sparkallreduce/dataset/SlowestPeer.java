// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.dataset;

import java.io.Serializable;
import java.util.ArrayList;
import java.util.Collections;
import java.util.Comparator;
import java.util.List;
import java.util.stream.Collectors;
import org.apache.spark.util.AccumulatorV2;

/**
 * Brings what each rank did to the driver. On the stage's page it reads as the rank for which a
 * task waited longest.
 */
final class SlowestPeer extends AccumulatorV2<RankStatistics, SlowestPeer.Ranks> {
  private static final long serialVersionUID = 1L;

  /** One entry per task that ended well; with a retried stage, those of all attempts. */
  record Ranks(List<RankStatistics> all) implements Serializable {
    Ranks {
      all = List.copyOf(all);
    }

    /** Those of the last attempt, in rank order. */
    List<RankStatistics> last() {
      int attempt = all.stream().mapToInt(RankStatistics::attempt).max().orElse(0);
      return all.stream()
          .filter(rank -> rank.attempt() == attempt)
          .sorted(Comparator.comparingInt(RankStatistics::rank))
          .toList();
    }

    /** What Spark shows on the stage's page. */
    @Override
    public String toString() {
      return last().stream()
          .flatMap(
              rank ->
                  rank.done().slowestPeer().stream()
                      .mapToObj(
                          peer ->
                              "rank %d waited %s for rank %d"
                                  .formatted(
                                      rank.rank(), StageSummary.time(rank.waitFor(peer)), peer)))
          .collect(Collectors.joining("; "));
    }
  }

  // Spark's heartbeat serializes it while the task runs.
  private final List<RankStatistics> ranks = Collections.synchronizedList(new ArrayList<>());

  @Override
  public boolean isZero() {
    return ranks.isEmpty();
  }

  @Override
  public SlowestPeer copy() {
    var copy = new SlowestPeer();
    copy.ranks.addAll(value().all());
    return copy;
  }

  @Override
  public void reset() {
    ranks.clear();
  }

  @Override
  public void add(RankStatistics rank) {
    ranks.add(rank);
  }

  @Override
  public void merge(AccumulatorV2<RankStatistics, Ranks> other) {
    ranks.addAll(other.value().all());
  }

  @Override
  public Ranks value() {
    return new Ranks(ranks);
  }
}
