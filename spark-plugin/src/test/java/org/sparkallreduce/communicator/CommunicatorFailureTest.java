// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.communicator;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Optional;
import java.util.UUID;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicReference;
import java.util.stream.Stream;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;
import org.sparkallreduce.AllReduceException;
import org.sparkallreduce.DataType;
import org.sparkallreduce.ReduceOp;
import org.sparkallreduce.Settings;
import org.sparkallreduce.communicator.Ranks.Outcome;

/** What a caller sees when something is wrong, and that nothing is left behind. */
class CommunicatorFailureTest {
  private final Settings settings = Ranks.settings();

  @AfterEach
  void noNameIsLeftInSharedMemory() throws Exception {
    String mine = "-" + ProcessHandle.current().pid() + "-";
    try (Stream<Path> files = Files.list(Path.of("/dev/shm"))) {
      assertThat(files.map(file -> file.getFileName().toString()))
          .noneMatch(name -> name.startsWith("spark-allreduce-") && name.contains(mine));
    }
  }

  private static void assertAllFailed(
      List<? extends Outcome<?>> outcomes,
      Class<? extends AllReduceException> type,
      String... parts) {
    assertThat(outcomes)
        .allSatisfy(
            outcome ->
                assertThat(outcome.failure()).isInstanceOf(type).hasMessageContainingAll(parts));
  }

  @Test
  void differentCountsAreAMismatchOnAllRanksAndNothingIsWritten() {
    double[][] values = {{1, 2}, {1, 2, 3}};
    var outcomes =
        Ranks.outcomes(
            2,
            settings,
            communicator -> {
              communicator.allReduce(values[communicator.rank()], ReduceOp.SUM);
              return 0;
            });

    assertAllFailed(outcomes, AllReduceException.Mismatch.class, "count 2", "count 3");
    assertThat(values[0]).containsExactly(1, 2);
    assertThat(values[1]).containsExactly(1, 2, 3);
  }

  @Test
  void differentCountsAreFoundBeforeTheFirstPieceOfALargeArray() {
    // Both need several pieces of 64 KiB, and the first pieces are alike.
    double[][] values = {new double[20_000], new double[30_000]};
    var outcomes =
        Ranks.outcomes(
            2,
            settings,
            communicator -> {
              double[] mine = values[communicator.rank()];
              java.util.Arrays.fill(mine, 1);
              communicator.allReduce(mine, ReduceOp.SUM);
              return 0;
            });

    assertAllFailed(outcomes, AllReduceException.Mismatch.class, "20000", "30000");
    assertThat(values[0]).containsOnly(1);
    assertThat(values[1]).containsOnly(1);
  }

  @Test
  void differentOperationsTypesAndCollectivesAreMismatches() {
    assertAllFailed(
        Ranks.outcomes(
            2,
            settings,
            communicator -> {
              communicator.allReduce(
                  new double[4], communicator.rank() == 0 ? ReduceOp.SUM : ReduceOp.MAX);
              return 0;
            }),
        AllReduceException.Mismatch.class,
        "sum",
        "max");
    assertAllFailed(
        Ranks.outcomes(
            2,
            settings,
            communicator -> {
              if (communicator.rank() == 0) {
                communicator.allReduce(new float[4], ReduceOp.SUM);
              } else {
                communicator.allReduce(new int[4], ReduceOp.SUM);
              }
              return 0;
            }),
        AllReduceException.Mismatch.class,
        "float32",
        "int32");
    assertAllFailed(
        Ranks.outcomes(
            2,
            settings,
            communicator -> {
              if (communicator.rank() == 0) {
                communicator.barrier();
              } else {
                communicator.allReduce(new int[4], ReduceOp.SUM);
              }
              return 0;
            }),
        AllReduceException.Mismatch.class,
        "barrier",
        "all-reduce",
        "same calls");
  }

