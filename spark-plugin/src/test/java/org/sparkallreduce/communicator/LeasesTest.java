// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.communicator;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;
import static org.awaitility.Awaitility.await;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.UUID;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.stream.IntStream;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.sparkallreduce.AllReduceException;
import org.sparkallreduce.DataType;
import org.sparkallreduce.ReduceOp;
import org.sparkallreduce.Settings;
import org.sparkallreduce.exchange.Exchange;
import org.sparkallreduce.ffm.Statistics;

/**
 * Communicators that outlive a stage. Each node here stands for a process with a store of its own.
 */
class LeasesTest {
  private static final UUID LEASE = new UUID(7, 7);

  private final Settings settings = Ranks.settings();
  private final List<Leases> nodes =
      IntStream.range(0, 4).mapToObj(_ -> new Leases(settings)).toList();

  @AfterEach
  void closeTheNodes() throws IOException {
    nodes.forEach(Leases::close);
    assertThat(mappings()).isZero();
  }

  /** How many of our segments this process has mapped. */
  private static long mappings() throws IOException {
    return Files.readAllLines(Path.of("/proc/self/maps")).stream()
        .filter(line -> line.contains("/dev/shm/spark-allreduce-"))
        .count();
  }

  /** What happened in one stage: how often ranks exchanged, and what each rank's sum was. */
  private record Stage(int exchanges, List<Double> sums) {}

  /** One stage, whose rank r runs on node {@code nodeOfRank[r]}. */
  private Stage stage(Settings stageSettings, UUID lease, int... nodeOfRank) throws Exception {
    int ranks = nodeOfRank.length;
    UUID session = UUID.randomUUID();
    var exchanges = new AtomicInteger();
    Exchange inner = Ranks.exchange(ranks);
    Exchange counting =
        message -> {
          exchanges.incrementAndGet();
          return inner.allGather(message);
        };
    try (ExecutorService threads = Executors.newFixedThreadPool(ranks)) {
      var futures = new ArrayList<Future<Double>>();
      for (int rank = 0; rank < ranks; rank++) {
        RankIdentity identity = Ranks.identity(rank, ranks, session);
        Leases leases = nodes.get(nodeOfRank[rank]);
        futures.add(
            threads.submit(
                () -> {
                  Communicator communicator =
                      Communicator.open(
                          Ranks.LIBRARY,
                          stageSettings,
                          identity,
                          counting,
                          Optional.of(lease),
                          leases);
                  assertThat(communicator.rank()).isEqualTo(identity.rank());
                  assertThat(communicator.statistics()).isEqualTo(Statistics.NONE);
                  // Shows the order of the ranks: 1e20 - 1e20 + 1, and not 1e20 + 1 - 1e20.
                  double mine = new double[] {1e20, -1e20, 1}[identity.rank()];
                  double[] sum = {mine};
                  communicator.allReduce(sum, ReduceOp.SUM);
                  RegisteredBuffer buffer = communicator.allocate(DataType.FLOAT64, 100);
                  assertThat(buffer.segment().toArray(java.lang.foreign.ValueLayout.JAVA_DOUBLE))
                      .containsOnly(0);
                  buffer.segment().fill((byte) 1);
                  communicator.closeInto(leases, lease);
                  return sum[0];
                }));
      }
      var sums = new ArrayList<Double>();
      for (Future<Double> future : futures) {
        sums.add(future.get());
      }
      return new Stage(exchanges.get() / ranks, sums);
    }
  }

  private Stage stage(int... nodeOfRank) throws Exception {
    return stage(settings, LEASE, nodeOfRank);
  }

  @Test
  void theNextStageOfTheSameLayoutGoesOnAfterOneExchange() throws Exception {
    stage(0, 1, 2);
    long mappings = mappings();
    assertThat(mappings).isEqualTo(3);

    for (int i = 0; i < 5; i++) {
      assertThat(stage(0, 1, 2)).isEqualTo(new Stage(1, List.of(1.0, 1.0, 1.0)));
    }

    assertThat(mappings()).isEqualTo(mappings);
    assertThat(nodes.subList(0, 3)).allSatisfy(node -> assertThat(node.size()).isEqualTo(1));
  }

  @Test
  void theRanksMayComeToOtherProcessesAndStillAddInTheirOwnOrder() throws Exception {
    stage(0, 1, 2);
    for (int[] order : new int[][] {{1, 0, 2}, {2, 0, 1}, {2, 1, 0}, {0, 1, 2}}) {
      assertThat(stage(order)).isEqualTo(new Stage(1, List.of(1.0, 1.0, 1.0)));
    }
  }

