// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.doctor;

import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.ObjectInputStream;
import java.io.ObjectOutputStream;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import org.apache.spark.SparkConf;
import org.apache.spark.SparkContext;
import org.apache.spark.api.java.JavaSparkContext;
import org.apache.spark.sql.SparkSession;
import org.sparkallreduce.Settings;
import org.sparkallreduce.dataset.DriverNode;
import scala.Tuple2;
import scala.reflect.ClassTag$;

/**
 * Says why all-reduce does not work on a machine or a cluster, or will not work well, and what to
 * do about it.
 *
 * <pre>{@code
 * Report report = Doctor.run(spark);
 * System.out.println(report.text());
 * }</pre>
 */
public final class Doctor {
  private static final int MAX_RANKS = 16;
  private static final long POLL_NANOS = TimeUnit.MILLISECONDS.toNanos(50);
  private static final long SETTLED_NANOS = TimeUnit.SECONDS.toNanos(2);
  private static final long PATIENCE_NANOS = TimeUnit.SECONDS.toNanos(60);

  private Doctor() {}

  /** Looks at this machine, for {@code ranks} ranks on it. */
  public static Report machine(SparkConf conf, int ranks) {
    Settings settings = Settings.from(conf);
    MachineFacts facts = MachineProbe.look(settings.nativeDirectory());
    return Report.of(MachineChecks.of(facts, settings, ranks), List.of());
  }

  /**
   * Looks at a cluster in one job, with one rank for each executor. It waits until executors have
   * come and no more do.
   */
  public static Report run(SparkSession spark) {
    SparkContext context = spark.sparkContext();
    int ranks = context.isLocal() ? context.defaultParallelism() : awaitExecutors(context);
    return run(spark, Math.clamp(ranks, 1, MAX_RANKS));
  }

  private static int awaitExecutors(SparkContext context) {
    int executors = 0;
    long start = System.nanoTime();
    for (long since = start; now() - since < SETTLED_NANOS || executors == 0; ) {
      int found = context.statusTracker().getExecutorInfos().length - 1; // the driver is one
      if (found != executors) {
        executors = found;
        since = now();
      } else if (executors == 0 && now() - start > PATIENCE_NANOS) {
        return 0; // the job will say that there are no slots
      }
      LockSupport.parkNanos(POLL_NANOS);
    }
    return executors;
  }

  private static long now() {
    return System.nanoTime();
  }

  /**
   * Looks at Spark's settings, and then, in one barrier stage of {@code ranks} tasks, at each
   * executor; the ranks end with an all-reduce. Never throws for what it finds.
   */
  public static Report run(SparkSession spark, int ranks) {
    SparkContext context = spark.sparkContext();
    SparkFacts facts = facts(context);
    var findings = new ArrayList<Finding>(SparkChecks.of(facts));
    if (findings.stream().anyMatch(finding -> finding.severity() == Severity.PROBLEM)) {
      findings.add(
          Finding.note(
              "ranks", "ranks", "not looked at: a job cannot run with the problems above"));
      return Report.of(findings, List.of());
    }
    List<RankFacts> found;
    try {
      found = examine(context, ranks);
    } catch (Exception e) {
      findings.add(
          Finding.problem(
              "job",
              "ranks",
              "the doctor's job of %d ranks failed: %s".formatted(ranks, e.getMessage()),
              "as the message says; if there were too few slots: fewer ranks, or more executors"));
      return Report.of(findings, List.of());
    }
    findings.addAll(ClusterChecks.of(found, Settings.from(context.getConf())));
    return Report.of(findings, found);
  }

  private static SparkFacts facts(SparkContext context) {
    var conf =
        Arrays.stream(context.getConf().getAll())
            .collect(
                Collectors.toMap(Tuple2::_1, Tuple2::_2, (_, last) -> last, LinkedHashMap::new));
    return new SparkFacts(
        context.version(),
        scala.util.Properties.versionNumberString(),
        context.isLocal(),
        DriverNode.isInstalled(),
        conf);
  }

  private static List<RankFacts> examine(SparkContext context, int ranks)
      throws IOException, ClassNotFoundException {
    List<Integer> rows = IntStream.range(0, ranks).boxed().toList();
    // Bytes, so that it does not matter which serializer Spark has for rows.
    List<byte[]> encoded =
        JavaSparkContext.fromSparkContext(context)
            .parallelize(rows, ranks)
            .rdd()
            .barrier()
            .mapPartitions(new Examination(), false, ClassTag$.MODULE$.<byte[]>apply(byte[].class))
            .toJavaRDD()
            .collect();
    var found = new ArrayList<RankFacts>();
    for (byte[] one : encoded) {
      found.add(decode(one));
    }
    return found;
  }

  static RankFacts decode(byte[] bytes) throws IOException, ClassNotFoundException {
    try (var in = new ObjectInputStream(new ByteArrayInputStream(bytes))) {
      return (RankFacts) in.readObject();
    }
  }

  static byte[] encode(RankFacts facts) {
    var bytes = new ByteArrayOutputStream();
    try (var out = new ObjectOutputStream(bytes)) {
      out.writeObject(facts);
    } catch (IOException e) {
      throw new IllegalStateException("facts are serializable", e);
    }
    return bytes.toByteArray();
  }
}
