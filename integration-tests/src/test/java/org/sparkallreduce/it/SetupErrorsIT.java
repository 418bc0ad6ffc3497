// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.it;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatExceptionOfType;

import java.io.IOException;
import org.apache.spark.SparkConf;
import org.apache.spark.sql.SparkSession;
import org.assertj.core.api.ThrowableAssertAlternative;
import org.junit.jupiter.api.Test;
import org.sparkallreduce.AllReduceException;
import org.sparkallreduce.dataset.Collectives;

/** Applications that are not set up for it: refused when a job is submitted, with the cure. */
class SetupErrorsIT {
  private static ThrowableAssertAlternative<AllReduceException.Setup> refusedUnder(SparkConf conf)
      throws IOException {
    try (SparkSession spark = Cluster.start(conf)) {
      return assertThatExceptionOfType(AllReduceException.Setup.class)
          .isThrownBy(() -> Collectives.run(Cluster.numbers(spark, 4), 1, (_, _) -> 0));
    }
  }

  @Test
  void anApplicationWithoutThePlugin() throws IOException {
    refusedUnder(Cluster.conf("local[1]").remove("spark.plugins"))
        .withMessageContaining("--conf spark.plugins=" + Cluster.PLUGIN);
  }

  @Test
  void dynamicAllocation() throws IOException {
    refusedUnder(
            Cluster.conf("local-cluster[1,1,1024]")
                .set("spark.dynamicAllocation.enabled", "true")
                .set("spark.dynamicAllocation.shuffleTracking.enabled", "true"))
        .withMessageContaining("spark.dynamicAllocation.enabled is true")
        .withMessageContaining("Set it to false");
  }

  @Test
  void localModeWithGpuResourcesWhereSparkWouldHang() throws IOException {
    refusedUnder(
            Cluster.conf("local[1]")
                .set("spark.executor.resource.gpu.amount", "1")
                .set("spark.task.resource.gpu.amount", "1"))
        .withMessageContaining("In local mode")
        .withMessageContaining("spark.task.resource.gpu.amount");
  }

  @Test
  void anExecutorThatCannotLoadTheLibraryStaysAndSaysWhy() throws IOException {
    SparkConf conf =
        Cluster.conf("local-cluster[1,1,1024]")
            .set("spark.allreduce.native.directory", "/proc/no-such-folder");
    try (SparkSession spark = Cluster.start(conf, 1)) {
      assertThat(Cluster.numbers(spark, 4).count()).isEqualTo(4); // ordinary jobs still run
      assertThatExceptionOfType(AllReduceException.Setup.class)
          .isThrownBy(() -> Collectives.run(Cluster.numbers(spark, 4), 1, (_, _) -> 0))
          .withMessageMatching("(?s)Executor 0 on host \\S+ cannot take part .*")
          .withMessageContaining("/proc/no-such-folder");
      assertThat(Cluster.executors(spark)).isEqualTo(1);
      assertThat(Cluster.executorLogs()).contains("This executor cannot take part");
    }
  }

  @Test
  void anInvalidSettingEndsTheStartOfTheApplication() {
    SparkConf conf = Cluster.conf("local[1]").set("spark.allreduce.schedule", "fastest");
    assertThatExceptionOfType(AllReduceException.Setup.class)
        .isThrownBy(() -> Cluster.start(conf).stop())
        .withMessageContaining("spark.allreduce.schedule is set to \"fastest\"")
        .withMessageContaining("direct-write");
  }

  @Test
  void aMisspeltSettingEndsTheStartOfTheApplication() {
    SparkConf conf = Cluster.conf("local[1]").set("spark.allreduce.time-out", "1s");
    assertThatExceptionOfType(AllReduceException.Setup.class)
        .isThrownBy(() -> Cluster.start(conf).stop())
        .withMessageContaining("Unknown setting spark.allreduce.time-out")
        .withMessageContaining("spark.allreduce.timeout");
  }
}
