// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.demo;

import java.util.function.IntConsumer;
import org.apache.spark.api.java.JavaRDD;
import org.apache.spark.api.java.JavaSparkContext;
import org.apache.spark.broadcast.Broadcast;

/** The same training as Spark's own library does it: a broadcast and a job for each step. */
final class TreeAggregate {
  private TreeAggregate() {}

  @SuppressWarnings("ArrayRecordComponent") // handed on once, never compared
  record Trained(double[] weights, long[] stepNanos) {}

  /**
   * Trains on the driver.
   *
   * @param rows cached
   * @param progress told the number of steps done, after each
   */
  static Trained train(
      JavaSparkContext spark, JavaRDD<double[]> rows, int steps, IntConsumer progress) {
    long total = rows.count();
    var model = new Softmax();
    long[] stepNanos = new long[steps];
    for (int step = 0; step < steps; step++) {
      long start = System.nanoTime();
      Broadcast<double[]> weights = spark.broadcast(model.weights());
      double[] gradient =
          rows.treeAggregate(
              new double[Softmax.WEIGHTS],
              (sum, row) -> {
                Softmax.addGradient(weights.value(), row, sum);
                return sum;
              },
              TreeAggregate::add);
      model.step(gradient, total);
      weights.destroy();
      stepNanos[step] = System.nanoTime() - start;
      progress.accept(step + 1);
    }
    return new Trained(model.weights(), stepNanos);
  }

  private static double[] add(double[] sum, double[] other) {
    for (int i = 0; i < sum.length; i++) {
      sum[i] += other[i];
    }
    return sum;
  }
}
