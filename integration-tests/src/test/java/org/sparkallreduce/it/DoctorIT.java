// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.it;

import static org.assertj.core.api.Assertions.assertThat;

import java.io.IOException;
import java.nio.file.Path;
import org.apache.spark.sql.SparkSession;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.sparkallreduce.doctor.Doctor;
import org.sparkallreduce.doctor.Report;

/** The doctor, as a user calls it: with the packaged jar. */
class DoctorIT {
  @TempDir private Path folder;

  @Test
  void aHealthyClusterIsHealthyAndEachRankIsInTheTable() throws IOException {
    try (SparkSession spark =
        Cluster.start(
            Cluster.conf("local-cluster[2,1,1024]").set("spark.allreduce.slots.timeout", "3s"),
            2)) {
      Report report = Doctor.run(spark);
      assertThat(report.healthy()).as(report.text()).isTrue();
      assertThat(report.ranks()).extracting(Report.Rank::rank).containsExactly(0, 1);
      assertThat(report.ranks())
          .extracting(Report.Rank::executor)
          .containsExactlyInAnyOrder("0", "1");
      assertThat(report.ranks().get(1).link()).isEqualTo("shared memory");
      assertThat(report.text()).contains("2 ranks all-reduced, with the right sum");
      Report again = Doctor.run(spark, 1);
      assertThat(again.ranks()).hasSize(1);
      Report tooMany = Doctor.run(spark, 5);
      assertThat(tooMany.healthy()).isFalse();
      assertThat(tooMany.text()).contains("the doctor's job of 5 ranks failed");
    }
    assertThat(Cluster.leftInSharedMemory()).isEmpty();
  }

  @Test
  void anApplicationWithoutThePluginIsToldSo() throws IOException {
    try (SparkSession spark = Cluster.start(Cluster.conf("local[1]").set("spark.plugins", ""))) {
      Report report = Doctor.run(spark);
      assertThat(report.healthy()).isFalse();
      assertThat(report.text()).contains("spark.plugins: it does not name the plugin");
    }
  }

  @Test
  void theScriptLooksAtThisMachineWithoutSpark() throws Exception {
    Submit.Ended ended =
        Submit.run(folder, "doctor", "--conf", "spark.allreduce.arena.size=1m", "--ranks", "1");
    assertThat(ended.output()).contains("ok       native library").contains("0 problems");
    assertThat(ended.exitCode()).isZero();
    assertThat(Submit.run(folder, "doctor", "--ranks", "0").exitCode()).isEqualTo(2);
  }

  @Test
  void theScriptLooksAtALocalClusterAndPrintsJson() throws Exception {
    Submit.Ended ended =
        Submit.run(
            folder,
            "doctor",
            "--spark",
            "--json",
            "--ranks",
            "2",
            "--conf",
            "spark.allreduce.arena.size=1m");
    assertThat(ended.output())
        .contains("\"healthy\" : true")
        .contains("\"link\" : \"shared memory\"")
        .contains("\"backend\" : \"host\"");
    assertThat(ended.exitCode()).isZero();
  }
}