  @Test
  void aRankThatNeverComesIsNamedAtTheDeadline() {
    var release = new CountDownLatch(2);
    var outcomes =
        Ranks.outcomes(
            3,
            Ranks.settings("spark.allreduce.timeout", "3s"),
            communicator -> {
              if (communicator.rank() == 1) {
                release.await();
                return 0;
              }
              try {
                communicator.allReduce(new double[4], ReduceOp.SUM);
              } finally {
                release.countDown();
              }
              return 0;
            });

    for (int rank : new int[] {0, 2}) {
      assertThat(outcomes.get(rank).failure())
          .isInstanceOf(AllReduceException.TimedOut.class)
          .hasMessageContaining("rank 1 (executor 1 on localhost, process ")
          .hasMessageContaining("spark.allreduce.timeout");
    }
  }

  @Test
  void aRankThatLeavesEarlyIsNoticedBeforeTheDeadline() {
    var outcomes =
        Ranks.outcomes(
            2,
            settings,
            communicator -> {
              if (communicator.rank() == 0) {
                communicator.allReduce(new double[4], ReduceOp.SUM);
              }
              return 0;
            });

    assertThat(outcomes.get(0).failure())
        .isInstanceOf(AllReduceException.PeerLost.class)
        .hasMessageContaining("rank 1 (executor 1");
    assertThat(outcomes.get(1).failure()).isNull();
  }

  @Test
  void anAbortEndsTheWaitOfAllRanksWithItsCause() {
    var outcomes =
        Ranks.outcomes(
            3,
            settings,
            communicator -> {
              if (communicator.rank() == 2) {
                communicator.abort("rank 2 failed: the disk is full");
              }
              communicator.allReduce(new double[4], ReduceOp.SUM);
              return 0;
            });

    assertAllFailed(outcomes, AllReduceException.Aborted.class, "rank 2 failed: the disk is full");
  }

  @Test
  void anotherThreadMayAbortARankThatWaits() throws Exception {
    var waiting = new AtomicReference<Communicator>();
    var opened = new CountDownLatch(1);
    Thread canceller =
        Thread.ofPlatform()
            .start(
                () -> {
                  try {
                    opened.await();
                    waiting.get().abort("the job was cancelled");
                  } catch (InterruptedException e) {
                    throw new AssertionError(e);
                  }
                });
    var outcomes =
        Ranks.outcomes(
            2,
            settings,
            communicator -> {
              if (communicator.rank() == 0) {
                waiting.set(communicator);
                opened.countDown();
                communicator.barrier();
              } else {
                canceller.join();
                communicator.barrier();
              }
              return 0;
            });

    assertAllFailed(outcomes, AllReduceException.Aborted.class, "the job was cancelled");
  }

  @Test
  void anotherThreadMayAbortARankThatConnects() throws Exception {
    UUID session = UUID.randomUUID();
    var exchange = Ranks.exchange(2);
    var told = new AtomicReference<Throwable>();
    var abort = new OpeningAbort();
    var aborted = new CountDownLatch(1);
    try (var leases = new Leases(settings)) {
      var late =
          Thread.ofPlatform()
              .start(
                  () -> {
                    RankIdentity identity = Ranks.identity(1, 2, session);
                    try {
                      Communicator.open(
                              Ranks.LIBRARY,
                              settings,
                              identity,
                              message -> {
                                String[] all = exchange.allGather(message);
                                await(aborted); // rank 0 waits for this one to connect
                                return all;
                              })
                          .close();
                    } catch (AllReduceException e) {
                      told.set(e);
                    }
                  });
      var canceller =
          Thread.ofPlatform()
              .start(
                  () -> {
                    abort.raise("the job was cancelled");
                    abort.raise("once more");
                  });
      assertThatThrownBy(
              () ->
                  Communicator.open(
                      Ranks.LIBRARY,
                      settings,
                      Ranks.identity(0, 2, session),
                      exchange,
                      Optional.empty(),
                      leases,
                      abort))
          .isInstanceOf(AllReduceException.Aborted.class)
          .hasMessageContaining("the job was cancelled");
      canceller.join();
      aborted.countDown();
      late.join();
    }
    // It depends on how far it had come when the other one left.
    assertThat(told.get())
        .isInstanceOfAny(AllReduceException.PeerLost.class, AllReduceException.Aborted.class);
  }

  private static void await(CountDownLatch latch) {
    try {
      latch.await();
    } catch (InterruptedException e) {
      throw new AssertionError(e);
    }
  }

