// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.plugin;

import java.time.Duration;
import java.util.List;
import java.util.Map;
import org.apache.spark.SparkConf;
import org.apache.spark.SparkContext;
import org.apache.spark.api.plugin.DriverPlugin;
import org.apache.spark.api.plugin.PluginContext;
import org.apache.spark.network.util.JavaUtils;
import org.apache.spark.resource.ResourceInformation;
import org.apache.spark.scheduler.SparkListener;
import org.apache.spark.scheduler.SparkListenerExecutorRemoved;
import org.jspecify.annotations.Nullable;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import org.sparkallreduce.AllReduceException;
import org.sparkallreduce.Settings;
import org.sparkallreduce.dataset.DriverNode;
import org.sparkallreduce.dataset.ExecutorHealth;
import org.sparkallreduce.dataset.RankFailure;
import org.sparkallreduce.ffm.NativeLibrary;

/** The driver part: checks the settings, and keeps what the executors report. */
final class DriverPart implements DriverPlugin {
  private static final Logger LOG = LoggerFactory.getLogger(DriverPart.class);
  static final String SLOT_CHECK_INTERVAL =
      "spark.scheduler.barrier.maxConcurrentTasksCheck.interval";
  static final String SLOT_CHECK_FAILURES =
      "spark.scheduler.barrier.maxConcurrentTasksCheck.maxFailures";

  /** What the executors get: the file is on the driver's host only, and one table serves all. */
  static final String AUTO_TABLE = "auto.table";

  private @Nullable DriverNode node;

  /** Runs before the scheduler starts; what it throws ends the start of the application. */
  @Override
  public Map<String, String> init(SparkContext spark, PluginContext context) {
    Settings settings = Settings.from(context.conf()).readAutoTable();
    hastenSlotCheck(context.conf(), settings.slotsTimeout());
    LOG.info("Version {}, native build: {}", AllReducePlugin.version(), nativeBuild(settings));

    ResourceInformation gpus = context.resources().get("gpu");
    var started = new DriverNode(settings, gpus == null ? List.of() : List.of(gpus.addresses()));
    spark.addSparkListener(new Departures(started));
    DriverNode.install(started);
    node = started;
    return Map.of(AUTO_TABLE, settings.autoTable().text());
  }

  /**
   * Spark looks every 15 s whether there are enough slots, for ten minutes. The first barrier job
   * of an application nearly always loses such a round, since no executor is there yet.
   */
  static void hastenSlotCheck(SparkConf conf, Duration timeout) {
    if (!conf.contains(SLOT_CHECK_INTERVAL)) {
      conf.set(SLOT_CHECK_INTERVAL, "1s");
    }
    if (!conf.contains(SLOT_CHECK_FAILURES)) {
      long interval = Math.max(1, JavaUtils.timeStringAsSec(conf.get(SLOT_CHECK_INTERVAL)));
      long rounds = Math.max(1, Math.ceilDiv(timeout.toSeconds(), interval));
      conf.set(SLOT_CHECK_FAILURES, Long.toString(rounds));
    }
  }

  /** The driver moves no data itself, unless it is the executor too: so it does without. */
  private static String nativeBuild(Settings settings) {
    try {
      return NativeLibrary.load(settings.nativeDirectory()).buildInfo();
    } catch (AllReduceException | LinkageError e) {
      return "none on the driver, " + e.getMessage();
    }
  }

  /** Never blocks: one thread takes in the messages of all executors. */
  @Override
  public @Nullable Object receive(Object message) {
    DriverNode known = node;
    if (known == null) {
      return null;
    }
    switch (message) {
      case ExecutorHealth health -> {
        if (health.failure() == null) {
          LOG.info("Executor {} on {} has {}", health.executorId(), health.host(), health.build());
        } else {
          LOG.error(
              "Executor {} on {} cannot take part in an all-reduce: {}",
              health.executorId(),
              health.host(),
              health.failure());
        }
        known.executorStarted(health);
      }
      case RankFailure failure -> known.rankFailed(failure);
      default -> LOG.warn("Unknown message {}", message.getClass().getName());
    }
    return null;
  }

  @Override
  public void shutdown() {
    if (node != null) {
      DriverNode.remove(node);
    }
  }

  /** A failed executor that is gone keeps no job from running. */
  private static final class Departures extends SparkListener {
    private final DriverNode node;

    Departures(DriverNode node) {
      this.node = node;
    }

    @Override
    public void onExecutorRemoved(SparkListenerExecutorRemoved removed) {
      node.executorRemoved(removed.executorId());
    }
  }
}
