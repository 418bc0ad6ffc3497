// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.exchange;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;
import static org.awaitility.Awaitility.await;

import java.time.Duration;
import java.util.Arrays;
import java.util.List;
import java.util.Random;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.CyclicBarrier;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.atomic.AtomicReference;
import java.util.concurrent.locks.LockSupport;
import org.apache.spark.BarrierTaskContext;
import org.apache.spark.SparkConf;
import org.apache.spark.SparkContext;
import org.apache.spark.TaskKilledException;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.sparkallreduce.AllReduceException;

/** The nudged allGather against Spark's own, with tasks as threads of this JVM. */
class NudgedExchangeTest {
  private static final Duration PATIENCE = Duration.ofMinutes(1);
  private static SparkContext spark;

  // Tasks of local mode run in this JVM, so they can reach these.
  private static volatile CountDownLatch latch = new CountDownLatch(0);
  private static volatile CyclicBarrier together = new CyclicBarrier(2);
  private static final AtomicReference<Throwable> SEEN = new AtomicReference<>();

  @BeforeAll
  static void start() {
    spark =
        new SparkContext(
            new SparkConf()
                .setMaster("local[4]")
                .setAppName("exchange")
                .set("spark.ui.enabled", "false")
                .set("spark.driver.host", "localhost")
                .set("spark.stage.maxConsecutiveAttempts", "1"));
  }

  @AfterAll
  static void stop() {
    spark.stop();
  }

  @AfterEach
  void noThreadIsLeft() {
    await()
        .untilAsserted(
            () ->
                assertThat(Thread.getAllStackTraces().keySet())
                    .extracting(Thread::getName)
                    .noneMatch(name -> name.startsWith("spark-allreduce ")));
  }

  private static Exchange nudged(BarrierTaskContext context) {
    return new NudgedExchange(context, PATIENCE);
  }

  /** Empty, short, large and beyond the basic plane; the same for the same seed. */
  private static String message(long seed, int rank) {
    var random = new Random(seed * 31 + rank);
    return switch (random.nextInt(4)) {
      case 0 -> "";
      case 1 -> "rank " + rank + " says 你好, \0, \uD83D\uDE80 and ß";
      case 2 -> "x".repeat(random.nextInt(1 << 20));
      default -> Long.toHexString(random.nextLong());
    };
  }

  @Test
  void theResultsAreThoseOfSparksOwnAllGather() {
    List<String> equal =
        BarrierStage.run(
            spark,
            3,
            context -> {
              for (int round = 0; round < 8; round++) {
                String mine = message(round, context.partitionId());
                String[] ours = nudged(context).allGather(mine);
                String[] sparks = context.allGather(mine);
                if (!Arrays.equals(ours, sparks) || !ours[context.partitionId()].equals(mine)) {
                  return "different in round " + round;
                }
              }
              return "equal";
            });

    assertThat(equal).containsOnly("equal").hasSize(3);
  }

  @Test
  void thePlainExchangeIsSparksOwn() {
    assertThat(
            BarrierStage.run(
                spark,
                2,
                context ->
                    String.join(
                        ",",
                        new PlainExchange(context).allGather("from " + context.partitionId()))))
        .containsExactly("from 0,from 1", "from 0,from 1");
  }

  @Test
  void aThousandExchangesWithRandomDelaysBringEveryMessageToItsRound() {
    List<String> results =
        BarrierStage.run(
            spark,
            4,
            context -> {
              Exchange exchange = nudged(context);
              for (int round = 0; round < 1000; round++) {
                LockSupport.parkNanos(ThreadLocalRandom.current().nextInt(2_000_000));
                String[] all = exchange.allGather(round + ":" + context.partitionId());
                for (int rank = 0; rank < 4; rank++) {
                  if (!all[rank].equals(round + ":" + rank)) {
                    return "round " + round + " brought " + Arrays.toString(all);
                  }
                }
              }
              return Thread.interrupted() ? "interrupted" : "right";
            });

    assertThat(results).containsExactly("right", "right", "right", "right");
  }

  @Test
  void anInterruptOfTheTasksOwnThreadStaysPendingAndChangesNothing() {
    List<String> results =
        BarrierStage.run(
            spark,
            2,
            context -> {
              Thread task = Thread.currentThread();
              Thread stray =
                  Thread.ofPlatform()
                      .start(
                          () -> {
                            do { // at least once, however late this thread begins
                              task.interrupt();
                              Thread.onSpinWait();
                            } while (!Thread.currentThread().isInterrupted());
                          });
              String[] all = nudged(context).allGather("rank " + context.partitionId());
              stray.interrupt();
              while (stray.isAlive()) {
                Thread.onSpinWait();
              }
              return String.join(",", all) + (Thread.interrupted() ? " pending" : " swallowed");
            });

    assertThat(results).containsOnly("rank 0,rank 1 pending");
  }