  @Test
  void closingMakesAThreadThatIsStillInACollectiveLeaveIt() {
    var seen = new AtomicReference<Throwable>();
    var closed = new CountDownLatch(1);
    Ranks.run(
        2,
        settings,
        communicator -> {
          communicator.barrier();
          if (communicator.rank() == 1) {
            closed.await(); // so the collective of rank 0's other thread cannot end by itself
            return 0;
          }
          var inside = new CountDownLatch(1);
          Thread other =
              Thread.ofPlatform()
                  .start(
                      () -> {
                        inside.countDown();
                        try {
                          communicator.barrier();
                        } catch (AllReduceException e) {
                          seen.set(e);
                        }
                      });
          inside.await();
          communicator.close();
          closed.countDown();
          other.join();
          return 0;
        });

    assertThat(seen.get())
        .isInstanceOfAny(AllReduceException.Aborted.class, AllReduceException.Usage.class);
  }

  @Test
  void anAbortedCommunicatorRefusesFurtherUseWithTheFirstCause() {
    Ranks.run(
        2,
        settings,
        communicator -> {
          if (communicator.rank() == 0) {
            communicator.abort("first cause");
            communicator.abort("second cause");
          }
          for (int i = 0; i < 3; i++) {
            assertThatThrownBy(communicator::barrier)
                .isInstanceOf(AllReduceException.Aborted.class)
                .hasMessageContaining("first cause");
          }
          return 0;
        });
  }

  @Test
  void aClosedCommunicatorAndItsBuffersRefuseUse() {
    List<Communicator> left = Ranks.run(1, settings, communicator -> communicator);

    assertThatThrownBy(() -> left.getFirst().allReduce(new int[1], ReduceOp.SUM))
        .isInstanceOf(AllReduceException.Usage.class)
        .hasMessageContaining("rank 0 is closed")
        .hasMessageContaining("only inside of the function");
    assertThatThrownBy(() -> left.getFirst().allocate(DataType.INT32, 1))
        .isInstanceOf(AllReduceException.Usage.class)
        .hasMessageContaining("closed");
    left.getFirst().abort("nothing happens");
    left.getFirst().close();

    List<MemorySegment> segments =
        Ranks.run(1, settings, communicator -> communicator.allocate(DataType.INT32, 1).segment());
    assertThatThrownBy(() -> segments.getFirst().get(ValueLayout.JAVA_INT, 0))
        .isInstanceOf(IllegalStateException.class);
  }

  @Test
  void aBufferOfAnotherCommunicatorIsRefused() {
    Ranks.run(
        1,
        settings,
        outer -> {
          RegisteredBuffer foreign = outer.allocate(DataType.INT32, 4);
          Ranks.run(
              1,
              settings,
              inner -> {
                assertThatThrownBy(() -> inner.allReduce(foreign, ReduceOp.SUM))
                    .isInstanceOf(AllReduceException.Usage.class)
                    .hasMessageContaining("allocated from another communicator");
                inner.barrier();
                return 0;
              });
          return 0;
        });
  }

