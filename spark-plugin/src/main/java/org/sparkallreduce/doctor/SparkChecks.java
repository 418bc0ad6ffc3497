// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.doctor;

import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.TreeMap;
import org.apache.spark.SparkConf;
import org.apache.spark.network.util.ByteUnit;
import org.apache.spark.network.util.JavaUtils;
import org.sparkallreduce.AllReduceException;
import org.sparkallreduce.Settings;

/** Judges Spark's version and the settings that will bite. */
final class SparkChecks {
  private static final String SPARK = "Spark";
  private static final String PLUGIN = "org.sparkallreduce.plugin.AllReducePlugin";
  private static final String REGISTRATOR = "org.sparkallreduce.plugin.AllReduceKryoRegistrator";
  private static final double OVERHEAD_FACTOR = 0.1;
  private static final long LEAST_OVERHEAD = 384L << 20;

  private final SparkFacts facts;
  private final List<Finding> findings = new ArrayList<>();

  private SparkChecks(SparkFacts facts) {
    this.facts = facts;
  }

  static List<Finding> of(SparkFacts facts) {
    var checks = new SparkChecks(facts);
    checks.version();
    checks.plugin();
    checks.ownSettings();
    checks.scheduling();
    checks.tasks();
    checks.serialization();
    checks.memory();
    checks.discoveryScripts();
    return checks.findings;
  }

  private void version() {
    if (facts.version().startsWith("4.2.") && facts.scalaVersion().startsWith("2.13")) {
      ok("version", "Spark %s, Scala %s".formatted(facts.version(), facts.scalaVersion()));
    } else {
      problem(
          "version",
          "this is Spark %s with Scala %s".formatted(facts.version(), facts.scalaVersion()),
          "use Spark 4.2 with Scala 2.13, which the plugin is built against");
    }
  }

  private void plugin() {
    boolean named = facts.setting("spark.plugins").orElse("").contains(PLUGIN);
    if (facts.pluginOnDriver()) {
      ok("spark.plugins", "the plugin runs on the driver");
    } else if (named) {
      problem(
          "spark.plugins",
          "it names the plugin, but the plugin does not run: it was set after Spark had started",
          "give it to spark-submit with --conf, or set it before the SparkSession is created");
    } else {
      problem(
          "spark.plugins",
          "it does not name the plugin",
          "--conf spark.plugins=%s, and the jar with --jars".formatted(PLUGIN));
    }
  }

  private void ownSettings() {
    var conf = new SparkConf(false);
    facts.conf().forEach(conf::set);
    try {
      Settings settings = Settings.from(conf);
      ok(
          "spark.allreduce.*",
          "%s of shared memory per rank"
              .formatted(MachineChecks.megabytes(MachineChecks.segmentBytes(settings))));
    } catch (AllReduceException.Setup e) {
      problem("spark.allreduce.*", String.valueOf(e.getMessage()), "as the message says");
    }
  }

  private void scheduling() {
    if (facts.isTrue("spark.dynamicAllocation.enabled") && !facts.local()) {
      problem(
          "spark.dynamicAllocation.enabled",
          "it is true, and Spark runs no barrier stage then",
          "set it to false, with a fixed spark.executor.instances");
    }
    String interval = "spark.scheduler.barrier.maxConcurrentTasksCheck.interval";
    facts
        .setting(interval)
        .filter(text -> JavaUtils.timeStringAsSec(text) > 5)
        .ifPresent(
            text ->
                warning(
                    interval,
                    "it is %s: an application's first job waits that long for its slots"
                        .formatted(text),
                    "leave it unset: the plugin sets 1s"));
    if (facts.isTrue("spark.locality.wait.legacyResetOnTaskLaunch")) {
      problem(
          "spark.locality.wait.legacyResetOnTaskLaunch",
          "with true a barrier stage may start partly and hang",
          "leave it unset");
    }
    if (!facts.isTrue("spark.task.reaper.enabled") && !facts.local()) {
      note(
          "spark.task.reaper.enabled",
          "it is false: a killed task that does not end keeps its slot, and the next barrier stage"
              + " waits for it. true ends its executor after spark.task.reaper.killTimeout");
    }
    if (facts.isTrue("spark.speculation")) {
      note("spark.speculation", "it is true; Spark does not speculate in barrier stages");
    }
  }

