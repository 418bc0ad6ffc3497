// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.doctor;

import java.io.Serializable;
import java.util.Map;
import java.util.Optional;

/**
 * What the driver knows of the application.
 *
 * @param local whether the driver is the executor too
 * @param pluginOnDriver whether the plugin's driver part runs
 * @param conf the application's configuration
 */
record SparkFacts(
    String version,
    String scalaVersion,
    boolean local,
    boolean pluginOnDriver,
    Map<String, String> conf)
    implements Serializable {

  Optional<String> setting(String key) {
    return Optional.ofNullable(conf.get(key));
  }

  boolean isTrue(String key) {
    return setting(key).map(Boolean::parseBoolean).orElse(false);
  }
}
