// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.dataset;

import static org.assertj.core.api.Assertions.assertThat;
import static org.awaitility.Awaitility.await;

import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.Phaser;
import java.util.concurrent.locks.LockSupport;
import java.util.stream.Collectors;
import org.apache.spark.scheduler.AccumulableInfo;
import org.apache.spark.scheduler.SparkListener;
import org.apache.spark.scheduler.SparkListenerJobEnd;
import org.apache.spark.scheduler.SparkListenerStageCompleted;
import org.apache.spark.scheduler.SparkListenerTaskEnd;
import org.apache.spark.sql.Encoders;
import org.apache.spark.sql.SparkSession;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.sparkallreduce.ReduceOp;
import org.sparkallreduce.communicator.LocalNode;
import scala.jdk.javaapi.CollectionConverters;

/** What Spark is told of each task: what its stage page shows. */
class TaskStatisticsTest {
  private static final Duration LATE = Duration.ofMillis(15);
  private static SparkSession spark;
  private static final Listener LISTENER = new Listener();

  /** Ranks are threads of this process: they begin each step together, but for rank 1's delay. */
  private static final Phaser TOGETHER = new Phaser(3);

  /** Named accumulators of the stages and tasks that have ended. */
  private static final class Listener extends SparkListener {
    final List<Map<String, Object>> stages = new CopyOnWriteArrayList<>();
    final List<Map<String, Object>> tasks = new CopyOnWriteArrayList<>();
    volatile boolean jobEnded;

    @Override
    public void onStageCompleted(SparkListenerStageCompleted completed) {
      add(stages, CollectionConverters.asJava(completed.stageInfo().accumulables().values()), true);
    }

    @Override
    public void onTaskEnd(SparkListenerTaskEnd ended) {
      add(tasks, CollectionConverters.asJava(ended.taskInfo().accumulables()), false);
    }

    @Override
    public void onJobEnd(SparkListenerJobEnd ended) {
      jobEnded = true;
    }

    private static void add(
        List<Map<String, Object>> to, Iterable<AccumulableInfo> infos, boolean value) {
      Map<String, Object> ours =
          java.util.stream.StreamSupport.stream(infos.spliterator(), false)
              .filter(info -> info.name().isDefined())
              .filter(info -> info.name().get().startsWith("all-reduce: "))
              .collect(
                  Collectors.toMap(
                      info -> info.name().get(),
                      info -> value ? info.value().get() : info.update().get()));
      if (!ours.isEmpty()) {
        to.add(ours);
      }
    }
  }

  @BeforeAll
  static void start() {
    spark =
        SparkSession.builder()
            .master("local[3]")
            .config("spark.plugins", "org.sparkallreduce.plugin.AllReducePlugin")
            .config("spark.ui.enabled", "false")
            .config("spark.driver.host", "localhost")
            .config("spark.sql.shuffle.partitions", "2")
            .config("spark.allreduce.arena.size", "1m")
            .getOrCreate();
    spark.sparkContext().addSparkListener(LISTENER);
  }

  @AfterAll
  static void stop() {
    spark.stop();
  }

  @BeforeEach
  void forget() {
    LISTENER.stages.clear();
    LISTENER.tasks.clear();
  }

  /** Three ranks, each with {@code steps} all-reduces of 100 doubles; rank 1 comes late to each. */
  private static void run(int steps) {
    LISTENER.jobEnded = false;
    var unused =
        Collectives.run(
            spark.range(3).as(Encoders.LONG()),
            3,
            (context, _) -> {
              for (int step = 0; step < steps; step++) {
                TOGETHER.arriveAndAwaitAdvance();
                if (context.rank() == 1) {
                  LockSupport.parkNanos(LATE.toNanos()); // its work
                }
                context.communicator().allReduce(new double[100], ReduceOp.SUM);
              }
              return 0;
            });
    await().until(() -> LISTENER.jobEnded);
  }

  @Test
  void aStageShowsItsCallsBytesAndTimes() {
    run(10);
    assertThat(LISTENER.stages).hasSize(1);
    Map<String, Object> stage = LISTENER.stages.getFirst();
    assertThat(stage)
        .containsEntry("all-reduce: collectives", 30L)
        .containsEntry("all-reduce: bytes", 30 * 800L);
    long waited = (Long) stage.get("all-reduce: waiting (us)");
    assertThat(waited).isGreaterThan(10 * LATE.toMillis() * 1000);
    assertThat((Long) stage.get("all-reduce: reducing (us)")).isPositive();
  }

  @Test
  void aRankThatIsLateByDesignIsNamedAsTheSlowestPeerOfTheOthers() {
    run(20);
    assertThat(LISTENER.tasks).hasSize(3);
    List<String> words =
        LISTENER.tasks.stream()
            .map(task -> task.get("all-reduce: slowest peer").toString())
            .toList();
    for (int rank : new int[] {0, 2}) {
      assertThat(words)
          .anySatisfy(word -> assertThat(word).matches("rank " + rank + " waited .* for rank 1"));
    }
  }

  @Test
  void aCommunicatorThatIsKeptCountsEachStageByItself() {
    run(1);
    run(2);
    assertThat(LISTENER.stages)
        .extracting(stage -> stage.get("all-reduce: collectives"))
        .containsExactly(3L, 6L);
    assertThat(LocalNode.current().activity().last().collectives()).isEqualTo(2);
  }
}
