// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.communicator;

import static java.lang.foreign.ValueLayout.JAVA_DOUBLE;
import static java.lang.foreign.ValueLayout.JAVA_FLOAT;
import static java.lang.foreign.ValueLayout.JAVA_SHORT;
import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatExceptionOfType;
import static org.sparkallreduce.DataType.FLOAT64;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.util.Arrays;
import java.util.List;
import java.util.stream.IntStream;
import org.assertj.core.api.ThrowableAssert.ThrowingCallable;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;
import org.junit.jupiter.params.provider.ValueSource;
import org.sparkallreduce.AllReduceException;
import org.sparkallreduce.DataType;
import org.sparkallreduce.ReduceOp;
import org.sparkallreduce.Schedule;
import org.sparkallreduce.Settings;

/** What collectives return: on registered buffers, arrays and other memory, whole and in pieces. */
class CommunicatorTest {
  private final Settings settings = Ranks.settings();

  private static double[] values(int rank, int count) {
    return IntStream.range(0, count).mapToDouble(i -> rank * 1000.0 + i + 0.25).toArray();
  }

  private static double[] sums(int worldSize, int count) {
    double[] sums = new double[count];
    for (int rank = 0; rank < worldSize; rank++) {
      double[] theirs = values(rank, count);
      Arrays.setAll(sums, i -> sums[i] + theirs[i]);
    }
    return sums;
  }

  @ParameterizedTest
  @ValueSource(ints = {1, 2, 3, 4, 7, 16})
  void everyRankGetsTheSumOfAllRanks(int worldSize) {
    List<double[]> results =
        Ranks.run(
            worldSize,
            settings,
            communicator -> {
              double[] mine = values(communicator.rank(), 1001);
              communicator.allReduce(mine, ReduceOp.SUM);
              return mine;
            });

    assertThat(results)
        .hasSize(worldSize)
        .allSatisfy(result -> assertThat(result).isEqualTo(sums(worldSize, 1001)));
  }

  @ParameterizedTest
  @EnumSource(mode = EnumSource.Mode.EXCLUDE, names = "LOW_LATENCY") // it carries 16 bytes
  void everyScheduleGivesTheSameBitsInAndOutOfPlace(Schedule schedule) {
    int count = 40_003;
    List<double[]> results =
        Ranks.run(
            3,
            settings,
            communicator -> {
              RegisteredBuffer in = communicator.allocate(DataType.FLOAT64, count);
              RegisteredBuffer out = communicator.allocate(DataType.FLOAT64, count);
              in.segment().copyFrom(MemorySegment.ofArray(values(communicator.rank(), count)));
              communicator.allReduce(in, out, ReduceOp.SUM, schedule);
              communicator.allReduce(in, in, ReduceOp.SUM, schedule);
              assertThat(in.segment().mismatch(out.segment())).isEqualTo(-1);
              return out.segment().toArray(JAVA_DOUBLE);
            });

    assertThat(results).allSatisfy(result -> assertThat(result).isEqualTo(sums(3, count)));
  }

  @Test
  void theScheduleOfTheSettingsIsUsedAndGivesTheSameResult() {
    for (Schedule schedule : Schedule.values()) {
      Settings configured =
          Ranks.settings(
              "spark.allreduce.schedule", schedule.name().toLowerCase(java.util.Locale.ROOT));
      List<float[]> results =
          Ranks.run(
              2,
              configured,
              communicator -> {
                float[] mine = {communicator.rank() + 1, 0.5f};
                communicator.allReduce(mine, ReduceOp.PRODUCT);
                return mine;
              });
      assertThat(results).allSatisfy(result -> assertThat(result).containsExactly(2f, 0.25f));
    }
  }

  @Test
  void arraysOfEachTypeAreReducedByEachOperation() {
    Ranks.run(
        3,
        settings,
        communicator -> {
          int rank = communicator.rank();
          double[] doubles = {rank, -rank};
          communicator.allReduce(doubles, ReduceOp.AVERAGE);
          assertThat(doubles).containsExactly(1.0, -1.0);
          float[] floats = {rank + 2f};
          communicator.allReduce(floats, ReduceOp.PRODUCT);
          assertThat(floats).containsExactly(24f);
          int[] ints = {Integer.MAX_VALUE, rank};
          communicator.allReduce(ints, ReduceOp.SUM);
          assertThat(ints).containsExactly(2_147_483_645, 3);
          long[] longs = {1L << 40, rank};
          communicator.allReduce(longs, ReduceOp.MAX);
          assertThat(longs).containsExactly(1L << 40, 2);
          long[] in = {rank - 5L};
          long[] out = {99};
          communicator.allReduce(in, out, ReduceOp.MIN);
          assertThat(out).containsExactly(-5);
          assertThat(in).containsExactly(rank - 5L);
          return rank;
        });
  }

