// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.dataset;

import java.io.Serializable;
import java.util.concurrent.TimeUnit;
import org.apache.spark.SparkContext;
import org.apache.spark.util.LongAccumulator;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * The accumulators of one job: each task adds what its rank did, and Spark shows them, by task and
 * as sums, on the page of the stage. Spark counts tasks that ended well; of a stage that was tried
 * several times, those of all attempts.
 */
record TaskStatistics(
    LongAccumulator collectives,
    LongAccumulator bytes,
    LongAccumulator waitMicros,
    LongAccumulator reduceMicros,
    SlowestPeer slowestPeer)
    implements Serializable {
  private static final Logger LOG = LoggerFactory.getLogger(TaskStatistics.class);

  /** On the driver, before the job is submitted. */
  static TaskStatistics register(SparkContext spark) {
    var slowest = new SlowestPeer();
    spark.register(slowest, "all-reduce: slowest peer");
    return new TaskStatistics(
        spark.longAccumulator("all-reduce: collectives"),
        spark.longAccumulator("all-reduce: bytes"),
        spark.longAccumulator("all-reduce: waiting (us)"),
        spark.longAccumulator("all-reduce: reducing (us)"),
        slowest);
  }

  /** In the task, before it ends. */
  void add(RankStatistics rank) {
    collectives.add(rank.done().collectives());
    bytes.add(rank.done().bytes());
    waitMicros.add(TimeUnit.NANOSECONDS.toMicros(rank.done().waitNanos()));
    reduceMicros.add(TimeUnit.NANOSECONDS.toMicros(rank.done().reduceNanos()));
    slowestPeer.add(rank);
  }

  /** On the driver, when the job has ended well. */
  void log() {
    SlowestPeer.Ranks ranks = slowestPeer.value();
    if (LOG.isInfoEnabled() && !ranks.all().isEmpty()) {
      LOG.info("{}", StageSummary.of(ranks.last()));
    }
  }
}
