// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.doctor;

import static org.assertj.core.api.Assertions.assertThat;

import java.util.List;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.Arguments;
import org.junit.jupiter.params.provider.MethodSource;
import org.sparkallreduce.doctor.MachineFacts.Gpus;
import org.sparkallreduce.doctor.MachineFacts.Limits;
import org.sparkallreduce.doctor.MachineFacts.SharedMemory;

class MachineChecksTest {
  private static List<Finding> findings(MachineFacts machine) {
    return MachineChecks.of(machine, Fakes.SETTINGS, 2);
  }

  @Test
  void aGoodMachineHasNothingToCure() {
    assertThat(findings(Fakes.machine()))
        .allSatisfy(finding -> assertThat(finding.cure()).isEmpty())
        .extracting(Finding::subject)
        .containsExactly(
            "Java",
            "platform",
            "native library",
            "/dev/shm",
            "/proc",
            "open files",
            "cores",
            "GPU");
  }

  static Stream<Arguments> faults() {
    long max = Long.MAX_VALUE;
    return Stream.of(
        Arguments.of(
            Fakes.machineWith(17, "amd64", null),
            Severity.PROBLEM,
            "Java",
            "this is Java 17.0.2, and 25 or newer is needed",
            "JAVA_HOME"),
        Arguments.of(
            Fakes.machineWith(25, "aarch64", null),
            Severity.PROBLEM,
            "platform",
            "Linux on aarch64 has no native library",
            "x86-64"),
        Arguments.of(
            Fakes.machineWith(25, "amd64", "Cannot load ... mounted noexec."),
            Severity.PROBLEM,
            "native library",
            "mounted noexec",
            "spark.allreduce.native.directory"),
        Arguments.of(
            Fakes.machine((SharedMemory) null),
            Severity.PROBLEM,
            "/dev/shm",
            "does not exist",
            "tmpfs"),
        Arguments.of(
            Fakes.machine(new SharedMemory(64L << 20, 64L << 20, List.of("rw"), true, 0)),
            Severity.PROBLEM,
            "/dev/shm",
            "64 MiB, 64 MiB free; 2 ranks of 88 MiB need 176 MiB",
            "--shm-size"),
        Arguments.of(
            Fakes.machine(new SharedMemory(1L << 30, 1L << 30, List.of("ro"), false, 0)),
            Severity.PROBLEM,
            "/dev/shm",
            "cannot write",
            "rw"),
        Arguments.of(
            Fakes.machine(new SharedMemory(1L << 30, 1L << 30, List.of("rw"), true, 3)),
            Severity.WARNING,
            "leftovers",
            "3 segments",
            "delete /dev/shm/spark-allreduce-*"),
        Arguments.of(
            Fakes.machineWithProc("", false), Severity.PROBLEM, "/proc", "not mounted", "mount it"),
        Arguments.of(
            Fakes.machine(new Limits(256, max, max, max)),
            Severity.WARNING,
            "open files",
            "the limit is 256",
            "ulimit -n"),
        Arguments.of(
            Fakes.machine(new Limits(65_536, 1L << 20, max, max)),
            Severity.PROBLEM,
            "file size",
            "1 MiB only",
            "ulimit -f"),
        Arguments.of(
            Fakes.machine(new Limits(65_536, max, 4L << 30, max)),
            Severity.WARNING,
            "address space",
            "4096 MiB",
            "ulimit -v"),
        Arguments.of(
            Fakes.machine(new Limits(65_536, max, max, 256L << 20)),
            Severity.WARNING,
            "container memory",
            "256 MiB",
            "smaller"));
  }

  @ParameterizedTest
  @MethodSource("faults")
  void eachFaultIsFoundWithItsCure(
      MachineFacts machine, Severity severity, String subject, String what, String cure) {
    assertThat(findings(machine))
        .filteredOn(finding -> finding.severity().compareTo(Severity.WARNING) >= 0)
        .singleElement()
        .satisfies(
            finding -> {
              assertThat(finding.severity()).isEqualTo(severity);
              assertThat(finding.subject()).isEqualTo(subject);
              assertThat(finding.where()).isEqualTo("h1");
              assertThat(finding.what()).contains(what);
              assertThat(finding.cure()).contains(cure);
            });
  }

  @Test
  void moreRanksThanCoresAreSlow() {
    assertThat(MachineChecks.of(Fakes.machine(), Fakes.SETTINGS, 8))
        .anySatisfy(
            finding -> {
              assertThat(finding.subject()).isEqualTo("cores");
              assertThat(finding.severity()).isEqualTo(Severity.WARNING);
              assertThat(finding.what()).startsWith("4 for 8 ranks");
            });
  }

  @Test
  void hiddenProcessesOfOtherUsersAreNoHarm() {
    assertThat(findings(Fakes.machineWithProc("2", true)))
        .filteredOn(finding -> finding.subject().equals("/proc"))
        .extracting(Finding::severity)
        .containsExactly(Severity.NOTE);
  }

  @Test
  void gpusAreNamedAndItIsSaidThatTheyAreNotUsed() {
    var gpus =
        new Gpus(List.of("/dev/nvidia0", "/dev/nvidia1"), List.of("/usr/lib64/libcuda.so.1"));
    assertThat(findings(Fakes.machine(gpus)))
        .filteredOn(finding -> finding.subject().equals("GPU"))
        .singleElement()
        .satisfies(
            finding ->
                assertThat(finding.what())
                    .startsWith("/dev/nvidia0, /dev/nvidia1, driver /usr/lib64/libcuda.so.1")
                    .contains("checked when they open"));
  }

  @Test
  void theProbeSeesThisMachine() {
    MachineFacts facts = MachineProbe.look(java.util.Optional.empty());
    assertThat(facts.javaFeature()).isEqualTo(Runtime.version().feature());
    assertThat(facts.nativeFailure()).isNull();
    assertThat(facts.nativeBuild()).contains("host");
    assertThat(facts.procReadable()).isTrue();
    assertThat(facts.cores()).isPositive();
    assertThat(facts.limits().openFiles()).isPositive();
    assertThat(facts.sharedMemory()).isNotNull();
    assertThat(facts.sharedMemory().totalBytes()).isPositive();
  }
}
