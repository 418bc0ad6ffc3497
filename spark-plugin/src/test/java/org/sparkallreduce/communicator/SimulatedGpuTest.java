// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.communicator;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import java.util.Arrays;
import java.util.List;
import java.util.Optional;
import java.util.Random;
import java.util.UUID;
import java.util.function.IntFunction;
import java.util.stream.IntStream;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.condition.DisabledIfSystemProperty;
import org.junit.jupiter.api.condition.EnabledIfEnvironmentVariable;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;
import org.junit.jupiter.params.provider.ValueSource;
import org.sparkallreduce.AllReduceException;
import org.sparkallreduce.Backend;
import org.sparkallreduce.DataType;
import org.sparkallreduce.ReduceOp;
import org.sparkallreduce.Schedule;
import org.sparkallreduce.Settings;
import org.sparkallreduce.communicator.Ranks.Program;

/**
 * The GPU backend from Java, on the simulated driver: NOT ON A GPU. What collectives return is
 * compared with the host backend, bit for bit.
 */
@EnabledIfEnvironmentVariable(named = SimulatedDriver.VARIABLE, matches = ".*simulated.*")
@DisabledIfSystemProperty(named = "native.gpu", matches = "OFF")
class SimulatedGpuTest {
  private static final Settings GPU = Ranks.settings("spark.allreduce.backend", "gpu");
  private static final Settings HOST = Ranks.settings("spark.allreduce.backend", "host");
  private static final Settings SHARED =
      Ranks.settings("spark.allreduce.backend", "gpu", "spark.allreduce.gpu.shared", "true");

  @AfterEach
  void nothingFailsAnyMore() {
    SimulatedDriver.fail("");
  }

  private static double[] doubles(int rank, int count) {
    return new Random(rank).doubles(count, -1e3, 1e3).toArray();
  }

  private static float[] floats(int rank, int count) {
    var random = new Random(rank);
    float[] values = new float[count];
    for (int i = 0; i < count; i++) {
      values[i] = random.nextFloat() * 1e3f;
    }
    return values;
  }

  /** Runs it on both backends; the results must be the same. */
  private static <R> List<R> onBoth(int worldSize, Settings gpu, Program<R> program) {
    List<R> expected = Ranks.run(worldSize, HOST, program);
    List<R> found =
        Ranks.run(
            worldSize,
            gpu,
            communicator -> {
              assertThat(communicator.backend()).isEqualTo(Backend.GPU);
              return program.run(communicator);
            });
    assertThat(found).usingRecursiveComparison().isEqualTo(expected);
    return found;
  }

  @ParameterizedTest
  @ValueSource(ints = {0, 1, 1001, 12_003}) // the last one in pieces
  void simulatedArraysAreReducedToTheBitsOfTheHost(int count) {
    onBoth(
        3,
        GPU,
        communicator -> {
          double[] values = doubles(communicator.rank(), count);
          communicator.allReduce(values, ReduceOp.SUM);
          float[] in = floats(communicator.rank(), count);
          float[] out = new float[count];
          communicator.allReduce(in, out, ReduceOp.MAX);
          int[] whole = IntStream.range(0, count).map(i -> i * communicator.rank()).toArray();
          communicator.broadcast(whole, 2);
          double[] gathered = new double[3 * count];
          communicator.allGather(doubles(communicator.rank(), count), gathered);
          double[] part = new double[count];
          communicator.reduceScatter(gathered, part, ReduceOp.AVERAGE);
          communicator.barrier();
          return List.of(values, out, whole, gathered, part);
        });
  }

  @ParameterizedTest
  @EnumSource(mode = EnumSource.Mode.EXCLUDE, names = "LOW_LATENCY") // it carries little
  void simulatedBuffersAreReducedToTheBitsOfTheHostUnderEverySchedule(Schedule schedule) {
    int count = 5003;
    onBoth(
        4,
        GPU,
        communicator -> {
          RegisteredBuffer in = communicator.allocate(DataType.FLOAT32, count);
          RegisteredBuffer out = communicator.allocate(DataType.FLOAT32, count);
          in.copyFrom(floats(communicator.rank(), count));
          communicator.allReduce(in, out, ReduceOp.SUM, schedule);
          communicator.enqueueAllReduce(in, in, ReduceOp.PRODUCT, schedule);
          communicator.waitFor();
          float[] sums = new float[count];
          float[] products = new float[count];
          out.copyTo(sums);
          in.copyTo(products);
          return List.of(sums, products);
        });
  }

