// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.tools;

import java.io.IOException;
import java.net.InetAddress;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;

/**
 * What a result is worth nothing without: on what it was measured, and with what.
 *
 * @param mode processes or spark
 * @param version of the jar
 * @param processors how many this machine has for us
 * @param processor its name
 */
record RunInfo(String mode, String version, int processors, String processor, String host) {
  static RunInfo of(String mode) {
    String version = RunInfo.class.getPackage().getImplementationVersion();
    return new RunInfo(
        mode,
        version == null ? "(not packaged)" : version,
        Runtime.getRuntime().availableProcessors(),
        processorName(),
        hostName());
  }

  static String hostName() {
    try {
      return InetAddress.getLocalHost().getHostName();
    } catch (IOException e) {
      return "localhost"; // a machine without a name of its own
    }
  }

  private static String processorName() {
    try {
      List<String> lines = Files.readAllLines(Path.of("/proc/cpuinfo"));
      return lines.stream()
          .filter(line -> line.startsWith("model name"))
          .map(line -> line.substring(line.indexOf(':') + 1).strip())
          .findFirst()
          .orElse("unknown");
    } catch (IOException e) {
      return "unknown";
    }
  }
}
