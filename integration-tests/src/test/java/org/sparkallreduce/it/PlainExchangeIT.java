// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.it;

import static org.assertj.core.api.Assertions.assertThat;
import static org.awaitility.Awaitility.await;

import java.io.IOException;
import java.util.Set;
import org.apache.spark.sql.SparkSession;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.sparkallreduce.ReduceOp;
import org.sparkallreduce.dataset.Collectives;
import org.sparkallreduce.faults.ExecutorPids;

/** Spark's own allGather as the exchange, and communicators that are kept for a short time only. */
@Timeout(300)
class PlainExchangeIT {
  @Test
  void stagesAreRightAndWhatTheyLeaveVanishesWhenItIsIdle() throws IOException {
    Set<Long> executors;
    try (SparkSession spark =
        Cluster.start(
            Cluster.conf("local-cluster[2,1,1024]")
                .set("spark.allreduce.exchange.nudged", "false")
                .set("spark.allreduce.lease.idle", "1s"),
            2)) {
      executors = ExecutorPids.find();
      assertThat(executors).hasSize(2);
      for (int stage = 0; stage < 2; stage++) {
        assertSum(spark);
        await()
            .untilAsserted(
                () ->
                    assertThat(executors)
                        .allSatisfy(
                            pid -> assertThat(new ExecutorProcess(pid).segments()).isEmpty()));
      }
      assertThat(ExecutorPids.find()).isEqualTo(executors);
    }
    assertThat(executors).allSatisfy(pid -> assertThat(new ExecutorProcess(pid).names()).isZero());
  }

  private static void assertSum(SparkSession spark) {
    var sums =
        Collectives.run(
            Cluster.numbers(spark, 2),
            2,
            (context, _) -> {
              long[] sum = {context.rank() + 1};
              context.communicator().allReduce(sum, ReduceOp.SUM);
              return sum[0];
            });
    assertThat(sums).containsExactly(3L, 3L);
  }
}