  @Test
  void simulatedEnqueuedCallsFollowEachOtherAndEndWithWaitFor() {
    onBoth(
        2,
        GPU,
        communicator -> {
          RegisteredBuffer part = communicator.allocate(DataType.BFLOAT16, 100);
          RegisteredBuffer all = communicator.allocate(DataType.BFLOAT16, 200);
          short[] values = new short[100];
          Arrays.fill(values, (short) (0x3f80 + communicator.rank()));
          part.copyFrom(values);
          communicator.enqueueAllGather(part, all);
          for (int i = 0; i < 20; i++) {
            communicator.enqueueAllReduce(all, ReduceOp.AVERAGE);
          }
          communicator.enqueueReduceScatter(all, part, ReduceOp.SUM);
          communicator.enqueueBroadcast(part, 1);
          communicator.waitFor();
          short[] result = new short[100];
          part.copyTo(result);
          return result;
        });
  }

  @Test
  void simulatedAGraphReplaysACapturedStepOnNewValues() {
    onBoth(
        3,
        GPU,
        communicator -> {
          RegisteredBuffer small = communicator.allocate(DataType.FLOAT64, 3);
          RegisteredBuffer large = communicator.allocate(DataType.FLOAT32, 2000);
          Graph step =
              communicator.capture(
                  () -> {
                    communicator.allReduce(small, ReduceOp.SUM);
                    communicator.allReduce(large, ReduceOp.SUM);
                    communicator.barrier();
                    communicator.broadcast(large, 1);
                  });
          double[] sums = new double[3];
          float[] last = new float[2000];
          for (int round = 0; round < 3; round++) {
            small.copyFrom(doubles(communicator.rank() + round, 3));
            large.copyFrom(floats(communicator.rank() + round, 2000));
            step.replay();
            communicator.allReduce(small, ReduceOp.MAX); // eager, between replays
            step.replay();
            communicator.waitFor();
          }
          small.copyTo(sums);
          large.copyTo(last);
          step.close();
          step.close();
          assertThatThrownBy(step::replay)
              .isInstanceOf(AllReduceException.Usage.class)
              .hasMessageContaining("The graph is closed");
          return List.of(sums, last);
        });
  }

  @Test
  void simulatedACaptureRefusesWhatNeedsTheHostAndCanBeGivenUp() {
    for (Settings settings : List.of(HOST, GPU)) {
      Ranks.run(
          2,
          settings,
          communicator -> {
            RegisteredBuffer buffer = communicator.allocate(DataType.FLOAT32, 8);
            for (Runnable refused :
                List.<Runnable>of(
                    () -> communicator.allReduce(new float[1], ReduceOp.SUM),
                    () -> buffer.copyFrom(new float[8]),
                    communicator::waitFor,
                    () -> communicator.capture(() -> {}))) {
              assertThatThrownBy(() -> communicator.capture(refused))
                  .isInstanceOf(AllReduceException.Usage.class)
                  .hasMessageContaining("during a capture on rank");
            }
            float[] values = {1, 2};
            communicator.allReduce(values, ReduceOp.SUM);
            assertThat(values).containsExactly(2, 4);
            return true;
          });
    }
  }

  @Test
  void simulatedAdoptedMemoryIsReducedInPlace() {
    List<float[]> results =
        Ranks.run(
            2,
            GPU,
            communicator -> {
              SimulatedDriver.use(communicator.device().orElseThrow().index());
              long memory = SimulatedDriver.allocate(8192);
              RegisteredBuffer buffer = communicator.adopt(memory + 256, 400, DataType.FLOAT32);
              assertThat(buffer.address()).isEqualTo(memory + 256);
              buffer.copyFrom(floats(communicator.rank(), 100));
              communicator.allReduce(buffer, buffer, ReduceOp.SUM, Schedule.LOAD_REDUCE_STORE);
              float[] result = new float[100];
              buffer.copyTo(result);
              communicator.close();
              SimulatedDriver.free(memory);
              return result;
            });
    float[] expected = floats(0, 100);
    float[] other = floats(1, 100);
    for (int i = 0; i < 100; i++) {
      expected[i] += other[i];
    }
    assertThat(results).allSatisfy(result -> assertThat(result).isEqualTo(expected));
  }

