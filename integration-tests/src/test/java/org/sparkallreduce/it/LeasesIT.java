// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.it;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatExceptionOfType;
import static org.assertj.core.api.Assertions.assertThatThrownBy;
import static org.awaitility.Awaitility.await;

import java.io.IOException;
import java.io.Serializable;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Executor;
import java.util.function.ToIntFunction;
import java.util.stream.Stream;
import org.apache.spark.sql.SparkSession;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import org.sparkallreduce.AllReduceException;
import org.sparkallreduce.DataType;
import org.sparkallreduce.ReduceOp;
import org.sparkallreduce.communicator.RegisteredBuffer;
import org.sparkallreduce.dataset.Collectives;
import org.sparkallreduce.dataset.RankContext;
import org.sparkallreduce.dataset.RankFunction;
import org.sparkallreduce.faults.ExecutorPids;

/** Communicators that outlive their stage, in two executor processes of two slots each. */
@Timeout(300)
class LeasesIT {
  private static final int ALL_SLOTS = 4;
  private static final Set<Long> PROCESSES = new HashSet<>();
  private static final Executor NEW_THREADS = body -> Thread.ofPlatform().daemon().start(body);
  private static SparkSession spark;
  @TempDir private Path folder;

  @BeforeAll
  static void start() {
    spark =
        Cluster.start(
            Cluster.conf("local-cluster[2,2,1024]")
                .set("spark.allreduce.staging.size", "1m")
                .set("spark.allreduce.slots.timeout", "60s"),
            2);
  }

  @AfterAll
  static void nothingIsLeftAfterTheApplication() {
    spark.stop();
    await().untilAsserted(() -> assertThat(ExecutorPids.find()).isEmpty());
    assertNoNames();
  }

  @BeforeEach
  void bothExecutorsRun() {
    await().until(() -> Cluster.executors(spark) == 2 && ExecutorPids.find().size() == 2);
  }

  @AfterEach
  void noNameIsLeft() {
    assertNoNames();
  }

  private static void assertNoNames() {
    PROCESSES.addAll(ExecutorPids.find());
    await()
        .untilAsserted(
            () ->
                assertThat(PROCESSES)
                    .allSatisfy(pid -> assertThat(new ExecutorProcess(pid).names()).isZero()));
  }

  /** What one rank saw of itself and of its process. */
  record Seen(
      long pid,
      int attempt,
      double sum,
      long segment,
      Set<Long> segments,
      int segmentMappings,
      int mappings,
      int fileDescriptors,
      int threads)
      implements Serializable {}

  private static Seen look(RankContext context, double sum) {
    RegisteredBuffer buffer = context.communicator().allocate(DataType.FLOAT64, 1);
    ExecutorProcess own = ExecutorProcess.own();
    return new Seen(
        own.pid(),
        context.attempt(),
        sum,
        own.segmentAt(buffer.segment().address()),
        own.segments(),
        own.segmentMappings(),
        own.mappings(),
        own.fileDescriptors(),
        own.threads());
  }

  private static double sum(RankContext context, double seed) {
    double[] values = {seed + context.rank()};
    context.communicator().allReduce(values, ReduceOp.SUM);
    return values[0];
  }

  private static double expected(int ranks, double seed) {
    return ranks * seed + ranks * (ranks - 1) / 2.0;
  }

  private static <R> List<R> run(int ranks, RankFunction<Integer, R> function) {
    return Collectives.run(Cluster.numbers(spark, ranks), ranks, function);
  }

  /** A stage whose results were right. */
  private static List<Seen> stage(int ranks, double seed) {
    List<Seen> seen = run(ranks, (context, _) -> look(context, sum(context, seed)));
    assertThat(seen).extracting(Seen::sum).hasSize(ranks).containsOnly(expected(ranks, seed));
    return seen;
  }

  private static Set<Long> segments(List<Seen> ranks) {
    var all = new HashSet<Long>();
    ranks.forEach(rank -> all.add(rank.segment()));
    return all;
  }

  private static void awaitReleased(Set<Long> segments) {
    await()
        .untilAsserted(
            () ->
                assertThat(ExecutorPids.find())
                    .hasSize(2)
                    .allSatisfy(
                        pid ->
                            assertThat(new ExecutorProcess(pid).segments())
                                .doesNotContainAnyElementsOf(segments)));
  }

  /** The helper threads have ended; the one that looks for idle leases stays. */
  private static void awaitNoHelperThreads() {
    await()
        .untilAsserted(
            () ->
                assertThat(ExecutorPids.find())
                    .allSatisfy(
                        pid ->
                            assertThat(new ExecutorProcess(pid).threadsOfOurs())
                                .isLessThanOrEqualTo(1)));
  }

