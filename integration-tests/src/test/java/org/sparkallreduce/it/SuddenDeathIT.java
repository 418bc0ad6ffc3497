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
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** SIGKILL of a driver, and of everything at once: nothing remains. */
class SuddenDeathIT {
  private static final Duration PATIENCE = Duration.ofMinutes(2);

  @TempDir private Path folder;
  private Path said;
  private final List<ProcessHandle> processes = new ArrayList<>();

  @BeforeEach
  void createFolder() throws IOException {
    said = Files.createDirectory(folder.resolve("said"));
  }

  @AfterEach
  void endAll() {
    processes.forEach(ProcessHandle::destroyForcibly);
  }

  /** Returns the executors, when they are where they are to be killed. */
  private List<ExecutorProcess> start(String where) throws IOException {
    Process driver =
        Submit.start(
            folder,
            "spark-submit",
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
            said.toString());
    processes.add(driver.toHandle()); // the script has become the driver
    await().atMost(PATIENCE).until(() -> pids().size() == 2);
    for (long pid : pids()) {
      processes.add(ProcessHandle.of(pid).orElseThrow());
    }
    return pids().stream().map(ExecutorProcess::new).toList();
  }

  private List<Long> pids() {
    try (Stream<Path> files = Files.list(said)) {
      return files.map(file -> Long.valueOf(file.getFileName().toString())).toList();
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }

  /** The driver first, so that nobody has the time to do anything about it. */
  private void killAll(List<ExecutorProcess> executors) {
    processes.forEach(ProcessHandle::destroyForcibly);
    awaitEnd(executors);
  }

  private static void awaitEnd(List<ExecutorProcess> executors) {
    await().atMost(PATIENCE).until(() -> executors.stream().noneMatch(ExecutorProcess::runs));
  }

  private static void assertNothingIsLeftOf(List<ExecutorProcess> executors) {
    assertThat(executors).allSatisfy(executor -> assertThat(executor.names()).isZero());
    assertThat(executors).allSatisfy(executor -> assertThat(executor.unpackFolders()).isZero());
    assertThat(executors).allSatisfy(executor -> assertThat(executor.mappings()).isZero());
    assertThat(executors).allSatisfy(executor -> assertThat(executor.threadsOfOurs()).isZero());
  }

  @Test
  void theExecutorsOfAKilledDriverLeaveTheirCollectiveAndEnd() throws Exception {
    List<ExecutorProcess> executors = start("collective");
    processes.getFirst().destroyForcibly();
    awaitEnd(executors);
    assertNothingIsLeftOf(executors);
  }

  @Test
  void ofAnApplicationKilledAsAWholeNothingRemains() throws Exception {
    List<ExecutorProcess> executors = start("collective");
    assertThat(executors).allSatisfy(e -> assertThat(e.segmentMappings()).isPositive());
    killAll(executors);
    assertNothingIsLeftOf(executors);
  }

  @Test
  void whatAnApplicationKilledWhileItOpenedHasLeftIsRemovedByTheNextStart() throws Exception {
    List<ExecutorProcess> executors = start("opening");
    await()
        .atMost(PATIENCE)
        .until(() -> executors.stream().mapToLong(ExecutorProcess::names).sum() == 1);
    killAll(executors);
    assertThat(executors.stream().mapToLong(ExecutorProcess::names).sum()).isEqualTo(1);

    try (SparkSession _ = Cluster.start(Cluster.conf("local[1]"))) {
      assertNothingIsLeftOf(executors);
    }
  }
}
