// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.dataset;

import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Objects;
import org.apache.spark.api.java.JavaRDD;
import org.apache.spark.rdd.RDD;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Row;
import org.jspecify.annotations.Nullable;
import org.sparkallreduce.AllReduceException;
import org.sparkallreduce.ReduceOp;
import scala.reflect.ClassTag;
import scala.reflect.ClassTag$;

/**
 * Collective operations over Datasets, called on the driver.
 *
 * <p><b>In a stage</b>: {@link #run} calls a function once per rank in one barrier stage. The ranks
 * all-reduce through the communicator of their {@link RankContext} as often as they like; an
 * iterative program pays Spark's scheduling once and not in every step.
 *
 * <p><b>One shot</b>: {@link #sum}, {@link #product}, {@link #min}, {@link #max} and {@link
 * #average} reduce a numeric array or ML vector column element by element, like {@code
 * org.apache.spark.ml.stat.Summarizer}. Arithmetic is in float64; integers above 2^53 are rounded.
 * A NaN makes the result NaN. Rows or elements that are null, vectors of different lengths, and a
 * Dataset without rows are errors that say what to do. Where no number of ranks is given there is
 * one per executor that runs at that moment, at most 16.
 *
 * <p>All throw {@link AllReduceException}: {@code Setup} before anything has run, {@code
 * RankFailed} if the function of a rank threw, {@code Aborted} with Spark's own exception as its
 * cause if the job ended for another reason (it was cancelled, or the rows could not be computed),
 * and others as documented there. What Spark itself says of the Dataset while it plans the job
 * passes as it is: an {@code AnalysisException} for a column that is not there, say.
 */
public final class Collectives {
  private Collectives() {}

  /**
   * Spreads {@code rows} over {@code ranks} ranks and calls {@code function} on each of them, once,
   * all at the same time. When an executor is lost, Spark runs all ranks again from the start.
   *
   * @return what the ranks returned, in the order of ranks
   * @throws AllReduceException.RankFailed naming the rank whose function threw first
   * @throws AllReduceException.Setup if the application is not set up for it
   */
  public static <T, R extends @Nullable Object> List<R> run(
      Dataset<T> rows, int ranks, RankFunction<T, R> function) {
    Objects.requireNonNull(function, "function");
    Submission.checkOnDriver();
    var submission = Submission.check(rows.sparkSession().sparkContext(), ranks);
    return submission.submit(
        () -> {
          RDD<T> spread = rows.repartition(ranks).rdd();
          // Spark's optimizer drops the partitions of a Dataset that it knows to be empty.
          boolean kept = spread.getNumPartitions() == ranks;
          return run(kept ? spread : repartition(spread, ranks), ranks, function, submission);
        });
  }

  /** As {@link #run(Dataset, int, RankFunction)}. */
  public static <T, R extends @Nullable Object> List<R> run(
      JavaRDD<T> rows, int ranks, RankFunction<T, R> function) {
    Objects.requireNonNull(function, "function");
    Submission.checkOnDriver();
    var submission = Submission.check(rows.context(), ranks);
    return submission.submit(
        () -> run(repartition(rows.rdd(), ranks), ranks, function, submission));
  }

  private static <T> RDD<T> repartition(RDD<T> rows, int ranks) {
    return rows.toJavaRDD().repartition(ranks).rdd();
  }

  /**
   * Spark retries a barrier stage only if it is not the job's last one. So the ranks' results, one
   * {@code byte[]} each, go through a shuffle, and a stage of one task hands them to the driver.
   */
  @SuppressWarnings("unchecked") // a rank's result has the type that its function returned
  private static <T, R extends @Nullable Object> List<R> run(
      RDD<T> spread, int ranks, RankFunction<T, R> function, Submission submission) {
    ClassTag<byte[]> bytes = ClassTag$.MODULE$.apply(byte[].class);
    TaskStatistics statistics = TaskStatistics.register(spread.context());
    var task =
        new RankTask<>(
            submission.run(), submission.lease(), submission.localDevices(), statistics, function);
    List<byte[]> encoded =
        spread.barrier().mapPartitions(task, false, bytes).toJavaRDD().repartition(1).collect();
    statistics.log();
    var results = new ArrayList<R>(Collections.nCopies(ranks, null));
    for (byte[] one : encoded) {
      RankTask.Result result = RankTask.decode(one);
      results.set(result.rank(), (R) result.value());
    }
    return Collections.unmodifiableList(results);
  }

  /** The sum of each element over all rows of {@code column}. */
  public static double[] sum(Dataset<Row> rows, String column) {
    return sum(rows, column, executors(rows));
  }

  /** The sum of each element over all rows of {@code column}. */
  public static double[] sum(Dataset<Row> rows, String column, int ranks) {
    return ElementWise.reduce(rows, column, ReduceOp.SUM, ranks);
  }

  /** The product of each element over all rows of {@code column}. */
  public static double[] product(Dataset<Row> rows, String column) {
    return product(rows, column, executors(rows));
  }

  /** The product of each element over all rows of {@code column}. */
  public static double[] product(Dataset<Row> rows, String column, int ranks) {
    return ElementWise.reduce(rows, column, ReduceOp.PRODUCT, ranks);
  }

  /** The smallest of each element over all rows of {@code column}. */
  public static double[] min(Dataset<Row> rows, String column) {
    return min(rows, column, executors(rows));
  }

  /** The smallest of each element over all rows of {@code column}. */
  public static double[] min(Dataset<Row> rows, String column, int ranks) {
    return ElementWise.reduce(rows, column, ReduceOp.MIN, ranks);
  }

  /** The largest of each element over all rows of {@code column}. */
  public static double[] max(Dataset<Row> rows, String column) {
    return max(rows, column, executors(rows));
  }

  /** The largest of each element over all rows of {@code column}. */
  public static double[] max(Dataset<Row> rows, String column, int ranks) {
    return ElementWise.reduce(rows, column, ReduceOp.MAX, ranks);
  }

  /** The mean of each element over all rows of {@code column}, like {@code Summarizer.mean}. */
  public static double[] average(Dataset<Row> rows, String column) {
    return average(rows, column, executors(rows));
  }

  /** The mean of each element over all rows of {@code column}, like {@code Summarizer.mean}. */
  public static double[] average(Dataset<Row> rows, String column, int ranks) {
    return ElementWise.reduce(rows, column, ReduceOp.AVERAGE, ranks);
  }

  private static int executors(Dataset<Row> rows) {
    Submission.checkOnDriver();
    int withDriver = rows.sparkSession().sparkContext().statusTracker().getExecutorInfos().length;
    return Math.clamp(withDriver - 1L, 1, Submission.MAX_RANKS);
  }
}
