// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.it;

import static org.assertj.core.api.Assertions.assertThat;
import static org.awaitility.Awaitility.await;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.stream.Stream;
import org.apache.spark.sql.SparkSession;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** SIGKILL of a driver, and of everything at once: nothing remains. */
class SuddenDeathIT {
  @TempDir private Path folder;
  private Process driver;

  @AfterEach
  void endAll() {
    if (driver != null) {
      driver.descendants().forEach(ProcessHandle::destroyForcibly);
      driver.destroyForcibly();
    }
  }

  /** Returns the executors, when they are where they are to be killed. */
  private List<ExecutorProcess> start(String where) throws IOException {
    Path said = Files.createDirectory(folder.resolve("said"));
    var builder =
        new ProcessBuilder(
                Cluster.root().resolve("bin/spark-submit").toString(),
                "--master",
                "local-cluster[2,1,512]",
                "--jars",
                Cluster.pluginJar(),
                "--conf",
                "spark.plugins=" + Cluster.PLUGIN,
                "--conf",
                "spark.executor.memory=512m",
                "--conf",
                "spark.ui.enabled=false",
                "--class",
                EndlessProgram.class.getName(),
                Cluster.testsJar(),
                where,
                said.toString())
            .redirectErrorStream(true)
            .redirectOutput(folder.resolve("out").toFile());
    builder.environment().put("JAVA_HOME", System.getProperty("java.home"));
    builder.environment().keySet().removeIf(name -> name.startsWith("SPARK_"));
    driver = builder.start();
    await().atMost(Duration.ofMinutes(3)).until(() -> list(said).size() == 2);
    return list(said).stream()
        .map(file -> new ExecutorProcess(Long.parseLong(file.getFileName().toString())))
        .toList();
  }

  private static List<Path> list(Path folder) {
    try (Stream<Path> files = Files.list(folder)) {
      return files.toList();
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }

  private static boolean isAlive(ExecutorProcess executor) {
    return ProcessHandle.of(executor.pid()).isPresent();
  }

  /** Driver first, so that nobody has the time to do anything about it. */
  private void killAll(List<ExecutorProcess> executors) {
    var processes = new ArrayList<ProcessHandle>();
    processes.add(driver.toHandle());
    executors.forEach(e -> ProcessHandle.of(e.pid()).ifPresent(processes::add));
    processes.forEach(ProcessHandle::destroyForcibly);
    await()
        .atMost(Duration.ofMinutes(1))
        .until(() -> processes.stream().noneMatch(ProcessHandle::isAlive));
  }

  @Test
  void theExecutorsOfAKilledDriverLeaveTheirCollectiveAndEnd() throws Exception {
    List<ExecutorProcess> executors = start("collective");
    driver.destroyForcibly();
    await()
        .atMost(Duration.ofMinutes(1))
        .until(() -> executors.stream().noneMatch(SuddenDeathIT::isAlive));
    assertThat(executors).allSatisfy(executor -> assertThat(executor.names()).isZero());
  }

  @Test
  void ofAnApplicationKilledAsAWholeNothingRemains() throws Exception {
    List<ExecutorProcess> executors = start("collective");
    assertThat(executors).allSatisfy(e -> assertThat(e.segmentMappings()).isPositive());
    killAll(executors);
    assertThat(executors).allSatisfy(executor -> assertThat(executor.names()).isZero());
  }

  @Test
  void whatAnApplicationKilledWhileItOpenedHasLeftIsRemovedByTheNextStart() throws Exception {
    List<ExecutorProcess> executors = start("opening");
    await()
        .atMost(Duration.ofMinutes(1))
        .until(() -> executors.stream().mapToLong(ExecutorProcess::names).sum() == 1);
    killAll(executors);
    assertThat(executors.stream().mapToLong(ExecutorProcess::names).sum()).isEqualTo(1);

    try (SparkSession _ = Cluster.start(Cluster.conf("local[1]"))) {
      assertThat(executors).allSatisfy(executor -> assertThat(executor.names()).isZero());
    }
  }
}
