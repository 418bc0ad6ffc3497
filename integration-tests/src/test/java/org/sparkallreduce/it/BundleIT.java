// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.it;

import static org.assertj.core.api.Assertions.assertThat;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.PosixFilePermissions;
import java.util.List;
import java.util.Map;
import java.util.stream.Stream;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.condition.DisabledIfSystemProperty;
import org.junit.jupiter.api.io.TempDir;

/** The bundle, where there is no Java, no Maven and no Spark, and only a few tools. */
@DisabledIfSystemProperty(named = "native.gpu", matches = "OFF")
@Tag("slow")
class BundleIT {
  private static final long LARGEST = 60_000_000;

  /** What the documentation says that a machine must have. */
  private static final List<String> TOOLS =
      List.of(
          "bash",
          "basename",
          "cat",
          "cp",
          "cut",
          "date",
          "dirname",
          "getconf",
          "grep",
          "gzip",
          "head",
          "ls",
          "mkdir",
          "mktemp",
          "paste",
          "readlink",
          "rm",
          "sed",
          "sha256sum",
          "sort",
          "tar",
          "uname",
          "wc");

  @TempDir private Path folder;

  private record Ended(int exitCode, String output) {}

  private Ended start(Path bundle, Map<String, String> environment, String... arguments)
      throws IOException, InterruptedException {
    var builder = new ProcessBuilder(bundle.resolve("start").toString());
    builder.command().addAll(List.of(arguments));
    builder.directory(folder.toFile()).redirectErrorStream(true);
    builder.environment().clear();
    builder.environment().put("PATH", folder.resolve("tools").toString());
    builder.environment().putAll(environment);
    Process process = builder.start();
    String output = new String(process.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
    return new Ended(process.waitFor(), output);
  }

  private Path tools() throws IOException {
    Path tools = Files.createDirectory(folder.resolve("tools"));
    for (String tool : TOOLS) {
      Files.createSymbolicLink(tools.resolve(tool), Path.of("/usr/bin", tool));
    }
    return tools;
  }

  @Test
  void theDemoRunsFromTheBundleWithNothingElseInstalled() throws Exception {
    Path bundle = folder.resolve("bundle");
    Submit.Ended made = Submit.run(folder, "bundle", bundle.toString());
    assertThat(made.exitCode()).describedAs(made.output()).isZero();
    try (Stream<Path> files = Files.list(bundle)) {
      assertThat(files)
          .allSatisfy(file -> assertThat(Files.size(file)).isLessThanOrEqualTo(LARGEST));
    }

    // A GPU that is none: nvidia-smi's answer, and the simulated driver from the bundle.
    Path smi = Files.writeString(tools().resolve("nvidia-smi"), "#!/bin/sh\necho 0\n");
    Files.setPosixFilePermissions(smi, PosixFilePermissions.fromString("rwx------"));
    Path simulation = folder.resolve("unpacked/native/target/build/tests/gpu");
    var simulated =
        Map.of(
            "SPARK_ALLREDUCE_GPU_DRIVER",
            simulation.resolve("libsimulated_cuda.so").toString(),
            "SPARK_ALLREDUCE_GPU_LIBRARY",
            simulation.resolve("libspark_allreduce_gpu_small_blocks.so").toString());
    Ended demo = start(bundle, simulated, "unpacked", "demo", "--backend", "gpu");
    assertThat(demo.output())
        .contains("Unpacking to unpacked...")
        .contains("accuracy on the held-out fifth")
        .doesNotContain("FAILED");
    assertThat(demo.exitCode()).isZero();

    Ended faults =
        start(bundle, simulated, "unpacked", "fault-campaign", "--backend", "gpu", "--faults", "3");
    assertThat(faults.output())
        .containsPattern(
            "3 faults on \\d+ worker processes on the SIMULATED driver, seed \\d+: all went as")
        .doesNotContain("FAILED");
    assertThat(faults.exitCode()).isZero();

    Ended unknown = start(bundle, Map.of(), "unpacked", "dance");
    assertThat(unknown.output())
        .startsWith("start: the bundle has no command dance")
        .contains("demo");
    assertThat(unknown.exitCode()).isEqualTo(1);
    try (Stream<Path> files = Files.list(bundle)) {
      Files.delete(
          files.filter(file -> file.toString().endsWith("-2.tar.gz")).findAny().orElseThrow());
    }
    Ended damaged = start(bundle, Map.of(), "elsewhere");
    assertThat(damaged.output()).contains("missing or damaged; copy them again");
    assertThat(damaged.exitCode()).isEqualTo(1);
  }
}