  @Test
  void aKilledTaskLeavesTheExchange() {
    latch = new CountDownLatch(1);
    SEEN.set(null);
    var job =
        CompletableFuture.runAsync(
            () -> {
              spark.addJobTag("killed");
              BarrierStage.run(
                  spark,
                  2,
                  context -> {
                    if (context.partitionId() == 1) {
                      latch.await(); // never comes to the exchange
                      return "";
                    }
                    try {
                      return nudged(context).allGather("")[0];
                    } catch (Throwable t) {
                      SEEN.set(t);
                      latch.countDown();
                      throw t;
                    }
                  });
            });
    await().until(() -> exchangeThreads() == 1);
    spark.cancelJobsWithTag("killed");

    assertThatThrownBy(job::join).hasMessageContaining("cancelled");
    await().untilAsserted(() -> assertThat(SEEN.get()).isInstanceOf(TaskKilledException.class));
  }

  private static long exchangeThreads() {
    return Thread.getAllStackTraces().keySet().stream()
        .filter(thread -> thread.getName().startsWith("spark-allreduce allGather"))
        .count();
  }

  @Test
  void aFailedPeerEndsTheExchangeOfTheOthers() {
    SEEN.set(null);
    assertThatThrownBy(
            () ->
                BarrierStage.run(
                    spark,
                    3,
                    context -> {
                      if (context.partitionId() == 1) {
                        while (exchangeThreads() < 2) {
                          Thread.onSpinWait();
                        }
                        throw new IllegalStateException("rank 1 has a headache");
                      }
                      try {
                        return nudged(context).allGather("")[0];
                      } catch (Throwable t) {
                        SEEN.set(t);
                        throw t;
                      }
                    }))
        .hasMessageContaining("rank 1 has a headache");
    await().untilAsserted(() -> assertThat(SEEN.get()).isInstanceOf(TaskKilledException.class));
  }

  @Test
  void aPeerThatEndsWithoutComingIsATimeOutThatNamesTheRankThatWaited() {
    SEEN.set(null);
    assertThatThrownBy(
            () ->
                BarrierStage.run(
                    spark,
                    2,
                    context -> {
                      if (context.partitionId() == 0) {
                        return "early";
                      }
                      try {
                        return new NudgedExchange(context, Duration.ofMillis(300)).allGather("")[0];
                      } catch (AllReduceException e) {
                        SEEN.set(e);
                        throw e;
                      }
                    }))
        .hasMessageContaining("did not complete");

    assertThat(SEEN.get())
        .isInstanceOf(AllReduceException.TimedOut.class)
        .hasMessageContaining("within 0.3 s")
        .hasMessageContaining("rank 1 came")
        .hasMessageContaining("spark.allreduce.timeout");
  }

  @Test
  void aTimeOutOnOneRankEndsTheWaitOfAllOthers() {
    SEEN.set(null);
    latch = new CountDownLatch(1);
    assertThatThrownBy(
            () ->
                BarrierStage.run(
                    spark,
                    3,
                    context -> {
                      switch (context.partitionId()) {
                        case 0 -> {
                          try {
                            nudged(context).allGather("");
                          } catch (Throwable t) {
                            SEEN.set(t);
                            latch.countDown();
                            throw t;
                          }
                        }
                        case 1 -> new NudgedExchange(context, Duration.ofMillis(300)).allGather("");
                        default -> latch.await();
                      }
                      return "";
                    }))
        .isNotNull();
    await().untilAsserted(() -> assertThat(SEEN.get()).isNotNull());
  }

  @Test
  void twoStagesAtOnceDoNotDisturbEachOther() throws Exception {
    together = new CyclicBarrier(4);
    BarrierStage.Body body =
        context -> {
          together.await(); // both stages are running
          String stage = Integer.toString(context.stageId());
          for (int round = 0; round < 50; round++) {
            for (String other : nudged(context).allGather(stage)) {
              if (!other.equals(stage)) {
                return "a message of stage " + other;
              }
            }
          }
          return "own";
        };
    try (ExecutorService jobs = Executors.newFixedThreadPool(2)) {
      var first = jobs.submit(() -> BarrierStage.run(spark, 2, body));
      var second = jobs.submit(() -> BarrierStage.run(spark, 2, body));

      assertThat(first.get()).containsExactly("own", "own");
      assertThat(second.get()).containsExactly("own", "own");
    }
  }

  @Test
  void onlyAThreadThatSleepsInSparksCodeIsNudged() {
    var sleep = new StackTraceElement("java.lang.Thread", "sleep", "Thread.java", 1);
    var sleep0 = new StackTraceElement("java.lang.Thread", "sleepNanos0", "Thread.java", 2);
    var barrier =
        new StackTraceElement("org.apache.spark.BarrierTaskContext", "runBarrier", "B.scala", 3);
    var park = new StackTraceElement("jdk.internal.misc.Unsafe", "park", "Unsafe.java", 4);

    assertThat(NudgedExchange.sleepsInSpark(new StackTraceElement[] {sleep0, sleep, barrier}))
        .isTrue();
    assertThat(NudgedExchange.sleepsInSpark(new StackTraceElement[] {park, barrier})).isFalse();
    assertThat(NudgedExchange.sleepsInSpark(new StackTraceElement[] {barrier, sleep})).isFalse();
    assertThat(NudgedExchange.sleepsInSpark(new StackTraceElement[] {sleep})).isFalse();
    assertThat(NudgedExchange.sleepsInSpark(new StackTraceElement[0])).isFalse();
  }
}
