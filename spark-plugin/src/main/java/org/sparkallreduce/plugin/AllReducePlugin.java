// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.plugin;

import org.apache.spark.api.plugin.DriverPlugin;
import org.apache.spark.api.plugin.ExecutorPlugin;
import org.apache.spark.api.plugin.SparkPlugin;

/** What {@code spark.plugins} names. */
public final class AllReducePlugin implements SparkPlugin {
  @Override
  public DriverPlugin driverPlugin() {
    return new DriverPart();
  }

  @Override
  public ExecutorPlugin executorPlugin() {
    return new ExecutorPart();
  }

  /** The version of the jar. */
  static String version() {
    String version = AllReducePlugin.class.getPackage().getImplementationVersion();
    return version == null ? "(not packaged)" : version;
  }
}
