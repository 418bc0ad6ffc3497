// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.it;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatExceptionOfType;
import static org.assertj.core.api.Assertions.within;
import static org.awaitility.Awaitility.await;

import java.io.Serializable;
import java.time.Duration;
import java.util.Arrays;
import java.util.List;
import org.apache.spark.api.java.JavaRDD;
import org.apache.spark.ml.linalg.SQLDataTypes;
import org.apache.spark.ml.linalg.Vector;
import org.apache.spark.ml.linalg.Vectors;
import org.apache.spark.ml.stat.Summarizer;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.RowFactory;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.functions;
import org.apache.spark.sql.types.StructType;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.sparkallreduce.AllReduceException;
import org.sparkallreduce.ReduceOp;
import org.sparkallreduce.dataset.Collectives;

/** Two executor processes of one slot each. */
class TwoExecutorsIT {
  private static SparkSession spark;

  @BeforeAll
  static void start() {
    spark =
        Cluster.start(
            Cluster.conf("local-cluster[2,1,1024]")
                .set("spark.stage.maxConsecutiveAttempts", "2")
                .set("spark.allreduce.slots.timeout", "3s")
                .set("spark.allreduce.timeout", "8s"),
            2);
  }

  @AfterAll
  static void stop() {
    spark.stop();
  }

  @AfterEach
  void nothingIsLeftInSharedMemory() {
    await().untilAsserted(() -> assertThat(Cluster.leftInSharedMemory()).isEmpty());
  }

  private static JavaRDD<Integer> numbers(int count) {
    return Cluster.numbers(spark, count);
  }

  @SuppressWarnings("ArrayRecordComponent") // read once, never compared
  record Seen(long pid, int attempt, double[] values) implements Serializable {}

  @Test
  void ranksInTwoProcessesGetTheSameBits() {
    List<Seen> seen =
        Collectives.run(
            numbers(10),
            2,
            (context, _) -> {
              double[] values = new double[10_001];
              for (int i = 0; i < values.length; i++) {
                values[i] = Math.sin(i + 17 * context.rank());
              }
              context.communicator().allReduce(values, ReduceOp.SUM);
              return new Seen(ProcessHandle.current().pid(), context.attempt(), values);
            });
    assertThat(seen.get(0).pid())
        .isNotEqualTo(seen.get(1).pid())
        .isNotEqualTo(ProcessHandle.current().pid());
    double[] expected = new double[10_001];
    for (int i = 0; i < expected.length; i++) {
      expected[i] = Math.sin(i) + Math.sin(i + 17);
    }
    assertThat(seen.get(0).values()).containsExactly(expected);
    assertThat(seen.get(1).values()).containsExactly(expected);
  }

  @Test
  void oneShotReductionsGiveTheSameValuesAsSummarizer() {
    List<Row> vectors =
        List.of(
            RowFactory.create(Vectors.dense(0.1, -2, 3)),
            RowFactory.create(Vectors.sparse(3, new int[] {2}, new double[] {1e-3})),
            RowFactory.create(Vectors.dense(7, 0.3, -1e6)));
    Dataset<Row> rows =
        spark.createDataFrame(vectors, new StructType().add("v", SQLDataTypes.VectorType()));
    Row expected =
        rows.select(
                Summarizer.sum(functions.col("v")),
                Summarizer.mean(functions.col("v")),
                Summarizer.min(functions.col("v")),
                Summarizer.max(functions.col("v")))
            .first();
    assertSame(Collectives.sum(rows, "v"), expected.getAs(0));
    assertSame(Collectives.average(rows, "v"), expected.getAs(1));
    assertSame(Collectives.min(rows, "v"), expected.getAs(2));
    assertSame(Collectives.max(rows, "v"), expected.getAs(3));
  }

  private static void assertSame(double[] actual, Vector expected) {
    assertThat(actual).hasSize(expected.size());
    for (int i = 0; i < actual.length; i++) {
      double wanted = expected.apply(i);
      assertThat(actual[i]).isCloseTo(wanted, within(1e-14 * Math.abs(wanted)));
    }
  }

