// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.demo;

import java.io.File;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.function.Predicate;
import java.util.stream.IntStream;
import org.apache.spark.SparkConf;
import org.apache.spark.api.java.JavaRDD;
import org.apache.spark.api.java.JavaSparkContext;

/**
 * Trains a classifier of hand-written digits twice on the same cluster: in one barrier stage with
 * all-reduce, and with a broadcast and a treeAggregate in each step. Prints a table; the exit code
 * is 0 only if every claim of it held.
 *
 * <p>Arguments: the number of ranks.
 */
public final class DigitsDemo {
  private static final int STEPS = 120;
  private static final int STEPS_BETWEEN_LINES = 20;
  private static final double LEAST_ACCURACY = 0.94;
  private static final double LARGEST_DIFFERENCE = 1e-9;

  private final List<String> faults = new ArrayList<>();

  private DigitsDemo() {}

  public static void main(String[] arguments) {
    int ranks = Integer.parseInt(arguments[0]);
    System.out.printf("Starting %d executor processes...%n", ranks);
    var demo = new DigitsDemo();
    try (var spark = new JavaSparkContext(new SparkConf().setAppName("digits"))) {
      demo.compare(spark, ranks);
    }
    demo.faults.forEach(fault -> System.out.printf("FAILED: %s%n", fault));
    System.exit(demo.faults.isEmpty() ? 0 : 1);
  }

  private void compare(JavaSparkContext spark, int ranks) {
    List<double[]> all = Digits.load();
    List<double[]> training = every(all, i -> i % 5 != 4);
    List<double[]> heldOut = every(all, i -> i % 5 == 4);
    JavaRDD<double[]> rows = spark.parallelize(training, ranks).cache();
    System.out.printf(
        "%d rows to train on, %d held out; Spark %s%n",
        rows.count(), heldOut.size(), spark.version());

    System.out.printf("Training in one barrier stage of %d ranks, %d steps...%n", ranks, STEPS);
    long start = System.nanoTime();
    List<InStage.Rank> inStage = InStage.train(rows, ranks, STEPS);
    long inStageNanos = System.nanoTime() - start;

    System.out.printf("Training by treeAggregate and broadcast, %d steps...%n", STEPS);
    long treeStart = System.nanoTime();
    TreeAggregate.Trained tree =
        TreeAggregate.train(spark, rows, STEPS, done -> progress(done, treeStart));
    long treeNanos = System.nanoTime() - treeStart;

    double[] weights = inStage.getFirst().weights();
    double difference = difference(weights, tree.weights());
    double accuracy = Softmax.accuracy(weights, heldOut);
    double treeAccuracy = Softmax.accuracy(tree.weights(), heldOut);
    double step = median(inStage.getFirst().stepNanos());
    double treeStep = median(tree.stepNanos());
    System.out.println();
    row("", "all-reduce", "treeAggregate");
    row("reduced on", inStage.getFirst().backend(), "driver");
    row("executor processes", processes(inStage), ranks);
    row("steps", STEPS, STEPS);
    row("whole training", seconds(inStageNanos), seconds(treeNanos));
    row("time per step, median", millis(step), millis(treeStep));
    row("accuracy on the held-out fifth", fraction(accuracy), fraction(treeAccuracy));
    row("largest relative difference of weights", "%.1e".formatted(difference), "");
    row("faster per step", "%.0f times".formatted(treeStep / step), "");
    System.out.println();

    check(inStage, ranks);
    hold(accuracy >= LEAST_ACCURACY, "the accuracy is below " + LEAST_ACCURACY);
    hold(difference <= LARGEST_DIFFERENCE, "the two trainings' weights differ too much");
  }

  private void check(List<InStage.Rank> inStage, int ranks) {
    hold(processes(inStage) == ranks, "ranks shared an executor process");
    hold(
        inStage.stream()
            .allMatch(rank -> Arrays.equals(rank.weights(), inStage.getFirst().weights())),
        "the ranks ended with different weights");
    String[] left =
        new File("/dev/shm")
            .list(
                (_, name) ->
                    inStage.stream()
                        .anyMatch(
                            rank -> name.matches("spark-allreduce-\\d+-" + rank.pid() + "-.*")));
    hold(left == null || left.length == 0, "shared memory was left: " + Arrays.toString(left));
  }

  private void hold(boolean held, String fault) {
    if (!held) {
      faults.add(fault);
    }
  }

  private static void progress(int done, long start) {
    if (done % STEPS_BETWEEN_LINES == 0) {
      System.out.printf("  step %d of %d, %s%n", done, STEPS, seconds(System.nanoTime() - start));
    }
  }

  private static List<double[]> every(List<double[]> rows, Predicate<Integer> chosen) {
    return IntStream.range(0, rows.size()).boxed().filter(chosen).map(rows::get).toList();
  }

  private static long processes(List<InStage.Rank> ranks) {
    return ranks.stream().mapToLong(InStage.Rank::pid).distinct().count();
  }

  /** The largest difference of an element, relative to the larger of the two. */
  private static double difference(double[] a, double[] b) {
    return IntStream.range(0, a.length)
        .filter(i -> a[i] != b[i])
        .mapToDouble(i -> Math.abs(a[i] - b[i]) / Math.max(Math.abs(a[i]), Math.abs(b[i])))
        .max()
        .orElse(0);
  }

  private static double median(long[] nanos) {
    long[] sorted = nanos.clone();
    Arrays.sort(sorted);
    return sorted[sorted.length / 2];
  }

  private static String seconds(long nanos) {
    return "%.1f s".formatted(nanos / 1e9);
  }

  private static String millis(double nanos) {
    return "%.2f ms".formatted(nanos / 1e6);
  }

  private static String fraction(double value) {
    return "%.4f".formatted(value);
  }

  private static void row(String name, Object allReduce, Object treeAggregate) {
    System.out.printf("%-38s %14s %14s%n", name, allReduce, treeAggregate);
  }
}
