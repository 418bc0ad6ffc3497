// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.bench;

import java.io.Serializable;
import java.util.Arrays;
import java.util.List;
import java.util.stream.IntStream;
import org.apache.spark.SparkConf;
import org.apache.spark.api.java.JavaRDD;
import org.apache.spark.api.java.JavaSparkContext;
import org.apache.spark.broadcast.Broadcast;
import org.sparkallreduce.ReduceOp;
import org.sparkallreduce.dataset.Collectives;
import org.sparkallreduce.dataset.RankContext;

/**
 * Measures one step of a trainer, whose gradient costs next to nothing: with an all-reduce inside
 * of a barrier stage, and with a broadcast of the weights and a treeAggregate of the gradients, on
 * the same executors, size by size. Both must end with the same weights. Prints a Markdown table.
 *
 * <p>Arguments: the number of ranks; {@code --quick} for few steps of few sizes.
 */
public final class StepBench {
  private static final double RATE = 0.5;

  /** How many steps are measured; as many as a fifth of them go before. */
  private record Steps(int allReduce, int treeAggregate, List<Integer> sizes) {
    static final Steps FULL = new Steps(200, 20, List.of(4 << 10, 64 << 10, 1 << 20, 16 << 20));
    static final Steps QUICK = new Steps(10, 2, List.of(4 << 10, 64 << 10));
  }

  /** What a training ends with, and what its steps took. */
  @SuppressWarnings("ArrayRecordComponent") // handed on once, never compared
  private record Trained(double[] weights, long[] stepNanos) implements Serializable {}

  private StepBench() {}

  public static void main(String[] arguments) {
    int ranks = Integer.parseInt(arguments[0]);
    Steps steps = Arrays.asList(arguments).contains("--quick") ? Steps.QUICK : Steps.FULL;
    System.err.printf("Starting %d executor processes...%n", ranks);
    try (var spark = new JavaSparkContext(new SparkConf().setAppName("step bench"))) {
      JavaRDD<Integer> rows =
          spark.parallelize(IntStream.range(0, ranks).boxed().toList(), ranks).cache();
      System.out.printf(
          "%d executor processes, %d processors; milliseconds a step, median (least to most)%n%n",
          ranks, Runtime.getRuntime().availableProcessors());
      System.out.println("| bytes | all-reduce | treeAggregate + broadcast | times faster |");
      System.out.println("|---|---|---|---|");
      for (int bytes : steps.sizes()) {
        compare(spark, rows, ranks, bytes, steps);
      }
    }
  }

  private static void compare(
      JavaSparkContext spark, JavaRDD<Integer> rows, int ranks, int bytes, Steps steps) {
    System.err.printf("Measuring %d bytes...%n", bytes);
    int length = bytes / Double.BYTES;
    int allReduces = steps.allReduce();
    List<Trained> inStage =
        Collectives.run(rows, ranks, (context, _) -> inStage(context, length, allReduces));
    Trained tree = treeAggregate(spark, rows, length, steps.treeAggregate());
    for (Trained rank : inStage) {
      requireSteps(rank, length, ranks);
    }
    requireSteps(tree, length, ranks);
    long[] mine = sorted(inStage.getFirst());
    long[] theirs = sorted(tree);
    System.out.printf(
        "| %d | %s | %s | %.0f |%n",
        bytes, spread(mine), spread(theirs), (double) median(theirs) / median(mine));
  }

  private static Trained inStage(RankContext context, int length, int steps) {
    double[] weights = new double[length];
    double[] gradient = new double[length];
    var nanos = new long[steps];
    for (int step = -Math.ceilDiv(steps, 5); step < steps; step++) {
      long start = System.nanoTime();
      Arrays.fill(gradient, 0);
      addGradient(weights, gradient);
      context.communicator().allReduce(gradient, ReduceOp.SUM);
      update(weights, gradient);
      if (step >= 0) {
        nanos[step] = System.nanoTime() - start;
      }
    }
    return new Trained(weights, nanos);
  }

  private static Trained treeAggregate(
      JavaSparkContext spark, JavaRDD<Integer> rows, int length, int steps) {
    double[] weights = new double[length];
    var nanos = new long[steps];
    for (int step = -Math.ceilDiv(steps, 5); step < steps; step++) {
      long start = System.nanoTime();
      Broadcast<double[]> sent = spark.broadcast(weights);
      double[] gradient =
          rows.treeAggregate(
              new double[0], // it travels with every task: each makes its own instead
              (sum, _) -> {
                double[] mine = sum.length == 0 ? new double[sent.value().length] : sum;
                addGradient(sent.value(), mine);
                return mine;
              },
              StepBench::add);
      update(weights, gradient);
      sent.destroy();
      if (step >= 0) {
        nanos[step] = System.nanoTime() - start;
      }
    }
    return new Trained(weights, nanos);
  }

  /** Of one rank: -1 everywhere, whatever the weights are. */
  private static void addGradient(double[] weights, double[] sum) {
    for (int i = 0; i < sum.length; i++) {
      sum[i] += 0 * weights[i] - 1;
    }
  }

  private static double[] add(double[] sum, double[] other) {
    if (sum.length == 0 || other.length == 0) {
      return sum.length == 0 ? other : sum;
    }
    for (int i = 0; i < sum.length; i++) {
      sum[i] += other[i];
    }
    return sum;
  }

  private static void update(double[] weights, double[] gradient) {
    for (int i = 0; i < weights.length; i++) {
      weights[i] -= RATE * gradient[i];
    }
  }

  /** Each step adds RATE for each rank, which floating point does exactly. */
  private static void requireSteps(Trained trained, int length, int ranks) {
    int measured = trained.stepNanos().length;
    double expected = (measured + Math.ceilDiv(measured, 5)) * RATE * ranks;
    if (trained.weights().length != length
        || Arrays.stream(trained.weights()).anyMatch(weight -> weight != expected)) {
      throw new IllegalStateException("a training ended with wrong weights");
    }
  }

  private static long[] sorted(Trained trained) {
    long[] nanos = trained.stepNanos().clone();
    Arrays.sort(nanos);
    return nanos;
  }

  private static long median(long[] sorted) {
    return sorted[sorted.length / 2];
  }

  private static String spread(long[] sorted) {
    return "%s (%s to %s)"
        .formatted(millis(median(sorted)), millis(sorted[0]), millis(sorted[sorted.length - 1]));
  }

  private static String millis(long nanos) {
    double millis = nanos * 1e-6;
    return (millis < 10 ? "%.3f" : millis < 100 ? "%.1f" : "%.0f").formatted(millis);
  }
}
