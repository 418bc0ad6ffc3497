// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.it;

import static org.assertj.core.api.Assertions.assertThat;
import static org.awaitility.Awaitility.await;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import java.io.IOException;
import java.io.Serializable;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.stream.IntStream;
import java.util.stream.Stream;
import org.apache.spark.SparkConf;
import org.apache.spark.ml.linalg.SQLDataTypes;
import org.apache.spark.ml.linalg.Vectors;
import org.apache.spark.resource.ResourceProfile;
import org.apache.spark.resource.ResourceProfileBuilder;
import org.apache.spark.resource.TaskResourceRequests;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.RowFactory;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.types.StructType;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.DisplayNameGeneration;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.TestInstance;
import org.junit.jupiter.api.io.TempDir;
import org.sparkallreduce.Backend;
import org.sparkallreduce.DataType;
import org.sparkallreduce.ReduceOp;
import org.sparkallreduce.Schedule;
import org.sparkallreduce.communicator.Communicator;
import org.sparkallreduce.communicator.Graph;
import org.sparkallreduce.communicator.RegisteredBuffer;
import org.sparkallreduce.dataset.Collectives;
import org.sparkallreduce.dataset.RankContext;
import org.sparkallreduce.faults.ExecutorPids;
import org.sparkallreduce.faults.GpuMachine;

/**
 * Executor processes to which Spark has assigned a GPU each; all have the same one if there is only
 * one. What they compute must have the bits that the host backend computes from the same input.
 */
@DisplayNameGeneration(GpuDisplayNames.class)
@TestInstance(TestInstance.Lifecycle.PER_CLASS)
abstract class GpuExecutors {
  private static final int ROUNDS = 5;

  private final int ranks;
  private SparkSession spark;

  GpuExecutors(int ranks) {
    this.ranks = ranks;
  }

  @BeforeAll
  void start() throws IOException {
    GpuMachine machine = GpuMachine.HERE;
    assumeTrue(machine.kind() != GpuMachine.Kind.NOTHING, machine::reason);
    System.out.printf("%s ran on: %s%n", getClass().getSimpleName(), machine.name());
    spark = Cluster.start(conf(), ranks);
  }

  /** Without GpuMachine in its signature, which executors would have to know. */
  private SparkConf conf() throws IOException {
    GpuMachine machine = GpuMachine.HERE;
    boolean enough = machine.addresses().size() >= ranks;
    // One worker tells addresses apart; several discover the same ones.
    String master = enough ? "local-cluster[1,%d,%d]" : "local-cluster[%d,1,%d]";
    SparkConf conf =
        Cluster.conf(master.formatted(ranks, enough ? ranks * 1024 : 1024))
            .set("spark.executor.cores", "1")
            .set("spark.allreduce.backend", "gpu")
            .set("spark.allreduce.gpu.shared", Boolean.toString(!enough))
            .set("spark.allreduce.lease.idle", "0s")
            .set("spark.worker.resource.gpu.amount", enough ? "" + ranks : "1")
            .set("spark.worker.resource.gpu.discoveryScript", machine.discovery().toString())
            .set("spark.executor.resource.gpu.amount", "1")
            .set("spark.task.resource.gpu.amount", "1");
    machine.environment().forEach(conf::setExecutorEnv);
    return conf;
  }

  @AfterAll
  void stop() {
    if (spark != null) {
      spark.stop();
    }
  }

  /** What a rank does; it knows how often the stage was tried before. */
  @FunctionalInterface
  interface Program<R> extends Serializable {
    R run(Communicator communicator, int attempt) throws Exception;
  }

  private <R> List<R> onGpus(Program<R> program) {
    return Collectives.run(
        Cluster.numbers(spark, ranks),
        ranks,
        (context, _) -> program.run(context.communicator(), context.attempt()));
  }

  private <R> List<R> onTheHost(Program<R> program) throws InterruptedException {
    return HostRanks.run(ranks, communicator -> program.run(communicator, 0));
  }

  record Place(long pid, Backend backend, String device) implements Serializable {}

  @Test
  void everyRankIsAProcessOnTheGpuThatSparkAssignedToIt() {
    List<Place> places =
        onGpus(
            (communicator, _) ->
                new Place(
                    ProcessHandle.current().pid(),
                    communicator.backend(),
                    communicator.device().orElseThrow().describe()));
    assertThat(places).extracting(Place::pid).doesNotHaveDuplicates();
    assertThat(places).extracting(Place::backend).containsOnly(Backend.GPU);
    int devices = GpuMachine.HERE.addresses().size() >= ranks ? ranks : 1;
    assertThat(places.stream().map(Place::device).distinct()).hasSize(devices);
  }

