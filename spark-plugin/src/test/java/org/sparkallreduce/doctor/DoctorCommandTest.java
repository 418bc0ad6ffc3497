// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.doctor;

import static org.assertj.core.api.Assertions.assertThat;

import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.PrintWriter;
import java.io.StringWriter;
import org.junit.jupiter.api.Test;
import picocli.CommandLine;

class DoctorCommandTest {
  private record Ended(int exitCode, String output, String errors) {}

  private static Ended doctor(String... arguments) {
    var out = new StringWriter();
    var errors = new StringWriter();
    int code =
        new CommandLine(new DoctorCommand())
            .setOut(new PrintWriter(out))
            .setErr(new PrintWriter(errors))
            .execute(arguments);
    return new Ended(code, out.toString(), errors.toString());
  }

  @Test
  void thisMachineIsHealthyForSmallRanks() {
    Ended ended =
        doctor(
            "--ranks",
            "2",
            "--conf",
            "spark.allreduce.arena.size=64k",
            "--conf",
            "spark.allreduce.staging.size=64k");
    assertThat(ended.exitCode()).isZero();
    assertThat(ended.output()).contains("ok       native library").contains("0 problems");
  }

  @Test
  void tooLargeAnArenaIsAProblemAndExitCodeOne() throws Exception {
    Ended ended = doctor("--json", "--conf", "spark.allreduce.arena.size=1000t");
    assertThat(ended.exitCode()).isEqualTo(1);
    assertThat(new ObjectMapper().readTree(ended.output()).get("healthy").asBoolean()).isFalse();
  }

  @Test
  void wrongArgumentsAreExplained() {
    assertThat(doctor("--ranks", "17").exitCode()).isEqualTo(2);
    assertThat(doctor("--ranks", "17").errors()).contains("--ranks must be 1 to 16");
    assertThat(doctor("--conf", "spark.allreduce.arena.sice=1m").errors())
        .contains("Unknown setting spark.allreduce.arena.sice");
    assertThat(doctor("--help").output()).contains("--json");
  }
}
