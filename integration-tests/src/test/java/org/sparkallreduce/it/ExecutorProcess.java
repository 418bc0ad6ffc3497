// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.it;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.util.List;
import java.util.Set;
import java.util.TreeSet;
import java.util.function.Predicate;
import java.util.regex.Pattern;
import java.util.stream.Stream;

/** What the kernel says of an executor's process: seen from outside, or by a rank of its own. */
record ExecutorProcess(long pid) {
  private static final Pattern WORDS = Pattern.compile(" +");
  private static final String SEGMENT = "/dev/shm/spark-allreduce-";

  static ExecutorProcess own() {
    return new ExecutorProcess(ProcessHandle.current().pid());
  }

  /** Whether it has not ended. One whose parent was killed may stay on as a zombie. */
  boolean runs() {
    try {
      return Files.readAllLines(file("status")).stream()
          .noneMatch(line -> line.startsWith("State:") && line.contains("Z"));
    } catch (IOException e) { // it has ended
      return false;
    }
  }

  private Path file(String name) {
    return Path.of("/proc/" + pid + "/" + name);
  }

  private List<String> maps() {
    try {
      return Files.readAllLines(file("maps"));
    } catch (NoSuchFileException e) {
      return List.of();
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }

  /** How many mappings it has, of anything. */
  int mappings() {
    return maps().size();
  }

  /** How many mappings of our shared memory it has. */
  int segmentMappings() {
    return segments(_ -> true).size();
  }

  /** The inodes of our shared memory that it has mapped. */
  Set<Long> segments() {
    return new TreeSet<>(segments(_ -> true));
  }

  /** The inode of our shared memory that lies at {@code address}. */
  long segmentAt(long address) {
    return segments(line -> contains(line, address)).getFirst();
  }

  private List<Long> segments(Predicate<String> condition) {
    return maps().stream()
        .filter(line -> line.contains(SEGMENT))
        .filter(condition)
        .map(line -> Long.parseLong(WORDS.splitAsStream(line).toList().get(4)))
        .toList();
  }

  private static boolean contains(String line, long address) {
    int dash = line.indexOf('-'); // start-end permissions ...
    return Long.parseUnsignedLong(line, 0, dash, 16) <= address
        && address < Long.parseUnsignedLong(line, dash + 1, line.indexOf(' '), 16);
  }

  int fileDescriptors() {
    return count("fd");
  }

  int threads() {
    return count("task");
  }

  private int count(String folder) {
    try (Stream<Path> entries = Files.list(file(folder))) {
      return (int) entries.count();
    } catch (NoSuchFileException e) {
      return 0;
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }

  /** How many threads of ours it has; the kernel knows the first 15 characters of their names. */
  int threadsOfOurs() {
    try (Stream<Path> tasks = Files.list(file("task"))) {
      return (int) tasks.filter(ExecutorProcess::isOurs).count();
    } catch (NoSuchFileException e) {
      return 0;
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }

  private static boolean isOurs(Path task) {
    try {
      return Files.readString(task.resolve("comm")).equals("spark-allreduce\n");
    } catch (IOException e) { // it has ended
      return false;
    }
  }

  /** Names in the file system of its shared memory. */
  long names() {
    return count(Path.of("/dev/shm"), "spark-allreduce-\\d+-" + pid + "-.*");
  }

  /** Folders into which it has unpacked the native library. */
  long unpackFolders() {
    Path temporary = Path.of(System.getProperty("java.io.tmpdir"));
    return count(temporary, "spark-allreduce-native-\\d+-" + pid + "-.*");
  }

  private static long count(Path folder, String pattern) {
    try (Stream<Path> files = Files.list(folder)) {
      return files.filter(file -> file.getFileName().toString().matches(pattern)).count();
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }
}