  @Test
  void everyCallHasTheBitsOfTheHostBackend() throws Exception {
    List<Map<String, byte[]>> host =
        onTheHost((communicator, _) -> GpuCalls.run(communicator, List.of(Schedule.AUTO)));
    List<Map<String, byte[]>> gpu =
        onGpus((communicator, _) -> GpuCalls.run(communicator, List.of(Schedule.values())));
    for (int rank = 0; rank < ranks; rank++) {
      assertThat(gpu.get(rank)).containsExactlyEntriesOf(host.get(rank));
    }
  }

  @Test
  void enqueuedAndReplayedCallsHaveTheBitsOfTheHostBackend() throws Exception {
    List<List<float[]>> host = onTheHost((communicator, _) -> calledInThreeWays(communicator));
    List<List<float[]>> gpu = onGpus((communicator, _) -> calledInThreeWays(communicator));
    for (int rank = 0; rank < ranks; rank++) {
      assertThat(gpu.get(rank)).containsExactlyElementsOf(host.get(rank));
    }
  }

  /** Waiting, enqueued, and in a graph of two collectives that depend on each other. */
  private static List<float[]> calledInThreeWays(Communicator communicator) {
    RegisteredBuffer in = communicator.allocate(DataType.FLOAT32, 5_003);
    RegisteredBuffer sum = communicator.allocate(DataType.FLOAT32, 5_003);
    RegisteredBuffer most = communicator.allocate(DataType.FLOAT32, 5_003);
    var results = new ArrayList<float[]>();
    try (Graph graph =
        communicator.capture(
            () -> {
              communicator.allReduce(in, sum, ReduceOp.SUM);
              communicator.allReduce(sum, most, ReduceOp.PRODUCT);
            })) {
      for (int round = 0; round < 12; round++) {
        float[] values = new float[5_003];
        for (int i = 0; i < values.length; i++) {
          values[i] = (float) Math.cos(i * (communicator.rank() + 1) + round);
        }
        in.copyFrom(values);
        switch (round % 3) {
          case 0 -> graph.replay();
          case 1 -> {
            communicator.allReduce(in, sum, ReduceOp.SUM);
            communicator.allReduce(sum, most, ReduceOp.PRODUCT);
          }
          default -> {
            communicator.enqueueAllReduce(in, sum, ReduceOp.SUM);
            communicator.enqueueAllReduce(sum, most, ReduceOp.PRODUCT);
          }
        }
        float[] result = new float[5_003];
        most.copyTo(result);
        results.add(result);
      }
      communicator.waitFor();
    }
    return results;
  }

  @Test
  void aFloat32ModelComesOutRightAndAsOnTheHost() throws Exception {
    assertSameModel(DataType.FLOAT32);
  }

  @Test
  void aBfloat16ModelComesOutRightAndAsOnTheHost() throws Exception {
    assertSameModel(DataType.BFLOAT16);
  }

  private void assertSameModel(DataType type) throws InterruptedException {
    List<float[]> host = onTheHost((communicator, _) -> GpuModel.train(communicator, type, false));
    List<float[]> eager = onGpus((communicator, _) -> GpuModel.train(communicator, type, false));
    List<float[]> graph = onGpus((communicator, _) -> GpuModel.train(communicator, type, true));
    assertThat(eager).containsExactlyElementsOf(host);
    assertThat(graph).containsExactlyElementsOf(host);
    assertThat(host)
        .allSatisfy(trained -> assertThat(trained[trained.length - 1]).isGreaterThan(0.95f));
  }

  @Test
  void adoptedMemoryIsReducedInTheMidstOfTheWorkOfAForeignStream() {
    List<List<Float>> found =
        onGpus((communicator, _) -> GpuForeignWork.enqueued(communicator, ROUNDS));
    List<Float> expected = IntStream.range(0, ROUNDS).mapToObj(this::sumOfInputs).toList();
    assertThat(found).hasSize(ranks).containsOnly(expected);
  }

  @Test
  void aCaptureHoldsTheUsersOwnKernelAndCopyBesideTheCollective() {
    assumeTrue(
        GpuMachine.HERE.isSimulated() || GpuMachine.HERE.isNvidia(),
        "skipped: the user's kernel of this test is PTX, for NVIDIA GPUs");
    List<List<Float>> found =
        onGpus((communicator, _) -> GpuForeignWork.captured(communicator, ROUNDS));
    List<Float> expected =
        IntStream.range(0, ROUNDS)
            .mapToObj(this::sumOfInputs)
            .flatMap(sum -> Stream.of(2 * sum, 4 * sum))
            .toList();
    assertThat(found).hasSize(ranks).containsOnly(expected);
  }