  @Test
  void wrongCountsAreRefusedAndTheCommunicatorLivesOn() {
    Ranks.run(
        2,
        settings,
        communicator -> {
          assertThatThrownBy(() -> communicator.allocate(DataType.FLOAT64, -1))
              .isInstanceOf(AllReduceException.Usage.class)
              .hasMessageContaining("-1 elements");
          assertThatThrownBy(() -> communicator.allocate(DataType.FLOAT64, Long.MAX_VALUE))
              .isInstanceOf(AllReduceException.Usage.class)
              .hasMessageContaining(Long.MAX_VALUE + " elements");
          assertThatThrownBy(() -> communicator.allocate(DataType.FLOAT64, 1 << 20))
              .isInstanceOf(AllReduceException.Usage.class)
              .hasMessageContaining("spark.allreduce.arena.size");
          assertThatThrownBy(() -> communicator.allReduce(new int[2], new int[3], ReduceOp.SUM))
              .isInstanceOf(AllReduceException.Usage.class)
              .hasMessageContaining("2 elements, the output 3");
          assertThatThrownBy(() -> communicator.allGather(new int[2], new int[3]))
              .isInstanceOf(AllReduceException.Usage.class)
              .hasMessageContaining("2 times as many");
          assertThatThrownBy(() -> communicator.broadcast(new int[2], 2))
              .isInstanceOf(AllReduceException.Usage.class)
              .hasMessageContaining("Root 2");
          RegisteredBuffer buffer = communicator.allocate(DataType.FLOAT32, 4);
          assertThatThrownBy(() -> buffer.slice(2, 3))
              .isInstanceOf(AllReduceException.Usage.class)
              .hasMessageContaining("3 elements at 2");
          assertThatThrownBy(
                  () ->
                      communicator.allReduce(
                          buffer, communicator.allocate(DataType.INT32, 4), ReduceOp.SUM))
              .isInstanceOf(AllReduceException.Usage.class)
              .hasMessageContaining("FLOAT32");
          assertThatThrownBy(
                  () ->
                      communicator.allReduce(buffer.slice(0, 3), buffer.slice(1, 3), ReduceOp.SUM))
              .isInstanceOf(AllReduceException.Usage.class)
              .hasMessageContaining("overlap");
          MemorySegment readOnly = buffer.segment().asReadOnly();
          assertThatThrownBy(
                  () ->
                      communicator.allReduce(
                          buffer.segment(), readOnly, DataType.FLOAT32, ReduceOp.SUM))
              .isInstanceOf(AllReduceException.Usage.class)
              .hasMessageContaining("read-only");
          assertThatThrownBy(() -> communicator.broadcast(readOnly, DataType.FLOAT32, 0))
              .isInstanceOf(AllReduceException.Usage.class);
          int[] ones = {1};
          communicator.allReduce(ones, ReduceOp.SUM);
          assertThat(ones).containsExactly(2);
          return 0;
        });
  }

  @ParameterizedTest
  @ValueSource(ints = {0, 17, -1})
  void worldSizesBeyondTheLimitsAreRefused(int worldSize) {
    assertThatThrownBy(
            () ->
                Communicator.open(
                    Ranks.LIBRARY,
                    settings,
                    Ranks.identity(0, worldSize, UUID.randomUUID()),
                    message -> new String[] {message}))
        .isInstanceOf(AllReduceException.Usage.class)
        .hasMessageContaining("1 to 16 ranks, not " + worldSize);
  }

  @Test
  void moreSharedMemoryThanThereIsFailsAtOpeningWithTheCure() {
    assertThatThrownBy(
            () ->
                Communicator.open(
                    Ranks.LIBRARY,
                    Ranks.settings("spark.allreduce.arena.size", "100t"),
                    Ranks.identity(0, 1, UUID.randomUUID()),
                    message -> new String[] {message}))
        .isInstanceOf(AllReduceException.Resource.class)
        .hasMessageContaining("/dev/shm");
  }

  @Test
  void aFailedExchangeLeavesNothingOpen() {
    assertThatThrownBy(
            () ->
                Communicator.open(
                    Ranks.LIBRARY,
                    settings,
                    Ranks.identity(0, 2, UUID.randomUUID()),
                    message -> new String[] {message, "garbage"}))
        .isInstanceOf(AllReduceException.Setup.class)
        .hasMessageContaining("rank 1 does not decode");
  }

  @Test
  void ofTwoThreadsAtOnceOneIsRefused() {
    var refused = new CountDownLatch(1);
    Ranks.run(
        2,
        settings,
        communicator -> {
          if (communicator.rank() == 1) {
            // Until rank 1 comes, whichever thread of rank 0 was first is still in the barrier.
            refused.await();
            communicator.barrier();
            return 0;
          }
          Runnable enter =
              () -> {
                try {
                  communicator.barrier();
                } catch (AllReduceException.Usage e) {
                  assertThat(e).hasMessageContaining("Two threads").hasMessageContaining("rank 0");
                  refused.countDown();
                }
              };
          Thread other = Thread.ofPlatform().start(enter);
          enter.run();
          other.join();
          return 0;
        });

    assertThat(refused.getCount()).isZero();
  }
}
