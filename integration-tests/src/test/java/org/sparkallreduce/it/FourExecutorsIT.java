// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.it;

import static org.assertj.core.api.Assertions.assertThat;
import static org.awaitility.Awaitility.await;

import java.io.IOException;
import java.io.Serializable;
import java.lang.foreign.ValueLayout;
import java.util.ArrayList;
import java.util.EnumSet;
import java.util.List;
import java.util.Set;
import org.apache.spark.sql.SparkSession;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.sparkallreduce.DataType;
import org.sparkallreduce.ReduceOp;
import org.sparkallreduce.Schedule;
import org.sparkallreduce.communicator.Communicator;
import org.sparkallreduce.communicator.RegisteredBuffer;
import org.sparkallreduce.dataset.Collectives;
import org.sparkallreduce.dataset.RankContext;

/** Four executor processes of one slot each. */
class FourExecutorsIT {
  private static final int RANKS = 4;

  /** All that carry more than a few bytes. */
  private static final Set<Schedule> SCHEDULES =
      EnumSet.complementOf(EnumSet.of(Schedule.LOW_LATENCY));

  private static SparkSession spark;

  @BeforeAll
  static void start() {
    spark = Cluster.start(Cluster.conf("local-cluster[4,1,1024]"), 4);
  }

  @AfterAll
  static void stop() {
    spark.stop();
  }

  record Sums(long pid, List<double[]> sums) implements Serializable {}

  private static Sums underEverySchedule(RankContext context) {
    Communicator communicator = context.communicator();
    RegisteredBuffer in = communicator.allocate(DataType.FLOAT64, 5_003);
    RegisteredBuffer out = communicator.allocate(DataType.FLOAT64, 5_003);
    for (int i = 0; i < 5_003; i++) {
      in.segment().setAtIndex(ValueLayout.JAVA_DOUBLE, i, Math.cos(i * (context.rank() + 1)));
    }
    var sums = new ArrayList<double[]>();
    for (Schedule schedule : SCHEDULES) {
      communicator.allReduce(in, out, ReduceOp.SUM, schedule);
      sums.add(out.segment().toArray(ValueLayout.JAVA_DOUBLE));
    }
    return new Sums(ProcessHandle.current().pid(), sums);
  }

  @Test
  void everyScheduleGivesEveryRankTheSameBits() {
    List<Sums> ranks =
        Collectives.run(
            Cluster.numbers(spark, 8), RANKS, (context, _) -> underEverySchedule(context));
    double[] expected = new double[5_003];
    for (int i = 0; i < expected.length; i++) {
      for (int rank = 0; rank < RANKS; rank++) {
        expected[i] += Math.cos(i * (rank + 1));
      }
    }
    assertThat(ranks).extracting(Sums::pid).doesNotHaveDuplicates().hasSize(RANKS);
    assertThat(ranks)
        .allSatisfy(
            rank ->
                assertThat(rank.sums())
                    .hasSize(SCHEDULES.size())
                    .allSatisfy(sum -> assertThat(sum).containsExactly(expected)));
  }

  @Test
  void theOtherCollectivesMoveWhatTheySay() {
    List<List<Integer>> ranks =
        Collectives.run(
            Cluster.numbers(spark, 8),
            RANKS,
            (context, _) -> {
              Communicator communicator = context.communicator();
              int rank = context.rank();
              int[] gathered = new int[RANKS];
              communicator.allGather(new int[] {10 + rank}, gathered);
              int[] slices = {1, 2, 3, 4};
              int[] slice = new int[1];
              communicator.reduceScatter(slices, slice, ReduceOp.SUM);
              int[] word = {rank == 2 ? 77 : 0};
              communicator.broadcast(word, 2);
              communicator.barrier();
              var seen = new ArrayList<Integer>();
              for (int value : gathered) {
                seen.add(value);
              }
              seen.add(slice[0]);
              seen.add(word[0]);
              return seen;
            });
    for (int rank = 0; rank < RANKS; rank++) {
      assertThat(ranks.get(rank)).containsExactly(10, 11, 12, 13, RANKS * (rank + 1), 77);
    }
  }

  @Test
  void anExecutorKilledInsideOfACollectiveIsReplacedAndTheStageSucceeds() {
    List<Integer> attempts =
        Collectives.run(
            Cluster.numbers(spark, 8),
            RANKS,
            (context, _) -> {
              Communicator communicator = context.communicator();
              communicator.barrier();
              if (context.attempt() == 0 && context.rank() == 3) {
                killThisProcess();
              }
              // At first until one of them is dead.
              for (int call = 0; context.attempt() == 0 || call < 1_000; call++) {
                double[] one = {1};
                communicator.allReduce(one, ReduceOp.SUM);
                if (one[0] != RANKS) {
                  throw new IllegalStateException("a wrong sum: " + one[0]);
                }
              }
              return context.attempt();
            });
    assertThat(attempts).containsExactly(1, 1, 1, 1);
    await().untilAsserted(() -> assertThat(Cluster.leftInSharedMemory()).isEmpty());
  }

  /** SIGKILL arrives at some moment of the calls that follow. */
  private static void killThisProcess() throws IOException {
    new ProcessBuilder("kill", "-9", Long.toString(ProcessHandle.current().pid())).start();
  }
}