  private float sumOfInputs(int round) {
    float sum = 0;
    for (int rank = 0; rank < ranks; rank++) {
      sum += GpuForeignWork.input(rank, round);
    }
    return sum;
  }

  @Test
  void memoryThatOneRankCannotShareIsRefusedOnAllRanksAndTheCommunicatorLivesOn() {
    assertThat(onGpus((communicator, _) -> GpuForeignWork.refused(communicator)))
        .hasSize(ranks)
        .allSatisfy(
            told -> {
              assertThat(told.getFirst())
                  .contains("rank " + (ranks - 1))
                  .contains("virtual-memory pool");
              assertThat(told.getLast()).isEqualTo(Float.toString(ranks));
            });
  }

  @Test
  void aStageOfTheUsersOwnAsksForItsGpusItself(@TempDir Path folder) {
    ResourceProfile one =
        new ResourceProfileBuilder()
            .require(new TaskResourceRequests().cpus(1).resource("gpu", 1))
            .build();
    String found = folder.toString();
    OwnStage.run(
        spark.sparkContext(),
        ranks,
        one,
        _ -> {
          Communicator communicator = RankContext.open().communicator();
          int[] ones = {1};
          communicator.allReduce(ones, ReduceOp.SUM);
          Files.createFile(
              Path.of(found, "%s %d".formatted(communicator.backend(), communicator.rank())));
          if (ones[0] != communicator.size()) {
            throw new IllegalStateException("a wrong sum");
          }
        });
    assertThat(folder.toFile().list())
        .containsExactlyInAnyOrder(
            IntStream.range(0, ranks).mapToObj(rank -> "GPU " + rank).toArray(String[]::new));
  }

  @Test
  void oneShotCallsReduceAColumn() {
    List<Row> vectors =
        IntStream.range(0, 100)
            .mapToObj(i -> RowFactory.create(Vectors.dense(i, -i, 0.5)))
            .toList();
    Dataset<Row> rows =
        spark.createDataFrame(vectors, new StructType().add("v", SQLDataTypes.VectorType()));
    assertThat(Collectives.sum(rows, "v", ranks)).containsExactly(4_950, -4_950, 50);
    assertThat(Collectives.min(rows, "v", ranks)).containsExactly(0, -99, 0.5);
  }

  @Test
  void anExecutorKilledInsideOfACollectiveIsReplacedAndAllDeviceMemoryComesBack(
      @TempDir Path folder) throws Exception {
    onGpus((communicator, _) -> communicator.rank()); // all have used their device once
    long before = memoryInUse();
    String running = folder.resolve("running").toString();

    CompletableFuture<List<Integer>> job =
        CompletableFuture.supplyAsync(
            () -> onGpus((communicator, attempt) -> callForEver(communicator, attempt, running)));
    await().until(() -> Files.exists(Path.of(running)));
    assertThat(memoryInUse()).isGreaterThan(before);
    long victim = ExecutorPids.find().iterator().next();
    assertThat(ProcessHandle.of(victim).orElseThrow().destroyForcibly()).isTrue();

    assertThat(job.get(2, TimeUnit.MINUTES)).hasSize(ranks).allMatch(attempt -> attempt > 0);
    assertThat(ExecutorPids.find()).hasSize(ranks).doesNotContain(victim);
    await().until(() -> memoryInUse() <= before);
    await().untilAsserted(() -> assertThat(Cluster.leftInSharedMemory()).isEmpty());
  }

  private static long memoryInUse() {
    return GpuMachine.HERE.memoryInUse(ExecutorPids.find());
  }

  /** Until a peer is gone; the next attempt makes a few calls. */
  private static int callForEver(Communicator communicator, int attempt, String running)
      throws IOException {
    RegisteredBuffer ones = communicator.allocate(DataType.INT64, 50_000);
    RegisteredBuffer sums = communicator.allocate(DataType.INT64, 50_000);
    long[] values = new long[50_000];
    Arrays.fill(values, 1);
    ones.copyFrom(values);
    for (int call = 0; attempt == 0 || call < 10; call++) {
      communicator.allReduce(ones, sums, ReduceOp.SUM);
      if (attempt == 0 && call == 10 && communicator.rank() == 0) {
        Files.createFile(Path.of(running));
      }
    }
    sums.copyTo(values);
    if (Arrays.stream(values).anyMatch(sum -> sum != communicator.size())) {
      throw new IllegalStateException("a wrong sum");
    }
    return attempt;
  }
}
