// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.tools;

import java.io.Serializable;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.FutureTask;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.stream.IntStream;
import org.apache.spark.SparkConf;
import org.apache.spark.api.java.JavaRDD;
import org.apache.spark.api.java.JavaSparkContext;
import org.sparkallreduce.communicator.LocalNode;
import org.sparkallreduce.dataset.Collectives;
import org.sparkallreduce.dataset.RankContext;

/** Ranks as the tasks of a barrier stage, through the public API; started by spark-submit. */
final class SparkRun implements Run {
  private static final long LOOK_MILLIS = 200;

  private final Map<String, String> settings;

  /** Starts an application with {@code settings} where spark-submit was given none. */
  SparkRun(Map<String, String> settings) {
    this.settings = Map.copyOf(settings);
  }

  /** What a rank returns to the driver. */
  private record Outcome(RankInfo rank, List<Measured> measured) implements Serializable {}

  @Override
  public void measure(Job job, int ranks, Listener listener) {
    var conf = new SparkConf().setAppName("allreduce-perf");
    if (!conf.contains("spark.master")) {
      throw new ToolException(
          "--spark needs spark-submit: start bin/allreduce-perf, or submit this class with a"
              + " --master of yours.");
    }
    settings.forEach(conf::setIfMissing);
    conf.setIfMissing("spark.allreduce.backend", "host"); // it measures in memory of the host
    try (var context = new JavaSparkContext(conf)) {
      JavaRDD<Integer> rows =
          context.parallelize(IntStream.range(0, ranks).boxed().toList(), ranks);
      var task =
          new FutureTask<List<Outcome>>(
              () -> Collectives.run(rows, ranks, (rank, _) -> measure(rank, job)));
      Thread.ofPlatform().daemon().name("allreduce-perf").start(task);
      report(job, await(task, listener), listener);
    }
  }

  private static Outcome measure(RankContext context, Job job) {
    LocalNode node = LocalNode.current();
    var measured = new ArrayList<Measured>();
    new RankMeasurement(context.communicator(), job).run(measured::add);
    long pid = ProcessHandle.current().pid();
    return new Outcome(
        new RankInfo(context.rank(), pid, node.host(), node.library().buildInfo()), measured);
  }

  private static List<Outcome> await(FutureTask<List<Outcome>> task, Listener listener) {
    while (true) {
      try {
        return task.get(LOOK_MILLIS, TimeUnit.MILLISECONDS);
      } catch (TimeoutException e) {
        listener.waiting();
      } catch (ExecutionException e) {
        throw new ToolException(String.valueOf(e.getCause().getMessage()));
      } catch (InterruptedException e) {
        throw new ToolException("Interrupted.");
      }
    }
  }

  private static void report(Job job, List<Outcome> outcomes, Listener listener) {
    listener.started(outcomes.stream().map(Outcome::rank).toList());
    for (int i = 0; i < job.cases().size(); i++) {
      int index = i;
      listener.measured(
          Measured.join(outcomes.stream().map(outcome -> outcome.measured().get(index)).toList()));
    }
  }
}