  @Test
  void simulatedMemoryThatCannotBeAdoptedIsRefusedOnAllRanksWithTheReason() {
    Ranks.run(
        2,
        GPU,
        communicator -> {
          int device = communicator.device().orElseThrow().index();
          boolean culprit = communicator.rank() == 1;
          SimulatedDriver.use(device);
          long own = SimulatedDriver.allocate(4096);
          long pooled = SimulatedDriver.allocateFromPool(4096);
          SimulatedDriver.use(1 - device);
          long elsewhere = SimulatedDriver.allocate(4096);
          assertRefused(communicator, culprit ? 64 : own, 64, "in no device memory");
          assertRefused(communicator, culprit ? own + 4064 : own, 64, "longer than its allocation");
          assertRefused(
              communicator, culprit ? elsewhere : own, 64, "is on device 0, but the rank");
          assertRefused(communicator, culprit ? pooled : own, 64, "virtual-memory pool");
          RegisteredBuffer buffer = communicator.adopt(own, 64, DataType.INT64); // it lives on
          communicator.allReduce(buffer, ReduceOp.SUM);
          communicator.close();
          List.of(own, pooled, elsewhere).forEach(SimulatedDriver::free);
          return true;
        });
  }

  private static void assertRefused(
      Communicator communicator, long address, long bytes, String reason) {
    assertThatThrownBy(() -> communicator.adopt(address, bytes, DataType.INT32))
        .isInstanceOf(AllReduceException.class)
        .hasMessageContaining("rank 1")
        .hasMessageContaining(reason);
  }

  @Test
  void simulatedWorkGoesToAForeignStreamAndBack() {
    onBoth(
        2,
        GPU,
        communicator -> {
          RegisteredBuffer buffer = communicator.allocate(DataType.FLOAT64, 1000);
          buffer.copyFrom(doubles(communicator.rank(), 1000));
          communicator.enqueueAllReduce(buffer, ReduceOp.SUM);
          double[] result = new double[1000];
          if (communicator.backend() == Backend.HOST) {
            communicator.allReduce(buffer, ReduceOp.SUM);
            buffer.copyTo(result);
            return result;
          }
          long own = communicator.stream();
          int device = communicator.device().orElseThrow().index();
          SimulatedDriver.use(1 - device);
          long elsewhere = SimulatedDriver.createStream();
          assertThatThrownBy(() -> communicator.useStream(elsewhere))
              .isInstanceOf(AllReduceException.Usage.class)
              .hasMessageContaining("no stream of device simulated:" + device);
          SimulatedDriver.use(device);
          long foreign = SimulatedDriver.createStream();
          communicator.useStream(foreign);
          assertThat(communicator.stream()).isEqualTo(foreign);
          communicator.enqueueAllReduce(buffer, ReduceOp.SUM);
          communicator.useStream(0);
          assertThat(communicator.stream()).isEqualTo(own);
          buffer.copyTo(result);
          SimulatedDriver.destroyStream(foreign);
          SimulatedDriver.destroyStream(elsewhere);
          return result;
        });
  }

  @Test
  void simulatedDeviceMemoryIsNotAJavaSegment() {
    Ranks.run(
        1,
        GPU,
        communicator -> {
          RegisteredBuffer buffer = communicator.allocate(DataType.FLOAT32, 8);
          assertThatThrownBy(buffer::segment)
              .isInstanceOf(AllReduceException.Usage.class)
              .hasMessageContaining("simulated, not a GPU")
              .hasMessageContaining("copyFrom and copyTo");
          assertThatThrownBy(() -> buffer.copyFrom(new double[4]))
              .isInstanceOf(AllReduceException.Usage.class)
              .hasMessageContaining("elements of type FLOAT32");
          assertThatThrownBy(() -> buffer.copyTo(new float[9]))
              .isInstanceOf(AllReduceException.Usage.class)
              .hasMessageContaining("36 bytes");
          assertThat(buffer.slice(2, 3).address()).isEqualTo(buffer.address() + 8);
          return true;
        });
  }