  @Test
  void severalRanksOfOneProcessShareItsStore() throws Exception {
    stage(0, 0, 1);
    assertThat(nodes.getFirst().size()).isEqualTo(2);

    assertThat(stage(1, 0, 0)).isEqualTo(new Stage(1, List.of(1.0, 1.0, 1.0)));
  }

  @Test
  void aReplacedProcessMakesAllRanksOpenAnew() throws Exception {
    stage(0, 1, 2);
    nodes.get(1).close(); // as the executor's end does

    assertThat(stage(0, 1, 2)).isEqualTo(new Stage(1, List.of(1.0, 1.0, 1.0)));
    assertThat(nodes.subList(0, 3)).extracting(Leases::size).containsExactly(1, 0, 1);
  }

  @Test
  void ifOnlySomeRanksHoldItASecondExchangeBringsAllToTheSamePoint() throws Exception {
    stage(0, 1, 0);
    // Today rank 1 runs on node 2, which holds nothing.
    assertThat(stage(0, 2, 0)).isEqualTo(new Stage(2, List.of(1.0, 1.0, 1.0)));
    assertThat(nodes.get(0).size()).isEqualTo(2);
    assertThat(stage(0, 2, 0)).isEqualTo(new Stage(1, List.of(1.0, 1.0, 1.0)));
  }

  @Test
  void twoCommunicatorsUnderOneLeaseAreNeverTakenForOne() throws Exception {
    stage(0, 1);
    stage(2, 3);
    // Node 0 has member 0 of one, node 3 member 1 of the other, and both have seen as many calls.
    assertThat(stage(0, 3)).isEqualTo(new Stage(2, List.of(0.0, 0.0)));
    assertThat(stage(0, 3)).isEqualTo(new Stage(1, List.of(0.0, 0.0)));
    // What is left of the two cannot go on, and is let go.
    assertThat(stage(1, 2)).isEqualTo(new Stage(1, List.of(0.0, 0.0)));
    assertThat(nodes).extracting(Leases::size).containsExactly(1, 1, 1, 1);
    assertThat(mappings()).isEqualTo(4);
  }

  @Test
  void aMemberWhosePeerHasLeftIsFoundOnceOnly() throws Exception {
    stage(0, 0);
    stage(0, 1); // one of node 0's two members is used, and let go of, since node 1 holds none
    assertThat(stage(0, 1)).isEqualTo(new Stage(1, List.of(0.0, 0.0)));
    stage(0, 0);
    stage(0, 0);
    assertThat(stage(0, 0)).isEqualTo(new Stage(1, List.of(0.0, 0.0)));
    assertThat(nodes.getFirst().size()).isEqualTo(2);
  }

  @Test
  void withForeignMemoryStillRegisteredItIsNotKept(@TempDir Path folder) throws Exception {
    Path file = Files.write(folder.resolve("foreign"), new byte[4096]);
    try (var node = new Leases(settings)) {
      Communicator communicator = open(settings, node, LEASE);
      var buffer = communicator.register(file, 0, 16, DataType.FLOAT32);
      communicator.closeInto(node, LEASE);
      assertThat(node.size()).isZero();

      Communicator next = open(settings, node, LEASE);
      next.deregister(next.register(file, 0, 16, DataType.FLOAT32));
      next.closeInto(node, LEASE);
      assertThat(node.size()).isEqualTo(1);
      assertThatThrownBy(() -> buffer.segment().get(java.lang.foreign.ValueLayout.JAVA_INT, 0))
          .isInstanceOf(IllegalStateException.class);
    }
  }

  @Test
  void otherOptionsOrAnotherLeaseOpenAnotherCommunicator() throws Exception {
    stage(0, 1, 2);
    Settings larger = Ranks.settings("spark.allreduce.arena.size", "2m");
    assertThat(stage(larger, LEASE, 0, 1, 2).sums()).containsOnly(1.0);
    assertThat(stage(settings, new UUID(8, 8), 0, 1, 2).sums()).containsOnly(1.0);
    assertThat(nodes.subList(0, 3)).allSatisfy(node -> assertThat(node.size()).isEqualTo(3));
    // All three are still there, each for its own.
    assertThat(stage(0, 1, 2).exchanges()).isEqualTo(1);
    assertThat(stage(larger, LEASE, 0, 1, 2).exchanges()).isEqualTo(1);
  }

