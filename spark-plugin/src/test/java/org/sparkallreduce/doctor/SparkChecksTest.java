// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.doctor;

import static org.assertj.core.api.Assertions.assertThat;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.Arguments;
import org.junit.jupiter.params.provider.MethodSource;

class SparkChecksTest {
  @Test
  void aGoodApplicationHasNothingToCure() {
    assertThat(SparkChecks.of(Fakes.spark("spark.task.reaper.enabled", "true")))
        .allSatisfy(finding -> assertThat(finding.severity()).isEqualTo(Severity.OK))
        .extracting(Finding::subject)
        .containsExactly("version", "spark.plugins", "spark.allreduce.*");
  }

  static Stream<Arguments> faults() {
    return Stream.of(
        Arguments.of(
            new SparkFacts("3.5.1", "2.12.18", false, true, Fakes.spark().conf()),
            Severity.PROBLEM,
            "version",
            "Spark 3.5.1 with Scala 2.12.18",
            "Spark 4.2"),
        Arguments.of(
            new SparkFacts("4.2.0", "2.13.18", false, false, java.util.Map.of()),
            Severity.PROBLEM,
            "spark.plugins",
            "does not name",
            "--conf spark.plugins="),
        Arguments.of(
            Fakes.spark(false, false),
            Severity.PROBLEM,
            "spark.plugins",
            "set after Spark had started",
            "spark-submit"),
        Arguments.of(
            Fakes.spark("spark.allreduce.arena.size", "tiny"),
            Severity.PROBLEM,
            "spark.allreduce.*",
            "spark.allreduce.arena.size is set to",
            "message"),
        Arguments.of(
            Fakes.spark("spark.dynamicAllocation.enabled", "true"),
            Severity.PROBLEM,
            "spark.dynamicAllocation.enabled",
            "no barrier stage",
            "false"),
        Arguments.of(
            Fakes.spark("spark.scheduler.barrier.maxConcurrentTasksCheck.interval", "15s"),
            Severity.WARNING,
            "spark.scheduler.barrier.maxConcurrentTasksCheck.interval",
            "it is 15s",
            "unset"),
        Arguments.of(
            Fakes.spark("spark.locality.wait.legacyResetOnTaskLaunch", "true"),
            Severity.PROBLEM,
            "spark.locality.wait.legacyResetOnTaskLaunch",
            "hang",
            "unset"),
        Arguments.of(
            Fakes.spark(true, true, "spark.task.resource.gpu.amount", "1"),
            Severity.PROBLEM,
            "spark.task.resource.gpu.amount",
            "local mode",
            "remove"),
        Arguments.of(
            Fakes.spark("spark.task.resource.gpu.amount", "2"),
            Severity.WARNING,
            "spark.task.resource.gpu.amount",
            "it is 2",
            "1"),
        Arguments.of(
            Fakes.spark("spark.kryo.registrationRequired", "true"),
            Severity.WARNING,
            "spark.kryo.registrationRequired",
            "does not name ours",
            "AllReduceKryoRegistrator"),
        Arguments.of(
            Fakes.spark(
                "spark.master", "yarn", "spark.executor.cores", "4", "spark.executor.memory", "4g"),
            Severity.WARNING,
            "spark.executor.memoryOverhead",
            "410 MiB, of which the segments of 4 ranks take 352 MiB",
            "raise it by 352 MiB"));
  }

  @ParameterizedTest
  @MethodSource("faults")
  void eachSettingThatBitesIsFoundWithItsCure(
      SparkFacts facts, Severity severity, String subject, String what, String cure) {
    assertThat(SparkChecks.of(facts))
        .filteredOn(finding -> finding.severity().compareTo(Severity.WARNING) >= 0)
        .singleElement()
        .satisfies(
            finding -> {
              assertThat(finding.severity()).isEqualTo(severity);
              assertThat(finding.subject()).isEqualTo(subject);
              assertThat(finding.what()).contains(what);
              assertThat(finding.cure()).contains(cure);
            });
  }

  @Test
  void ourRegistratorAmongOthersIsEnough() {
    assertThat(
            SparkChecks.of(
                Fakes.spark(
                    "spark.kryo.registrationRequired",
                    "true",
                    "spark.kryo.registrator",
                    "a.B,org.sparkallreduce.plugin.AllReduceKryoRegistrator")))
        .noneMatch(finding -> finding.severity() == Severity.WARNING);
  }

  @Test
  void harmlessSettingsAreExplained() {
    assertThat(SparkChecks.of(Fakes.spark("spark.task.cpus", "2", "spark.speculation", "true")))
        .filteredOn(finding -> finding.severity() == Severity.NOTE)
        .extracting(Finding::subject)
        .containsExactly("spark.task.reaper.enabled", "spark.speculation", "spark.task.cpus");
  }

  @Test
  void aDiscoveryScriptMustBeExecutable(@TempDir Path folder) throws IOException {
    Path script = Files.writeString(folder.resolve("discovery"), "#!/bin/sh\n");
    String key = "spark.worker.resource.gpu.discoveryScript";
    assertThat(SparkChecks.of(Fakes.spark(key, script.toString())))
        .filteredOn(finding -> finding.severity() == Severity.PROBLEM)
        .singleElement()
        .satisfies(finding -> assertThat(finding.cure()).isEqualTo("chmod +x " + script));
    assertThat(script.toFile().setExecutable(true)).isTrue();
    assertThat(SparkChecks.of(Fakes.spark(key, script.toString())))
        .anySatisfy(
            finding -> {
              assertThat(finding.subject()).isEqualTo(key);
              assertThat(finding.severity()).isEqualTo(Severity.OK);
            });
  }
}