  @Test
  void anExecutorThatDiesBetweenCallsIsReplacedAndTheStageSucceeds() {
    List<Seen> seen =
        Collectives.run(
            numbers(10),
            2,
            (context, _) -> {
              double[] values = {context.rank() + 1, 10};
              context.communicator().allReduce(values, ReduceOp.SUM);
              if (context.attempt() == 0 && context.rank() == 1) {
                Runtime.getRuntime().halt(1);
              }
              context.communicator().allReduce(values, ReduceOp.SUM);
              return new Seen(ProcessHandle.current().pid(), context.attempt(), values);
            });
    assertThat(seen).extracting(Seen::attempt).containsExactly(1, 1);
    assertThat(seen).allSatisfy(one -> assertThat(one.values()).containsExactly(6, 40));
  }

  @Test
  void theFirstFailureSurfacesWithItsRankExecutorAndStack() {
    assertThatExceptionOfType(AllReduceException.RankFailed.class)
        .isThrownBy(
            () ->
                Collectives.run(
                    numbers(10),
                    2,
                    (context, _) -> {
                      if (context.rank() == 1) {
                        throw new UnsupportedOperationException("rank one will not");
                      }
                      context.communicator().barrier();
                      return 0;
                    }))
        .satisfies(e -> assertThat(e.rank()).isEqualTo(1))
        .withMessageContaining("Rank 1 (executor ")
        .withMessageContaining("UnsupportedOperationException: rank one will not")
        .withMessageContaining("at org.sparkallreduce.it.TwoExecutorsIT");
  }

  @Test
  void aPeerThatNeverComesIsNamedWhenTheDeadlinePasses() {
    assertThatExceptionOfType(AllReduceException.TimedOut.class)
        .isThrownBy(
            () ->
                Collectives.run(
                    numbers(10),
                    2,
                    (context, _) -> {
                      if (context.rank() == 0) {
                        context.communicator().barrier();
                      }
                      while (context.rank() == 1) {
                        context.checkInterrupted();
                        Thread.onSpinWait();
                      }
                      return 0;
                    }))
        .withMessageContaining("Rank 0 (executor ")
        .withMessageContaining("barrier")
        .withMessageMatching("(?s).*rank 1\\b.*");
  }

  @Test
  void differentCallsAreFoundBeforeAnythingIsWritten() {
    assertThatExceptionOfType(AllReduceException.Mismatch.class)
        .isThrownBy(
            () ->
                Collectives.run(
                    numbers(10),
                    2,
                    (context, _) -> {
                      double[] values = new double[3 + context.rank()];
                      context.communicator().allReduce(values, ReduceOp.SUM);
                      return 0;
                    }))
        .withMessageContaining("3")
        .withMessageContaining("4");
  }

  @Test
  void moreRanksThanSlotsAreReportedWithNumbers() {
    assertThatExceptionOfType(AllReduceException.Setup.class)
        .isThrownBy(() -> Collectives.run(numbers(10), 3, (_, _) -> 0))
        .withMessageContaining("needs 3 task slots")
        .withMessageContaining("had 2 after 3 s")
        .withMessageContaining("at most 2 ranks");
  }

  @Test
  void aCancelledJobLeavesItsCollectiveAndTheNextJobRuns() throws Exception {
    var job =
        Thread.ofPlatform()
            .start(
                () -> {
                  spark.sparkContext().setJobGroup("doomed", "cancelled by the test", false);
                  assertThatExceptionOfType(AllReduceException.Aborted.class)
                      .isThrownBy(
                          () ->
                              Collectives.run(
                                  numbers(10),
                                  2,
                                  (context, _) -> {
                                    while (true) {
                                      context.communicator().barrier();
                                    }
                                  }))
                      .withMessageContaining("cancelled");
                });
    await()
        .until(
            () ->
                Arrays.stream(spark.sparkContext().statusTracker().getExecutorInfos())
                        .mapToInt(executor -> executor.numRunningTasks())
                        .sum()
                    == 2);
    spark.sparkContext().cancelJobGroup("doomed");
    assertThat(job.join(Duration.ofMinutes(1))).isTrue();
    assertThat(Collectives.run(numbers(10), 2, (context, _) -> context.size()))
        .containsExactly(2, 2);
  }
}
