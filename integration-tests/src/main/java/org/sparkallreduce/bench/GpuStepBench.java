// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.bench;

import java.io.Serializable;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.stream.IntStream;
import org.apache.spark.SparkConf;
import org.apache.spark.api.java.JavaRDD;
import org.apache.spark.api.java.JavaSparkContext;
import org.apache.spark.broadcast.Broadcast;
import org.sparkallreduce.DataType;
import org.sparkallreduce.ReduceOp;
import org.sparkallreduce.communicator.Communicator;
import org.sparkallreduce.communicator.Graph;
import org.sparkallreduce.communicator.RegisteredBuffer;
import org.sparkallreduce.dataset.Collectives;
import org.sparkallreduce.tools.CompilerWatch;

/**
 * Measures how gradients of float32 are added up in each step of a trainer: where they lie in the
 * memory of the ranks' GPUs, called eagerly and replayed from a graph; in shared memory of the
 * host; and by a broadcast of the weights and a treeAggregate of the gradients. The first two and
 * the last on the same executors, the host backend on a second set of the same shape. Every sum is
 * checked. Prints a Markdown table.
 *
 * <p>Arguments: the number of ranks; {@code --quick} for few steps of few sizes.
 */
public final class GpuStepBench {
  /** Calls between two looks at the JIT compilers. */
  static final int COMPILING_BATCH = 20;

  /**
   * How many steps are measured; as many as a fifth of them go before. Those of an all-reduce begin
   * when the compilers of all ranks are quiet.
   */
  private record Size(int bytes, int allReduces, int treeAggregates) implements Serializable {
    static final List<Size> FULL =
        List.of(
            new Size(4 << 10, 100, 20),
            new Size(1 << 20, 100, 20),
            new Size(16 << 20, 50, 10),
            new Size(256 << 20, 20, 3));
    static final List<Size> QUICK = List.of(new Size(4 << 10, 10, 2), new Size(64 << 10, 10, 2));

    int length() {
      return bytes / Float.BYTES;
    }
  }

  /** What the steps of rank 0 took, by kind of call. */
  @SuppressWarnings("ArrayRecordComponent") // handed on once, never compared
  private record Taken(String backend, long[] eager, long[] graph) implements Serializable {}

  private GpuStepBench() {}

  public static void main(String[] arguments) {
    int ranks = Integer.parseInt(arguments[0]);
    List<Size> sizes = Arrays.asList(arguments).contains("--quick") ? Size.QUICK : Size.FULL;
    var conf = new SparkConf().setAppName("step bench");
    var rows = new ArrayList<String>();
    var devices = new ArrayList<Taken>();
    System.err.printf("Starting %d executor processes...%n", ranks);
    try (var spark = new JavaSparkContext(conf.clone().set("spark.allreduce.backend", "gpu"))) {
      JavaRDD<Integer> parts = parts(spark, ranks);
      for (Size size : sizes) {
        System.err.printf("Measuring %d bytes...%n", size.bytes());
        Taken device = allReduce(parts, ranks, size);
        devices.add(device);
        rows.add(
            "| %d | %s | %s | %%s | %s |"
                .formatted(
                    size.bytes(),
                    spread(device.eager()),
                    spread(device.graph()),
                    spread(treeAggregate(spark, parts, ranks, size))));
      }
    }
    System.err.printf("Starting %d executor processes for the host backend...%n", ranks);
    try (var spark = new JavaSparkContext(conf.clone().set("spark.allreduce.backend", "host"))) {
      JavaRDD<Integer> parts = parts(spark, ranks);
      for (int i = 0; i < sizes.size(); i++) {
        Taken host = allReduce(parts, ranks, sizes.get(i));
        rows.set(i, rows.get(i).formatted(spread(host.eager())));
      }
    }
    System.out.printf(
        "%n%d executor processes, %d processors; %s%n"
            + "milliseconds a step, median (least to most)%n%n",
        ranks, Runtime.getRuntime().availableProcessors(), devices.getFirst().backend());
    System.out.println(
        "| bytes | device, eager | device, graph | host | treeAggregate + broadcast |");
    System.out.println("|---|---|---|---|---|");
    rows.forEach(System.out::println);
  }