  @Test
  void halfPrecisionAddsInFloat32AndRoundsOnce() {
    // 2048 + 1 + 1: in float16 each 1 would be lost, in float32 both count.
    short[] perRank = {Float.floatToFloat16(2048f), Float.floatToFloat16(1f)};
    Ranks.run(
        3,
        settings,
        communicator -> {
          RegisteredBuffer buffer = communicator.allocate(DataType.FLOAT16, 1);
          buffer.segment().set(JAVA_SHORT, 0, communicator.rank() == 0 ? perRank[0] : perRank[1]);
          communicator.allReduce(buffer, ReduceOp.SUM);
          assertThat(Float.float16ToFloat(buffer.segment().get(JAVA_SHORT, 0))).isEqualTo(2050f);

          // bfloat16 has 8 bits: 256 + 1 + 1 = 258 is representable, 257 is not.
          RegisteredBuffer brain = communicator.allocate(DataType.BFLOAT16, 1);
          float value = communicator.rank() == 0 ? 256f : 1f;
          brain.segment().set(JAVA_SHORT, 0, (short) (Float.floatToRawIntBits(value) >>> 16));
          communicator.allReduce(brain, ReduceOp.SUM);
          int bits = brain.segment().get(JAVA_SHORT, 0) << 16;
          assertThat(Float.intBitsToFloat(bits)).isEqualTo(258f);
          return 0;
        });
  }

  @Test
  void reduceScatterLeavesEachRankItsSlice() {
    List<int[]> results =
        Ranks.run(
            3,
            settings,
            communicator -> {
              int[] in = IntStream.range(0, 12).map(i -> i * (communicator.rank() + 1)).toArray();
              int[] out = new int[4];
              communicator.reduceScatter(in, out, ReduceOp.SUM);
              return out;
            });

    assertThat(results.get(0)).containsExactly(0, 6, 12, 18);
    assertThat(results.get(1)).containsExactly(24, 30, 36, 42);
    assertThat(results.get(2)).containsExactly(48, 54, 60, 66);
  }

  @Test
  void allGatherBringsTheInputsInRankOrder() {
    List<long[]> results =
        Ranks.run(
            4,
            settings,
            communicator -> {
              long[] out = new long[8];
              communicator.allGather(new long[] {communicator.rank(), -communicator.rank()}, out);
              return out;
            });

    assertThat(results)
        .allSatisfy(result -> assertThat(result).containsExactly(0, 0, 1, -1, 2, -2, 3, -3));
  }

  @Test
  void broadcastBringsTheRootsValuesToAll() {
    List<float[]> results =
        Ranks.run(
            3,
            settings,
            communicator -> {
              float[] values = {communicator.rank(), communicator.rank() + 0.5f};
              communicator.broadcast(values, 2);
              return values;
            });

    assertThat(results).allSatisfy(result -> assertThat(result).containsExactly(2f, 2.5f));
  }

  @Test
  void collectivesOnRegisteredBuffersTakePartsOfThem() {
    Ranks.run(
        2,
        settings,
        communicator -> {
          RegisteredBuffer whole = communicator.allocate(DataType.FLOAT32, 8);
          for (int i = 0; i < 8; i++) {
            whole.segment().setAtIndex(JAVA_FLOAT, i, i);
          }
          RegisteredBuffer mine = whole.slice(communicator.rank() * 4L, 4);
          communicator.reduceScatter(whole, mine, ReduceOp.SUM);
          communicator.allGather(mine, whole);
          assertThat(whole.segment().toArray(JAVA_FLOAT))
              .containsExactly(0f, 2f, 4f, 6f, 8f, 10f, 12f, 14f);
          communicator.broadcast(whole.slice(0, 1), 0);
          return 0;
        });
  }

  /** The copies go through 64 KiB here: these counts take several pieces, and a ragged last one. */
  @ParameterizedTest
  @ValueSource(ints = {8191, 8192, 8193, 50_001})
  void largeArraysPassThroughInPieces(int count) {
    Ranks.run(
        2,
        settings,
        communicator -> {
          int rank = communicator.rank();
          double[] reduced = values(rank, count);
          communicator.allReduce(reduced, ReduceOp.SUM);
          assertThat(reduced).isEqualTo(sums(2, count));

          double[] gathered = new double[2 * count];
          communicator.allGather(values(rank, count), gathered);
          assertThat(Arrays.copyOf(gathered, count)).isEqualTo(values(0, count));
          assertThat(Arrays.copyOfRange(gathered, count, 2 * count)).isEqualTo(values(1, count));

          double[] slice = new double[count];
          communicator.reduceScatter(gathered, slice, ReduceOp.SUM);
          double[] expected = values(rank, count);
          Arrays.setAll(expected, i -> 2 * expected[i]);
          assertThat(slice).isEqualTo(expected);

          double[] sent = values(rank, count);
          communicator.broadcast(sent, 1);
          assertThat(sent).isEqualTo(values(1, count));
          return 0;
        });
  }

