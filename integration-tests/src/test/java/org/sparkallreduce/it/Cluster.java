// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.it;

import static org.awaitility.Awaitility.await;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Comparator;
import java.util.List;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.stream.IntStream;
import java.util.stream.Stream;
import org.apache.spark.SparkConf;
import org.apache.spark.api.java.JavaRDD;
import org.apache.spark.api.java.JavaSparkContext;
import org.apache.spark.sql.SparkSession;
import org.sparkallreduce.faults.ExecutorPids;

/** Applications on local clusters, from the packaged jars as a user has them. */
final class Cluster {
  static final String PLUGIN = "org.sparkallreduce.plugin.AllReducePlugin";

  private static final Set<Long> EXECUTORS = ConcurrentHashMap.newKeySet();

  private Cluster() {}

  static Path root() {
    return Path.of(System.getProperty("project.root")).normalize();
  }

  static String pluginJar() {
    return System.getProperty("plugin.jar");
  }

  static String testsJar() {
    return System.getProperty("tests.jar");
  }

  /** For JVMs that live for seconds; empty where the tests run without Maven. */
  static String shortJvmOptions() {
    return System.getProperty("short.jvm.options", "");
  }

  /** Executors that are processes of their own, on this host. */
  static SparkConf conf(String master) {
    return new SparkConf()
        .setAppName("integration test")
        .setMaster(master)
        .set("spark.jars", pluginJar() + "," + testsJar())
        .set("spark.plugins", PLUGIN)
        .set("spark.executor.memory", "512m")
        .set("spark.executor.extraJavaOptions", shortJvmOptions())
        .set("spark.ui.enabled", "false")
        // That a task runs is seen at once, not with its executor's next heartbeat.
        .set("spark.ui.liveUpdate.period", "0")
        .set("spark.sql.shuffle.partitions", "2")
        .set("spark.allreduce.arena.size", "8m")
        .set("spark.allreduce.timeout", "60s");
  }

  static SparkSession start(SparkConf conf) {
    return SparkSession.builder().config(conf).getOrCreate();
  }

  /** Starts, and waits until so many executor processes have registered. */
  static SparkSession start(SparkConf conf, int executors) {
    SparkSession spark = start(conf);
    await().atMost(Duration.ofMinutes(5)).until(() -> executors(spark) == executors);
    noteExecutors();
    return spark;
  }

  static int executors(SparkSession spark) {
    return spark.sparkContext().statusTracker().getExecutorInfos().length - 1; // the driver is one
  }

  static JavaRDD<Integer> numbers(SparkSession spark, int count) {
    return JavaSparkContext.fromSparkContext(spark.sparkContext())
        .parallelize(IntStream.range(0, count).boxed().toList());
  }

  private static void noteExecutors() {
    EXECUTORS.addAll(ExecutorPids.find());
  }

  /**
   * Names of shared memory that our executors left behind, those included that have ended since the
   * start or the last call. Names have the owner's process number: spark-allreduce-USER-PROCESS-...
   */
  static List<String> leftInSharedMemory() {
    noteExecutors();
    try (Stream<Path> files = Files.list(Path.of("/dev/shm"))) {
      return files
          .map(file -> file.getFileName().toString())
          .filter(name -> name.startsWith("spark-allreduce-"))
          .filter(name -> EXECUTORS.contains(Long.valueOf(name.split("-", -1)[3])))
          .toList();
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }

  /** What all executors of the newest application wrote to their logs. */
  static String executorLogs() {
    Path work = Path.of(System.getenv("SPARK_HOME"), "work");
    try (Stream<Path> applications = Files.list(work)) {
      Path newest = applications.max(Comparator.naturalOrder()).orElseThrow();
      try (Stream<Path> files = Files.walk(newest)) {
        var text = new StringBuilder();
        for (Path file : files.filter(f -> f.endsWith("stderr")).sorted().toList()) {
          text.append(Files.readString(file));
        }
        return text.toString();
      }
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }
}