  private static JavaRDD<Integer> parts(JavaSparkContext spark, int ranks) {
    return spark.parallelize(IntStream.range(0, ranks).boxed().toList(), ranks).cache();
  }

  private static Taken allReduce(JavaRDD<Integer> parts, int ranks, Size size) {
    return Collectives.run(parts, ranks, (context, _) -> allReduce(context.communicator(), size))
        .getFirst();
  }

  private static Taken allReduce(Communicator communicator, Size size) {
    RegisteredBuffer gradient = communicator.allocate(DataType.FLOAT32, size.length());
    RegisteredBuffer sum = communicator.allocate(DataType.FLOAT32, size.length());
    float[] mine = new float[size.length()];
    Arrays.fill(mine, communicator.rank() + 1);
    gradient.copyFrom(mine);
    Runnable step = () -> communicator.allReduce(gradient, sum, ReduceOp.SUM);
    var compilers = new CompilerWatch(communicator);
    compilers.untilQuiet(() -> time(COMPILING_BATCH, step));
    long[] eager = time(size.allReduces(), step);
    requireSum(sum, communicator.size());
    long[] graph;
    try (Graph captured = communicator.capture(step)) {
      Runnable replay =
          () -> {
            captured.replay();
            communicator.waitFor();
          };
      compilers.untilQuiet(() -> time(COMPILING_BATCH, replay));
      graph = time(size.allReduces(), replay);
    }
    requireSum(sum, communicator.size());
    String backend =
        communicator.device().map(device -> device.describe()).orElse("the host backend");
    return new Taken(backend, eager, graph);
  }

  private static void requireSum(RegisteredBuffer buffer, int ranks) {
    float[] sum = new float[(int) buffer.count()];
    buffer.copyTo(sum);
    requireSum(sum, ranks);
  }

  private static void requireSum(float[] sum, int ranks) {
    int expected = ranks * (ranks + 1) / 2;
    for (float value : sum) {
      if (value != expected) {
        throw new IllegalStateException("a sum is %s, not %d".formatted(value, expected));
      }
    }
  }

  private static long[] treeAggregate(
      JavaSparkContext spark, JavaRDD<Integer> parts, int ranks, Size size) {
    float[] weights = new float[size.length()];
    return time(
        size.treeAggregates(),
        () -> {
          Broadcast<float[]> sent = spark.broadcast(weights);
          float[] sum =
              parts.treeAggregate(
                  new float[0], // it travels with every task: each makes its own instead
                  (mine, part) -> {
                    float[] gradient = new float[sent.value().length];
                    Arrays.fill(gradient, part + 1);
                    return add(mine, gradient);
                  },
                  GpuStepBench::add);
          requireSum(sum, ranks);
          sent.destroy();
        });
  }

  private static float[] add(float[] sum, float[] other) {
    if (sum.length == 0 || other.length == 0) {
      return sum.length == 0 ? other : sum;
    }
    for (int i = 0; i < sum.length; i++) {
      sum[i] += other[i];
    }
    return sum;
  }

  /** Nanoseconds of each call, in ascending order. */
  static long[] time(int calls, Runnable call) {
    var nanos = new long[calls];
    for (int i = -Math.ceilDiv(calls, 5); i < calls; i++) {
      long start = System.nanoTime();
      call.run();
      if (i >= 0) {
        nanos[i] = System.nanoTime() - start;
      }
    }
    Arrays.sort(nanos);
    return nanos;
  }

  private static String spread(long[] sorted) {
    return "%s (%s to %s)"
        .formatted(
            millis(sorted[sorted.length / 2]),
            millis(sorted[0]),
            millis(sorted[sorted.length - 1]));
  }

  private static String millis(long nanos) {
    double millis = nanos * 1e-6;
    return (millis < 10 ? "%.3f" : millis < 100 ? "%.1f" : "%.0f").formatted(millis);
  }
}
