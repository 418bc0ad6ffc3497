// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.dataset;

import static org.assertj.core.api.Assertions.assertThatCode;
import static org.assertj.core.api.Assertions.assertThatExceptionOfType;

import java.util.List;
import org.apache.spark.SparkConf;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;
import org.sparkallreduce.AllReduceException;

class SubmissionTest {
  private static SparkConf conf(String key, String value) {
    return new SparkConf(false).set(key, value);
  }

  @Test
  void refusesDynamicAllocationOnACluster() {
    assertThatExceptionOfType(AllReduceException.Setup.class)
        .isThrownBy(
            () ->
                Submission.checkConfiguration(
                    conf("spark.dynamicAllocation.enabled", "true"), false))
        .withMessageContaining("spark.dynamicAllocation.enabled is true")
        .withMessageContaining("Set it to false");
  }

  @Test
  void ignoresDynamicAllocationInLocalModeAsSparkDoes() {
    assertThatCode(
            () ->
                Submission.checkConfiguration(
                    conf("spark.dynamicAllocation.enabled", "true"), true))
        .doesNotThrowAnyException();
  }

  @ParameterizedTest
  @ValueSource(strings = {"spark.task.resource.gpu.amount", "spark.executor.resource.gpu.amount"})
  void refusesTaskResourcesInLocalModeWhereSparkWouldHang(String key) {
    assertThatExceptionOfType(AllReduceException.Setup.class)
        .isThrownBy(() -> Submission.checkConfiguration(conf(key, "1"), true))
        .withMessageContaining(key)
        .withMessageContaining("local-cluster");
    assertThatCode(() -> Submission.checkConfiguration(conf(key, "1"), false))
        .doesNotThrowAnyException();
  }

  @Test
  void theCureForTooFewLocalSlotsCountsTheCoresOfATask() {
    assertThatExceptionOfType(AllReduceException.Setup.class)
        .isThrownBy(() -> Submission.checkLocalSlots(3, 2, conf("spark.task.cpus", "2")))
        .withMessageContaining("local[6]");
    assertThatCode(() -> Submission.checkLocalSlots(2, 2, conf("spark.task.cpus", "2")))
        .doesNotThrowAnyException();
  }

  @Test
  void namesEveryExecutorThatCannotTakePartWithItsReason() {
    var first = new ExecutorHealth("4", "beta", "0.1.0", "/tmp is mounted noexec");
    var second = new ExecutorHealth("1", "alpha", "0.1.0", "the library is damaged");
    assertThatExceptionOfType(AllReduceException.Setup.class)
        .isThrownBy(() -> Submission.checkExecutors(List.of(first, second)))
        .withMessageContaining(
            "Executor 4 on host beta cannot take part in an all-reduce: /tmp is mounted noexec")
        .withMessageContaining("Executor 1 on host alpha")
        .withMessageContaining("the library is damaged");
  }
}
