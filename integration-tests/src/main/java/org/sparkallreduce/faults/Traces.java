// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.faults;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.stream.Stream;

/** What the kernel says that a process has, and what is left in the file system. */
final class Traces {
  static final String PREFIX = "spark-allreduce-";
  private static final Path SHARED_MEMORY = Path.of("/dev/shm");

  private Traces() {}

  private static Path folder(long pid) {
    return Path.of("/proc", Long.toString(pid));
  }

  /** The lines of its memory map that lie in shared memory, of ours or of a registered file. */
  static List<String> mappings(long pid) {
    return lines(folder(pid).resolve("maps")).stream()
        .filter(
            line -> line.contains(" /dev/shm/" + PREFIX) || line.contains(" /dev/shm/registered-"))
        .toList();
  }

  /** What its open descriptors lead to, and how many lead there. */
  static Map<String, Integer> descriptors(long pid) {
    var targets = new TreeMap<String, Integer>();
    for (Path descriptor : list(folder(pid).resolve("fd"))) {
      try {
        targets.merge(Files.readSymbolicLink(descriptor).toString(), 1, Integer::sum);
      } catch (IOException e) {
        // Closed in the meantime: not a leak.
      }
    }
    return targets;
  }

  /** Descriptors in {@code now} that were not there in {@code before}. */
  static List<String> more(Map<String, Integer> before, Map<String, Integer> now) {
    return now.entrySet().stream()
        .filter(entry -> entry.getValue() > before.getOrDefault(entry.getKey(), 0))
        .map(entry -> entry.getKey())
        .toList();
  }

  /** Its threads that bear our name, of which the kernel knows the first 15 characters. */
  static List<String> threads(long pid) {
    return list(folder(pid).resolve("task")).stream()
        .filter(task -> lines(task.resolve("comm")).contains("spark-allreduce"))
        .map(Path::toString)
        .toList();
  }

  static int allThreads(long pid) {
    return list(folder(pid).resolve("task")).size();
  }

  static List<String> children(long pid) {
    var children = new ArrayList<String>();
    for (Path task : list(folder(pid).resolve("task"))) {
      lines(task.resolve("children")).stream()
          .filter(line -> !line.isBlank())
          .forEach(children::add);
    }
    return children;
  }

  /** Names in shared memory: all of ours, also of other programs of this user. */
  static List<String> names() {
    return list(SHARED_MEMORY).stream()
        .map(file -> file.getFileName().toString())
        .filter(name -> name.startsWith(PREFIX) || name.startsWith("registered-"))
        .toList();
  }

  /** Those of these processes: spark-allreduce-USER-PROCESS-... */
  static List<String> namesOf(Set<Long> pids) {
    return names().stream()
        .filter(name -> name.startsWith(PREFIX))
        .filter(name -> pids.contains(Long.parseLong(name.split("-", -1)[3])))
        .toList();
  }

  /** Folders of the native library: spark-allreduce-native-NAMESPACE-PROCESS-... */
  static List<String> nativeFoldersOf(Set<Long> pids) {
    return list(Path.of(System.getProperty("java.io.tmpdir"))).stream()
        .map(file -> file.getFileName().toString())
        .filter(name -> name.startsWith(PREFIX + "native-"))
        .filter(name -> pids.contains(Long.valueOf(name.split("-", -1)[4])))
        .toList();
  }

  /** A number of /proc/PID/status, in KiB. */
  static long status(long pid, String field) {
    return lines(folder(pid).resolve("status")).stream()
        .filter(line -> line.startsWith(field + ":"))
        .map(line -> line.replaceAll("\\D", ""))
        .mapToLong(Long::parseLong)
        .findFirst()
        .orElse(0);
  }

  static List<String> files(Path folder) {
    return list(folder).stream().map(Path::toString).toList();
  }

  static List<Path> list(Path folder) {
    try (Stream<Path> entries = Files.list(folder)) {
      return entries.toList();
    } catch (NoSuchFileException e) {
      return List.of(); // it has ended
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }

  private static List<String> lines(Path file) {
    try {
      return Files.readAllLines(file);
    } catch (IOException e) {
      return List.of(); // it has ended, or the thread has
    }
  }
}
