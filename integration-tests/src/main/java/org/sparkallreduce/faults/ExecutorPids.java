// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.faults;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Set;
import java.util.TreeSet;
import java.util.stream.Collectors;

/** The executors of a local cluster, whose workers live in this process. */
public final class ExecutorPids {
  private ExecutorPids() {}

  /** Those that this process has started and that have not ended, in ascending order. */
  public static Set<Long> find() {
    return ProcessHandle.current()
        .descendants()
        .map(ProcessHandle::pid)
        .filter(ExecutorPids::isExecutor)
        .collect(Collectors.toCollection(TreeSet::new));
  }

  private static boolean isExecutor(long pid) {
    try {
      return Files.readString(Path.of("/proc/" + pid + "/cmdline"))
          .contains("CoarseGrainedExecutorBackend");
    } catch (IOException e) { // it has ended
      return false;
    }
  }
}
