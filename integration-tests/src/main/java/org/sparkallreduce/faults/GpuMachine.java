// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.faults;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.PosixFilePermissions;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.stream.Stream;
import org.apache.spark.resource.ResourceInformation;

/**
 * What GPU tests and the fault campaign run on: the GPUs of this machine, or else the simulated
 * CUDA driver, which is no GPU and is never reported as one.
 *
 * @param name as it stands behind the tests' names in the reports
 * @param addresses of its devices, as Spark's resources have them; empty: there is nothing to run
 *     on
 */
public record GpuMachine(Kind kind, String name, List<String> addresses) {
  /** Of machines. */
  public enum Kind {
    GPU,
    SIMULATED,
    NOTHING
  }

  /** One for each of two ranks; four share the first. */
  private static final List<String> SIMULATED = List.of("0", "1");

  private static final Path ROOT = Path.of(System.getProperty("project.root")).normalize();
  private static final Path SIMULATION = ROOT.resolve("native/target/build/tests/gpu");

  /** The simulated driver, and the GPU library that launches the small blocks it can run. */
  private static final Path SIMULATED_DRIVER = SIMULATION.resolve("libsimulated_cuda.so");

  private static final Path SMALL_BLOCKS =
      SIMULATION.resolve("libspark_allreduce_gpu_small_blocks.so");

  private static final String AMD = "AMD GPU";

  public static final GpuMachine HERE = find(); // after what it uses

  private static GpuMachine find() {
    if (System.getenv("SPARK_ALLREDUCE_GPU_DRIVER") != null) {
      return simulation(); // whatever the discovery says
    }
    Answer discovered = run(ROOT.resolve("conf/gpu-discovery").toString());
    if (discovered.exitCode() == 0) {
      List<String> addresses =
          List.of(ResourceInformation.parseJson(discovered.output().strip()).addresses());
      Answer names = run("nvidia-smi", "--query-gpu=name", "--format=csv,noheader");
      String name = names.exitCode() == 0 ? names.output().lines().findFirst().orElse("") : "";
      return new GpuMachine(Kind.GPU, name.isEmpty() ? AMD : name, addresses);
    }
    return simulation();
  }

  private static GpuMachine simulation() {
    return Files.exists(SIMULATED_DRIVER)
        ? new GpuMachine(Kind.SIMULATED, "simulated CUDA driver, no GPU", SIMULATED)
        : new GpuMachine(Kind.NOTHING, "nothing", List.of());
  }

  public boolean isSimulated() {
    return kind == Kind.SIMULATED;
  }

  public boolean isNvidia() {
    return kind == Kind.GPU && !name.equals(AMD);
  }

  /** What processes need in their environment to find the devices. */
  public Map<String, String> environment() {
    return isSimulated()
        ? Map.of(
            "SIMULATED_DEVICES", Integer.toString(addresses.size()),
            "SPARK_ALLREDUCE_GPU_DRIVER", SIMULATED_DRIVER.toString(),
            "SPARK_ALLREDUCE_GPU_LIBRARY", SMALL_BLOCKS.toString())
        : Map.of();
  }

  /** The script by which Spark finds the devices. */
  public Path discovery() throws IOException {
    if (!isSimulated()) {
      return ROOT.resolve("conf/gpu-discovery");
    }
    Path script = Files.createTempFile("simulated-gpu-discovery", "");
    script.toFile().deleteOnExit();
    Files.writeString(script, "#!/bin/sh\necho '{\"name\":\"gpu\",\"addresses\":[\"0\",\"1\"]}'\n");
    return Files.setPosixFilePermissions(script, PosixFilePermissions.fromString("rwx------"));
  }

  /** Why nothing runs, where nothing does. */
  public String reason() {
    return "skipped: this machine has no GPU (conf/gpu-discovery lists none), and the simulated"
        + " driver "
        + SIMULATED_DRIVER
        + " was not built (-Dnative.gpu=OFF, or no native tests)";
  }

  /**
   * How many bytes of all devices are in use: on GPUs by whomever, as the driver says; in the
   * simulation by {@code pids}.
   */
  public long memoryInUse(Collection<Long> pids) {
    if (isSimulated()) {
      return simulatedMemory(pids);
    }
    Answer used = run("nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits");
    if (used.exitCode() != 0) {
      throw new IllegalStateException("nvidia-smi does not say how much memory is in use");
    }
    return used.output().lines().mapToLong(line -> Long.parseLong(line.strip()) << 20).sum();
  }

  /** The simulated driver's memory are files without a name, which processes hold open. */
  private static long simulatedMemory(Collection<Long> pids) {
    return pids.stream()
        .flatMap(pid -> descriptors(pid).stream())
        .flatMap(descriptor -> memoryFile(descriptor).stream())
        .distinct() // peers open each other's
        .mapToLong(MemoryFile::bytes)
        .sum();
  }

  private record MemoryFile(Object inode, long bytes) {}

  private static Optional<MemoryFile> memoryFile(Path descriptor) {
    try {
      return Files.readSymbolicLink(descriptor).toString().startsWith("/memfd:simulated-gpu")
          ? Optional.of(
              new MemoryFile(Files.getAttribute(descriptor, "unix:ino"), Files.size(descriptor)))
          : Optional.empty();
    } catch (IOException e) { // it is closed by now
      return Optional.empty();
    }
  }

  private static List<Path> descriptors(long pid) {
    try (Stream<Path> descriptors = Files.list(Path.of("/proc/" + pid + "/fd"))) {
      return descriptors.toList();
    } catch (IOException e) { // it has ended
      return List.of();
    }
  }

  private record Answer(int exitCode, String output) {}

  private static Answer run(String... command) {
    try {
      Process process =
          new ProcessBuilder(command).redirectError(ProcessBuilder.Redirect.DISCARD).start();
      String output = new String(process.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
      return new Answer(process.waitFor(), output);
    } catch (IOException e) { // no such command
      return new Answer(127, "");
    } catch (InterruptedException e) {
      throw new UncheckedIOException(new IOException(e));
    }
  }
}
