// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.doctor;

import java.io.IOException;
import java.net.InetAddress;
import java.nio.file.DirectoryStream;
import java.nio.file.FileStore;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Optional;
import java.util.stream.Stream;
import org.jspecify.annotations.Nullable;
import org.sparkallreduce.AllReduceException;
import org.sparkallreduce.ProcessIdentity;
import org.sparkallreduce.communicator.LocalNode;
import org.sparkallreduce.ffm.NativeLibrary;

/** Collects what can be seen of a machine from inside of a process. It changes nothing. */
final class MachineProbe {
  private static final Path SHM = Path.of("/dev/shm");
  private static final String[] LIBRARY_FOLDERS = {
    "/usr/lib/x86_64-linux-gnu",
    "/lib/x86_64-linux-gnu",
    "/usr/lib64",
    "/lib64",
    "/usr/lib",
    "/usr/local/cuda/lib64",
    "/usr/local/cuda/compat",
    "/usr/local/nvidia/lib64",
    "/opt/rocm/lib"
  };

  private MachineProbe() {}

  /**
   * @param directory where the native library is unpacked; not used where the plugin has loaded it
   */
  static MachineFacts look(Optional<String> directory) {
    String build = null;
    String failure = null;
    try {
      build =
          (LocalNode.find().isPresent()
                  ? LocalNode.current().library()
                  : NativeLibrary.load(directory))
              .buildInfo();
    } catch (AllReduceException | LinkageError e) {
      failure = String.valueOf(e.getMessage());
    }
    return new MachineFacts(
        hostName(),
        System.getProperty("user.name"),
        Runtime.version().feature(),
        Runtime.version().toString(),
        System.getProperty("os.name"),
        System.getProperty("os.arch"),
        build,
        failure,
        sharedMemory(),
        Runtime.getRuntime().availableProcessors(),
        mountOptions("/proc").stream()
            .filter(option -> option.startsWith("hidepid="))
            .map(option -> option.substring("hidepid=".length()))
            .findFirst()
            .orElse(""),
        Files.isReadable(Path.of("/proc/self/stat")),
        limits(),
        new MachineFacts.Gpus(gpuDevices(), gpuDrivers()));
  }

  private static String hostName() {
    try {
      return InetAddress.getLocalHost().getHostName();
    } catch (IOException e) {
      return "localhost"; // a machine without a name of its own
    }
  }

  private static MachineFacts.@Nullable SharedMemory sharedMemory() {
    try {
      FileStore store = Files.getFileStore(SHM);
      return new MachineFacts.SharedMemory(
          store.getTotalSpace(),
          store.getUsableSpace(),
          mountOptions(SHM.toString()),
          Files.isWritable(SHM),
          deadSegments());
    } catch (IOException e) {
      return null;
    }
  }

  /** Named spark-allreduce-USER-PROCESS-START TIME-NAMESPACE-RANDOM. */
  private static int deadSegments() throws IOException {
    int dead = 0;
    try (DirectoryStream<Path> files = Files.newDirectoryStream(SHM, "spark-allreduce-*")) {
      for (Path file : files) {
        String[] parts = file.getFileName().toString().split("-", -1);
        if (parts.length == 7
            && Arrays.stream(parts, 3, 6).allMatch(part -> part.matches("\\d{1,18}"))
            && new ProcessIdentity(
                    Long.parseLong(parts[3]), Long.parseLong(parts[4]), Long.parseLong(parts[5]))
                .isDead()) {
          dead++;
        }
      }
    }
    return dead;
  }

  /** The options of the last mount on exactly this path. */
  private static List<String> mountOptions(String point) {
    return lines("/proc/self/mounts")
        .map(line -> line.split(" ", -1))
        .filter(fields -> fields.length > 3 && fields[1].equals(point))
        .reduce((_, last) -> last)
        .map(fields -> List.of(fields[3].split(",", -1)))
        .orElse(List.of());
  }

  private static MachineFacts.Limits limits() {
    return new MachineFacts.Limits(
        limit("Max open files"),
        limit("Max file size"),
        limit("Max address space"),
        Stream.of("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
            .flatMap(MachineProbe::lines)
            .mapToLong(MachineProbe::number)
            .min()
            .orElse(Long.MAX_VALUE));
  }

  private static long limit(String name) {
    return lines("/proc/self/limits")
        .filter(line -> line.startsWith(name))
        .mapToLong(line -> number(line.substring(name.length()).strip().split("\\s+", 2)[0]))
        .findFirst()
        .orElse(Long.MAX_VALUE);
  }

  private static long number(String text) {
    return text.matches("\\d{1,18}") ? Long.parseLong(text) : Long.MAX_VALUE; // unlimited, max
  }

  private static List<String> gpuDevices() {
    var found = new ArrayList<String>();
    found.addAll(list("/dev", "nvidia[0-9]*"));
    found.addAll(list("/dev", "kfd"));
    found.addAll(list("/dev/dri", "renderD*"));
    return found;
  }

  private static List<String> gpuDrivers() {
    String extra = Optional.ofNullable(System.getenv("LD_LIBRARY_PATH")).orElse("");
    return Stream.concat(Arrays.stream(LIBRARY_FOLDERS), Arrays.stream(extra.split(":", -1)))
        .filter(folder -> !folder.isEmpty())
        .flatMap(
            folder ->
                Stream.concat(
                    list(folder, "libcuda.so*").stream(), list(folder, "libamdhip64.so*").stream()))
        .distinct()
        .toList();
  }

  private static List<String> list(String folder, String pattern) {
    var found = new ArrayList<String>();
    try (DirectoryStream<Path> files = Files.newDirectoryStream(Path.of(folder), pattern)) {
      files.forEach(file -> found.add(file.toString()));
    } catch (IOException e) {
      return List.of(); // there is no such folder
    }
    return found.stream().sorted().toList();
  }

  private static Stream<String> lines(String file) {
    try {
      return Files.readAllLines(Path.of(file)).stream();
    } catch (IOException e) {
      return Stream.empty(); // there is no such file
    }
  }
}