  @Test
  void twoHundredStagesOpenTheNativeResourcesOnce() {
    stage(ALL_SLOTS, 0);
    var stages = new ArrayList<List<Seen>>();
    for (int i = 0; i < 200; i++) {
      stages.add(stage(ALL_SLOTS, i));
    }
    Set<Long> first = segments(stages.getFirst());
    // A process may also hold what earlier tests left there, until its idle time is over.
    Map<Long, Set<Long>> mapped = new HashMap<>();
    stages.getFirst().forEach(rank -> mapped.put(rank.pid(), rank.segments()));
    assertThat(first).hasSize(ALL_SLOTS);
    assertThat(mapped).hasSize(2);
    assertThat(stages)
        .allSatisfy(
            ranks -> {
              assertThat(segments(ranks)).isEqualTo(first);
              assertThat(ranks)
                  .allSatisfy(
                      rank -> {
                        assertThat(rank.segments()).containsAll(first);
                        assertThat(mapped.get(rank.pid())).containsAll(rank.segments());
                        assertThat(rank.segmentMappings()).isEqualTo(rank.segments().size());
                      });
            });
    // Spark's own pools and the JVM's compilers come and go; one more a stage would be 100 more.
    assertNoGrowth(stages, Seen::threads);
    assertNoGrowth(stages, Seen::fileDescriptors);
    assertNoGrowth(stages, Seen::mappings);
    awaitNoHelperThreads();
  }

  private static void assertNoGrowth(List<List<Seen>> stages, ToIntFunction<Seen> count) {
    int before = most(stages.subList(50, 100), count);
    assertThat(most(stages.subList(150, 200), count)).isLessThan(before + 25);
  }

  private static int most(List<List<Seen>> stages, ToIntFunction<Seen> count) {
    return stages.stream().flatMap(List::stream).mapToInt(count).max().orElseThrow();
  }

  @Test
  void otherNumbersOfRanksHaveTheirOwnCommunicators() {
    Set<Long> four = segments(stage(4, 1));
    Set<Long> three = segments(stage(3, 2));
    Set<Long> two = segments(stage(2, 3));
    assertThat(three).hasSize(3).doesNotContainAnyElementsOf(four);
    assertThat(two).hasSize(2).doesNotContainAnyElementsOf(four).doesNotContainAnyElementsOf(three);
    stage(3, 4);
    stage(2, 5);
    assertThat(segments(stage(4, 6))).isEqualTo(four);
  }

  @Test
  void anExecutorKilledBetweenTwoStagesIsReplacedAndTheSurvivorLetsGo() {
    List<Seen> before = stage(ALL_SLOTS, 1);
    PROCESSES.addAll(ExecutorPids.find());
    long victim = before.getFirst().pid();
    assertThat(ProcessHandle.of(victim).orElseThrow().destroyForcibly()).isTrue();
    await().until(() -> !ExecutorPids.find().contains(victim));

    List<Seen> after = stage(ALL_SLOTS, 2);

    assertThat(after).extracting(Seen::pid).doesNotContain(victim);
    assertThat(segments(after)).hasSize(4).doesNotContainAnyElementsOf(segments(before));
    awaitReleased(segments(before));
    assertThat(segments(stage(ALL_SLOTS, 3))).isEqualTo(segments(after));
  }

  @Test
  void aStageThatIsTriedAgainAfterADeathMeetsNoOldSignals() {
    Set<Long> before = segments(stage(ALL_SLOTS, 1));
    PROCESSES.addAll(ExecutorPids.find());
    List<Seen> seen =
        run(
            ALL_SLOTS,
            (context, _) -> {
              // The second attempt makes fewer calls than the first, with other values.
              for (int call = context.attempt(); call < 3; call++) {
                sum(context, 1000 * call);
              }
              if (context.attempt() == 0 && context.rank() == 1) {
                Runtime.getRuntime().halt(1);
              }
              return look(context, sum(context, 10 + context.attempt()));
            });
    assertThat(seen).extracting(Seen::attempt).doesNotContain(0);
    assertThat(seen)
        .allSatisfy(
            rank -> assertThat(rank.sum()).isEqualTo(expected(ALL_SLOTS, 10 + rank.attempt())));
    assertThat(segments(seen)).hasSize(4).doesNotContainAnyElementsOf(before);
    awaitReleased(before);
    stage(ALL_SLOTS, 2);
  }