  @Test
  void memoryThatIsNotRegisteredIsReducedAndCounted() {
    List<Long> unregistered =
        Ranks.run(
            2,
            settings,
            communicator -> {
              try (Arena arena = Arena.ofConfined()) {
                MemorySegment values = arena.allocate(JAVA_DOUBLE, 20_000);
                MemorySegment.copy(
                    values(communicator.rank(), 20_000), 0, values, JAVA_DOUBLE, 0, 20_000);
                communicator.allReduce(values, values, DataType.FLOAT64, ReduceOp.SUM);
                assertThat(values.toArray(JAVA_DOUBLE)).isEqualTo(sums(2, 20_000));
              }
              return communicator.statistics().unregistered();
            });

    assertThat(unregistered).containsExactly(1L, 1L);
  }

  /** As long as several pieces, so that later ones would read what earlier ones wrote. */
  @Test
  void heapMemoryIsReducedInPlaceOrApartAndNeverOverlapping() {
    int count = 200_000;
    Ranks.run(
        2,
        settings,
        communicator -> {
          int rank = communicator.rank();
          MemorySegment whole = MemorySegment.ofArray(values(rank, 2 * count));
          long half = whole.byteSize() / 2;
          MemorySegment own = whole.asSlice(rank * half, half);
          for (long shift : new long[] {8, half - 8}) {
            MemorySegment part = whole.asSlice(shift, half);
            assertThatOverlap(
                () -> communicator.allReduce(whole.asSlice(0, half), part, FLOAT64, ReduceOp.SUM));
            assertThatOverlap(() -> communicator.reduceScatter(whole, part, FLOAT64, ReduceOp.SUM));
            assertThatOverlap(() -> communicator.allGather(part, whole, FLOAT64));
          }
          MemorySegment ofPeer = whole.asSlice((1 - rank) * half, half);
          assertThatOverlap(() -> communicator.reduceScatter(whole, ofPeer, FLOAT64, ReduceOp.SUM));

          assertThat(whole.toArray(JAVA_DOUBLE)).isEqualTo(values(rank, 2 * count));
          communicator.allReduce(ofPeer, own, FLOAT64, ReduceOp.SUM);
          communicator.allReduce(own, own, FLOAT64, ReduceOp.SUM);
          communicator.allGather(own, whole, FLOAT64);
          double[] gathered = whole.toArray(JAVA_DOUBLE);
          communicator.reduceScatter(whole, own, FLOAT64, ReduceOp.MAX);
          assertThat(whole.toArray(JAVA_DOUBLE)).isEqualTo(gathered);
          return 0;
        });
  }

  private static void assertThatOverlap(ThrowingCallable call) {
    assertThatExceptionOfType(AllReduceException.Usage.class)
        .isThrownBy(call)
        .withMessageContaining("overlap, but are not in place");
  }

  @Test
  void emptyBuffersAreAllowedEverywhere() {
    Ranks.run(
        2,
        settings,
        communicator -> {
          communicator.allReduce(new double[0], ReduceOp.MAX);
          communicator.allGather(new float[0], new float[0]);
          communicator.reduceScatter(new int[0], new int[0], ReduceOp.SUM);
          communicator.broadcast(new long[0], 1);
          communicator.allReduce(communicator.allocate(DataType.BFLOAT16, 0), ReduceOp.SUM);
          communicator.barrier();
          assertThat(communicator.statistics().collectives()).isEqualTo(6);
          assertThat(communicator.statistics().bytes()).isZero();
          return 0;
        });
  }

  @Test
  void statisticsCountCallsAndBytes() {
    Ranks.run(
        2,
        settings,
        communicator -> {
          RegisteredBuffer buffer = communicator.allocate(DataType.INT64, 100);
          for (int i = 0; i < 7; i++) {
            communicator.allReduce(buffer, ReduceOp.SUM);
          }
          var statistics = communicator.statistics();
          assertThat(statistics.collectives()).isEqualTo(7);
          assertThat(statistics.bytes()).isEqualTo(7 * 800);
          assertThat(statistics.totalNanos()).isGreaterThanOrEqualTo(statistics.waitNanos());
          return 0;
        });
  }
}
