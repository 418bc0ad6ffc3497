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
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** The commands of bin/, where they need no cluster. */
class ScriptsTest {
  @TempDir private Path folder;

  private record Ended(int exitCode, String output) {}

  private Ended run(Map<String, String> environment, String script, String... arguments)
      throws IOException, InterruptedException {
    var builder =
        new ProcessBuilder("/bin/bash", Cluster.root().resolve("bin").resolve(script).toString());
    builder.command().addAll(List.of(arguments));
    builder.redirectErrorStream(true);
    builder.environment().put("JAVA_HOME", System.getProperty("java.home"));
    builder.environment().putAll(environment);
    Process process = builder.start();
    String output = new String(process.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
    return new Ended(process.waitFor(), output);
  }

  private Path command(Path folder, String name, String body) throws IOException {
    Files.createDirectories(folder);
    Path script = Files.writeString(folder.resolve(name), "#!/bin/bash\n" + body + "\n");
    return Files.setPosixFilePermissions(script, PosixFilePermissions.fromString("rwxr-xr-x"));
  }

  @Test
  void sparkSubmitUsesADistributionOfSpark42() throws Exception {
    Files.createDirectories(folder.resolve("jars"));
    Files.createFile(folder.resolve("jars/spark-core_2.13-4.2.0.jar"));
    command(folder.resolve("bin"), "spark-submit", "echo \"theirs: $* on $JAVA_HOME\"");
    Ended ended = run(Map.of("SPARK_HOME", folder.toString()), "spark-submit", "--class", "A B");
    assertThat(ended)
        .isEqualTo(
            new Ended(0, "theirs: --class A B on " + System.getProperty("java.home") + "\n"));
  }

  @Test
  void missingToolsAreNamedWithTheirPackages() throws Exception {
    for (String tool : List.of("bash", "dirname", "sed", "readlink", "ls")) {
      command(folder, tool, "exec /usr/bin/" + tool + " \"$@\"");
    }
    command(folder, "mvn", "");
    command(folder, "make", "");
    Ended ended = run(Map.of("PATH", folder.toString()), "check-tools");
    assertThat(ended.output())
        .contains("not installed: cmake g++")
        .contains("apt-get install cmake g++");
    assertThat(ended.exitCode()).isEqualTo(1);
  }

  @Test
  void commandsExplainTheirArguments() throws Exception {
    for (String command : List.of("bench-gpu", "bundle", "fuzz", "gpu-report", "gpu-tests")) {
      Ended ended = run(Map.of(), command, "--many");
      assertThat(ended.output()).startsWith("usage: bin/" + command);
      assertThat(ended.exitCode()).isEqualTo(2);
    }
    Ended mpi = run(Map.of(), "bench-mpi", "--rounds", "many");
    assertThat(mpi.output()).startsWith("usage: bin/bench-mpi");
    assertThat(mpi.exitCode()).isEqualTo(2);
    Ended step = run(Map.of(), "bench-step", "--ranks", "17");
    assertThat(step.output()).startsWith("usage: bin/bench-step");
    assertThat(step.exitCode()).isEqualTo(2);
  }
}
