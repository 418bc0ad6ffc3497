// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.plugin;

import com.codahale.metrics.Gauge;
import com.codahale.metrics.MetricRegistry;
import java.io.IOException;
import java.util.Map;
import org.apache.spark.SparkEnv;
import org.apache.spark.api.plugin.ExecutorPlugin;
import org.apache.spark.api.plugin.PluginContext;
import org.apache.spark.storage.BlockManagerId;
import org.jspecify.annotations.Nullable;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import org.sparkallreduce.AllReduceException;
import org.sparkallreduce.AutoTable;
import org.sparkallreduce.Settings;
import org.sparkallreduce.communicator.Activity;
import org.sparkallreduce.communicator.LocalNode;
import org.sparkallreduce.dataset.ExecutorHealth;
import org.sparkallreduce.ffm.NativeLibrary;

/**
 * The executor part: loads the native library and says so to the driver. It never throws: an
 * executor whose plugin does is replaced by the next one, for ever. Jobs fail with the recorded
 * reason instead.
 */
final class ExecutorPart implements ExecutorPlugin {
  private static final Logger LOG = LoggerFactory.getLogger(ExecutorPart.class);

  private @Nullable LocalNode node;

  @Override
  public void init(PluginContext context, Map<String, String> extraConf) {
    String id = context.executorID();
    String host = "unknown";
    LocalNode.DriverLink driver = context::ask;
    String build = AllReducePlugin.version();
    String failure = null;
    LocalNode started;
    try {
      host = host(context);
      Settings settings =
          Settings.from(context.conf())
              .withAutoTable(AutoTable.parse("the driver's", extraConf.get(DriverPart.AUTO_TABLE)));
      NativeLibrary library = NativeLibrary.load(settings.nativeDirectory());
      build = "version %s, native build: %s".formatted(build, library.buildInfo());
      sweep(library);
      started = LocalNode.ready(id, host, driver, library, settings);
      LOG.info("This executor has {}", build);
    } catch (Exception | LinkageError e) {
      failure = e instanceof AllReduceException ? e.getMessage() : e.toString();
      started = LocalNode.failed(id, host, driver, failure);
      LOG.error("This executor cannot take part in an all-reduce", e);
    }
    register(context.metricRegistry(), started.activity());
    LocalNode.install(started);
    node = started;
    tell(context, new ExecutorHealth(id, host, build, failure));
  }

  /** Spark's own {@code hostname()} fails on every executor but the local mode's. */
  private static String host(PluginContext context) {
    BlockManagerId id = SparkEnv.get().blockManager().blockManagerId();
    return id == null ? context.hostname() : id.host();
  }

  private static void sweep(NativeLibrary library) {
    int removed = library.sweep();
    if (removed > 0) {
      LOG.warn("Removed {} shared memory segments that killed processes had left", removed);
    }
  }

  /** Spark offers its sinks only what is registered when {@code init} returns. */
  private static void register(MetricRegistry registry, Activity activity) {
    for (ExecutorMetric metric : ExecutorMetric.ALL) {
      registry.register(metric.name(), (Gauge<Long>) () -> metric.value().applyAsLong(activity));
    }
  }

  private static void tell(PluginContext context, ExecutorHealth health) {
    try {
      context.send(health);
    } catch (IOException | RuntimeException e) {
      LOG.warn("The driver could not be told about this executor's state", e);
    }
  }

  @Override
  public void shutdown() {
    if (node != null) {
      LocalNode.remove(node);
      node.close();
    }
  }
}