  private void tasks() {
    facts
        .setting("spark.task.cpus")
        .filter(text -> !text.equals("1"))
        .ifPresent(
            text ->
                note(
                    "spark.task.cpus", "each rank takes %s cores of its executor".formatted(text)));
    var resources = new TreeMap<String, String>(facts.conf());
    resources.keySet().removeIf(key -> !key.matches("spark\\.task\\.resource\\..+\\.amount"));
    if (facts.local() && !resources.isEmpty()) {
      problem(
          resources.firstKey(),
          "in local mode Spark assigns no resources to tasks, and a job that asks for some waits"
              + " for ever",
          "remove it, or use a cluster");
    } else {
      resources.forEach(
          (key, amount) -> {
            if (!amount.equals("1")) {
              warning(
                  key,
                  "it is %s; a rank uses the first of its addresses only".formatted(amount),
                  "set it to 1");
            }
          });
    }
  }

  private void serialization() {
    if (facts.isTrue("spark.kryo.registrationRequired")
        && !facts.setting("spark.kryo.registrator").orElse("").contains(REGISTRATOR)) {
      warning(
          "spark.kryo.registrationRequired",
          "it is true, and spark.kryo.registrator does not name ours: arrays of arrays as rows, for"
              + " instance, will fail",
          "add %s to spark.kryo.registrator".formatted(REGISTRATOR));
    }
  }

  /** Only cluster managers that put executors into containers of a size look at it. */
  private void memory() {
    String master = facts.setting("spark.master").orElse("");
    if (!master.startsWith("yarn") && !master.startsWith("k8s")) {
      return;
    }
    long heap = bytes("spark.executor.memory", 1L << 30);
    long overhead =
        bytes(
            "spark.executor.memoryOverhead",
            Math.max(LEAST_OVERHEAD, (long) (OVERHEAD_FACTOR * heap)));
    var conf = new SparkConf(false);
    facts.conf().forEach(conf::set);
    long segments;
    try {
      segments = MachineChecks.segmentBytes(Settings.from(conf)) * ranksOfAnExecutor();
    } catch (AllReduceException.Setup e) {
      return; // reported already
    }
    String what =
        "%s, of which the segments of %d ranks take %s"
            .formatted(
                MachineChecks.megabytes(overhead),
                ranksOfAnExecutor(),
                MachineChecks.megabytes(segments));
    if (segments > overhead / 2) {
      warning(
          "spark.executor.memoryOverhead",
          what,
          "raise it by %s, or make arena and staging smaller"
              .formatted(MachineChecks.megabytes(segments)));
    } else {
      ok("spark.executor.memoryOverhead", what);
    }
  }

  private long ranksOfAnExecutor() {
    long cores = facts.setting("spark.executor.cores").map(Long::parseLong).orElse(1L);
    return Math.max(1, cores / facts.setting("spark.task.cpus").map(Long::parseLong).orElse(1L));
  }

  /** Spark takes a plain number as MiB in both settings. */
  private long bytes(String key, long otherwise) {
    return facts
        .setting(key)
        .map(text -> JavaUtils.byteStringAs(text, ByteUnit.MiB) << 20)
        .orElse(otherwise);
  }

  private void discoveryScripts() {
    var scripts = new TreeMap<String, String>(facts.conf());
    scripts.keySet().removeIf(key -> !key.matches("spark\\..+\\.resource\\..+\\.discoveryScript"));
    scripts.forEach(
        (key, script) -> {
          if (Files.exists(Path.of(script)) && !Files.isExecutable(Path.of(script))) {
            problem(key, script + " is not executable", "chmod +x " + script);
          } else if (Files.exists(Path.of(script))) {
            ok(key, script);
          } else {
            note(key, script + " does not exist on the driver's host; executors need it on theirs");
          }
        });
  }

  private void ok(String subject, String what) {
    findings.add(Finding.ok(subject, SPARK, what));
  }

  private void note(String subject, String what) {
    findings.add(Finding.note(subject, SPARK, what));
  }

  private void warning(String subject, String what, String cure) {
    findings.add(Finding.warning(subject, SPARK, what, cure));
  }

  private void problem(String subject, String what, String cure) {
    findings.add(Finding.problem(subject, SPARK, what, cure));
  }
}
