// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.dataset;

import java.util.Arrays;
import java.util.List;
import java.util.UUID;
import java.util.function.Supplier;
import java.util.stream.Collectors;
import org.apache.spark.SparkConf;
import org.apache.spark.SparkContext;
import org.apache.spark.SparkException;
import org.apache.spark.TaskContext;
import org.apache.spark.scheduler.BarrierJobSlotsNumberCheckFailed;
import org.sparkallreduce.AllReduceException;
import scala.Tuple2;

/** What is checked before a job is submitted, and what is made of its failure. */
final class Submission {
  static final int MAX_RANKS = 16;
  private static final String PLUGIN = "org.sparkallreduce.plugin.AllReducePlugin";

  private final SparkContext spark;
  private final DriverNode driver;
  private final int ranks;
  private final UUID run = UUID.randomUUID();
  private final UUID lease;

  private Submission(SparkContext spark, DriverNode driver, int ranks) {
    this.spark = spark;
    this.driver = driver;
    this.ranks = ranks;
    this.lease = driver.leases().lend(ranks);
  }

  /** Checks all that can be known before Spark is asked. */
  static Submission check(SparkContext spark, int ranks) {
    if (ranks < 1 || ranks > MAX_RANKS) {
      throw new AllReduceException.Setup(
          "%d ranks were asked for; a stage can have 1 to %d.".formatted(ranks, MAX_RANKS));
    }
    DriverNode driver = DriverNode.find().orElseThrow(Submission::noPlugin);
    checkConfiguration(spark.getConf(), spark.isLocal());
    if (spark.isLocal()) {
      checkLocalSlots(ranks, slots(spark), spark.getConf());
    }
    checkExecutors(driver.unfitExecutors());
    return new Submission(spark, driver, ranks);
  }

  /** A job is submitted by the driver; a task has no SparkContext to submit one to. */
  static void checkOnDriver() {
    if (TaskContext.get() != null) {
      throw new AllReduceException.Setup(
          "Collectives submits a job, which only the driver can, and this is a task. Inside of a"
              + " rank's function, use the communicator of its RankContext.");
    }
  }

  static AllReduceException.Setup noPlugin() {
    return new AllReduceException.Setup(
        ("The all-reduce plugin does not run in this application. Start it with --conf"
                + " spark.plugins=%s (a list, if there are others), and give the jar to --jars.")
            .formatted(PLUGIN));
  }

  static void checkConfiguration(SparkConf conf, boolean local) {
    if (local) {
      checkLocalResources(conf);
    } else if (conf.getBoolean("spark.dynamicAllocation.enabled", false)) {
      throw new AllReduceException.Setup(
          "spark.dynamicAllocation.enabled is true, and Spark runs no barrier stage then, since all"
              + " its tasks must start together. Set it to false and choose a fixed"
              + " spark.executor.instances.");
    }
  }

  private static int slots(SparkContext spark) {
    return spark.maxNumConcurrentTasks(spark.resourceProfileManager().defaultResourceProfile());
  }

  /** No executor can come in local mode, so waiting for more slots would be in vain. */
  static void checkLocalSlots(int ranks, int slots, SparkConf conf) {
    if (ranks > slots) {
      throw new AllReduceException.Setup(
          ("The stage needs %d task slots at the same time, one for each rank, and this local mode"
                  + " has %d. Ask for at most %d ranks, or start it with --master local[%d].")
              .formatted(ranks, slots, slots, ranks * conf.getInt("spark.task.cpus", 1)));
    }
  }

  private static void checkLocalResources(SparkConf conf) {
    String found =
        Arrays.stream(conf.getAll())
            .map(Tuple2::_1)
            .filter(key -> key.matches("spark\\.(task|executor)\\.resource\\..+\\.amount"))
            .sorted()
            .collect(Collectors.joining(", "));
    if (!found.isEmpty()) {
      throw new AllReduceException.Setup(
          ("In local mode Spark assigns no resources to tasks, and a job with %s would wait for"
                  + " ever. Remove the setting, or use --master local-cluster[N,1,1024] or a real"
                  + " cluster. (Devices of a local run: spark.driver.resource.gpu.amount.)")
              .formatted(found));
    }
  }

  static void checkExecutors(List<ExecutorHealth> unfit) {
    if (!unfit.isEmpty()) {
      throw new AllReduceException.Setup(
          unfit.stream()
              .map(
                  health ->
                      "Executor %s on host %s cannot take part in an all-reduce: %s"
                          .formatted(health.executorId(), health.host(), health.failure()))
              .sorted()
              .collect(Collectors.joining("\n")));
    }
  }

  UUID run() {
    return run;
  }

  /** Under which the executors may keep the communicator of this job. */
  UUID lease() {
    return lease;
  }

  List<String> localDevices() {
    return spark.isLocal() ? driver.devices() : List.of();
  }

  /** Runs the job; its failure becomes the exception that says most about it. */
  <V> V submit(Supplier<V> job) {
    driver.begin(run);
    try {
      V result = job.get();
      driver.leases().giveBack(ranks, lease);
      return result;
    } catch (Exception e) {
      throw translate(e);
    } finally {
      var unused = driver.end(run);
    }
  }

  private RuntimeException translate(Exception failure) {
    for (Throwable cause = failure; cause != null; cause = cause.getCause()) {
      if (cause instanceof BarrierJobSlotsNumberCheckFailed slots) {
        return tooFewSlots(slots.maxConcurrentTasks());
      }
    }
    return driver
        .end(run)
        .<RuntimeException>map(report -> report.toException(failure))
        .orElseGet(() -> unexplained(failure));
  }

  private AllReduceException tooFewSlots(int slots) {
    String found =
        ("The stage needs %d task slots at the same time, one for each rank, and the application"
                + " had %d after %d s (spark.allreduce.slots.timeout).")
            .formatted(ranks, slots, driver.settings().slotsTimeout().toSeconds());
    String cure =
        slots == 0
            ? " No executor has registered: look at the cluster manager and the executors' logs, or"
                + " raise the timeout if they only need longer to start."
            : (" Ask for at most %d ranks, or give it more executors or cores; a task takes"
                    + " spark.task.cpus=%s cores and the resources of spark.task.resource.*.")
                .formatted(slots, spark.getConf().get("spark.task.cpus", "1"));
    return new AllReduceException.Setup(found + cure);
  }

  private static RuntimeException unexplained(Exception failure) {
    return switch (failure) {
      case SparkException e -> new AllReduceException.Aborted("Spark: " + e.getMessage(), e);
      case RuntimeException e -> e;
      default -> new AllReduceException.Aborted(String.valueOf(failure.getMessage()), failure);
    };
  }
}
