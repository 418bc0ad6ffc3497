// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.demo;

import java.io.Serializable;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import org.apache.spark.api.java.JavaRDD;
import org.sparkallreduce.Device;
import org.sparkallreduce.ReduceOp;
import org.sparkallreduce.communicator.Communicator;
import org.sparkallreduce.dataset.Collectives;
import org.sparkallreduce.dataset.RankContext;

/** The training as one loop inside of one barrier stage: gradients are all-reduced. */
final class InStage {
  private InStage() {}

  /** What a rank has to tell: all of them train the same weights. */
  @SuppressWarnings("ArrayRecordComponent") // handed on once, never compared
  record Rank(long pid, String backend, double[] weights, long[] stepNanos)
      implements Serializable {}

  static List<Rank> train(JavaRDD<double[]> rows, int ranks, int steps) {
    return Collectives.run(rows, ranks, (context, mine) -> trainRank(context, mine, steps));
  }

  private static Rank trainRank(RankContext context, Iterator<double[]> rows, int steps) {
    var mine = new ArrayList<double[]>();
    rows.forEachRemaining(mine::add);
    Communicator communicator = context.communicator();
    long[] total = {mine.size()};
    communicator.allReduce(total, ReduceOp.SUM);

    var model = new Softmax();
    long[] stepNanos = new long[steps];
    for (int step = 0; step < steps; step++) {
      long start = System.nanoTime();
      double[] gradient = new double[Softmax.WEIGHTS];
      for (double[] row : mine) {
        Softmax.addGradient(model.weights(), row, gradient);
      }
      communicator.allReduce(gradient, ReduceOp.SUM);
      model.step(gradient, total[0]);
      stepNanos[step] = System.nanoTime() - start;
    }
    String backend = communicator.device().map(Device::name).orElse("host");
    return new Rank(ProcessHandle.current().pid(), backend, model.weights(), stepNanos);
  }
}