  @Test
  void simulatedDeviceMemoryIsBackAfterCloseAndAfterFailure() throws Exception {
    long before = free();
    Ranks.run(2, GPU, communicator -> communicator.capture(communicator::barrier));
    assertThat(free()).isEqualTo(before);

    List<Ranks.Outcome<Boolean>> outcomes =
        Ranks.outcomes(
            2,
            GPU,
            communicator -> {
              if (communicator.rank() == 1) {
                throw new IllegalStateException("rank 1 has had enough");
              }
              communicator.allReduce(new float[10], ReduceOp.SUM);
              return true;
            });
    assertThat(outcomes.get(0).failure()).isInstanceOf(AllReduceException.PeerLost.class);
    assertThat(free()).isEqualTo(before);
  }

  private static long free() throws Exception {
    return GpuPart.library(GPU).freeMemory(0) + GpuPart.library(GPU).freeMemory(1);
  }

  @Test
  void simulatedTwoRanksShareADeviceOnlyIfTheyMay() {
    List<Ranks.Outcome<Backend>> refused =
        Ranks.outcomes(2, GPU, _ -> Optional.of("1"), Communicator::backend);
    assertThat(refused)
        .allSatisfy(
            outcome ->
                assertThat(outcome.failure())
                    .isInstanceOf(AllReduceException.Setup.class)
                    .hasMessageContaining("rank 0")
                    .hasMessageContaining("rank 1")
                    .hasMessageContaining("use the same GPU")
                    .hasMessageContaining("spark.allreduce.gpu.shared=true"));

    List<Ranks.Outcome<Backend>> shared =
        Ranks.outcomes(2, SHARED, _ -> Optional.of("1"), Communicator::backend);
    assertThat(shared).extracting(Ranks.Outcome::result).containsOnly(Backend.GPU);
  }

  @Test
  void simulatedOneRankWithoutAGpuBringsAllToTheHost() {
    assertAllOnHost(rank -> rank == 2 ? Optional.empty() : number(rank), "rank 2", "has no GPU");
  }

  @Test
  void simulatedOneRankWhoseMemoryRunsOutBringsAllToTheHost() {
    SimulatedDriver.fail(SimulatedDriver.call("cuMemAlloc_v2@1:2", "hipMalloc@1:2"));
    assertAllOnHost(SimulatedGpuTest::number, "rank 1", "it needs", "are left");
  }

  @Test
  void simulatedOneRankWithoutKernelsForItsDeviceBringsAllToTheHost() {
    SimulatedDriver.fail(
        SimulatedDriver.call("cuModuleLoadDataEx@0:209", "hipModuleLoadDataEx@0:209"));
    assertAllOnHost(SimulatedGpuTest::number, "rank 0", "load the kernels for this device");
  }

  @Test
  void simulatedOneRankThatCannotExportItsMemoryBringsAllToTheHost() {
    SimulatedDriver.fail(
        SimulatedDriver.call("cuIpcGetMemHandle@1:801", "hipIpcGetMemHandle@1:801"));
    assertAllOnHost(SimulatedGpuTest::number, "rank 1", "does not export its memory");
  }

  @Test
  void simulatedOneRankThatCannotReachAPeerBringsAllToTheHost() {
    SimulatedDriver.fail(
        SimulatedDriver.call("cuCtxEnablePeerAccess@2:217", "hipDeviceEnablePeerAccess@2:217"));
    assertAllOnHost(
        SimulatedGpuTest::number, "rank 2 on device simulated:2 cannot open the memory");
  }

  @Test
  void simulatedWhoDemandsTheGpuGetsTheReasonOnAllRanks() {
    SimulatedDriver.fail(
        SimulatedDriver.call("cuCtxEnablePeerAccess@2:217", "hipDeviceEnablePeerAccess@2:217"));
    assertThat(Ranks.outcomes(3, GPU, SimulatedGpuTest::number, Communicator::backend))
        .allSatisfy(
            outcome ->
                assertThat(outcome.failure())
                    .isInstanceOf(AllReduceException.Setup.class)
                    .hasMessageContaining("spark.allreduce.backend is gpu, but rank 2 on device"));
  }