  @Test
  void anAbortedCommunicatorIsNotKept() throws Exception {
    stage(0, 1);
    Member first = nodes.get(0).take(LEASE, 2, settings).orElseThrow();
    Member second = nodes.get(1).take(LEASE, 2, settings).orElseThrow();
    first.comm().abort(0, "the stage failed after rank 1 had ended");
    nodes.get(0).put(LEASE, first);
    nodes.get(1).put(LEASE, second);

    assertThat(nodes.get(0).size()).isZero();
    assertThat(nodes.get(1).size()).isZero();
    assertThat(mappings()).isZero();
  }

  @Test
  void aCommunicatorThatAPeerAbortsWhileItIsKeptIsClosedSoon() throws Exception {
    stage(0, 1);
    Member first = nodes.get(0).take(LEASE, 2, settings).orElseThrow();
    first.comm().abort(0, "the stage failed after rank 1 had ended");
    first.close();

    await().untilAsserted(() -> assertThat(nodes.get(1).size()).isZero());
    await().untilAsserted(() -> assertThat(mappings()).isZero());
  }

  @Test
  void aCommunicatorThatAPeerClosesWhileItIsKeptIsClosedSoonByAllOthers() throws Exception {
    stage(0, 1, 2);
    nodes.get(0).close();

    // Each looks at its own time.
    await().untilAsserted(() -> assertThat(nodes.get(1).size()).isZero());
    await().untilAsserted(() -> assertThat(nodes.get(2).size()).isZero());
    await().untilAsserted(() -> assertThat(mappings()).isZero());
  }

  @Test
  void whatIsIdleTooLongIsClosed() throws Exception {
    Settings brief = Ranks.settings("spark.allreduce.lease.idle", "50ms");
    try (var node = new Leases(brief)) {
      open(brief, node, LEASE).closeInto(node, LEASE);
      await().untilAsserted(() -> assertThat(node.size()).isZero());
      await().untilAsserted(() -> assertThat(mappings()).isZero());
    }
  }

  @Test
  void nothingIsKeptWithAnIdleTimeOfZero() throws Exception {
    Settings none = Ranks.settings("spark.allreduce.lease.idle", "0s");
    try (var node = new Leases(none)) {
      assertThat(singleMember(none, node)).isEmpty();
      assertThat(mappings()).isZero();
    }
  }

  @Test
  void beyondTheLimitOfMemoryTheOldestIsClosed() throws Exception {
    // Each member has 1 MiB of arena and twice 64 KiB of staging.
    Settings limited = Ranks.settings("spark.allreduce.lease.memory", "3m");
    try (var node = new Leases(limited)) {
      for (int i = 0; i < 3; i++) {
        open(limited, node, new UUID(0, i)).closeInto(node, new UUID(0, i));
      }
      assertThat(node.size()).isEqualTo(2);
      assertThat(node.take(new UUID(0, 0), 1, limited)).isEmpty();
      var kept = node.take(new UUID(0, 1), 1, limited);
      assertThat(kept).isPresent();
      kept.get().close();
    }
  }

  private static Optional<Member> singleMember(Settings settings, Leases node) {
    open(settings, node, LEASE).closeInto(node, LEASE);
    return node.take(LEASE, 1, settings);
  }

  private static Communicator open(Settings settings, Leases node, UUID lease) {
    return Communicator.open(
        Ranks.LIBRARY,
        settings,
        Ranks.identity(0, 1, UUID.randomUUID()),
        message -> new String[] {message},
        Optional.of(lease),
        node);
  }

  @Test
  void theCommunicatorOfAFinishedStageIsDeadAndCannotHarmItsSuccessor() throws Exception {
    Leases node = nodes.getFirst();
    Communicator old = open(settings, node, LEASE);
    RegisteredBuffer buffer = old.allocate(DataType.INT32, 4);
    old.closeInto(node, LEASE);
    try (Communicator next = open(settings, node, LEASE)) {
      old.abort("too late");
      assertThatThrownBy(old::barrier)
          .isInstanceOf(AllReduceException.Usage.class)
          .hasMessageContaining("closed");
      assertThatThrownBy(() -> buffer.segment().get(java.lang.foreign.ValueLayout.JAVA_INT, 0))
          .isInstanceOf(IllegalStateException.class);
      assertThatThrownBy(() -> next.allReduce(buffer, ReduceOp.SUM))
          .isInstanceOf(AllReduceException.Usage.class);
      next.barrier();
      old.close();
      next.barrier();
    }
  }
}