  @Test
  void anAbortedStageIsFollowedByAGoodOne() {
    Set<Long> before = segments(stage(ALL_SLOTS, 1));
    assertThatExceptionOfType(AllReduceException.RankFailed.class)
        .isThrownBy(
            () ->
                run(
                    ALL_SLOTS,
                    (context, _) -> {
                      double sum = sum(context, 5);
                      if (context.rank() == 2) {
                        throw new IllegalArgumentException("rank two will not");
                      }
                      context.communicator().barrier();
                      return sum;
                    }))
        .withMessageContaining("rank two will not");
    awaitReleased(before);
    assertThat(segments(stage(ALL_SLOTS, 2))).doesNotContainAnyElementsOf(before);
    awaitNoHelperThreads();
  }

  @Test
  void twoStagesAtTheSameTimeNeverShareACommunicator() throws Exception {
    stage(2, 0); // leaves a lease that both would like to have
    for (int round = 0; round < 3; round++) {
      Path meeting = Files.createDirectory(folder.resolve("round-" + round));
      var one = CompletableFuture.supplyAsync(() -> besideAnother(meeting, 100), NEW_THREADS);
      var other = CompletableFuture.supplyAsync(() -> besideAnother(meeting, 200), NEW_THREADS);
      assertThat(segments(one.join())).hasSize(2);
      assertThat(segments(other.join()))
          .hasSize(2)
          .doesNotContainAnyElementsOf(segments(one.join()));
    }
  }

  /** Two ranks that go on when two of another stage have come to the same place. */
  private static List<Seen> besideAnother(Path meeting, int seed) {
    String place = meeting.toString();
    return run(
        2,
        (context, _) -> {
          arriveAt(place, seed + context.rank());
          while (presentAt(place) < 4) {
            context.checkInterrupted();
            Thread.onSpinWait();
          }
          double sum = 0;
          for (int call = 0; call < 500; call++) {
            sum = sum(context, seed + call);
            if (sum != expected(2, seed + call)) {
              throw new IllegalStateException("a wrong sum: " + sum);
            }
          }
          return look(context, sum);
        });
  }

  private static void arriveAt(String place, int who) throws IOException {
    Files.writeString(Path.of(place, Integer.toString(who)), "");
  }

  private static long presentAt(String place) throws IOException {
    try (Stream<Path> files = Files.list(Path.of(place))) {
      return files.count();
    }
  }

  @Test
  void aJobCancelledInTheMidstOfACollectiveLeavesNothing() throws Exception {
    Set<Long> before = segments(stage(ALL_SLOTS, 1));
    String place = folder.toString();
    var job =
        CompletableFuture.runAsync(
            () -> {
              spark.sparkContext().setJobGroup("in a collective", "cancelled by a test", false);
              run(
                  ALL_SLOTS,
                  (context, _) -> {
                    arriveAt(place, context.rank());
                    while (true) {
                      sum(context, 1);
                    }
                  });
            },
            NEW_THREADS);
    await().until(() -> presentAt(place) == ALL_SLOTS);
    spark.sparkContext().cancelJobGroup("in a collective");
    assertThatThrownBy(job::join).hasMessageContaining("cancelled");
    assertThat(segments(stage(ALL_SLOTS, 2))).doesNotContainAnyElementsOf(before);
    awaitReleased(before);
    awaitNoHelperThreads();
  }

  @Test
  void aJobCancelledInTheMidstOfAnExchangeLeavesNothing() throws Exception {
    stage(ALL_SLOTS, 1);
    Map<Long, Set<Long>> before = new HashMap<>();
    ExecutorPids.find().forEach(pid -> before.put(pid, new ExecutorProcess(pid).segments()));
    String place = folder.toString();
    var job =
        CompletableFuture.runAsync(
            () -> {
              spark.sparkContext().setJobGroup("in an exchange", "cancelled by a test", false);
              OwnStage.run(
                  spark.sparkContext(),
                  2,
                  task -> {
                    if (task.partitionId() == 0) {
                      RankContext.open(); // waits for rank 1, which never comes
                    }
                    arriveAt(place, 1);
                    while (!task.isInterrupted()) {
                      Thread.onSpinWait();
                    }
                  });
            },
            NEW_THREADS);
    await()
        .until(
            () ->
                presentAt(place) == 1
                    && ExecutorPids.find().stream()
                        .map(ExecutorProcess::new)
                        .anyMatch(process -> process.threadsOfOurs() > 1 && process.names() == 1));
    spark.sparkContext().cancelJobGroup("in an exchange");
    assertThatThrownBy(job::join).hasMessageContaining("cancelled");
    awaitNoHelperThreads();
    // Rank 0 lets go of what it had created, and of nothing else.
    await()
        .untilAsserted(
            () ->
                assertThat(before)
                    .allSatisfy(
                        (pid, segments) ->
                            assertThat(new ExecutorProcess(pid).segments()).isEqualTo(segments)));
    stage(ALL_SLOTS, 2);
  }
}
