// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.ffm;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Set;

/** The options of the mount that a file lies on, as /proc/self/mounts has them. */
final class MountOptions {
  private MountOptions() {}

  static Set<String> of(Path file) {
    try {
      Path absolute = file.toRealPath();
      return in(Files.readAllLines(Path.of("/proc/self/mounts")), absolute);
    } catch (IOException e) {
      return Set.of();
    }
  }

  /**
   * The mount with the longest path wins; of two on the same path, the later one covers the other.
   */
  static Set<String> in(List<String> mounts, Path file) {
    int depth = -1;
    Set<String> options = Set.of();
    for (String mount : mounts) {
      String[] fields = mount.split(" ", -1);
      if (fields.length < 4) {
        continue;
      }
      Path point = Path.of(fields[1].replace("\\040", " "));
      if (file.startsWith(point) && point.getNameCount() >= depth) {
        depth = point.getNameCount();
        options = Set.of(fields[3].split(",", -1));
      }
    }
    return options;
  }
}