  /** Of 104 bytes the host's rows make a one-shot call. */
  @Test
  void simulatedAutoTakesTheRowsOfTheGpu() {
    String kernel = "sar_low_latency_int64_2";
    int before = SimulatedDriver.launches(kernel);
    Ranks.run(2, GPU, communicator -> allReduce(communicator, 13));
    assertThat(SimulatedDriver.launches(kernel) - before).isEqualTo(2);

    Ranks.run(2, GPU, communicator -> allReduce(communicator, 100_000));
    assertThat(SimulatedDriver.launches(kernel) - before).isEqualTo(2);
  }

  private static boolean allReduce(Communicator communicator, int longs) {
    RegisteredBuffer buffer = communicator.allocate(DataType.INT64, longs);
    communicator.allReduce(buffer, ReduceOp.SUM);
    return true;
  }

  @Test
  void simulatedAutoWarnsOnceAndSaysWhy() {
    SimulatedDriver.fail(SimulatedDriver.call("cuMemAlloc_v2@1:2", "hipMalloc@1:2"));
    try (var log = new LoggedMessages(Opening.class)) {
      assertAllOnHost(SimulatedGpuTest::number, "rank 1", "it needs", "are left");
      assertThat(log.warnings())
          .singleElement()
          .asString()
          .contains("The host backend is used instead of GPUs, since rank 1")
          .contains("it needs");
    }
  }

  private static Optional<String> number(int rank) {
    return Optional.of(Integer.toString(rank));
  }

  /** No outcome is mixed, everybody knows why, and collectives work. */
  private static void assertAllOnHost(IntFunction<Optional<String>> devices, String... reasons) {
    List<Ranks.Outcome<String>> outcomes =
        Ranks.outcomes(
            3,
            Ranks.settings(),
            devices,
            communicator -> {
              assertThat(communicator.backend()).isEqualTo(Backend.HOST);
              double[] values = {1};
              communicator.allReduce(values, ReduceOp.SUM);
              assertThat(values).containsExactly(3);
              return communicator.fallback().orElse("");
            });
    assertThat(outcomes)
        .allSatisfy(
            outcome -> {
              assertThat(outcome.failure()).isNull();
              assertThat(outcome.result()).contains(reasons);
            });
  }

  @Test
  void simulatedAPeerThatIsGoneFailsAnEnqueuedCallAtTheWait() {
    Settings impatient =
        Ranks.settings("spark.allreduce.backend", "gpu", "spark.allreduce.timeout", "1s");
    List<Ranks.Outcome<Boolean>> outcomes =
        Ranks.outcomes(
            2,
            impatient,
            communicator -> {
              RegisteredBuffer buffer = communicator.allocate(DataType.FLOAT32, 100);
              communicator.enqueueAllReduce(buffer, ReduceOp.SUM);
              if (communicator.rank() == 1) {
                communicator.waitFor();
                communicator.abort("rank 1 gives up");
                return true;
              }
              while (true) {
                communicator.enqueueAllReduce(buffer, ReduceOp.SUM);
                communicator.waitFor();
              }
            });
    assertThat(outcomes.get(0).failure()).isInstanceOf(AllReduceException.class);
    assertThat(outcomes.get(1).failure()).isNull();
  }

  @Test
  void simulatedStagesGoOnWithoutALease() {
    try (var leases = new Leases(GPU)) {
      var identity = new RankIdentity(0, 1, UUID.randomUUID(), "0", "localhost", Optional.of("0"));
      UUID lease = UUID.randomUUID();
      for (int stage = 0; stage < 2; stage++) {
        var communicator =
            Communicator.open(
                Ranks.LIBRARY, GPU, identity, Ranks.exchange(1), Optional.of(lease), leases);
        assertThat(communicator.backend()).isEqualTo(Backend.GPU);
        communicator.closeInto(leases, lease);
        assertThat(leases.size()).isZero();
      }
    }
  }
}
